// The tree at the side: rows in blocks, each drawn when it comes into sight; the keyboard's row.
//
// A tree that is drawn again keeps every row that looks as before, with its element: whoever opens
// a branch, or reads while a session grows, has the rows between redrawn and no others.
((indexerd) => {
  "use strict";
  const { $, el, digits, count, Parts } = indexerd.words;
  const { story } = indexerd;
  const { opened, who, key, words, rowsOf, done, bar, same } = indexerd.rows;
  const BLOCK = 40; // rows that a browser lays out at once
  const MOST = 600; // rows up to which all are drawn at once
  const DEPTH = 12; // levels that are moved in
  const box = $("tree");
  const parts = new Parts(box, MOST);
  let rows = [];
  let blocks = []; // {rows, part}
  let current = -1; // the row that has the keyboard
  let chosen = -1; // the row of what is shown
  let shown = { on: new Set(), aim: -1 }; // the path that is shown, and the entry meant in it

  // -- rows -----------------------------------------------------------------------------------

  function rowBox(row) {
    if (row.box) return row.box;
    const { node, beat, type } = row;
    const name = type === "entry" && node.kind === "user" ? "ask" : type;
    const one = el("div", `row ${name}${row.active ? " active" : ""}`);
    one.style.setProperty("--level", Math.min(row.level - 1, DEPTH));
    one.setAttribute("role", "treeitem");
    one.setAttribute("aria-level", row.level);
    if (row.open !== undefined) {
      one.setAttribute("aria-expanded", row.open);
      const twist = el("span", "twist", row.open ? "-" : "+");
      twist.setAttribute("aria-hidden", "true");
      one.append(twist);
    }
    if (beat) one.append(bar(done(beat)));
    const label = type === "branch" ? row.labels : beat ? "" : node.label;
    if (label) one.append(el("span", "label", label));
    const said = el("span", "words");
    if (type === "entry") said.append(el("span", "who", `${who(node)}:`), " ");
    said.append(words(row));
    const failed = beat ? done(beat).failed : type === "entry" ? node.failed : 0;
    if (failed) said.append(el("span", "bad", ` · ${failed} failed`));
    one.append(said);
    if (row.leaf) one.append(el("span", "now", "leaf"));
    one.row = row;
    row.box = one;
    mark(row);
    return one;
  }

  function mark(row) {
    const name = row.box.classList;
    const on = row.type !== "branch" && shown.on.has(row.place);
    if (name.contains("shown") !== on) name.toggle("shown", on);
    const selected = String(row.at === chosen);
    if (row.box.getAttribute("aria-selected") !== selected) row.box.setAttribute("aria-selected", selected);
    const tab = row.at === current ? 0 : -1;
    if (row.box.tabIndex !== tab || !row.box.hasAttribute("tabindex")) row.box.tabIndex = tab;
  }

  function boxOf(row) {
    parts.draw(row.block.part);
    return row.box;
  }

  function atEnd() { // and nobody has a hand on it
    const left = box.scrollHeight - box.clientHeight - box.scrollTop;
    return left < 2 && !box.matches(":hover, :focus-within");
  }

  // -- the whole ------------------------------------------------------------------------------

  const mode = () => $("filter").value;
  const sought = () => $("search").value.toLowerCase().split(/\s+/).filter(Boolean);

  function draw() {
    const held = rows[current], focused = box.contains(document.activeElement);
    const top = box.scrollTop, again = held && key(held), old = new Map(rows.map((row) => [key(row), row]));
    rows = rowsOf(mode(), sought());
    rows.forEach((row, at) => {
      const before = old.get(key(row));
      row.at = at;
      if (!before || !before.box || !same(before, row)) return;
      row.box = before.box;
      row.box.row = row;
    });
    for (const block of blocks) parts.drop(block.part);
    blocks = [];
    for (let start = 0; start < rows.length; start += BLOCK) {
      const block = { rows: rows.slice(start, start + BLOCK) };
      block.part = parts.add("block", block.rows.length, () => block.rows.map(rowBox));
      block.part.box.setAttribute("role", "none");
      for (const row of block.rows) row.block = block;
      if (!start || block.rows.some((row) => row.box)) parts.draw(block.part);
      blocks.push(block);
    }
    box.replaceChildren(...blocks.map((block) => block.part.box));
    parts.fill(rows.length, blocks.map((block) => block.part));
    box.scrollTop = top;
    tell();
    current = -1;
    choose();
    carry(again ? rows.findIndex((row) => key(row) === again) : -1);
    if (focused && rows[current]) boxOf(rows[current]).focus({ preventScroll: true });
  }

  function tell() {
    const all = count(story.nodes.length, "entry", "entries");
    const asks = story.asksTo[story.beats.length];
    const flat = sought().length || mode() === "all" || mode() === "labeled-only";
    $("count").textContent = flat ? `${digits(rows.length)} of ${all}` : `${count(asks, "ask")}, ${all}`;
    $("none").hidden = rows.length > 0 || !sought().length;
    if ($("none").hidden) return;
    const among = /^(default|all)$/.test(mode()) ? "" : ` by the filter “${$("filter").selectedOptions[0].text}”`;
    $("none").firstChild.textContent = `Nothing is found${among} that has “${sought().join(" ").slice(0, 80)}”. `;
  }

  // -- what is shown, and where the keyboard is -----------------------------------------------

  function choose() {
    const { aim } = shown;
    chosen = -1;
    for (let at = 0; at < rows.length; at++) {
      const row = rows[at];
      const held = row.beat ? aim >= row.beat.first && aim <= row.beat.last : row.place === aim;
      if (held && (row.type !== "branch" || chosen < 0 || !row.open)) chosen = at;
    }
    for (const row of rows) if (row.box) mark(row);
  }

  function put(on, aim, follow) {
    shown = { on, aim };
    choose();
    if (!follow || chosen < 0) return;
    if (chosen < rows.length - 1) boxOf(rows[chosen]).scrollIntoView({ block: "nearest" });
    else box.scrollTop = box.scrollHeight;
  }

  function show(on, aim) {
    put(on, aim);
    if (chosen < 0) return;
    if (!box.contains(document.activeElement)) carry(chosen);
    boxOf(rows[chosen]).scrollIntoView({ block: "nearest" });
  }

  function carry(at) {
    const old = rows[current];
    current = Math.min(Math.max(at < 0 ? chosen : at, 0), rows.length - 1);
    if (old && old.box && old !== rows[current]) old.box.tabIndex = -1;
    if (rows[current]) boxOf(rows[current]).tabIndex = 0;
  }

  function focus(at) {
    if (!rows.length) return;
    carry(Math.max(0, at));
    counted(current);
    boxOf(rows[current]).focus();
    const next = rows[current + (at < 0 ? 0 : 1)]; // drawn before it is in sight
    if (next) parts.draw(next.block.part);
  }

  function counted(at) { // which of how many: for who hears it, as not all rows are there
    const { level, box: one } = rows[at];
    let place = 1, all = 1;
    for (let i = at - 1; i >= 0 && rows[i].level >= level; i--) if (rows[i].level === level) place++;
    for (let i = at + 1; i < rows.length && rows[i].level >= level; i++) if (rows[i].level === level) all++;
    one.setAttribute("aria-posinset", place);
    one.setAttribute("aria-setsize", all + place - 1);
  }

  function toggle(row, open) {
    opened.set(key(row), open);
    const name = key(row);
    draw();
    focus(rows.findIndex((one) => key(one) === name));
  }

  function up(row) { // the row that this one hangs below
    let at = row.at;
    while (at > 0 && rows[at].level >= row.level) at--;
    focus(at);
  }

  // -- keys and clicks ------------------------------------------------------------------------

  const keys = {
    ArrowDown: (row) => focus(row.at + 1),
    ArrowUp: (row) => focus(row.at - 1),
    Home: () => focus(0),
    End: () => focus(rows.length - 1),
    ArrowRight: (row) => (row.open === false ? toggle(row, true) : row.open && focus(row.at + 1)),
    ArrowLeft: (row) => (row.open ? toggle(row, false) : up(row)),
    Enter: (row) => indexerd.session.choose(row),
    " ": (row) => indexerd.session.choose(row),
    l: (row) => indexerd.label && indexerd.label(row.place, $("count")),
  };

  box.addEventListener("keydown", (event) => {
    const act = keys[event.key];
    if (!act || !rows[current] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act(rows[current]);
  });

  box.addEventListener("click", (event) => {
    const one = event.target.closest(".row");
    if (!one) return;
    carry(one.row.at);
    if (one.row.open !== undefined && event.target.closest(".twist")) toggle(one.row, !one.row.open);
    else indexerd.session.choose(one.row);
  });

  box.addEventListener("focusin", (event) => { // whoever moved it there
    const { row } = event.target;
    if (row && row.at !== current) carry(row.at);
  });

  box.addEventListener("mouseover", (event) => { // all of a text that is cut
    const one = event.target.closest(".row");
    if (one && !one.title) one.title = one.querySelector(".words").textContent;
  });

  indexerd.tree = {
    show, focus, draw,
    mark: put,
    refocus: () => focus(current),
    search: () => {
      draw();
      $("heard").textContent = $("count").textContent;
    },
    follows: () => { // whether the tree goes with its chosen row: that is in sight, at the tree's end
      const one = rows[chosen] && rows[chosen].box;
      if (!one || !atEnd()) return false;
      const { top, bottom } = one.getBoundingClientRect(), all = box.getBoundingClientRect();
      return bottom > all.top && top < all.bottom;
    },
  };
})((window.indexerd ||= {}));
