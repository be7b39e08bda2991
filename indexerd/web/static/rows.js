// The rows of the tree: the story (prompts, folded work, branches), or a flat list of entries,
// depending on what the reader chose, searched for, opened and closed.
//
// A row is {type, place, node, level, open?, beat?, active, leaf, text}; `same` says whether two rows
// look the same.
((indexerd) => {
  "use strict";
  const { count, el } = indexerd.helpers;
  const { story } = indexerd;
  const BOOKS = new Set(["setting", "label", "name"]);
  const LABELS = 3; // shown of a closed branch
  const BEFORE = 30; // characters before a found word
  const ASIDE = new Set(["custom", "context_edit", "attachment"]);
  const WHO = {
    user: "You", reply: "You", task: "Task from the parent session", plan: "Plan to carry out", assistant: "Answer", tool: "Result", inserted: "Inserted by the agent",
    bash: "Shell command", system: "System", custom: "Note", compaction: "Compaction",
    branch_summary: "Abandoned branch", setting: "Setting", label: "Label", name: "Name", call: "Call", other: "Entry",
  };
  const opened = new Map(); // what the reader opened and closed, by key

  const toolOf = (node) => {
    if (node.kind === "assistant" && !node.text && node.calls) return WHO.call;
    return node.kind === "tool" && node.results?.[0]?.tool ? `${node.results[0].tool} result` : "";
  };
  const isInterruption = (node) => node.kind === "assistant" && node.failed && node.text === "Interrupted";
  const who = (node) => (isInterruption(node) ? "Interruption" : toolOf(node) || WHO[node.kind] || "Entry");
  const key = (row) => `${row.type === "branch" || row.type === "work" ? row.type : "entry"} ` +
    story.nameOf(row.node, row.from ?? row.place);
  const isOpen = (row, usual) => opened.get(key(row)) ?? usual;

  // One line of a text without Markdown's signs.
  const bare = (text) => text.replace(/^[ \t]*(?:#{1,6} |> ?|[-*+] |```.*$|[|:-][|: \t-]*$)/gm, "")
    .replace(/^[ \t]*\|.*$/gm, (row) => row.replaceAll("|", " ")).replace(/!?\[([^\]\n]*)\]\([^)\s]*\)/g, "$1")
    .replace(/\*\*|`/g, "").replace(/\s+/g, " ").trim();

  function line(node, limit = 120) {
    const text = node.text || node.results?.[0]?.text || "";
    const said = bare(text.slice(0, 400));
    const calls = () => node.calls.slice(0, 5).map(({ tool, detail = "" }) => `${tool} ${detail}`.trim());
    return (said || (node.calls ? calls().join(", ") : "") || node.type).slice(0, limit);
  }

  // -- flat lists -----------------------------------------------------------------------------

  const plain = ({ kind, type, hidden }) => !hidden && !BOOKS.has(kind) && !ASIDE.has(type);

  // A search also finds entries that the default filter leaves out.
  function takes(place, mode, seeks = false) {
    const node = story.nodes[place];
    if (node.hidden) return false;
    if (mode === "all" || (mode === "default" && seeks)) return true;
    if (mode === "labeled-only") return Boolean(node.label);
    if (node.type === "usage" || (node.quiet && place !== story.doc.leaf)) return false;
    if (mode === "user-only") return node.kind === "user" || node.kind === "reply";
    if (mode === "no-tools" && ["tool", "inserted", "call"].includes(node.kind)) return false;
    return plain(node);
  }

  const lower = new WeakMap(); // node -> its searchable text

  const called = (node) => (node.calls || []).map(({ tool, detail = "" }) => `${tool} ${detail}`).join(", ");
  const aside = (node) => [...(node.results || []).map(({ tool, text = "" }) => `${tool || ""}: ${text}`), node.thinking || ""];

  function searched(node) {
    let text = lower.get(node);
    if (text === undefined) {
      text = [node.label, node.role || node.type, called(node), node.text, ...aside(node)]
        .filter(Boolean).join(" ").toLowerCase();
      lower.set(node, text);
    }
    return text;
  }

  const has = (place, sought) => sought.every((word) => searched(story.nodes[place]).includes(word));

  function around(node, word) { // the text around a search word
    const text = [node.text, called(node), ...aside(node)].find((one) => one.toLowerCase().includes(word));
    if (text === undefined) return "";
    const start = text.lastIndexOf("\n", text.toLowerCase().indexOf(word)) + 1; // of its line
    const lead = Math.max(start, text.toLowerCase().indexOf(word) - 400);
    const said = bare(text.slice(lead, lead + 800)), at = said.toLowerCase().indexOf(word);
    const from = at < BEFORE ? 0 : Math.max(at - BEFORE, said.lastIndexOf(" ", at - BEFORE / 2) + 1);
    return (lead || from ? "…" : "") + said.slice(from, at + 120);
  }

  function entry(place, level, sought = []) {
    const { nodes, active, doc } = story;
    return { type: "entry", place, node: nodes[place], level, word: sought.join(" "), active: active[place],
      leaf: place === doc.leaf, open: undefined };
  }

  // A row's words; those of entries are found when the row is drawn.
  const words = (row) =>
    row.text ?? ((row.word && around(row.node, row.word.split(" ")[0])) || line(row.node));

  function marked(row) { // the words as nodes, with what was searched for marked
    if (!row.word) return [words(row)];
    const any = row.word.split(" ").map((word) => word.replace(/[^\p{L}\p{N}]/gu, "\\$&")).join("|");
    return words(row).split(new RegExp(`(${any})`, "gi")).map((text, at) => (at % 2 ? el("mark", "", text) : text));
  }

  function flat(mode, sought) {
    const { beats, beatOf, nodes } = story;
    const list = [];
    for (const place of nodes.keys()) {
      if (!takes(place, mode, sought.length > 0) || !has(place, sought)) continue;
      list.push(entry(place, beats[beatOf[place]].depth + 1, sought));
    }
    return list;
  }

  // -- the story ------------------------------------------------------------------------------

  function told(mode) {
    const { beats, nodes, ends, active, doc } = story;
    const list = [];
    for (let at = 0; at < beats.length; at++) {
      const beat = beats[at], place = beat.first, node = nodes[place];
      if (beat.begins) {
        const row = branch(beat, at);
        list.push(row);
        if (!row.open) {
          const end = ends[place];
          while (at + 1 < beats.length && beats[at + 1].first <= end) at++;
          continue;
        }
      }
      if (node.hidden && beat.kind !== "work") continue;
      const row = { type: "ask", place, node, level: beat.depth + 1, active: active[place],
        leaf: place === doc.leaf, open: undefined,
        text: node.text.trim() ? line(node, 160) : "(no words)" };
      if (beat.kind === "ask") {
        list.push(row);
      } else if (mode === "user-only" || (!worked(beat) && !labelled(beat).length)) {
        continue;
      } else if (beat.kind !== "work") {
        row.type = "rule";
        row.text = `${who(node)}: ${line(node, 160)}`;
        list.push(row);
      } else {
        work(list, beat, row, mode);
      }
    }
    return list;
  }

  // A branch's row leads to the first entry in it that is shown: often settings come before that.
  function branch(beat, at) {
    const { asksTo, beatOf, ends, nodes } = story;
    const end = ends[beat.first];
    let place = beat.first;
    while (place < end && !plain(nodes[place])) place++;
    if (!plain(nodes[place])) place = beat.first;
    const row = { type: "branch", place, from: beat.first, node: nodes[beat.first],
      said: nodes[place], level: beat.depth, active: beat.active, leaf: false };
    row.open = isOpen(row, Boolean(beat.active));
    row.labels = row.open ? "" : labels({ first: beat.first, last: end });
    const asks = asksTo[beatOf[end] + 1] - asksTo[at];
    const size = `Branch, ${count(asks, "prompt")}, ${count(end - beat.first + 1, "entry", "entries")}`;
    const gist = beat.gist && (!row.open || beat.gistSource !== "ask") ? `: ${beat.gist}` : "";
    row.text = size + (gist || (row.open ? "" : `: ${line(row.said)}`));
    return row;
  }

  function labels(range) { // the labels in a closed branch
    const found = labelled(range).map((place) => story.nodes[place].label);
    const more = found.length - LABELS;
    return found.slice(0, LABELS).join(", ") + (more > 0 ? `, ${more} more` : "");
  }

  function among({ first, last }, judge) { // places in a beat whose nodes are shown and pass `judge`
    const found = [];
    for (let place = first; place <= last; place++) {
      const node = story.nodes[place];
      if (!node.hidden && judge(node)) found.push(place);
    }
    return found;
  }

  const labelled = (range) => among(range, (node) => node.label);
  const worked = (range) => among(range, ({ kind }) => !BOOKS.has(kind) && !/^(other|system)$/.test(kind)).length;

  function work(list, beat, row, mode) {
    if (!among(beat, () => true).length) return;
    const level = beat.depth + 2, { leaf } = story.doc;
    const open = isOpen(Object.assign(row, { type: "work", beat }), false);
    const inside = [];
    let any = false;
    for (let place = beat.first; place <= beat.last && (open || !any); place++) {
      any = takes(place, mode);
      if (any && open) inside.push(entry(place, level));
    }
    row.open = any ? open : undefined;
    row.active = beat.active;
    row.leaf = leaf >= beat.first && leaf <= beat.last;
    row.text = amount(done(beat), mode !== "no-tools");
    list.push(row, ...(open ? inside : labelled(beat).map((place) => entry(place, level))));
  }

  function tally(nodes) {
    const sum = { answers: 0, calls: {}, total: 0, failed: 0, rejected: 0, thoughts: 0, entries: nodes.length };
    for (const { kind, text, calls, results, failed, thinking, hidden } of nodes) {
      if (kind === "assistant" && !failed && !hidden && text.trim()) sum.answers++;
      for (const { tool, failed: end } of calls || []) {
        if (tool) sum.calls[tool] = (sum.calls[tool] || 0) + 1;
        sum.rejected += end === "rejected" ? 1 : 0;
      }
      sum.total += (calls || []).length;
      sum.failed += (results && failed) || 0; // not an interruption, which is an entry of its own
      sum.thoughts += thinking ? 1 : 0;
    }
    return sum;
  }

  const done = (beat) => (beat.sum ||= tally(story.nodes.slice(beat.first, beat.last + 1)));

  function amount({ answers, calls: all, total, entries }, tools = true) {
    const calls = Object.entries(all).sort((a, b) => b[1] - a[1]);
    const named = calls.slice(0, 3).map(([tool, number]) => `${tool} ${number}`).join(", ");
    const parts = [
      answers ? count(answers, "answer") : "",
      total && tools ? `${count(total, "call")} (${named}${calls.length > 3 ? ", …" : ""})` : "",
    ].filter(Boolean);
    return parts.join(" · ") || count(entries, "entry", "entries");
  }

  const size = ({ answers, total }) => // the amount of work, from 0 to 12
    Math.min(12, Math.round(2 * Math.log1p(total + answers)));

  function bar(sum) {
    const one = el("span", "bar");
    one.style.setProperty("--work", size(sum));
    return one;
  }

  function rowsOf(mode, sought) {
    return sought.length || mode === "all" || mode === "labeled-only" ? flat(mode, sought) : told(mode);
  }

  const beatSame = (a, b) => a === b ||
    (a && b && done(a).failed === done(b).failed && size(done(a)) === size(done(b)));

  function same(a, b) {
    const alike = ["type", "node", "said", "labels", "level", "open", "text", "word", "leaf"]
      .every((name) => a[name] === b[name]);
    return alike && !a.active === !b.active && beatSame(a.beat, b.beat);
  }

  function reveal(place) { // open the branches that lead to an entry
    const { beats, beatOf, nodes } = story;
    let changed = false;
    for (const one of story.pathTo(place)) {
      const beat = beats[beatOf[one]];
      if (!beat.begins || beat.first !== one) continue;
      const row = { type: "branch", from: one, node: nodes[one] };
      if (isOpen(row, Boolean(beat.active))) continue;
      opened.set(key(row), true);
      changed = true;
    }
    return changed;
  }

  indexerd.rows = { ASIDE, BOOKS, opened, isInterruption, who, key, line, marked, rowsOf, tally, done, amount, bar, same, reveal };
})((window.indexerd ||= {}));
