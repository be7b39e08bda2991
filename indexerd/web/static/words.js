// Small things that every part of the view uses: elements, words for numbers and times, lists that
// are drawn piece by piece.
//
// Every script of the view is a classic one, wrapped, that adds to the one global `indexerd`: an
// exported page holds them one after the other, the live page loads them in the same order. Texts
// of a session are put in as text (`el`, textContent), never as markup.
((indexerd) => {
  "use strict";

  const FRAMES = 12;
  const $ = (id) => document.getElementById(id);

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
      return false;
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

  // Parts of a long list: all are drawn at once where there are at most `most` things; else each when
  // it is asked for, or comes near to being seen.
  class Parts {
    constructor(root, most) {
      this.most = most;
      this.of = new WeakMap(); // box -> part
      this.sight = new IntersectionObserver((seen) => {
        for (const one of seen) if (one.isIntersecting) this.draw(this.of.get(one.target));
      }, { root, rootMargin: "800px" });
    }

    add(name, size, work) {
      const part = { box: el("div", `${name} empty`), work };
      part.box.style.setProperty("--size", size);
      this.of.set(part.box, part);
      this.sight.observe(part.box);
      return part;
    }

    drop(part) {
      this.sight.unobserve(part.box);
    }

    draw(part) {
      if (!part.work) return;
      const { work } = part;
      part.work = null;
      this.drop(part);
      part.box.replaceChildren(...work());
      part.box.classList.remove("empty");
    }

    fill(total, parts) {
      if (total <= this.most) for (const part of parts) this.draw(part);
    }
  }

  indexerd.words = {
    $, el, button, digits, count, when, moment, zone, dollars, base, solid, pieces, say, copy, sync,
    settle, Parts,
  };
})((window.indexerd ||= {}));
