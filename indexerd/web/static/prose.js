// A session's text as elements: paragraphs, headings, tables and code. Every character except white
// space is kept as text: Markdown's signs are dimmed, and the text between them is emphasised.
((indexerd) => {
  "use strict";
  const { el, solid, pieces } = indexerd.helpers;
  const FENCE = /^(`{3,}|~{3,})/;
  const HEAD = /^#{1,6} +(?=\S)/;
  const WORD = /[\p{L}\p{N}_*]/u;
  const SIGNS = /`([^`\n]{1,300})`|\*\*([^*\s](?:[^*\n]{0,298}[^*\s])?)\*\*/g;

  const pre = (text) => el("pre", solid(text), ...pieces(text));
  const sign = (text) => el("span", "sign", text);
  const block = (text, name, ...parts) => el("div", `text ${name} ${solid(text)}`.trim(), ...parts);

  function apart({ 0: all, 1: code, 2: strong, index }, text) { // null: not a sign, as in x**2
    if (code) return el("code", "", all);
    if (WORD.test(text[index - 1] || " ") || WORD.test(text[index + all.length] || " ")) return null;
    return el("strong", "", sign("**"), strong, sign("**"));
  }

  function inline(text) { // words in backticks as code, words between ** as strong
    const found = [];
    let from = 0;
    SIGNS.lastIndex = 0;
    for (let mark = SIGNS.exec(text); mark; mark = SIGNS.exec(text)) {
      const one = apart(mark, text);
      if (!one) SIGNS.lastIndex = mark.index + 2; // a sign may begin within it
      if (!one) continue;
      found.push(...pieces(text.slice(from, mark.index)), one);
      from = mark.index + mark[0].length;
    }
    return [...found, ...pieces(text.slice(from))];
  }

  // -- blocks: the element that starts at a line, and the line after it ------------------------

  function fenced(lines, at) {
    const [, fence] = FENCE.exec(lines[at]);
    let end = at + 1;
    while (end < lines.length && lines[end].trim() !== fence) end++;
    const held = pre(lines.slice(at + 1, end).join("\n"));
    held.prepend(sign(`${lines[at]}\n`));
    if (end < lines.length) held.append(sign(`\n${lines[end]}`));
    return [held, end + 1];
  }

  function heading(lines, at, [mark]) { // "#" may begin a comment, unless blank lines surround it
    const blank = (line) => !(line || "").trim();
    if (!mark.startsWith("##") && !(blank(lines[at - 1]) && blank(lines[at + 1]))) return null;
    const text = lines[at].slice(mark.length);
    return [block(text, "strong", sign(mark), ...inline(text)), at + 1];
  }

  function table(lines, at) {
    let end = at, ruled = false;
    for (; end < lines.length && lines[end].startsWith("|"); end++) ruled ||= /^[\s|:-]*--[\s|:-]*$/.test(lines[end]);
    return ruled ? [pre(lines.slice(at, end).join("\n")), end] : null;
  }

  function prose(text) {
    const found = [], lines = (text || "").split("\n");
    let held = [];
    const flush = () => {
      const body = held.join("\n").replace(/^\n+/, "").trimEnd();
      if (body) found.push(block(body, "", ...inline(body)));
      held = [];
    };
    for (let at = 0; at < lines.length;) {
      const one = lines[at], head = HEAD.exec(one), begins = one.startsWith("|") && !held.at(-1)?.startsWith("|");
      const [made, end] = (FENCE.test(one) ? fenced(lines, at)
        : head ? heading(lines, at, head) : begins ? table(lines, at) : null) || [null, at + 1];
      if (made) flush();
      if (made) found.push(made);
      else held.push(one);
      at = end;
    }
    flush();
    return found;
  }

  indexerd.prose = { prose, pre };
})((window.indexerd ||= {}));
