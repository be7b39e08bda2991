// The view of a session: its tree as a story at the side, the path to one entry beside it.
//
// In: the document of core/export_json.py, as JSON in #data. Every text of a session is put in as
// text (textContent), never as markup; nothing is loaded or sent. What is shown is in the address:
// `#leaf=ID` the path, `&target=ID` the entry in it. Long paths are filled in while nobody waits.
"use strict";
(() => {
  const doc = JSON.parse(document.getElementById("data").textContent);
  const { nodes, beats } = doc;
  const CHUNK = 40; // items of the conversation that are filled in at once
  const BLOCK = 100; // rows of the tree that a browser lays out at once
  const SOON = 4; // parts of either list that are there from the start
  const BOOKS = new Set(["setting", "label", "name"]);
  const ASIDE = new Set(["custom", "context_edit", "attachment"]);
  const ALONE = new Set(["user", "compaction", "branch_summary", "custom", "bash"]);
  const WHO = {
    user: "You", assistant: "Answer", tool: "Result", bash: "Run by you", system: "System",
    custom: "Extension", compaction: "Compaction", branch_summary: "Left branch",
    setting: "Setting", label: "Label", name: "Name", call: "Call", other: "Entry",
  };
  const $ = (id) => document.getElementById(id);
  const tree = $("tree"), pathBox = $("path"), cols = document.querySelector(".cols");
  const narrow = matchMedia("(max-width: 899px)");

  // -- small things ---------------------------------------------------------------------------

  function el(tag, name, ...held) {
    const one = document.createElement(tag);
    if (name) one.className = name.trim();
    one.append(...held.filter((part) => part !== null && part !== undefined && part !== ""));
    return one;
  }

  // A word of many thousand characters takes a browser a second to wrap, unless it comes in pieces
  // and may break anywhere.
  const solid = (text) => (/\S{400}/.test(text) ? " solid" : "");
  const pieces = (text) => (solid(text) ? text.match(/[^]{1,512}/gu) : [text]);
  const format = new Intl.NumberFormat("en");
  const digits = (number) => (number < 1000 ? String(number) : format.format(number));
  const count = (number, word, many = `${word}s`) =>
    `${digits(number)} ${number === 1 ? word : many}`;
  const when = (time) =>
    /^\d{4}-\d\d-\d\dT\d\d:\d\d/.test(time || "") ? time.slice(0, 16).replace("T", " ") : "";
  const short = (number) => (number < 1000 ? String(number)
    : `${(number / 1000).toFixed(number < 10000 ? 1 : 0)}k`);

  function span(ms) {
    const minutes = Math.round(ms / 60000);
    if (ms < 1000) return "";
    if (minutes < 1) return `${Math.round(ms / 1000)} s`;
    return minutes < 90 ? `${minutes} min` : `${(minutes / 60).toFixed(1)} h`;
  }

  function line(node) {
    const said = node.text.slice(0, 400).replace(/\s+/g, " ").trim();
    const calls = (node.calls || []).slice(0, 5).map(([tool, what]) => `${tool} ${what}`.trim());
    return (said || calls.join(", ") || node.type).slice(0, 200);
  }

  // Parts of a long list: drawn when they are needed, come into sight, or nobody waits.
  class Parts {
    constructor(box) {
      this.waiting = [];
      this.job = 0;
      this.sight = new IntersectionObserver((seen) => {
        for (const one of seen) if (one.isIntersecting) this.draw(one.target.part);
      }, { root: box, rootMargin: "1500px" });
    }

    begin() {
      this.sight.disconnect();
      this.waiting = [];
      const mine = ++this.job;
      const later = window.requestIdleCallback || ((work) => setTimeout(work, 20));
      let at = 0;
      const go = () => {
        if (mine !== this.job || at >= this.waiting.length) return;
        this.draw(this.waiting[at++]);
        later(go);
      };
      later(go);
    }

    add(name, work) {
      const part = { box: el("div", `${name} empty`), work };
      part.box.part = part;
      this.waiting.push(part);
      this.sight.observe(part.box);
      return part;
    }

    draw(part) {
      const { work } = part;
      if (!work) return;
      part.work = null;
      this.sight.unobserve(part.box);
      part.box.append(...work());
      part.box.classList.remove("empty");
    }
  }

  // -- the tree, by place ---------------------------------------------------------------------

  const ends = new Int32Array(nodes.length); // the last place below each
  const newest = new Int32Array(nodes.length).fill(-1); // the last thing said below each
  const spoken = new Uint8Array(nodes.length);
  const beatOf = new Int32Array(nodes.length);
  const places = new Map();
  nodes.forEach((node, place) => places.set(key(place), place));
  beats.forEach((beat, at) => beatOf.fill(at, beat.first, beat.last + 1));
  const asksTo = [0]; // asks in the beats before each
  for (const beat of beats) asksTo.push(asksTo[asksTo.length - 1] + (beat.kind === "ask" ? 1 : 0));
  for (let place = nodes.length - 1; place >= 0; place--) { // children stand after their parents
    const { above, kind } = nodes[place];
    ends[place] = Math.max(ends[place], place);
    spoken[place] |= kind === "user" || kind === "assistant" ? 1 : 0;
    if (newest[place] < 0) newest[place] = place;
    if (above < 0) continue;
    ends[above] = Math.max(ends[above], ends[place]);
    const best = newest[above];
    const better = best < 0 || (spoken[place] && !spoken[above]) ||
      (spoken[place] >= spoken[above] && nodes[newest[place]].ordinal > nodes[best].ordinal);
    if (better) newest[above] = newest[place];
    spoken[above] |= spoken[place];
  }

  function key(place) {
    return nodes[place].id || `~${place}`;
  }

  function pathTo(leaf) {
    const found = [];
    for (let place = leaf; place >= 0; place = nodes[place].above) found.push(place);
    return found.reverse();
  }

  const under = (place, above) => place >= above && place <= ends[above];
  const through = (place) => (doc.leaf >= 0 && under(doc.leaf, place) ? doc.leaf : newest[place]);

  // -- which rows the tree has ----------------------------------------------------------------

  const opened = new Map(); // what the reader opened and closed, by key
  let rows = [];
  let view = { leaf: -1, target: -1, on: new Set() };

  const isOpen = (name, usual) => (opened.has(name) ? opened.get(name) : usual);

  function takes(place, mode) {
    const node = nodes[place];
    if (node.hidden) return false;
    if (mode === "all") return true;
    if (mode === "labeled-only") return Boolean(node.label);
    if (node.type === "usage" || (node.quiet && place !== doc.leaf)) return false;
    if (mode === "user-only") return node.kind === "user";
    if (mode === "no-tools" && (node.kind === "tool" || node.kind === "call")) return false;
    return !BOOKS.has(node.kind) && !ASIDE.has(node.type);
  }

  function found(place, words) {
    const node = nodes[place];
    const calls = (node.calls || []).map((call) => call.join(" ")).join(" ");
    const told = `${node.label || ""} ${node.role || node.type} ${calls} ${node.text}`.toLowerCase();
    return words.every((word) => told.includes(word));
  }

  function around(text, word) { // what stands about a word that was searched for
    const at = word ? text.toLowerCase().indexOf(word) : -1;
    if (at < 60) return "";
    return `…${text.slice(at - 40, at + 160).replace(/\s+/g, " ")}`;
  }

  function entry(place, level) {
    return { type: "entry", key: `e${place}`, place, level, text: line(nodes[place]) };
  }

  function flat(mode, words) {
    const list = [];
    nodes.forEach((node, place) => {
      if (takes(place, mode) && (!words.length || found(place, words))) {
        const row = entry(place, beats[beatOf[place]].depth + 1);
        row.text = around(nodes[place].text, words[0]) || row.text;
        list.push(row);
      }
    });
    return list;
  }

  function story(mode) {
    const list = [];
    for (let at = 0; at < beats.length; at++) {
      const beat = beats[at];
      const end = ends[beat.first];
      if (beat.begins) {
        const open = isOpen(`b${at}`, Boolean(beat.active));
        list.push(branch(beat, at, open));
        if (!open) {
          while (at + 1 < beats.length && beats[at + 1].first <= end) at++;
          continue;
        }
      }
      const level = beat.depth + 1, place = beat.first;
      if (nodes[place].hidden && beat.kind !== "work") continue;
      if (beat.kind === "ask") {
        list.push({ type: "ask", key: `e${place}`, place, level, text: beat.text || "(no words)" });
      } else if (mode === "user-only" || (beat.quiet && !beat.labels)) {
        continue;
      } else if (beat.kind !== "work") {
        const text = `${WHO[nodes[place].kind]}: ${beat.text || ""}`;
        list.push({ type: "rule", key: `e${place}`, place, level, text });
      } else {
        work(list, beat, at, mode);
      }
    }
    return list;
  }

  function branch(beat, at, open) {
    const end = ends[beat.first];
    const asks = asksTo[beatOf[end] + 1] - asksTo[at];
    const size = `Branch, ${count(asks, "ask")}, ${count(end - beat.first + 1, "entry", "entries")}`;
    const gist = beat.gist && (!open || beat.gistSource !== "ask") ? `: ${beat.gist}` : "";
    const text = size + (gist || (open ? "" : `: ${beat.text || line(nodes[beat.first])}`));
    return { type: "branch", key: `b${at}`, place: beat.first, level: beat.depth, text, open };
  }

  function work(list, beat, at, mode) {
    const inside = [];
    for (let place = beat.first; place <= beat.last; place++) {
      if (takes(place, mode)) inside.push(entry(place, beat.depth + 2));
    }
    const open = inside.length ? isOpen(`w${at}`, false) : undefined;
    list.push({ type: "work", key: `w${at}`, place: beat.first, level: beat.depth + 1, beat, open,
      text: amount(beat, mode !== "no-tools") });
    for (const place of beat.labels || []) {
      if (!open) list.push(entry(place, beat.depth + 2));
    }
    if (open) list.push(...inside);
  }

  function amount(beat, tools = true) {
    const calls = Object.entries(beat.calls || {}).sort((a, b) => b[1] - a[1]);
    const total = calls.reduce((sum, [, number]) => sum + number, 0);
    const named = calls.slice(0, 3).map(([name, number]) => `${name} ${number}`).join(", ");
    const parts = [
      beat.answers ? count(beat.answers, "answer") : "",
      total && tools ? `${count(total, "call")} (${named}${calls.length > 3 ? ", …" : ""})` : "",
      beat.tokens ? `${short(beat.tokens)} tokens` : "",
      beat.ms ? span(beat.ms) : "",
    ].filter(Boolean);
    return parts.join(" · ") || count(beat.last - beat.first + 1, "entry", "entries");
  }

  const size = (beat) => {
    const calls = Object.values(beat.calls || {}).reduce((sum, number) => sum + number, 0);
    return Math.min(1, Math.log1p(calls + (beat.answers || 0) + (beat.tokens || 0) / 500) / 6);
  };

  // -- drawing the tree -----------------------------------------------------------------------

  const blocks = new Parts(tree);
  let current = -1; // the row that has the keyboard
  let chosen = -1; // the row of what is shown

  function drawTree() {
    const mode = $("filter").value;
    const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const listed = words.length || mode === "all" || mode === "labeled-only";
    const name = rows[current] && rows[current].key;
    rows = listed ? flat(mode, words) : story(mode);
    blocks.begin();
    const drawn = [];
    for (let start = 0; start < rows.length; start += BLOCK) {
      const slice = rows.slice(start, start + BLOCK);
      const part = blocks.add("block", () => slice.map((row, at) => drawRow(row, start + at)));
      part.box.setAttribute("role", "none");
      for (const row of slice) row.part = part;
      drawn.push(part.box);
    }
    tree.replaceChildren(...drawn);
    blocks.waiting.slice(0, SOON).forEach((part) => blocks.draw(part));
    const asks = asksTo[beats.length];
    const all = count(nodes.length, "entry", "entries");
    $("count").textContent = listed ? `${digits(rows.length)} of ${all}`
      : `${count(asks, "ask")}, ${all}`;
    const again = rows.findIndex((row) => row.key === name);
    markRows();
    carry(again >= 0 ? again : chosen);
  }

  function boxOf(row) {
    blocks.draw(row.part);
    return row.box;
  }

  function drawRow(row, at) {
    const node = nodes[row.place], beat = row.beat;
    const active = row.type === "branch" || beat ? beats[beatOf[row.place]].active : node.active;
    const box = el("div", `row ${row.type === "entry" && node.kind === "user" ? "ask" : row.type}`);
    box.classList.toggle("active", Boolean(active));
    box.setAttribute("role", "treeitem");
    box.setAttribute("aria-level", row.level);
    if (row.open !== undefined) box.setAttribute("aria-expanded", row.open);
    box.tabIndex = -1;
    box.style.setProperty("--depth", row.level - 1);
    box.dataset.at = at;
    box.append(el("span", "twist", row.open === undefined ? "" : row.open ? "-" : "+"));
    box.firstChild.setAttribute("aria-hidden", "true");
    if (beat) {
      const bar = el("span", "bar");
      bar.style.setProperty("--work", size(beat));
      box.append(bar);
    }
    if (row.type !== "branch" && !beat && node.label) box.append(el("span", "label", node.label));
    const words = el("span", "words");
    if (row.type === "entry") words.append(el("span", "who", `${who(node)} `));
    words.append(row.text);
    const failed = beat ? beat.failed : row.type === "entry" ? node.failed : 0;
    if (failed) words.append(el("span", "bad", ` · ${failed} failed`));
    box.append(words);
    box.title = row.text;
    if (row.place === doc.leaf || (beat && doc.leaf >= 0 && doc.leaf >= beat.first && doc.leaf <= beat.last)) {
      box.append(el("span", "now", "leaf"));
    }
    row.box = box;
    mark(row, at);
    return box;
  }

  function who(node) {
    return node.kind === "tool" && node.tool ? `${node.tool}:` : `${WHO[node.kind] || "Entry"}:`;
  }

  function mark(row, at) {
    row.box.classList.toggle("shown", row.type !== "branch" && view.on.has(row.place));
    row.box.setAttribute("aria-selected", String(at === chosen));
    row.box.tabIndex = at === current ? 0 : -1;
  }

  function markRows() {
    const aim = view.target >= 0 ? view.target : view.leaf;
    chosen = -1;
    rows.forEach((row, at) => {
      const held = row.beat ? aim >= row.beat.first && aim <= row.beat.last : row.place === aim;
      if (held && (row.type !== "branch" || chosen < 0 || !row.open)) chosen = at;
    });
    rows.forEach((row, at) => row.box && mark(row, at));
  }

  function carry(at) {
    const before = rows[current];
    current = Math.min(Math.max(at, 0), rows.length - 1);
    if (before && before.box) before.box.tabIndex = -1;
    if (rows[current]) boxOf(rows[current]).tabIndex = 0;
  }

  function focusRow(at) {
    carry(at);
    if (rows[current]) boxOf(rows[current]).focus();
  }

  function toggle(row, open) {
    opened.set(row.key, open);
    drawTree();
    focusRow(rows.findIndex((one) => one.key === row.key));
  }

  function reveal(place) { // open the branches that lead to an entry
    let changed = false;
    for (const one of pathTo(place)) {
      const at = beatOf[one];
      const beat = beats[at];
      if (beat.begins && beat.first === one && !isOpen(`b${at}`, Boolean(beat.active))) {
        opened.set(`b${at}`, true);
        changed = true;
      }
    }
    return changed;
  }

  // -- the conversation -----------------------------------------------------------------------

  const chunks = new Parts(null);
  let spots = new Map(); // place -> {item, part}

  function itemsOf(path) {
    const cuts = new Map(); // place -> the digest that begins or ends there
    const on = new Set(path);
    const digests = doc.digests.filter((one) => on.has(one.from) && on.has(one.to));
    for (const one of digests) cuts.set(one.from, one);
    const closing = new Set(digests.map((one) => one.to));
    const groups = [{ digest: null, items: [] }];
    let work = null;
    for (const place of path) {
      const node = nodes[place];
      if (cuts.has(place)) {
        groups.push({ digest: cuts.get(place), items: [] });
        work = null;
      }
      const items = groups[groups.length - 1].items;
      const alone = ALONE.has(node.kind) || (node.kind === "assistant" && node.text.trim());
      if (alone && !node.hidden) {
        items.push({ place });
        work = null;
      }
      const book = BOOKS.has(node.kind);
      if (!node.hidden && (!alone || node.calls || node.results || node.thinking)) {
        if (!work && !book) items.push((work = { places: [] }));
        if (work) work.places.push(place); // settings alone are no work
      }
      if (closing.has(place)) {
        groups.push({ digest: null, items: [] });
        work = null;
      }
    }
    return groups.filter((group) => group.items.length);
  }

  function drawPath() {
    spots = new Map();
    chunks.begin();
    const parts = itemsOf(pathTo(view.leaf)).map((group) => {
      const covered = el("div", "covered");
      for (let start = 0; start < group.items.length; start += CHUNK) {
        const items = group.items.slice(start, start + CHUNK);
        const part = chunks.add("chunk", () => items.map(itemBox));
        for (const item of items) {
          for (const place of item.places || [item.place]) {
            if (!spots.has(place)) spots.set(place, { item, part });
          }
        }
        covered.append(part.box);
      }
      return group.digest ? el("div", "range", digestBox(group.digest), covered) : covered;
    });
    if (!parts.length) parts.push(el("p", "cut", "Nothing is said on this path."));
    pathBox.replaceChildren(...parts);
    chunks.waiting.slice(0, SOON).forEach((part) => chunks.draw(part));
  }

  function itemBox(item) {
    item.box = item.places ? foldBox(item) : saidBox(item.place);
    return item.box;
  }

  function digestBox(digest) {
    const [first, last] = digest.covering_messages;
    const box = el("aside", "digest", el("h3", "", `Digest of messages ${first} to ${last}`));
    box.append(...prose(digest.content));
    const changed = digest.files_modified || [];
    if (changed.length) box.append(el("p", "", `Files changed: ${changed.slice(0, 20).join(", ")}`));
    box.tabIndex = 0; // it scrolls
    box.setAttribute("aria-label", `Digest of messages ${first} to ${last}`);
    return box;
  }

  function prose(text) { // paragraphs, and fenced code as code
    const found = [];
    let held = [], fence = "";
    const flush = () => {
      const body = held.join("\n").replace(fence ? /$^/ : /^\n+|\s+$/g, "");
      if (fence || body) {
        found.push(fence ? el("pre", solid(body), ...pieces(body))
          : el("div", `text${solid(body)}`, ...inline(body)));
      }
      held = [];
    };
    for (const one of text.split("\n")) {
      const mark = /^(`{3,}|~{3,})/.exec(one);
      if (!fence && mark) {
        flush();
        fence = mark[1];
      } else if (fence && one.trim() === fence) {
        flush();
        fence = "";
      } else if (!fence && /^#{1,6} ./.test(one)) {
        flush();
        found.push(el("div", `text strong${solid(one)}`, ...inline(one.replace(/^#+ +/, ""))));
      } else {
        held.push(one);
      }
    }
    flush();
    return found;
  }

  function inline(text) { // words in backticks as code, words between ** as strong
    const found = [];
    let from = 0;
    for (const mark of text.matchAll(/`([^`\n]{1,300})`|\*\*([^*\n]{1,300})\*\*/g)) {
      found.push(...pieces(text.slice(from, mark.index)));
      found.push(mark[1] ? el("code", "", mark[1]) : el("strong", "", mark[2]));
      from = mark.index + mark[0].length;
    }
    found.push(...pieces(text.slice(from)));
    return found;
  }

  function cutNote(node) {
    if (!node.length) return null;
    const shown = digits(node.text.length);
    return el("p", "cut", `Cut: ${shown} of ${digits(node.length)} characters are here.`);
  }

  function saidBox(place) {
    const node = nodes[place];
    const box = el("article", `said ${node.kind}`);
    const head = el("header", "", el("h3", "", WHO[node.kind] || "Entry"));
    if (node.label) head.append(el("span", "label", node.label));
    if (node.failed) head.append(el("span", "bad", "failed"));
    if (node.model) head.append(el("span", "", node.model));
    head.append(el("span", "", when(node.time)));
    const link = el("a", "", "link");
    link.href = fragment(view.leaf, place);
    link.setAttribute("aria-label", "Link to this entry");
    head.append(link);
    box.append(head);
    if (node.kind === "tool" || node.kind === "bash") box.append(el("pre", solid(node.text), ...pieces(node.text)));
    else box.append(...prose(node.text));
    if (node.images) box.append(el("p", "cut", count(node.images, "image") + " not exported"));
    const cut = cutNote(node);
    if (cut) box.append(cut);
    box.tabIndex = -1;
    return box;
  }

  function foldBox(item) {
    const tools = {};
    let failed = 0, thoughts = 0;
    for (const place of item.places) {
      const node = nodes[place];
      for (const [tool] of node.calls || []) if (tool) tools[tool] = (tools[tool] || 0) + 1;
      failed += node.failed && node.kind !== "assistant" ? node.failed : 0;
      thoughts += node.thinking ? 1 : 0;
    }
    const words = amount({ calls: tools, first: 1, last: item.places.length });
    const bar = el("span", "bar");
    bar.style.setProperty("--work", size({ calls: tools }));
    const summary = el("summary", "", bar, words + (thoughts ? `, ${count(thoughts, "thought")}` : ""));
    if (failed) summary.append(el("span", "bad", `${failed} failed`));
    const box = el("details", "fold", summary);
    box.addEventListener("toggle", () => unfold(item, box));
    return box;
  }

  function unfold(item, box) {
    if (item.inside || !box.open) return;
    item.inside = new Map();
    const inside = el("div", "inside");
    for (const place of item.places) {
      const one = insideBox(place);
      item.inside.set(place, one);
      inside.append(one);
    }
    box.append(inside);
  }

  function insideBox(place) {
    const node = nodes[place];
    const box = el("div", "said");
    box.tabIndex = -1;
    if (node.thinking) box.append(closed("Thought", node.thinking));
    for (const [tool, what] of node.calls || []) {
      box.append(el("div", "call", el("strong", "", tool || "call"), " ", el("code", "", what)));
    }
    for (const [tool, text] of node.results || []) box.append(closed(`Result of ${tool || "a call"}`, text));
    if (node.kind === "assistant" || (!node.text && box.childNodes.length)) return box;
    const name = `${who(node)} ${node.failed ? "failed" : line(node)}`;
    box.append(node.text ? closed(name, node.text, cutNote(node)) : el("div", "cut", name));
    return box;
  }

  function closed(name, text, note) {
    const box = el("details", "", el("summary", "", name));
    box.addEventListener("toggle", () => {
      if (box.open && box.childNodes.length === 1) box.append(el("pre", solid(text), ...pieces(text)), note || "");
    });
    return box;
  }

  function spot(place) { // the element of an entry, made now if need be
    for (let one = place; one >= 0; one = nodes[one].above) {
      const held = spots.get(one);
      if (!held) continue;
      chunks.draw(held.part);
      const { item } = held;
      if (!item.places) return item.box;
      item.box.open = true;
      unfold(item, item.box);
      return item.inside.get(one);
    }
    return null;
  }

  // -- what is shown, by the address ----------------------------------------------------------

  function fragment(leaf, target) {
    const parts = [`leaf=${encodeURIComponent(key(leaf))}`];
    if (target >= 0) parts.push(`target=${encodeURIComponent(key(target))}`);
    return `#${parts.join("&")}`;
  }

  function asked() {
    const told = new URLSearchParams(location.hash.slice(1).replaceAll("+", "%2B"));
    const place = (name) => places.get(told.get(name)) ?? -1;
    const target = place("target");
    let leaf = place("leaf");
    if (leaf < 0) leaf = target < 0 ? doc.leaf : through(target);
    if (target >= 0 && !pathTo(leaf).includes(target)) leaf = through(target);
    return { leaf, target };
  }

  function show() {
    if (location.hash === "#path") return; // the skip link
    const { leaf, target } = asked();
    const other = leaf !== view.leaf;
    view = { leaf, target, on: new Set(pathTo(leaf)) };
    if (other) drawPath();
    const aim = target >= 0 ? target : leaf;
    if (aim >= 0 && reveal(aim)) drawTree();
    markRows();
    if (chosen >= 0) {
      if (!tree.contains(document.activeElement)) carry(chosen);
      boxOf(rows[chosen]).scrollIntoView({ block: "nearest" });
    }
    $("reset").hidden = leaf === doc.leaf || doc.leaf < 0;
    for (const one of document.querySelectorAll(".aim")) one.classList.remove("aim");
    const box = target >= 0 ? spot(target) : null;
    if (box) {
      box.classList.add("aim");
      box.scrollIntoView({ block: "start" });
    } else if (other) {
      scrollTo(0, 0);
    }
  }

  function go(leaf, target) {
    const there = fragment(leaf, target);
    if (location.hash === there) show();
    else location.hash = there;
  }

  function choose(row) {
    go(view.on.has(row.place) && row.type !== "branch" ? view.leaf : through(row.place), row.place);
    if (narrow.matches) side(false);
  }

  function reset() {
    if (doc.leaf >= 0) go(doc.leaf, doc.leaf);
  }

  function side(open) {
    cols.classList.toggle("closed", !open);
    $("toggle").setAttribute("aria-expanded", String(open));
  }

  // -- keys and clicks ------------------------------------------------------------------------

  const keys = {
    ArrowDown: () => focusRow(current + 1),
    ArrowUp: () => focusRow(current - 1),
    Home: () => focusRow(0),
    End: () => focusRow(rows.length - 1),
    ArrowRight: (row) => (row.open === false ? toggle(row, true) : row.open && focusRow(current + 1)),
    ArrowLeft: (row) => {
      if (row.open) return toggle(row, false);
      let at = current;
      while (at > 0 && rows[at].level >= row.level) at--;
      return focusRow(at);
    },
    Enter: (row) => choose(row),
    " ": (row) => choose(row),
  };

  tree.addEventListener("keydown", (event) => {
    const act = keys[event.key];
    if (!act || !rows[current] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act(rows[current]);
  });

  tree.addEventListener("click", (event) => {
    const box = event.target.closest(".row");
    if (!box) return;
    const row = rows[Number(box.dataset.at)];
    carry(Number(box.dataset.at));
    if (row.open !== undefined && event.target.closest(".twist")) toggle(row, !row.open);
    else choose(row);
  });

  document.addEventListener("keydown", (event) => {
    const typing = event.target.matches("input, select, textarea");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      side(true);
      $("search").focus();
    } else if (event.key === "Escape") {
      if (event.target === $("search") && $("search").value) {
        $("search").value = "";
        drawTree();
      } else {
        reset();
      }
    }
  });

  $("search").addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "Enter") {
      event.preventDefault();
      drawTree();
      focusRow(0);
    }
  });

  let typed = 0;
  $("search").addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(drawTree, 120);
  });
  $("filter").addEventListener("change", drawTree);
  $("reset").addEventListener("click", reset);
  $("toggle").addEventListener("click", () => side(cols.classList.contains("closed")));
  addEventListener("hashchange", show);
  narrow.addEventListener("change", () => side(!narrow.matches));

  // -- what is known of the session -----------------------------------------------------------

  function about() {
    const { session, meta, kin } = doc;
    const name = session.name || session.sessionId || "Session";
    document.title = name;
    $("name").textContent = name;
    const box = $("about");
    box.append(el("h2", "", name));
    const described = (meta && meta.description) || session.description;
    if (described) box.append(el("p", "", described));
    for (const text of notes()) box.append(el("p", "notice", text));
    const facts = el("dl", "facts");
    for (const [term, value] of factsOf(session, meta, kin)) {
      if (value) facts.append(el("dt", "", term), el("dd", "", value));
    }
    box.append(facts);
    if (meta && meta.summary) {
      box.append(el("details", "", el("summary", "", "Summary"), ...prose(meta.summary)));
    }
    const files = [...(session.filesModified || []), ...(session.filesRead || [])];
    if (files.length) {
      const list = el("ul", "mono", ...files.slice(0, 300).map((path) => el("li", "", path)));
      box.append(el("details", "", el("summary", "", `Files (${files.length})`), list));
    }
  }

  function notes() {
    const found = [...doc.warnings];
    if (doc.redacted) found.push("Known kinds of secrets were taken out of the texts.");
    if (doc.omitted) found.push(`${count(doc.omitted, "older entry", "older entries")} left out.`);
    if (nodes.some((node) => node.length)) {
      found.push(`Entries of more than ${digits(doc.textMax)} characters are cut.`);
    }
    return found;
  }

  function factsOf(session, meta, kin) {
    const code = (text) => (text ? el("code", "", text) : "");
    const cost = session.costUsd ? `$${session.costUsd.toFixed(2)}` : "";
    const tools = Object.entries(session.toolsUsed || {}).sort((a, b) => b[1] - a[1]);
    return [
      ["Session", code(session.sessionId)],
      ["Agent", [session.agent, (session.models || []).join(", ")].filter(Boolean).join(" · ")],
      ["Directory", code(session.cwd)],
      ["Time (UTC)", [when(session.createdAt), when(session.modifiedAt)].filter(Boolean).join(" to ")],
      ["Messages", session.messageCount ? String(session.messageCount) : ""],
      ["Tools", tools.slice(0, 12).map(([tool, number]) => `${tool} ${number}`).join(", ")],
      ["Cost", cost],
      ["Tags", (session.tags || []).join(", ")],
      ["Context", doc.footer],
      ["Parent", code(kin.parent)],
      ["Forks", (kin.forks || []).join(", ")],
      ["Sub-agents", (kin.subagents || []).join(", ")],
      ["Resume", code(session.resume)],
      ["Described by", meta ? [meta.model, when(meta.updatedAt)].filter(Boolean).join(", ") : ""],
      ["Exported", [when(doc.exportedAt), doc.generator].filter(Boolean).join(" by ")],
    ];
  }

  about();
  side(!narrow.matches);
  view = { ...asked(), on: new Set() };
  view.on = new Set(pathTo(view.leaf));
  drawTree();
  view.leaf = -2; // nothing is drawn yet
  show();
})();
