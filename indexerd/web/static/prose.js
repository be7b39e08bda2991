// Messages as HTML: the server renders Markdown, the page inserts it through the policy `indexerd`, the
// only way in which a text becomes markup. An exported page has all HTML; the live page has that of the
// first messages, and asks for more (`indexerd.render`) when a message is nearly visible. Until then,
// and wherever HTML is missing, its text is shown as it is.
((indexerd) => {
  "use strict";
  const { el, button, solid, pieces, copy, say } = indexerd.helpers;
  const BATCH = 40; // texts of one request
  const MOST = 300_000; // characters of one request
  const policy = globalThis.trustedTypes?.createPolicy("indexerd", { createHTML: (html) => html }) ||
    { createHTML: (html) => html };
  const known = new Map(); // text -> HTML
  const waiting = new Map(); // text -> boxes
  let asking = false;

  const pre = (text) => el("pre", solid(text), ...pieces(text));

  function seed({ html, nodes, digests, meta }) { // HTML that came with the document
    if (!html) return;
    for (const node of nodes) if (html.nodes[node.row] !== undefined) known.set(node.text, html.nodes[node.row]);
    digests.forEach((digest, at) => known.set(digest.content, html.digests[at]));
    if (meta?.summary) known.set(meta.summary, html.summary);
  }

  function fill(box, html) {
    box.classList.remove("raw");
    box.innerHTML = policy.createHTML(html);
    for (const code of box.querySelectorAll("pre")) {
      const text = code.textContent;
      const act = async () => say(await copy(text) ? "Copied." : "Could not copy.");
      const one = el("div", "code");
      code.tabIndex = 0; // it scrolls
      code.before(one);
      one.append(code, button("copy", "Copy", act));
    }
    for (const table of box.querySelectorAll("table")) {
      const one = el("div", "scroll");
      one.tabIndex = 0;
      table.before(one);
      one.append(table);
    }
  }

  const near = new IntersectionObserver((seen) => {
    for (const { isIntersecting, target } of seen) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      if (known.has(target.text)) fill(target, known.get(target.text));
      else waiting.set(target.text, [...(waiting.get(target.text) || []), target]);
    }
    ask();
  }, { rootMargin: "1200px" });

  async function ask() { // for the texts that wait, one request at a time
    if (asking || !waiting.size || !indexerd.render) return;
    asking = true;
    const texts = [];
    let size = 0;
    for (const text of waiting.keys()) {
      if (texts.length && (texts.length === BATCH || size + text.length > MOST)) break;
      texts.push(text);
      size += text.length;
    }
    const held = texts.map((text) => waiting.get(text));
    for (const text of texts) waiting.delete(text);
    const html = await indexerd.render(texts).catch(() => null); // null: the texts stay as they are
    if (html) texts.forEach((text, at) => known.set(text, html[at]));
    if (html) held.forEach((boxes, at) => boxes.forEach((box) => fill(box, html[at])));
    asking = false;
    ask();
  }

  function prose(text) {
    const box = el("div", `prose raw ${solid(text)}`.trim());
    if (known.has(text)) {
      fill(box, known.get(text));
    } else {
      box.append(...pieces(text));
      box.text = text;
      if (text.trim()) near.observe(box);
    }
    return box;
  }

  indexerd.prose = { prose, pre, seed };
})((window.indexerd ||= {}));
