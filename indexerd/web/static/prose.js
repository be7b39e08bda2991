// Messages as HTML: the server renders Markdown, the page inserts it through the policy `indexerd`, the
// only way in which a text becomes markup. An exported page has all HTML; the live page has that of the
// first messages, and asks for more (`indexerd.render`) when a message is nearly visible. Until then,
// and wherever HTML is missing, its text is shown as it is.
((indexerd) => {
  "use strict";
  const { el, button, solid, pieces, copy, say } = indexerd.helpers;
  const policy = globalThis.trustedTypes?.createPolicy("indexerd", { createHTML: (html) => html }) ||
    { createHTML: (html) => html };
  // By kind of text: Markdown, and prompts, which are shown as they were typed.
  const known = { texts: new Map(), prompts: new Map() }; // text -> HTML
  const kindOf = (node) => (node.kind === "user" ? "prompts" : "texts");

  const pre = (text) => el("pre", solid(text), ...pieces(text));

  function seed({ html, nodes, digests, meta }) { // HTML that came with the document
    if (!html) return;
    for (const node of nodes) {
      if (html.nodes[node.row] !== undefined) known[kindOf(node)].set(node.text, html.nodes[node.row]);
    }
    digests.forEach((digest, at) => known.texts.set(digest.content, html.digests[at]));
    if (meta?.summary) known.texts.set(meta.summary, html.summary);
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
      render(target);
    }
  }, { rootMargin: "1200px" });

  async function render(box) { // without an answer, the text stays as it is
    const { text, kind } = box;
    const html = known[kind].get(text) ?? await indexerd.render?.(kind, text).catch(() => null);
    if (!html) return;
    known[kind].set(text, html);
    fill(box, html);
  }

  function prose(text, kind = "texts") {
    const box = el("div", `prose raw ${solid(text)}`.trim());
    if (known[kind].has(text)) {
      fill(box, known[kind].get(text));
    } else {
      box.append(...pieces(text));
      Object.assign(box, { text, kind });
      if (text.trim()) near.observe(box);
    }
    return box;
  }

  indexerd.prose = { prose, pre, seed, kindOf };
})((window.indexerd ||= {}));
