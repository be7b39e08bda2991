// Helpers for all parts of the view: elements, formats of numbers and times, lists.
//
// Every script of the view is a classic script in a function, which adds to the global `indexerd`; an
// exported page contains them in the order in which the live page loads them. A session's texts are
// inserted as text (`el`, textContent), never as markup.
((indexerd) => {
  "use strict";
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

  // A text with `code`, as nodes.
  const coded = (text) => text.split("`").map((part, at) => (at % 2 ? el("code", "", part) : part));

  // -- words ----------------------------------------------------------------------------------

  const format = new Intl.NumberFormat("en");
  const digits = (number) => (number < 1000 ? String(number) : format.format(number));
  const count = (number, word, many = `${word}s`) =>
    `${digits(number)} ${number === 1 ? word : many}`;
  const dollars = (cost) => (typeof cost === "number" ? `$${cost.toFixed(cost > 0 && cost < 0.01 ? 4 : 2)}` : "");
  function cost({ costUsd, costEstimatedUsd, unpricedTokens }) { // "~": some of it is an estimate; "≥": there is more
    const known = (costUsd || 0) + (costEstimatedUsd || 0);
    if (!unpricedTokens && known > 0 && known < 0.01) return "<$0.01";
    return known ? `${unpricedTokens ? "≥ " : costEstimatedUsd ? "~" : ""}${dollars(known)}` : "";
  }
  const base = (path) => path.split(/[\\/]/).filter(Boolean).pop() || path;

  // -- times, in the reader's time zone, which the details and each time's title name -----------

  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";
  const minute = (time) => time.toISOString().slice(0, 16).replace("T", " ");

  function moment(told) { // null: not a time. A time without a zone is in UTC
    const text = String(told || "");
    if (!/^\d{4}-\d\d-\d\dT\d\d:\d\d/.test(text)) return null;
    const found = new Date(/(?:Z|[+-]\d\d:?\d\d)$/i.test(text) ? text : `${text}Z`);
    return Number.isFinite(found.getTime()) ? found : null;
  }

  function when(told) {
    const found = moment(told);
    if (!found) return null;
    const here = new Date(found.getTime() - 60_000 * found.getTimezoneOffset());
    const one = el("time", "", minute(here));
    one.dateTime = found.toISOString();
    one.title = `${one.textContent} ${zone}`;
    return one;
  }

  function clock(told) { // the same, with the time of day only
    const one = when(told);
    if (one) one.textContent = one.textContent.slice(11);
    return one;
  }

  function lasted(ms) {
    const [seconds, minutes, hours, days] = [1000, 60_000, 3_600_000, 86_400_000].map((size) => Math.floor(ms / size));
    if (!(ms > 0)) return "";
    if (seconds < 1) return "under 1 s";
    if (seconds < 60) return `${seconds} s`;
    if (minutes < 60) return `${minutes} min`;
    return days < 1 ? `${hours} h${minutes % 60 ? ` ${minutes % 60} min` : ""}` : count(days, "day");
  }

  // A browser takes a second to wrap a word of thousands of characters, unless it is in pieces and
  // may break anywhere.
  const solid = (text) => (text.length > 400 && /\S{400}/.test(text) ? "solid" : "");
  const pieces = (text) => (solid(text) ? text.match(/[^]{1,512}/gu) : [text]);

  // -- saying, copying ------------------------------------------------------------------------

  let told = 0;
  function say(text) {
    $("told").textContent = text;
    clearTimeout(told);
    told = setTimeout(() => { $("told").textContent = ""; }, 5000);
  }

  async function copy(text) { // false if the browser denies it
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return false;
    }
  }

  // -- scrolling ------------------------------------------------------------------------------

  // Scroll, and repeat it for some frames: elements that become visible are filled, and grow. Any
  // action of the reader stops it.
  let settling = 0;
  for (const name of ["wheel", "touchmove", "pointerdown", "keydown"]) {
    addEventListener(name, () => { settling = 0; }, { capture: true, passive: true });
  }

  function settle(scroll) {
    let left = 12;
    const mine = (settling = performance.now());
    const go = () => {
      if (settling !== mine || !left--) return;
      scroll();
      requestAnimationFrame(go);
    };
    go();
  }

  // -- lists ----------------------------------------------------------------------------------

  // Set the children of an element. Children that stay are not moved, so they keep the focus.
  function sync(parent, wanted) {
    const kept = new Set(wanted);
    for (const one of [...parent.childNodes]) if (!kept.has(one)) one.remove();
    let at = parent.firstChild;
    for (const one of wanted) {
      if (one === at) at = at.nextSibling;
      else parent.insertBefore(one, at);
    }
  }

  // An element that is filled when it is nearly visible, or by `drawn`.
  const sight = new IntersectionObserver((seen) => {
    for (const one of seen) if (one.isIntersecting) drawn(one.target);
  }, { rootMargin: "800px" });

  function later(box, work) {
    box.work = work;
    box.classList.add("empty");
    sight.observe(box);
    return box;
  }

  function drawn(box) {
    const { work } = box;
    if (!work) return box;
    box.work = null;
    sight.unobserve(box);
    box.classList.remove("empty");
    box.append(...work().filter(Boolean));
    return box;
  }

  indexerd.helpers = {
    $, el, button, coded, digits, count, when, clock, lasted, moment, zone, dollars, cost, base, solid, pieces, say, copy, sync,
    settle, later, drawn,
  };
})((window.indexerd ||= {}));
