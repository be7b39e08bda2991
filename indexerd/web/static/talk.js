// The conversation: the path to one entry, with messages in full and the work between them folded.
//
// A path that is drawn again keeps the elements that did not change, so what the reader opened stays
// open: another branch shares its beginning, and a session that grew shares all but its end. Elements
// of a long path are empty until they are nearly visible.
((indexerd) => {
  "use strict";
  const { $, el, digits, count, when, clock, lasted, moment, sync, settle, later, drawn } = indexerd.helpers;
  const { prose, pre, kindOf } = indexerd.prose;
  const { story, edits } = indexerd;
  const { ASIDE, BOOKS, isInterruption, who, line, tally, amount } = indexerd.rows;
  const MOST = 600; // items that are drawn at once
  const LISTED = 20; // decisions or files shown of a digest
  const ALONE = new Set(["user", "reply", "task", "plan", "compaction", "branch_summary", "custom", "bash"]);
  const WORK = new Set(["assistant", "tool", "call"]); // settings may be written when the next turn begins
  const box = $("path");
  let items = new Map(); // by key
  let spots = new Map(); // place -> item
  let ranges = new Map(); // digest, as JSON -> {box, covered}
  let leafNow = -1; // of the path that is shown
  let unfolded = false; // whether new folds begin open

  // -- items: a single message, {place, nodes}, or work, {places, nodes}. Work that edits files is an
  // item of its own, `open`; the entry of a result belongs to the item of its call. --------------

  const silent = (node) => (node.kind === "other" && ASIDE.has(node.type)) ||
    (node.kind !== "user" && !(node.text || node.calls || node.results || node.thinking || node.pictures || node.attached || node.failed));
  const isSaid = (node) => node.kind === "assistant" && Boolean(node.text.trim() || node.pictures);
  const edited = (node) => (node.calls || []).some((call) => call.edits);

  function grouped(path) { // the items of a path, by the digest that covers them
    const on = new Set(path), cuts = new Map(), closing = new Set(), owners = new Map();
    for (const one of story.doc.digests || []) {
      if (!on.has(one.from) || !on.has(one.to)) continue;
      cuts.set(one.from, one);
      closing.add(one.to);
    }
    const found = [{ digest: null, items: [] }];
    let work = null;
    const begin = (digest) => {
      found.push({ digest, items: [] });
      work = null;
    };
    for (const place of path) {
      const node = story.nodes[place];
      if (cuts.has(place)) begin(cuts.get(place));
      const held = found[found.length - 1].items;
      const alone = (ALONE.has(node.kind) && (node.text || !node.quiet)) ||
        (node.kind === "call" && node.text.trim()) || // a question
        isSaid(node);
      if (alone && !node.hidden) {
        held.push({ place, nodes: [node] });
        work = null;
      }
      if (!node.hidden && !silent(node) && (!alone || node.calls || node.results || node.thinking)) {
        const owner = node.kind === "tool" && owners.get(node.results?.[0]?.call);
        let item = owner || (edited(node) ? null : work);
        if (!item && !BOOKS.has(node.kind)) held.push((item = { places: [], nodes: [], open: edited(node) }));
        if (item) { // settings alone do not count as work
          item.places.push(place);
          item.nodes.push(node);
          for (const { id } of node.calls || []) if (id) owners.set(id, item);
        }
        if (!owner) work = item?.open ? null : item;
      }
      if (closing.has(place)) begin(null);
    }
    return found;
  }

  function kept(item) { // the item already drawn for the same entries, updated
    item.key = `${item.places ? "w" : "s"}${story.name((item.places || [item.place])[0])}`;
    const old = items.get(item.key);
    if (!old || old.nodes.length > item.nodes.length) return item;
    if (old.nodes.some((node, at) => node !== item.nodes[at])) return item;
    const grew = item.nodes.length > old.nodes.length;
    Object.assign(old, item);
    if (grew) grow(old);
    return old;
  }

  function draw(leaf) {
    const active = box.contains(document.activeElement) ? document.activeElement : null;
    const now = new Map(), held = ranges, wanted = [];
    leafNow = leaf;
    spots = new Map();
    ranges = new Map();
    for (const group of grouped(story.pathTo(leaf))) {
      const boxes = group.items.map(kept).map((item) => {
        now.set(item.key, item);
        for (const place of item.places || [item.place]) if (!spots.has(place)) spots.set(place, item);
        item.box ||= itemBox(item);
        return item.box;
      });
      if (!group.digest) {
        wanted.push(...boxes);
      } else if (boxes.length) {
        const key = JSON.stringify(group.digest), range = held.get(key) || rangeOf(group.digest);
        ranges.set(key, range);
        sync(range.covered, boxes);
        wanted.push(range.box);
      }
    }
    items = now;
    sync(box, wanted.length ? wanted : [el("p", "cut", "This path has no messages.")]);
    if (active && document.activeElement !== active && box.contains(active)) {
      active.focus({ preventScroll: true });
    }
    if (items.size <= MOST) for (const item of items.values()) drawn(item.box);
  }

  function rangeOf(digest) {
    const covered = el("div", "covered");
    return { covered, box: el("div", "range", digestBox(digest), covered) };
  }

  function itemBox(item) {
    const one = !item.places ? later(el("article", `said ${item.nodes[0].kind}`), () => saidParts(item.place))
      : item.open ? later(el("div", "edits"), () => (unfold(item), []))
        : later(el("details", "fold"), () => summaryOf(item));
    if (!item.places) one.tabIndex = -1;
    one.item = item;
    if (item.places && !item.open) one.open = unfolded; // fires `toggle`
    return one;
  }

  function digestBox(digest) {
    const [first, last] = digest.covering_messages;
    const name = `Digest of messages ${digits(first + 1)} to ${digits(last + 1)}`;
    const one = el("details", "digest", el("summary", "", el("h3", "", name)));
    // Its headings follow lists without an empty line, so they would belong to the last item.
    one.append(prose(digest.content.replace(/\n(?=\*\*[^*\n]+\*\*:?(?:\n|$))/g, "\n\n")));
    const decided = digest.key_decisions || [], changed = digest.files_modified || [];
    if (decided.length) {
      const some = decided.slice(0, LISTED).map((text) => el("li", "", text));
      if (decided.length > LISTED) some.push(el("li", "", `and ${digits(decided.length - LISTED)} more`));
      one.append(el("h4", "", "Decided"), el("ul", "", ...some));
    }
    if (changed.length) one.append(el("p", "", `Files changed: ${changed.slice(0, LISTED).join(", ")}`));
    return one;
  }

  // -- one item -------------------------------------------------------------------------------

  function cutNotes(node) {
    const { text, length, leftOut, sent } = node;
    const cut = length && `Cut: ${digits(text.length)} of ${digits(length)} characters are shown.`;
    const notes = cut ? [el("p", "cut", cut)] : [];
    if (!leftOut) return notes;
    return [closed(`${count(leftOut, "character")} that a program put around this prompt`, sent), ...notes];
  }

  function turn(place) { // how long the work lasted that a prompt began
    const path = story.pathTo(leafNow), { nodes } = story, begun = moment(nodes[place].time);
    let last = 0;
    for (const { kind, hidden, time, ended } of path.slice(path.indexOf(place) + 1).map((one) => nodes[one])) {
      if (kind === "user" && !hidden) break;
      if (WORK.has(kind)) last = Math.max(last, moment(ended || time) || 0);
    }
    return begun && last > begun ? lasted(last - begun) : "";
  }

  function saidParts(place) {
    const node = story.nodes[place], asks = /^(user|task|plan)$/.test(node.kind);
    const head = el("header", "", el("h3", "", who({ ...node, kind: node.kind === "call" ? "assistant" : node.kind, results: null })));
    if (node.label) head.append(el("span", "label", node.label));
    if (node.failed && !isInterruption(node)) head.append(el("span", "bad", "failed"));
    if (node.model && (story.doc.session.models || []).length > 1) head.append(el("span", "", node.model));
    const link = el("a", "link", "link");
    link.href = `#target=${encodeURIComponent(story.name(place))}`;
    const spent = asks ? turn(place) : "";
    head.append((asks ? when : clock)(node.time) || "", spent ? el("span", "", spent) : "",
      el("span", "acts", indexerd.labelButton?.(), link));
    const text = node.kind === "bash" ? pre(node.text) : prose(node.text, kindOf(node));
    return [head, text, ...filesOf(node), ...cutNotes(node)];
  }

  function filesOf(node) {
    const found = (node.pictures || []).map((picture, at) => {
      const address = picture.data ? `data:${picture.type};base64,${picture.data}`
        : story.doc.live && indexerd.actions?.address(`image/${node.row}/${at}`);
      if (!address) return el("p", "cut", `Image left out (${picture.type}, ${digits(Math.ceil(picture.size / 1024))} KB)`);
      const one = el("img", "picture");
      one.loading = "lazy";
      one.alt = `Image ${at + 1} of this message`;
      one.src = address;
      one.addEventListener("error", () => one.replaceWith(el("p", "cut", "1 image not shown: it is damaged")));
      return one;
    });
    const more = (node.images || 0) - found.length;
    if (more > 0) found.push(el("p", "cut", `${count(more, "image")} not shown`));
    if (node.attached) found.push(el("p", "cut", `Attached, not shown: ${node.attached.join(", ")}`));
    return found;
  }

  function summaryOf(item) {
    const sum = { ...tally(item.nodes), answers: 0 }, { failed, rejected, thoughts } = sum; // answers are separate items
    const named = amount(sum), thought = thoughts ? count(thoughts, "thought") : "";
    const summary = el("summary", "", sum.total ? [named, thought].filter(Boolean).join(", ") : thought || named);
    const bad = [failed && `${failed} failed`, rejected && `${rejected} rejected`].filter(Boolean);
    if (bad.length) summary.append(el("span", "bad", bad.join(", ")));
    return [summary];
  }

  function grow(item) { // update work that went on; its open entries stay open
    if (!item.open) drawn(item.box).firstChild.replaceChildren(...summaryOf(item)[0].childNodes);
    if (item.inside) unfold(item);
  }

  function unfold(item) {
    item.inside ||= { box: el("div", "inside"), of: new Map(), calls: new Map() };
    for (const node of item.nodes) {
      if (item.inside.of.has(node)) continue;
      const each = insideBox(node, item.inside.calls);
      item.inside.of.set(node, each);
      if (!each.parentNode) item.inside.box.append(each);
    }
    if (!item.inside.box.parentNode) drawn(item.box).append(item.inside.box);
  }

  // The element of an entry. That of a result is its call's, in `calls` by id.
  function insideBox(node, calls) {
    const one = el("div", "said");
    one.tabIndex = -1;
    if (node.thinking) one.append(closed("Thought", node.thinking));
    for (const call of node.calls || []) {
      const each = callBox(call);
      one.append(each);
      if (call.id) calls.set(call.id, each);
    }
    const images = isSaid(node) ? [] : filesOf(node); // which result has them is not known
    let home = null;
    for (const result of node.results || []) {
      const call = calls.get(result.call);
      const text = result.text ?? (node.kind === "tool" ? node.text : ""), whole = result.length || node.length;
      if (call) answer(call, text, whole, images.splice(0));
      else if (node.kind !== "tool") one.append(closed(`Result of ${result.tool || "a call"}`, text));
      home ||= call;
    }
    if (home && !one.childNodes.length) return home;
    if (node.kind === "assistant" || (!node.text && one.childNodes.length)) return one;
    const name = `${who(node)}: ${node.failed && !isInterruption(node) ? "failed" : line(node, 200)}`;
    if (node.text) one.append(closed(name, node.text, ...filesOf(node), ...cutNotes(node)));
    else one.append(el("div", "cut", name), ...filesOf(node));
    return one;
  }

  function callBox({ tool, detail, input, edits: changes, failed }) {
    const bad = failed ? el("span", "bad", failed) : "";
    const name = el("span", "name", tool || "call");
    const one = el("div", "call", ...(changes ? changes.map((edit) => edits.diffBox(edit, failed))
      : [el("div", "line", name, " ", bad, " ", el("code", "", detail || ""))]));
    one.edits = Boolean(changes);
    one.input = changes ? "" : input || detail || "";
    one.tabIndex = -1;
    answer(one, "", 0, []);
    return one;
  }

  function answer(call, text, whole, images) { // fold a result under its call
    const note = whole ? el("p", "cut", `Cut: ${digits(text.length)} of ${digits(whole)} characters are shown.`) : "";
    const texts = [call.input, text].filter((one) => one.trim()), old = call.firstChild;
    if (!texts.length) return call.append(...images);
    if (call.edits) return call.append(closed("Result", texts, ...images, note));
    const one = closed("", texts, ...images, note);
    one.firstChild.append(...(old.open === undefined ? old : old.firstChild).childNodes);
    one.open = Boolean(old.open);
    return call.replaceChildren(one);
  }

  function closed(name, texts, ...more) {
    const one = el("details", "result", el("summary", "", name));
    one.addEventListener("toggle", () => {
      if (!one.open || one.childNodes.length > 1) return;
      for (const text of [texts].flat()) {
        const shown = one.appendChild(pre(text));
        shown.tabIndex = 0; // it scrolls
      }
      one.append(...more.filter(Boolean));
    });
    return one;
  }

  box.addEventListener("toggle", (event) => { // does not bubble, but can be captured
    const { item, open } = event.target;
    if (item?.places && open) unfold(item);
  }, true);

  // -- finding elements -----------------------------------------------------------------------

  function spot(place) { // the element of an entry, or of the nearest one above that has an element
    for (let one = place; one >= 0; one = story.nodes[one].above) {
      const item = spots.get(one);
      if (!item) continue;
      if (!item.places) return drawn(item.box);
      if (!item.open) item.box.open = true;
      drawn(item.box);
      unfold(item);
      return item.inside.of.get(story.nodes[one]);
    }
    return null;
  }

  const placeOf = (element) => element.closest("article")?.item?.place ?? -1;

  const first = () => items.values().next().value;

  function atTop(edge) { // the last item that begins above this height, if any
    const all = [...items.values()];
    let from = 0, to = all.length;
    while (from < to) { // items are in their order on the page
      const middle = (from + to) >> 1;
      if (all[middle].box.getBoundingClientRect().top <= edge) from = middle + 1;
      else to = middle;
    }
    return all[from - 1];
  }

  function foldAll() { // open or close all work on the path
    unfolded = !unfolded;
    for (const item of items.values()) if (item.places && !item.open) item.box.open = unfolded;
    return unfolded;
  }

  const end = () => settle(() => scrollTo(0, document.documentElement.scrollHeight));

  indexerd.talk = { draw, spot, placeOf, first, atTop, foldAll, end };
})((window.indexerd ||= {}));
