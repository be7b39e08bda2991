// The page as a whole: what its address selects, its keys, the buttons of its frame.
//
// `#leaf=ID` selects the path to show, by default the session's own, and `&target=ID` an entry on it;
// with `&view=files` the files that the path edits are shown instead of its conversation.
// `?find=WORDS` fills in the tree's search when the page opens.
((indexerd) => {
  "use strict";
  const { $, say, copy, settle } = indexerd.helpers;
  const { story, tree, talk, about, edits } = indexerd;
  const cols = document.querySelector(".cols");
  const narrow = matchMedia("(max-width: 899px)");
  const FRAMES = 3; // in which what is visible of the conversation is drawn; then comes the tree
  const NEAR = 20; // entries after the one that is read, as those of a client have no row
  let view = { leaf: -1, target: -1, files: false };
  let left = 0; // how far the conversation was scrolled when the files were shown
  let enters = false; // whether the focus moves to what is shown next

  // -- what is shown --------------------------------------------------------------------------

  function fragment(leaf, target, files = false) {
    const parts = leaf >= 0 ? [`leaf=${encodeURIComponent(story.name(leaf))}`] : [];
    if (target >= 0) parts.push(`target=${encodeURIComponent(story.name(target))}`);
    if (files) parts.push("view=files");
    return `#${parts.join("&")}`;
  }

  function asked() {
    const told = new URLSearchParams(location.hash.slice(1).replaceAll("+", "%2B"));
    const place = (name) => story.places.get(told.get(name)) ?? -1;
    const target = place("target");
    let leaf = place("leaf");
    if (leaf < 0) leaf = target < 0 ? story.doc.leaf : story.through(target);
    if (target >= 0 && !story.pathTo(leaf).includes(target)) leaf = story.through(target);
    return { leaf, target, files: told.get("view") === "files" };
  }

  function show() {
    if (location.hash === "#path") return; // the skip link
    const before = view, at = scrollY;
    view = asked();
    if (view.files && !before.files) left = at;
    const other = view.leaf !== before.leaf;
    if (other) talk.draw(view.leaf);
    if (before.leaf > -2) placeTree();
    else afterFrames(FRAMES, begin);
    look();
    if (!view.files) aim(true);
    if ((view.target < 0 && other) || view.files !== before.files) if (view.files || view.target < 0) scrollTo(0, view.files || other ? 0 : left);
    if (view.files && $("files").getBoundingClientRect().top > innerHeight * 0.8) $("see-files").scrollIntoView();
    if (view.target < 0 && view.leaf === story.doc.leaf) requestAnimationFrame(follow);
    if (enters) (document.querySelector("#path .aim") || $("path")).focus({ preventScroll: true });
    enters = false;
  }

  function look() { // the conversation, or the files
    edits.draw(story.pathTo(view.leaf));
    $("path").hidden = view.files;
    $("files").hidden = !view.files;
    $("see-path").setAttribute("aria-pressed", !view.files);
    $("see-files").setAttribute("aria-pressed", view.files);
  }

  function afterFrames(left, work) {
    requestAnimationFrame(() => (left > 1 ? afterFrames(left - 1, work) : setTimeout(work)));
  }

  function begin() { // draw the tree of a page that opens
    tree.draw();
    placeTree();
    if (view.target < 0 && view.leaf === story.doc.leaf) follow();
  }

  function placeTree(reveals = true, scrolls = view.target >= 0 || !$("search").value) {
    const meant = view.target >= 0 ? view.target : view.leaf;
    if (meant >= 0 && reveals && indexerd.rows.reveal(meant)) tree.draw();
    tree.show(new Set(story.pathTo(view.leaf)), meant, scrolls);
    $("reset").hidden = view.leaf === story.doc.leaf || story.doc.leaf < 0;
  }

  function aim(scroll) { // mark the target
    const one = view.target >= 0 ? talk.spot(view.target) : null;
    for (const old of document.querySelectorAll(".aim")) if (old !== one) old.classList.remove("aim");
    if (!one) return;
    one.classList.add("aim");
    if (scroll) settle(() => one.scrollIntoView({ block: "start" }));
  }

  function go(leaf, target, step = false) { // a step adds nothing to the history
    const there = fragment(leaf, target);
    if (location.hash === there) show();
    else if (step) location.replace(there);
    else location.hash = there;
  }

  function choose(row) {
    const on = row.type !== "branch" && story.pathTo(view.leaf).includes(row.place);
    enters = narrow.matches; // the tree is hidden, and loses the focus
    if (enters) side(false);
    go(on ? view.leaf : story.through(row.place), row.place);
  }

  function reset() {
    const { leaf } = story.doc;
    if (leaf >= 0) go(leaf, leaf);
  }

  // After the session changed: show the entries with these `names` again, or `follow` the session's
  // leaf.
  function renew(names, follow) {
    const place = (name) => (name === null ? -1 : story.places.get(name) ?? -1);
    let leaf = follow ? story.doc.leaf : place(names.leaf);
    if (leaf < 0) leaf = story.doc.leaf;
    let target = place(names.target);
    if (target >= 0 && !story.pathTo(leaf).includes(target)) target = -1;
    view = { leaf, target, files: view.files };
    if (location.hash.includes("leaf=")) history.replaceState(null, "", fragment(leaf, target, view.files));
    about.draw();
    tree.draw();
    talk.draw(leaf);
    look();
    placeTree(follow, false);
    aim(false);
  }

  function names() {
    const name = (place) => (place >= 0 ? story.name(place) : null);
    return { leaf: name(view.leaf), target: name(view.target), atLeaf: view.leaf === story.doc.leaf };
  }

  // -- the frame ------------------------------------------------------------------------------

  function side(open) {
    cols.classList.toggle("closed", !open);
    $("toggle").setAttribute("aria-expanded", String(open));
  }

  function find(words) { // in all entries
    side(true);
    $("search").value = words;
    if ($("filter").value !== "all") $("filter").value = "default";
    tree.search();
    $("search").focus();
  }

  function clear() {
    $("search").value = "";
    tree.search();
  }

  async function resume() {
    const text = story.doc.session.resume;
    if (text) say(await copy(text) ? `Copied: ${text}` : `Could not copy. The command is: ${text}`);
  }

  function follow() { // the tree follows what is read, or what comes soon after it
    const path = story.pathTo(view.leaf), at = view.files ? -1 : path.indexOf(reading());
    if (at >= 0) tree.read(path.slice(at, at + NEAR));
  }

  function reading() { // the target if it is visible, else the item at the top
    const meant = document.querySelector("#path .aim");
    const top = meant ? meant.getBoundingClientRect().top : -1;
    if (top >= 0 && top < innerHeight / 2) return view.target;
    const item = !scrollY && view.target < 0 ? talk.first() : talk.atTop(scrollY > 0 ? 100 : innerHeight / 2);
    return item ? (item.places || [item.place])[0] : -1;
  }

  function step(by) { // to the previous or next prompt
    const path = story.pathTo(view.leaf);
    const { nodes } = story;
    const asks = path.filter((place) => nodes[place].kind === "user" && !nodes[place].hidden);
    const order = new Map(path.map((place, at) => [place, at]));
    const at = order.get(reading()) ?? -1;
    const next = by > 0 ? asks.find((place) => order.get(place) > at)
      : asks.filter((place) => order.get(place) < at).pop();
    if (next === undefined) return say(by > 0 ? "This is the last prompt." : "This is the first prompt.");
    return go(view.leaf, next, true);
  }

  const EMPTY = { session: {}, nodes: [], beats: [], digests: [], leaf: -1 }; // of an unreadable session
  const KEYS = {
    "/": () => { side(true); $("search").focus(); $("search").select(); },
    t: () => { side(true); tree.refocus(); },
    "[": () => step(-1),
    "]": () => step(1),
    f: () => say(talk.foldAll() ? "All work is open." : "All work is folded."),
    y: resume,
    "?": () => $("help").showModal(),
  };

  function escape(event) {
    if (!$("search").value) return reset();
    if (event.target === $("search")) event.preventDefault(); // some browsers also clear it
    return clear();
  }

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector("dialog[open]")) return;
    if (event.key === "Escape") return escape(event);
    const act = KEYS[event.key];
    if (!act || event.target.closest("input, select, textarea, [contenteditable]")) return;
    event.preventDefault();
    act();
  });

  let typed = 0;
  $("search").addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(tree.search, 120);
  });
  $("search").addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" && event.key !== "Enter") return;
    event.preventDefault();
    clearTimeout(typed);
    tree.search();
    tree.focus(0);
  });
  $("filter").addEventListener("change", tree.search);
  $("clear").addEventListener("click", () => {
    clear();
    $("search").focus();
  });
  $("reset").addEventListener("click", reset);
  for (const [button, files] of [["see-path", false], ["see-files", true]]) {
    $(button).addEventListener("click", () => { location.hash = fragment(view.leaf, -1, files); });
  }
  let scrolled = 0;
  addEventListener("scroll", () => {
    scrolled ||= requestAnimationFrame(() => {
      scrolled = 0;
      follow();
    });
  }, { passive: true });
  $("copy").addEventListener("click", resume);
  $("keys").addEventListener("click", KEYS["?"]);
  $("close").addEventListener("click", () => $("help").close());
  if (!indexerd.label) for (const one of $("help").querySelectorAll(".live")) one.remove();
  $("toggle").addEventListener("click", () => side(cols.classList.contains("closed")));
  for (const name of ["pointerdown", "focusin"]) { // an entry's link names the path that is shown
    $("path").addEventListener(name, (event) => {
      const place = event.target.matches("a.link") ? talk.placeOf(event.target) : -1;
      if (place >= 0) event.target.href = fragment(view.leaf, place);
    });
  }
  new IntersectionObserver((seen) => { // the frame shows the name while the heading is not visible
    $("name").classList.toggle("away", seen[seen.length - 1].isIntersecting);
  }, { rootMargin: "-52px 0px 0px 0px" }).observe($("title"));
  addEventListener("hashchange", show);
  narrow.addEventListener("change", () => side(!narrow.matches));

  indexerd.session = { choose, find, go, names, renew, address: (place) => fragment(view.leaf, place) };

  const data = JSON.parse($("data").textContent);
  story.take(data.nodes ? data : { ...EMPTY, ...data });
  about.draw();
  const wanted = (new URLSearchParams(location.search).get("find") || "").trim();
  side(!narrow.matches || Boolean(wanted));
  if (wanted) $("search").value = wanted;
  view.leaf = -2; // nothing is drawn yet
  show();
})((window.indexerd ||= {}));
