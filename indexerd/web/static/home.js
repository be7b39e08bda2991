// The home page: search while typing, updates after events, and keys.
//
// The page is complete without this script, which fetches it again from its own address and replaces
// #filters and #results as nodes, so no text becomes markup here. The focus is kept by data-key, and
// visible lines keep their position. Updates wait while the user types, points or selects.
"use strict";
(() => {
  const TYPING = 150; // milliseconds
  const CALM = 1200; // since the user's last action
  const GAP = 1000; // between two updates
  const SEARCH_GAP = 5000; // while hits are shown
  const { $, copy } = indexerd.helpers;
  const form = $("find"), box = $("q"), said = $("said"), live = $("live"), keys = $("key-list");

  const lines = () => [...document.querySelectorAll("#results li[data-key]")];
  const ownLine = () => document.activeElement.closest("#results li[data-key]");
  const keyed = () => document.querySelectorAll("#results [data-key], #filters [data-key]");
  const withKey = (key) => [...keyed()].find((one) => one.dataset.key === key);

  function say(text) { // a screen reader says the same text again only if it changes
    said.textContent = said.textContent === text ? `${text}\u00a0` : text;
  }

  let last = ""; // the line that had the focus
  const top = (one) => one.getBoundingClientRect().top;
  const focusOn = (line) => line.querySelector("a.title").focus({ preventScroll: true });

  // -- loading the page -----------------------------------------------------------------------

  let under = null; // the current request
  let searching = 0; // the timer of the next search

  function load(typed) {
    const older = under, mine = under = new XMLHttpRequest();
    older?.abort(); // its outcome is ignored
    mine.open("GET", location.pathname + location.search);
    mine.responseType = "document";
    mine.timeout = 30000;
    mine.onloadend = () => { // without a response if it failed
      if (mine !== under) return; // a newer request was made
      under = null;
      $("results").removeAttribute("aria-busy");
      const whole = mine.response?.getElementById("results");
      const refused = mine.status === 403;
      if (refused && (typed || $("out").hidden)) say($("out").textContent);
      else if (typed && !whole) say("The web view did not answer.");
      $("out").hidden = !refused;
      if (whole) swap(mine.response, typed);
    };
    if (typed) $("results").setAttribute("aria-busy", "true");
    mine.send();
  }

  function swap(page, typed) {
    const before = typed ? [] : seen();
    const focus = focused();
    for (const { parentNode } of $("filters").querySelectorAll("[open] > summary")) {
      const name = parentNode.parentNode.getAttribute("aria-label");
      page.querySelector(`[aria-label="${name}"] > details`)?.setAttribute("open", "");
    }
    for (const id of ["filters", "results"]) {
      const fresh = page.getElementById(id);
      if (fresh && !$(id).isEqualNode(fresh)) $(id).replaceWith(document.importNode(fresh, true));
    }
    document.title = page.title;
    refocus(focus);
    const kept = before.find(([key]) => withKey(key));
    if (kept) scrollBy(0, top(withKey(kept[0])) - kept[1]);
    if (!typed) return;
    scrollTo(0, 0);
    const head = $("results").querySelector("h2");
    say(box.value.trim() && head ? head.textContent : "All sessions");
  }

  function seen() { // the visible lines and their positions
    const own = ownLine();
    if (scrollY < 1 && !own) return []; // at the top, new lines may appear above
    const inSight = lines().filter((one) => top(one) > 0 && top(one) < innerHeight);
    return (own ? [own, ...inSight] : inSight).map((one) => [one.dataset.key, top(one)]);
  }

  function focused() {
    const one = document.activeElement.closest("#results, #results [data-key], #filters [data-key]");
    return one && { key: one.dataset.key, place: lines().indexOf(ownLine()) };
  }

  function refocus(focus) {
    if (!focus) return;
    const near = lines()[Math.min(focus.place, lines().length - 1)];
    const one = withKey(focus.key) || (near && near.querySelector("a.title")) || $("results");
    if (one !== document.activeElement) one.focus({ preventScroll: true });
  }

  // -- search ---------------------------------------------------------------------------------

  function search() {
    clearTimeout(searching);
    searching = 0;
    const asked = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (value.trim()) asked.append(name, value);
    const query = asked.toString();
    history.replaceState(null, "", query ? `/?${query}` : "/");
    load(true);
  }

  function typed(event) {
    if (event.isComposing) return;
    clearTimeout(searching);
    searching = setTimeout(search, TYPING);
  }

  box.addEventListener("input", typed);
  box.addEventListener("compositionend", typed);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    search();
  });

  // -- updates --------------------------------------------------------------------------------

  let timer = 0, wanted = false, looked = -GAP, moved = -CALM;

  function heard({ event, up }) {
    if (event === "daemon") show(up ? "up" : "down");
    soon();
  }

  function show(state) {
    const word = { up: "Daemon running", down: "No daemon", off: "Not connected" }[state];
    if (live.textContent !== word) live.textContent = word;
    live.dataset.up = state === "up" ? "1" : "";
    if (state !== "off") $("down").hidden = state === "up";
  }

  function calm() {
    const chosen = getSelection();
    const selecting = !chosen.isCollapsed && $("results").contains(chosen.anchorNode);
    return !searching && !selecting && performance.now() - moved > CALM;
  }

  function soon() {
    wanted = true;
    if (timer || document.hidden) return;
    const gap = box.value.trim() ? SEARCH_GAP : GAP;
    timer = setTimeout(look, Math.max(0, looked + gap - performance.now()));
  }

  function look() {
    timer = 0;
    if (!wanted || document.hidden) return;
    if (under || !calm()) {
      timer = setTimeout(look, CALM / 3);
      return;
    }
    wanted = false;
    looked = performance.now();
    load(false);
  }

  for (const name of ["keydown", "pointermove", "wheel", "scroll", "touchmove", "pointerdown"]) {
    addEventListener(name, () => { moved = performance.now(); }, { passive: true });
  }
  addEventListener("pageshow", ({ persisted }) => { if (persisted) load(false); });
  setInterval(soon, 60000); // for "3 min ago"

  // -- copying, keys --------------------------------------------------------------------------

  async function take(button) {
    const text = button.dataset.copy, done = await copy(text);
    say(done ? "Resume command copied" : `Could not copy. The command is: ${text}`);
    button.firstChild.data = done ? "Copied" : "Not copied";
    setTimeout(() => { button.firstChild.data = "Copy resume command"; }, 1600);
  }

  addEventListener("click", (event) => {
    const line = event.target.closest("#results li[data-key]");
    if (line) last = line.dataset.key; // not every browser focuses a clicked element
    const button = event.target.closest("button.copy");
    if (button) take(button);
  });

  function move(by) {
    const all = lines(), own = ownLine() || withKey(last);
    const one = all[Math.min(Math.max(own ? all.indexOf(own) + by : 0, 0), all.length - 1)];
    if (!one) return;
    focusOn(one);
    one.scrollIntoView({ block: "nearest" });
  }

  function yank() {
    const own = ownLine() || withKey(last), button = own && own.querySelector("button.copy");
    if (button) take(button);
  }

  const ACTS = {
    j: () => move(1),
    k: () => move(-1),
    y: yank,
    "/": () => { box.focus(); box.select(); },
    "?": () => keys.showModal(),
  };

  function act(event) {
    const { key, target } = event;
    if (key === "Escape") {
      const held = box.value;
      box.value = "";
      if (held) search();
      else if (target === box) box.blur();
      return true;
    }
    const arrow = { ArrowDown: 1, ArrowUp: -1 }[key];
    const moves = arrow && (ownLine() || (target === box && arrow > 0));
    const own = !target.matches("input, select, textarea") && Object.hasOwn(ACTS, key);
    if (moves) move(arrow);
    else if (own) ACTS[key]();
    return moves || own;
  }

  addEventListener("keydown", (event) => {
    const { ctrlKey, metaKey, altKey, isComposing } = event;
    if (ctrlKey || metaKey || altKey || isComposing || keys.open || event.defaultPrevented) return;
    if (act(event)) event.preventDefault();
  });
  addEventListener("focusin", () => {
    if (ownLine()) last = ownLine().dataset.key;
  });

  $("help").hidden = false;
  $("help").addEventListener("click", () => keys.showModal());
  indexerd.stream({
    heard,
    broken(refused) { // loading the page says whether this browser is refused
      show("off");
      if (refused) soon();
    },
    seen: soon,
  });
})();
