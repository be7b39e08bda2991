// The conversation: the path to one entry, what was said in full and the work between folded.
//
// A path that is drawn again keeps what is the same in it, with its elements: another branch has
// its beginning in common with this one, and a session that grew all but its end. So what the
// reader opened stays open, and nothing above the change is laid out again.
((indexerd) => {
  "use strict";
  const { $, el, digits, count, when, sync, settle, Parts } = indexerd.words;
  const { prose, pre } = indexerd.prose;
  const { story } = indexerd;
  const { BOOKS, who, line, tally, amount, bar } = indexerd.rows;
  const CHUNK = 12; // items that are filled in at once
  const MOST = 600; // items up to which all are drawn at once
  const LISTED = 20; // decisions, and files, of a digest
  const ALONE = new Set(["user", "compaction", "branch_summary", "custom", "bash"]);
  const box = $("path");
  const parts = new Parts(null, MOST);
  let groups = []; // {digest, items, chunks, box, covered}
  let items = new Map(); // by their first node
  let spots = new Map(); // place -> {item, chunk}
  let unfolded = false; // whether new folds begin open

  // -- what there is to draw ------------------------------------------------------------------

  function grouped(path) {
    const on = new Set(path), cuts = new Map(), closing = new Set();
    for (const one of story.doc.digests || []) {
      if (!on.has(one.from) || !on.has(one.to)) continue;
      cuts.set(one.from, one);
      closing.add(one.to);
    }
    const found = [{ digest: null, items: [] }];
    let work = null;
    for (const place of path) {
      const node = story.nodes[place];
      if (cuts.has(place)) {
        found.push({ digest: cuts.get(place), items: [] });
        work = null;
      }
      const held = found[found.length - 1].items;
      const alone = ALONE.has(node.kind) || (node.kind === "assistant" && node.text.trim());
      if (alone && !node.hidden) {
        held.push({ place, nodes: [node] });
        work = null;
      }
      const book = BOOKS.has(node.kind);
      if (!node.hidden && (!alone || node.calls || node.results || node.thinking)) {
        if (!work && !book) held.push((work = { places: [], nodes: [] }));
        if (work) { // settings alone are no work
          work.places.push(place);
          work.nodes.push(node);
        }
      }
      if (closing.has(place)) {
        found.push({ digest: null, items: [] });
        work = null;
      }
    }
    return found.filter((group) => group.items.length);
  }

  const itemKey = (item) => `${item.places ? "w" : "s"}${story.name((item.places || [item.place])[0])}`;

  function held(item) { // the item that was drawn for the same, brought up to date
    const old = items.get(itemKey(item));
    if (!old || old.nodes.length > item.nodes.length) return item;
    if (old.nodes.some((node, at) => node !== item.nodes[at])) return item;
    const grew = item.nodes.length > old.nodes.length;
    Object.assign(old, item);
    if (grew && old.box) grow(old);
    return old;
  }

  // -- the whole ------------------------------------------------------------------------------

  function draw(leaf) {
    const active = box.contains(document.activeElement) ? document.activeElement : null;
    const before = groups;
    const now = new Map();
    spots = new Map();
    groups = grouped(story.pathTo(leaf)).map((group, at) => {
      group.items = group.items.map(held);
      for (const item of group.items) now.set(itemKey(item), item);
      return laid(group, before[at]);
    });
    items = now;
    for (const old of before) for (const chunk of old.chunks) if (!chunk.kept) parts.drop(chunk.part);
    for (const group of groups) for (const chunk of group.chunks) chunk.kept = false;
    sync(box, groups.length ? groups.map((group) => group.box)
      : [el("p", "cut", "Nothing is said on this path.")]);
    if (groups.length) parts.draw(groups[0].chunks[0].part);
    if (active && document.activeElement !== active && box.contains(active)) {
      active.focus({ preventScroll: true });
    }
    parts.fill(items.size, groups.flatMap((group) => group.chunks.map((chunk) => chunk.part)));
  }

  function laid(group, old) { // a group's boxes; those of the old one in its place, where they fit
    const same = old && JSON.stringify(old.digest) === JSON.stringify(group.digest);
    group.covered = same ? old.covered : el("div", "covered");
    group.box = same ? old.box : group.digest
      ? el("div", "range", digestBox(group.digest), group.covered) : group.covered;
    group.chunks = [];
    for (let start = 0; start < group.items.length; start += CHUNK) {
      const slice = group.items.slice(start, start + CHUNK);
      const chunk = chunked(slice, same ? old.chunks[start / CHUNK] : null);
      for (const item of slice) {
        for (const place of item.places || [item.place]) {
          if (!spots.has(place)) spots.set(place, { item, chunk });
        }
      }
      group.chunks.push(chunk);
    }
    sync(group.covered, group.chunks.map((chunk) => chunk.part.box));
    return group;
  }

  function chunked(slice, old) {
    if (old && old.items[0] === slice[0]) {
      old.kept = true;
      const drawn = !old.part.work;
      const changed = old.items.length !== slice.length || old.items.some((one, at) => one !== slice[at]);
      old.items = slice;
      if (drawn && changed) {
        sync(old.part.box, slice.map(itemBox));
      }
      return old;
    }
    const chunk = { items: slice, kept: true };
    chunk.part = parts.add("chunk", slice.length, () => chunk.items.map(itemBox));
    if (slice.some((item) => item.box)) parts.draw(chunk.part); // it was to be seen, and still is
    return chunk;
  }

  function itemBox(item) {
    item.box ||= item.places ? foldBox(item) : saidBox(item.place);
    item.box.item = item;
    return item.box;
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

  // -- one entry ------------------------------------------------------------------------------

  function cutNote(node) {
    if (!node.length) return null;
    const here = digits(node.text.length);
    return el("p", "cut", `Cut: ${here} of ${digits(node.length)} characters are here.`);
  }

  function saidBox(place) {
    const node = story.nodes[place];
    const one = el("article", `said ${node.kind}`);
    const head = el("header", "", el("h3", "", who({ ...node, tool: "" })));
    if (node.label) head.append(el("span", "label", node.label));
    if (node.failed) head.append(el("span", "bad", "failed"));
    if (node.model) head.append(el("span", "", node.model));
    head.append(when(node.time) || "");
    const tools = el("span", "acts");
    if (indexerd.labelButton) tools.append(indexerd.labelButton());
    const link = el("a", "link", "link");
    link.href = `#target=${encodeURIComponent(story.name(place))}`;
    tools.append(link);
    head.append(tools);
    one.append(head);
    if (node.kind === "tool" || node.kind === "bash") one.append(pre(node.text));
    else one.append(...prose(node.text, node.kind === "user"));
    if (node.images) one.append(el("p", "cut", `${count(node.images, "image")} not shown`));
    const cut = cutNote(node);
    if (cut) one.append(cut);
    one.tabIndex = -1;
    return one;
  }

  function foldBox(item) {
    const one = el("details", "fold", summaryOf(item));
    if (unfolded) {
      one.open = true;
      unfold(item, one);
    }
    return one;
  }

  function summaryOf(item) {
    const sum = { ...tally(item.nodes), answers: 0 }, { failed, thoughts } = sum; // answers stand beside it
    const summary = el("summary", "", bar(sum), amount(sum) + (thoughts ? `, ${count(thoughts, "thought")}` : ""));
    if (failed) summary.append(el("span", "bad", `${failed} failed`));
    return summary;
  }

  function grow(item) { // work that went on: its words are new, what stood in it stays
    const summary = item.box.firstChild;
    summary.replaceChildren(...summaryOf(item).childNodes);
    if (item.inside) unfold(item, item.box);
  }

  function unfold(item, one) {
    const inside = item.inside || (item.inside = { box: el("div", "inside"), of: new Map() });
    for (const node of item.nodes) {
      if (inside.of.has(node)) continue;
      const each = insideBox(node);
      inside.of.set(node, each);
      inside.box.append(each);
    }
    if (!inside.box.parentNode) one.append(inside.box);
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

  function closed(name, text, note) {
    const one = el("details", "", el("summary", "", name));
    one.addEventListener("toggle", () => {
      if (one.open && one.childNodes.length === 1) one.append(pre(text), note || "");
    });
    return one;
  }

  box.addEventListener("toggle", (event) => { // which does not bubble, but is on its way down here
    const { item, open } = event.target;
    if (item && item.places && open) unfold(item, event.target);
  }, true);

  // -- finding what is there ------------------------------------------------------------------

  function spot(place) { // the element of an entry, made now if need be
    for (let one = place; one >= 0; one = story.nodes[one].above) {
      const there = spots.get(one);
      if (!there) continue;
      parts.draw(there.chunk.part);
      const { item } = there;
      if (!item.places) return item.box;
      item.box.open = true;
      unfold(item, item.box);
      return item.inside.of.get(story.nodes[one]);
    }
    return null;
  }

  function placeOf(element) { // the entry whose element holds this one
    const one = element.closest("article");
    return one && one.item ? one.item.place : -1;
  }

  function atTop(edge) { // the last item that begins above this height; null: none does
    const top = (one) => one.getBoundingClientRect().top;
    const chunks = groups.flatMap((group) => group.chunks);
    const last = chunks.findLast((chunk) => top(chunk.part.box) <= edge);
    if (!last) return null;
    parts.draw(last.part);
    return last.items.findLast((one) => top(one.box) <= edge) || null;
  }

  function foldAll() { // open all work of the path, or close it
    unfolded = !unfolded;
    for (const item of items.values()) {
      if (!item.places || !item.box) continue;
      item.box.open = unfolded;
      if (unfolded) unfold(item, item.box); // now, not when the browser tells of it
    }
    return unfolded;
  }

  function end() { // go to the end of the path
    const last = groups[groups.length - 1];
    if (!last) return;
    parts.draw(last.chunks[last.chunks.length - 1].part);
    settle(() => scrollTo(0, document.documentElement.scrollHeight));
  }

  indexerd.talk = { draw, spot, placeOf, atTop, foldAll, end };
})((window.indexerd ||= {}));
