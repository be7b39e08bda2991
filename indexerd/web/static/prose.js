// A text of a session as elements: paragraphs, headings, lists, and code. Nothing of it becomes
// markup, and nothing of it is taken away but blank space: what is surely a sign is dimmed, what
// stands between signs is set apart, and a text that only looks like one is whole all the same.
// A text is gone through once, line by line, whatever is in it.
((indexerd) => {
  "use strict";
  const { el, solid, pieces } = indexerd.words;
  const FENCE = /^(`{3,}|~{3,})/;
  const HEAD = /^#{1,6} +(?=\S)/;
  const ITEM = /^([ \t]{0,40})(?:[-*]|\d{1,3}[.)])[ \t]{1,8}(?=\S)/;
  const WORD = /[\p{L}\p{N}_*]/u;
  const SIGNS = /`([^`\n]{1,300})`|\*\*([^*\s](?:[^*\n]{0,298}[^*\s])?)\*\*/g;

  function pre(text) {
    return el("pre", solid(text), ...pieces(text));
  }

  const sign = (text) => el("span", "sign", text);

  function apart({ 0: all, 1: code, 2: strong, index }, text) { // null: it is no sign, as in x**2
    if (code) return el("code", "", all);
    if (WORD.test(text[index - 1] || " ") || WORD.test(text[index + all.length] || " ")) return null;
    return el("strong", "", sign("**"), strong, sign("**"));
  }

  function inline(text) { // words in backticks as code, words between ** as strong
    if (!text.includes("`") && !text.includes("**")) return pieces(text);
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
    found.push(...pieces(text.slice(from)));
    return found;
  }

  const paragraph = (text) => el("div", `text ${solid(text)}`.trim(), ...inline(text));

  // -- blocks: each takes lines from a place on, and says where it ends ------------------------

  function fenced(lines, at, found) {
    const [, fence] = FENCE.exec(lines[at]);
    let end = at + 1;
    while (end < lines.length && lines[end].trim() !== fence) end++;
    const held = pre(lines.slice(at + 1, end).join("\n"));
    held.prepend(sign(`${lines[at]}\n`));
    if (end < lines.length) held.append(sign(`\n${lines[end]}`));
    found.push(held);
    return end + 1;
  }

  function rows(lines, at) { // lines that may be a table's
    let end = at;
    while (end < lines.length && lines[end].startsWith("|")) end++;
    return end;
  }

  // Of one "#" it may be a comment, or a line of C: unless it stands by itself.
  function heads(lines, at) {
    const blank = (line) => !(line || "").trim();
    const mark = HEAD.exec(lines[at]);
    return mark && (mark[0].startsWith("##") || (blank(lines[at - 1]) && blank(lines[at + 1]))) ? mark[0] : "";
  }

  function heading(line, mark) {
    const text = line.slice(mark.length);
    return el("div", `text strong ${solid(text)}`.trim(), sign(mark), ...inline(text));
  }

  const ruled = (line) => line.includes("--") && /^[\s|:-]+$/.test(line);
  const width = (blank) => blank.replaceAll("\t", "    ").length;

  function listed(lines, at, found) { // an item goes on in the lines that are moved in below it
    const box = el("ul", "list"), goesOn = (one) => /^\s+\S/.test(lines[one] || "") && !ITEM.test(lines[one]);
    let end = at;
    while (ITEM.test(lines[end] || "")) {
      const [mark, blank] = ITEM.exec(lines[end]), text = [lines[end++].slice(mark.length)];
      while (goesOn(end) || (goesOn(end + 1) && !lines[end].trim())) {
        const one = lines[end++];
        text.push(one.slice(Math.min(one.search(/\S/), mark.length)));
      }
      const said = text.join("\n"), item = el("li", solid(said), sign(mark.trimStart()), ...inline(said));
      item.style.setProperty("--deep", Math.min(width(blank), 12));
      box.append(item);
      if (ITEM.test(lines[end + 1] || "") && !lines[end].trim()) end++;
    }
    found.push(box);
    return end;
  }

  // Fenced code as code, headings apart, lists with their items hanging, tables in even letters,
  // everything else as it stands. `typed` is a text as somebody typed it: there a line that begins
  // with a dash may be anything.
  function prose(text, typed = false) {
    if (!text) return [];
    const found = [], lines = text.split("\n");
    let held = [];
    const flush = () => {
      const body = held.join("\n").replace(/^\n+/, "").trimEnd();
      if (body) found.push(paragraph(body));
      held = [];
    };
    for (let at = 0; at < lines.length;) {
      const one = lines[at], end = rows(lines, at), head = heads(lines, at);
      if (FENCE.test(one)) {
        flush();
        at = fenced(lines, at, found);
      } else if (head) {
        flush();
        found.push(heading(one, head));
        at++;
      } else if (!typed && ITEM.test(one)) {
        flush();
        at = listed(lines, at, found);
      } else if (end > at) {
        const table = lines.slice(at, end);
        at = end;
        if (!table.some(ruled)) {
          held = held.concat(table); // no spread: it may be longer than a call can hold
          continue;
        }
        flush();
        found.push(pre(table.join("\n")));
      } else {
        held.push(one);
        at++;
      }
    }
    flush();
    return found;
  }

  indexerd.prose = { prose, pre };
})((window.indexerd ||= {}));
