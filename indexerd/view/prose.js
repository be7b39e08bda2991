// A text of a session as elements: paragraphs, headings, and code. Nothing of it becomes markup:
// what is recognised is a handful of signs, and what stands between them is put in as text.
((indexerd) => {
  "use strict";
  const { el, solid, pieces } = indexerd.words;
  const FENCE = /^(`{3,}|~{3,})/;
  const HEAD = /^#{1,6} ./;
  const SIGNS = /`([^`\n]{1,300})`|\*\*([^*\n]{1,300})\*\*/g;

  function pre(text) {
    return el("pre", solid(text), ...pieces(text));
  }

  function inline(text) { // words in backticks as code, words between ** as strong
    if (!text.includes("`") && !text.includes("**")) return pieces(text);
    const found = [];
    let from = 0;
    for (const mark of text.matchAll(SIGNS)) {
      found.push(...pieces(text.slice(from, mark.index)));
      found.push(mark[1] ? el("code", "", mark[1]) : el("strong", "", mark[2]));
      from = mark.index + mark[0].length;
    }
    found.push(...pieces(text.slice(from)));
    return found;
  }

  const paragraph = (text, name = "text") => el("div", `${name} ${solid(text)}`.trim(), ...inline(text));

  function prose(text) { // fenced code as code, headings apart, everything else as it stands
    if (!text) return [];
    const found = [];
    let held = [], fence = "";
    const flush = () => {
      const body = fence ? held.join("\n") : held.join("\n").replace(/^\n+|\s+$/g, "");
      if (fence) found.push(pre(body));
      else if (body) found.push(paragraph(body));
      held = [];
    };
    for (const one of text.split("\n")) {
      const mark = fence ? null : FENCE.exec(one);
      if (mark) {
        flush();
        fence = mark[1];
      } else if (fence && one.trim() === fence) {
        flush();
        fence = "";
      } else if (!fence && HEAD.test(one)) {
        flush();
        found.push(paragraph(one.replace(/^#+ +/, ""), "text strong"));
      } else {
        held.push(one);
      }
    }
    flush();
    return found;
  }

  indexerd.prose = { prose, pre };
})((window.indexerd ||= {}));
