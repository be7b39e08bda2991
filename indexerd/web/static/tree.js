// The tree at the side: its rows, the row of the shown entry, and the row with the keyboard focus.
//
// A tree that is drawn again keeps the elements of rows that look the same.
((indexerd) => {
  "use strict";
  const { $, el, digits, count, sync } = indexerd.helpers;
  const { story } = indexerd;
  const { opened, who, key, marked, rowsOf, done, bar, same } = indexerd.rows;
  const MOST = 600; // rows that a browser lays out at once
  const DEPTH = 12; // levels that are indented
  const box = $("tree");
  let rows = [];
  let current = -1; // the row with the keyboard focus
  let chosen = -1; // the row of the shown entry
  let shown = { on: new Set(), aim: -1 }; // the path that is shown, and the selected entry on it

  // -- rows -----------------------------------------------------------------------------------

  function rowBox(row) {
    if (row.box) return row.box;
    const { node, beat, type } = row;
    const name = type === "entry" && node.kind === "user" ? "ask" : type;
    const one = el("div", `row ${name}${row.active ? " active" : ""}${row.word ? " hit" : ""}`);
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
    said.append(...marked(row));
    const failed = beat ? done(beat).failed : type === "entry" ? node.failed : 0;
    if (failed) said.append(el("span", "bad", ` · ${failed} failed`));
    one.append(said);
    if (row.leaf) one.append(el("span", "now", "leaf"));
    one.row = row;
    row.box = one;
    return one;
  }

  function mark(row) {
    row.box.classList.toggle("shown", row.type !== "branch" && shown.on.has(row.place));
    row.box.setAttribute("aria-selected", row.at === chosen);
    row.box.tabIndex = row.at === current ? 0 : -1;
  }

  // -- the whole ------------------------------------------------------------------------------

  const mode = () => $("filter").value;
  const sought = () => $("search").value.toLowerCase().split(/\s+/).filter(Boolean);

  function draw() {
    const held = rows[current], focused = box.contains(document.activeElement);
    const top = box.scrollTop, old = new Map(rows.map((row) => [key(row), row]));
    rows = rowsOf(mode(), sought());
    rows.forEach((row, at) => {
      const before = old.get(key(row));
      row.at = at;
      if (!before || !same(before, row)) return;
      row.box = before.box;
      row.box.row = row;
    });
    box.classList.toggle("long", rows.length > MOST);
    sync(box, rows.map(rowBox));
    box.scrollTop = top;
    tell();
    current = -1;
    choose();
    carry(held ? rows.findIndex((row) => key(row) === key(held)) : -1);
    if (focused && rows[current]) rows[current].box.focus({ preventScroll: true });
  }

  function tell() {
    const all = count(story.nodes.length, "entry", "entries");
    const flat = sought().length || mode() === "all" || mode() === "labeled-only";
    $("count").textContent = flat ? `${digits(rows.length)} of ${all}` : all; // those of all branches
    $("none").hidden = rows.length > 0 || !sought().length;
    if ($("none").hidden) return;
    const among = /^(default|all)$/.test(mode()) ? "" : ` with the filter “${$("filter").selectedOptions[0].text}”`;
    $("none").firstChild.textContent = `Nothing matches “${sought().join(" ").slice(0, 80)}”${among}. `;
  }

  // -- the shown entry and the keyboard focus -------------------------------------------------

  function rowAt(aim) { // the row of an entry, or -1
    let found = -1;
    for (const { type, beat, place, open, at } of rows) {
      const held = beat ? aim >= beat.first && aim <= beat.last : place === aim;
      if (held && (type !== "branch" || found < 0 || !open)) found = at;
    }
    return found;
  }

  function choose() {
    chosen = rowAt(shown.aim);
    rows.forEach(mark);
  }

  function read(places) { // select the row of what is being read: of the first place that has one
    const place = places.find((one) => rowAt(one) >= 0) ?? -1;
    const old = rows[chosen], at = rowAt(place);
    if (at < 0 || at === chosen) return;
    shown.aim = place;
    chosen = at;
    if (old) mark(old);
    mark(rows[at]);
    if (!box.matches(":hover, :focus-within")) rows[at].box.scrollIntoView({ block: "nearest" });
  }

  function show(on, aim, scroll) {
    shown = { on, aim };
    choose();
    if (chosen < 0 || !scroll) return;
    if (!box.contains(document.activeElement)) carry(chosen);
    rows[chosen].box.scrollIntoView({ block: "nearest" });
  }

  function carry(at) {
    if (rows[current]) rows[current].box.tabIndex = -1;
    current = Math.min(Math.max(at < 0 ? chosen : at, 0), rows.length - 1);
    if (rows[current]) rows[current].box.tabIndex = 0;
  }

  function focus(at) {
    if (!rows.length) return;
    carry(Math.max(0, at));
    rows[current].box.focus();
  }

  function toggle(row, open) {
    opened.set(key(row), open);
    draw();
    focus(rows.findIndex((one) => key(one) === key(row)));
  }

  function up(row) { // focus the parent row
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

  box.addEventListener("focusin", ({ target: { row } }) => {
    if (row && row.at !== current) carry(row.at);
  });

  box.addEventListener("mouseover", (event) => { // show the whole text of a row
    const one = event.target.closest(".row");
    if (one && !one.title) one.title = one.querySelector(".words").textContent;
  });

  indexerd.tree = {
    show, focus, draw, read,
    refocus: () => focus(current),
    search: () => {
      draw();
      if (sought().length) box.scrollTop = 0;
      else rows[chosen]?.box.scrollIntoView({ block: "nearest" });
      $("heard").textContent = $("count").textContent;
    },
  };
})((window.indexerd ||= {}));
