// Updates of a session's page: after an event the changes are fetched, at most once a second, one
// request at a time, and only while the page is visible.
//
// Events contain no text of a session. A page that shows the session's leaf follows it, and stays at
// the end if it was there; a page that shows anything else stays where it is.
((indexerd) => {
  "use strict";
  const { $, el, button, coded, moment, say } = indexerd.helpers;
  const { story, session, talk, panel } = indexerd;
  const { id, get, trouble } = indexerd.actions;
  const PAUSE = 1000; // ms between two requests
  // ms after which an open turn counts as abandoned, and nobody waits any more
  const STALE = { active: 30 * 60_000, waiting: 3 * 86_400_000 };
  const down = el("p", "notice");
  const below = button("", "New entries below", () => { below.hidden = true; talk.end(); });
  const question = button("plain", "waiting for you", () => session.go(-1, story.doc.leaf));
  const end = el("div", "end");
  let atEnd = false, dirty = false, busy = false, timer = 0, last = -PAUSE;
  let up = true, toldUp = false, indexing = false;

  // -- what is new ----------------------------------------------------------------------------

  function refresh() {
    dirty = true;
    if (busy || timer || document.hidden) return;
    timer = setTimeout(run, Math.max(0, last + PAUSE - performance.now()));
  }

  async function run() {
    timer = 0;
    if (document.hidden) return;
    busy = true;
    dirty = false;
    last = performance.now();
    try {
      const { version } = story.doc;
      const after = version ? `?after=${encodeURIComponent(version)}` : "";
      take(await get(`document${after}`));
      complain(trouble(story.doc.problem || {}));
    } catch (error) {
      complain(trouble(error)); // until the next event, or the stream's next attempt
    } finally {
      busy = false;
    }
    if (dirty) refresh();
  }

  function steady(work) { // keep the reader's position, even if a digest regroups the path
    const top = (one) => one.getBoundingClientRect().top;
    const items = scrollY > 0 ? [...document.querySelectorAll("#path article, #path .fold, #path .edits")] : [];
    const one = items.find((item) => item.getBoundingClientRect().bottom > 60), before = one && top(one);
    work();
    if (one?.isConnected) scrollBy(0, top(one) - before);
  }

  function take(change) {
    if (!change.nodes) return; // nothing changed
    const before = session.names();
    const follow = before.atLeaf, bottom = atEnd, length = story.nodes.length;
    story.take(change);
    steady(() => {
      session.renew(before, follow);
      tell();
    });
    const grew = story.nodes.length > length && follow;
    if (grew && bottom) talk.end();
    else if (grew) below.hidden = false;
  }

  // -- its state ------------------------------------------------------------------------------

  function tell() {
    const { live, problem } = story.doc;
    if (live && !toldUp) up = live.daemon; // an event is newer than a slow document
    indexing = Boolean(live && live.indexing && live.indexing.state === "indexing");
    state();
    panel.queue();
    complain(trouble(problem || {}));
  }

  function state() {
    const { state: word, modifiedAt } = story.doc.session;
    const stale = moment(modifiedAt) && Date.now() - moment(modifiedAt) > STALE[word];
    const words = { active: "running", waiting: question.textContent, failed: "interrupted" };
    const text = indexing ? "indexing" : (!stale && words[word]) || "";
    if ($("state").textContent !== text) $("state").replaceChildren(text === words.waiting ? question : text);
    $("state").dataset.state = text;
    document.body.classList.toggle("alone", !up);
    put(down.firstChild, up ? "" : "The daemon does not answer: the session's file is shown, without updates. " +
      "Check it with `indexerd status`.");
  }

  const complain = (text) => put(down.lastChild, text);

  function put(one, text) {
    if (one.textContent === text.replaceAll("`", "")) return;
    one.replaceChildren(...coded(text));
    down.classList.toggle("unseen", !down.textContent.trim());
  }

  // -- events ---------------------------------------------------------------------------------

  function heard({ event, sessionId, up: now }) {
    if (event === "daemon") {
      if (now && !up) say("The daemon is running again.");
      up = now;
      toldUp = true;
      state();
      refresh();
      panel.ran();
      panel.kin();
      return;
    }
    const born = event === "session.created" || event === "session.branched";
    if (born || (/^session\./.test(event) && panel.related(sessionId))) panel.kin();
    if (sessionId !== id) return;
    if (event.startsWith("index.")) {
      indexing = event === "index.started" || event === "index.retry";
      state();
      if (!indexing) panel.ran();
    }
    refresh();
  }

  // -- the page -------------------------------------------------------------------------------

  down.append(el("span"), " ", el("span"));
  down.id = "down";
  down.classList.add("unseen");
  down.setAttribute("role", "status");
  below.id = "below";
  below.hidden = true;
  $("main").prepend(down);
  $("path").after(end);
  document.body.append(below);
  new IntersectionObserver((seen) => {
    atEnd = seen[seen.length - 1].isIntersecting;
    if (atEnd) below.hidden = true;
  }, { rootMargin: "0px 0px 120px 0px" }).observe(end);

  indexerd.live = { refresh };
  tell();
  setInterval(state, 60_000); // a turn becomes stale without an event
  indexerd.stream({
    heard,
    broken: (refused, tries) => { if (refused || tries > 1) refresh(); }, // the view itself may be gone
    seen: refresh,
  });
  if (story.doc.problem) refresh();
})((window.indexerd ||= {}));
