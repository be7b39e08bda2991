// Small things that every part of the view uses: elements, words for numbers and times, lists that
// are drawn piece by piece.
//
// Every script of the view is a classic one, wrapped, that adds to the one global `indexerd`: an
// exported page holds them one after the other, the live page loads them in the same order. Texts
// of a session are put in as text (`el`, textContent), never as markup.
((indexerd) => {
  "use strict";

  const FRAMES = 12;
  const AFTER = 300; // ms after which lists are filled in that nobody scrolled through
  const $ = (id) => document.getElementById(id);
  const idle = window.requestIdleCallback || ((work) => setTimeout(() => work(), 30));

  function el(tag, name, ...held) {
    const one = document.createElement(tag);
    if (name) one.className = name;
    for (const part of held) if (part !== null && part !== undefined && part !== "") one.append(part);
    return one;
  }

  function button(name, words, act) {
    const one = el("button", name, words);
    one.type = "button";
    if (act) one.addEventListener("click", act);
    return one;
  }

  // -- words ----------------------------------------------------------------------------------

  const format = new Intl.NumberFormat("en");
  const digits = (number) => (number < 1000 ? String(number) : format.format(number));
  const count = (number, word, many = `${word}s`) =>
    `${digits(number)} ${number === 1 ? word : many}`;
  const dollars = (cost) => (cost > 0 ? `$${cost.toFixed(cost < 0.1 ? 4 : 2)}` : cost === 0 ? "$0" : "");
  const base = (path) => path.split(/[\\/]/).filter(Boolean).pop() || path;

  // -- times: as the reader's clock has them, in a zone that a page names once ------------------

  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";
  const minute = (time) => time.toISOString().slice(0, 16).replace("T", " ");

  function moment(told) { // null: it is no time. One without a zone is UTC, as sessions have it
    const text = String(told || "");
    if (!/^\d{4}-\d\d-\d\dT\d\d:\d\d/.test(text)) return null;
    const found = new Date(/(?:Z|[+-]\d\d:?\d\d)$/i.test(text) ? text : `${text}Z`);
    return Number.isFinite(found.getTime()) ? found : null;
  }

  function when(told) { // as an element that also has the time in UTC
    const found = moment(told);
    if (!found) return null;
    const here = new Date(found.getTime() - 60_000 * found.getTimezoneOffset());
    const one = el("time", "", minute(here));
    one.dateTime = found.toISOString();
    one.title = `${minute(found)} UTC`;
    return one;
  }

  // A word of many thousand characters takes a browser a second to wrap, unless it comes in pieces
  // and may break anywhere.
  const solid = (text) => (text.length > 400 && /\S{400}/.test(text) ? "solid" : "");
  const pieces = (text) => (solid(text) ? text.match(/[^]{1,512}/gu) : [text]);

  // -- saying, copying ------------------------------------------------------------------------

  let told = 0;
  function say(text) { // what was done, for eyes and ears, for a little while
    $("told").textContent = text;
    clearTimeout(told);
    told = setTimeout(() => { $("told").textContent = ""; }, 5000);
  }

  async function copy(text) { // whether the browser lets a page do so
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const held = el("textarea", "unseen"), before = document.activeElement;
      held.value = text;
      document.body.append(held);
      held.select();
      const done = document.execCommand("copy");
      held.remove();
      before?.focus({ preventScroll: true });
      return done;
    }
  }

  // -- scrolling ------------------------------------------------------------------------------

  // Scroll, and once more for some frames: parts that come into sight are filled in then, and take
  // more room than was thought. Whatever the reader does ends it.
  let settling = 0;
  const leave = () => { settling = 0; };
  for (const name of ["wheel", "touchmove", "pointerdown", "keydown"]) {
    addEventListener(name, leave, { capture: true, passive: true });
  }

  function settle(scroll) {
    let left = FRAMES;
    const mine = (settling = performance.now());
    const go = () => {
      if (settling !== mine || !left--) return;
      scroll();
      requestAnimationFrame(go);
    };
    go();
  }

  // -- lists ----------------------------------------------------------------------------------

  // Make these the children of an element, moving as few of them as can be: what stays where it
  // was keeps its focus and its place on the screen.
  function sync(parent, wanted) {
    const kept = new Set(wanted);
    for (const one of [...parent.childNodes]) if (!kept.has(one)) one.remove();
    let at = parent.firstChild;
    for (const one of wanted) {
      if (one === at) at = at.nextSibling;
      else parent.insertBefore(one, at);
    }
  }

  // Keep something where it stands on the screen while `work` is done. What it would be off by, as
  // a browser scrolls by whole pixels, is made good the next time. `find` says what to keep: elements,
  // the first of which that is still to be seen afterwards counts. Measured and mended in one task:
  // were it left to the browser's own anchoring, scrolling for another reason would undo that.
  class Place {
    constructor(find, scroller, edge) {
      Object.assign(this, { find, scroller, edge, owed: 0, busy: false });
    }

    keep(work) {
      if (this.busy) return work();
      this.busy = true;
      const before = this.find().map((one) => [one, one.getBoundingClientRect().top]);
      try {
        return work();
      } finally {
        this.busy = false;
        const [one, top] = before.find(([one]) => one.isConnected && one.getClientRects().length) || [];
        if (one) this.mend(one, top);
      }
    }

    mend(one, before) {
      const { top, bottom } = one.getBoundingClientRect(), edge = this.edge();
      const gone = before < edge && bottom - top + before < edge; // it became so short
      const by = (gone ? top - edge : top - before) + this.owed;
      if (Math.abs(by) < 0.5) {
        this.owed = by;
        return;
      }
      const from = this.scroller.scrollTop;
      this.scroller.scrollTop = from + by;
      const left = by - (this.scroller.scrollTop - from);
      this.owed = Math.abs(left) < 1 ? left : 0; // more than that: here is an end
    }
  }

  // Parts of a long list: each drawn when it is asked for, or comes into sight. Short lists are
  // filled in while nobody waits, so that a browser's own search finds all of them. What is drawn
  // unasked is drawn by `keep`, so that nothing that is read moves. A part is `fresh` until the
  // browser remembers how large it is: as long as it is laid out although nobody sees it.
  class Parts {
    constructor(root, most, keep) {
      this.keep = keep;
      this.waiting = new Set();
      this.of = new WeakMap(); // box -> part
      this.most = most;
      this.busy = false;
      this.fresh = []; // boxes
      this.sight = new IntersectionObserver((seen) => {
        const parts = seen.filter((one) => one.isIntersecting).map((one) => this.of.get(one.target));
        if (parts.some((part) => part.work)) this.keep(() => parts.forEach((part) => this.draw(part)));
      }, { root, rootMargin: "800px" });
    }

    add(name, size, work) {
      const part = { box: el("div", `${name} empty`), work };
      part.box.style.setProperty("--size", size);
      this.of.set(part.box, part);
      this.waiting.add(part);
      this.sight.observe(part.box);
      return part;
    }

    drop(part) {
      this.waiting.delete(part);
      this.sight.unobserve(part.box);
    }

    draw(part) {
      if (!part || !part.work) return;
      const { work } = part;
      part.work = null;
      this.drop(part);
      part.box.replaceChildren(...work());
      part.box.classList.remove("empty");
      this.settle(part);
    }

    settle(part) { // what is in it changed, and with it its size
      part.box.classList.add("fresh");
      if (this.fresh.push(part.box) > 1) return;
      requestAnimationFrame(() => { // all until now are laid out in this frame
        const boxes = this.fresh.splice(0);
        requestAnimationFrame(() => { for (const box of boxes) box.classList.remove("fresh"); });
      });
    }

    fill(total) { // the rest of a list of so many things, later
      if (this.busy || total > this.most) return;
      this.busy = true;
      const go = () => {
        const [part] = this.waiting;
        if (part) this.keep(() => this.draw(part));
        this.busy = this.waiting.size > 0;
        if (this.busy) idle(go);
      };
      setTimeout(idle, AFTER, go);
    }
  }

  indexerd.words = {
    $, el, button, digits, count, when, moment, zone, dollars, base, solid, pieces, say, copy, sync,
    settle, idle, Parts, Place,
  };
})((window.indexerd ||= {}));
