// The live page's panel "Sent to the model": the exact text that a model would get now, and where it would
// be sent. Fetched when the panel is first opened, and after each run while it is open.
// Also: indexing, exports, the family.
((indexerd) => {
  "use strict";
  const { $, el, button, coded, digits, count, when, dollars, say, sync } = indexerd.helpers;
  const { pre } = indexerd.prose;
  const { story } = indexerd;
  const { id, get, post, trouble, address } = indexerd.actions;
  const KIN_PAUSE = 3000; // ms between two requests for the family
  const held = el("div", "held");
  const problem = el("p", "bad");
  const queued = el("p", "notice");
  const again = button("change", "Index now", index);
  const asking = el("p", "", again);
  const texts = new Map(); // details by name
  const panel = el("details", "", el("summary", "", "Sent to the model"), held);
  const family = el("section");
  let fetched = false, busy = false, wanted = false;

  // -- what a model would get -----------------------------------------------------------------

  const kinds = (counts) => Object.entries(counts || {}).filter(([, number]) => number > 0)
    .map(([kind, number]) => `${kind} ${number}`).join(", ");

  function wouldGo(sent) {
    const redacted = kinds(sent.redactions);
    const facts = el("dl", "facts");
    for (const [term, text] of [
      ["Model", sent.model || "none is usable"],
      ["Goes to", !sent.model ? "nobody" : sent.leavesTheMachine
        ? "a server: it leaves this machine" : "nobody: it stays on this machine"],
      ["Redacted", redacted || "nothing was recognised as a secret"],
      ["Length", `${digits(sent.system.length + sent.user.length)} characters` +
        (sent.truncated ? "; the session is longer than that and was cut" : "; nothing was cut")],
    ]) facts.append(el("dt", "", term), el("dd", "", text));
    return [facts, exact("System text", sent.system, false), exact("User text", sent.user, true)];
  }

  function exact(name, text, open) {
    const body = pre(text);
    body.tabIndex = 0; // it scrolls
    body.setAttribute("role", "region");
    body.setAttribute("aria-label", name);
    const one = el("details", "", el("summary", "", `${name} (${count(text.length, "character")})`), body);
    one.open = texts.get(name)?.open ?? open;
    texts.set(name, one);
    return one;
  }

  function tokens(usage) {
    const { inputTokens: read, outputTokens: wrote } = usage || {};
    return read || wrote ? `${digits(read || 0)} / ${digits(wrote || 0)}` : "";
  }

  function lastRun(meta) {
    if (!meta) return el("p", "dim", "This session has not been indexed yet.");
    const usage = meta.usage || {};
    const parts = [meta.model, when(meta.updatedAt), tokens(usage) && `${tokens(usage)} tokens`,
      dollars(usage.costUsd)].filter(Boolean);
    const late = story.doc.session.newUserMessages || 0;
    return el("p", "", "Summary by ", ...parts.flatMap((one, at) => (at ? [", ", one] : [one])), ".",
      late ? ` It lacks your last ${count(late, "message")}.` : "");
  }

  async function fetchSent() { // repeated if a request was already running: its answer may be old
    wanted = true;
    while (wanted && !busy) {
      wanted = false;
      busy = true;
      try {
        draw(await get("sent"));
        fetched = true;
      } catch (error) {
        if (!fetched) held.replaceChildren(el("p", "bad", ...coded(trouble(error))));
      }
      busy = false;
    }
  }

  function draw(found) {
    const sent = found.asSent;
    again.textContent = sent && sent.model ? `Index now with ${sent.model}` : "Index now";
    sync(held, [lastRun(found.meta), asking, problem,
      ...(sent ? wouldGo(sent) : [el("p", "notice", ...coded(trouble({ message: found.problem, hint: found.hint })))])]);
  }

  panel.addEventListener("toggle", () => { if (panel.open && !fetched) fetchSent(); });

  async function index() {
    again.disabled = true;
    problem.textContent = "";
    try {
      const known = runAt();
      await post("index", {});
      before = known;
      queue();
      indexerd.live.refresh();
    } catch (error) {
      if (error.code === "already_running") return say("It is already queued or being indexed.");
      problem.replaceChildren(...coded(trouble(error)));
      say(trouble(error));
    } finally {
      again.disabled = false;
    }
  }

  let before = null; // the last run when indexing was requested; null: it was not

  const runAt = () => story.doc.live?.indexing?.at ?? "";

  function queue() { // show that it is queued until the run begins or fails; after each change
    if (before !== runAt()) before = null;
    const open = story.doc.session.state === "active";
    queued.textContent = before === null ? ""
      : open ? "Queued: the session is indexed when the agent's turn ends, if that is within a minute."
        : "Queued: the session is indexed in a moment.";
    queued.classList.toggle("unseen", !queued.textContent);
  }

  // -- exports, family ------------------------------------------------------------------------

  const relatives = new Set([id]);
  let asked = 0, kinTimer = 0, kinAt = -KIN_PAUSE;

  function kinSoon() { // an active session has an event every second
    if (kinTimer) return;
    kinTimer = setTimeout(kin, Math.max(0, kinAt + KIN_PAUSE - performance.now()));
  }

  async function kin() { // only the answer to the newest request is shown
    const mine = ++asked;
    kinTimer = 0;
    kinAt = performance.now();
    const found = await get("family").catch(() => null);
    if (!found || mine !== asked) return; // the page is complete without it
    relatives.clear();
    for (const one of [id, ...found.members.map((one) => one.sessionId)]) relatives.add(one);
    indexerd.family(family, found, id);
  }

  problem.setAttribute("role", "alert");
  queued.id = "queued";
  queued.classList.add("unseen");
  queued.setAttribute("role", "status");
  family.id = "family";
  panel.id = "sent";
  const exports = el("p", "exports", "Export: ");
  for (const [form, name] of [["html", "HTML"], ["md", "Markdown"], ["json", "JSON"]]) {
    const link = el("a", "", name);
    link.href = address(`export?format=${form}`);
    link.download = "";
    exports.append(link, " ");
  }
  $("notes").after(queued);
  $("details").append(panel, family, exports);
  kin();

  indexerd.panel = { queue, kin: kinSoon, related: (one) => relatives.has(one), ran: () => panel.open && fetchSent() };
})((window.indexerd ||= {}));
