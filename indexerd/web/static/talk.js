// The conversation: the path to one entry, with messages in full and the work between them folded.
//
// A path that is drawn again keeps the elements that did not change, so what the reader opened stays
// open: another branch shares its beginning, and a session that grew shares all but its end. Elements
// of a long path are empty until they are nearly visible.
((indexerd) => {
  "use strict";
  const { $, el, digits, count, when, sync, settle, later, drawn } = indexerd.helpers;
  const { prose, pre } = indexerd.prose;
  const { story } = indexerd;
  const { BOOKS, who, line, tally, amount, bar } = indexerd.rows;
  const MOST = 600; // items that are drawn at once
  const LISTED = 20; // decisions or files shown of a digest
  const ALONE = new Set(["user", "compaction", "branch_summary", "custom", "bash"]);
  const box = $("path");
  let items = new Map(); // by key
  let spots = new Map(); // place -> item
  let ranges = new Map(); // digest, as JSON -> {box, covered}
  let unfolded = false; // whether new folds begin open

  // -- items: a single entry, {place, nodes}, or work, {places, nodes} -------------------------

  function grouped(path) { // the items of a path, by the digest that covers them
    const on = new Set(path), cuts = new Map(), closing = new Set();
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
      const alone = ALONE.has(node.kind) || (node.kind === "assistant" && node.text.trim());
      if (alone && !node.hidden) {
        held.push({ place, nodes: [node] });
        work = null;
      }
      if (!node.hidden && (!alone || node.calls || node.results || node.thinking)) {
        if (!work && !BOOKS.has(node.kind)) held.push((work = { places: [], nodes: [] }));
        if (work) { // settings alone do not count as work
          work.places.push(place);
          work.nodes.push(node);
        }
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
    const one = item.places ? later(el("details", "fold"), () => summaryOf(item))
      : later(el("article", `said ${item.nodes[0].kind}`), () => saidParts(item.place));
    if (!item.places) one.tabIndex = -1;
    one.item = item;
    if (item.places) one.open = unfolded; // fires `toggle`
    return one;
  }

  function digestBox(digest) {
    const [first, last] = digest.covering_messages;
    const one = el("aside", "digest", el("h3", "", `Digest of messages ${first} to ${last}`));
    one.append(...prose(digest.content));
    const decided = digest.key_decisions || [], changed = digest.files_modified || [];
    if (decided.length) {
      const some = decided.slice(0, LISTED).map((text) => el("li", "", text));
      if (decided.length > LISTED) some.push(el("li", "", `and ${digits(decided.length - LISTED)} more`));
      one.append(el("h4", "", "Decided"), el("ul", "", ...some));
    }
    if (changed.length) one.append(el("p", "", `Files changed: ${changed.slice(0, LISTED).join(", ")}`));
    one.tabIndex = 0; // it scrolls
    one.setAttribute("aria-label", `Digest of messages ${first} to ${last}`);
    return one;
  }

  // -- one item -------------------------------------------------------------------------------

  function cutNote(node) {
    if (!node.length) return "";
    const here = digits(node.text.length);
    return el("p", "cut", `Cut: ${here} of ${digits(node.length)} characters are shown.`);
  }

  function saidParts(place) {
    const node = story.nodes[place];
    const head = el("header", "", el("h3", "", who({ ...node, tool: "" })));
    if (node.label) head.append(el("span", "label", node.label));
    if (node.failed) head.append(el("span", "bad", "failed"));
    if (node.model) head.append(el("span", "", node.model));
    const link = el("a", "link", "link");
    link.href = `#target=${encodeURIComponent(story.name(place))}`;
    head.append(when(node.time) || "", el("span", "acts", indexerd.labelButton?.(), link));
    const text = node.kind === "bash" ? [pre(node.text)] : prose(node.text);
    const images = node.images ? el("p", "cut", `${count(node.images, "image")} not shown`) : "";
    return [head, ...text, images, cutNote(node)];
  }

  function summaryOf(item) {
    const sum = { ...tally(item.nodes), answers: 0 }, { failed, thoughts } = sum; // answers are separate items
    const summary = el("summary", "", bar(sum), amount(sum) + (thoughts ? `, ${count(thoughts, "thought")}` : ""));
    if (failed) summary.append(el("span", "bad", `${failed} failed`));
    return [summary];
  }

  function grow(item) { // update the summary of work that went on; its open entries stay open
    drawn(item.box).firstChild.replaceChildren(...summaryOf(item)[0].childNodes);
    if (item.inside) unfold(item);
  }

  function unfold(item) {
    item.inside ||= { box: el("div", "inside"), of: new Map() };
    for (const node of item.nodes) {
      if (item.inside.of.has(node)) continue;
      const each = insideBox(node);
      item.inside.of.set(node, each);
      item.inside.box.append(each);
    }
    if (!item.inside.box.parentNode) drawn(item.box).append(item.inside.box);
  }

  function insideBox(node) {
    const one = el("div", "said");
    one.tabIndex = -1;
    if (node.thinking) one.append(closed("Thought", node.thinking));
    for (const [tool, what] of node.calls || []) {
      one.append(el("div", "call", el("strong", "", tool || "call"), " ", el("code", "", what)));
    }
    for (const [tool, text] of node.results || []) one.append(closed(`Result of ${tool || "a call"}`, text));
    if (node.kind === "assistant" || (!node.text && one.childNodes.length)) return one;
    const name = `${who(node)}: ${node.failed ? "failed" : line(node, 200)}`;
    one.append(node.text ? closed(name, node.text, cutNote(node)) : el("div", "cut", name));
    return one;
  }

  function closed(name, text, note = "") {
    const one = el("details", "", el("summary", "", name));
    one.addEventListener("toggle", () => {
      if (one.open && one.childNodes.length === 1) one.append(pre(text), note);
    });
    return one;
  }

  box.addEventListener("toggle", (event) => { // does not bubble, but can be captured
    const { item, open } = event.target;
    if (item && item.places && open) unfold(item);
  }, true);

  // -- finding elements -----------------------------------------------------------------------

  function spot(place) { // the element of an entry, or of the nearest one above that has an element
    for (let one = place; one >= 0; one = story.nodes[one].above) {
      const item = spots.get(one);
      if (!item) continue;
      if (!item.places) return drawn(item.box);
      item.box.open = true;
      unfold(item);
      return item.inside.of.get(story.nodes[one]);
    }
    return null;
  }

  const placeOf = (element) => element.closest("article")?.item?.place ?? -1;

  function atTop(edge) { // the last item that begins above this height, if any
    return [...items.values()].findLast((item) => item.box.getBoundingClientRect().top <= edge);
  }

  function foldAll() { // open or close all work on the path
    unfolded = !unfolded;
    for (const item of items.values()) if (item.places) item.box.open = unfolded;
    return unfolded;
  }

  const end = () => settle(() => scrollTo(0, document.documentElement.scrollHeight));

  indexerd.talk = { draw, spot, placeOf, atTop, foldAll, end };
})((window.indexerd ||= {}));
