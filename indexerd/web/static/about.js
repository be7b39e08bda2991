// The session's name, its facts as one line, and the details: summary, facts, context.
//
// A section is drawn only when its data has changed, so what the reader opened stays open.
((indexerd) => {
  "use strict";
  const { $, el, digits, count, when, lasted, moment, zone, cost, sync } = indexerd.helpers;
  const { prose } = indexerd.prose;
  const { story } = indexerd;
  const drawn = new Map(); // by key: {sign, box}

  function section(key, data, build) { // null if there is nothing to show
    const sign = JSON.stringify(data);
    const old = drawn.get(key);
    if (old && old.sign === sign) return old.box;
    const one = build(data);
    if (one && old && old.box && one.tagName === "DETAILS") one.open = old.box.open;
    drawn.set(key, { sign, box: one });
    return one;
  }

  function draw() {
    const { doc } = story;
    const { session, meta } = doc;
    const name = session.name || session.sessionId || $("title").textContent;
    if (document.title !== name) document.title = name;
    for (const id of ["name", "title"]) if ($(id).textContent !== name) $(id).textContent = name;
    if (session.sessionId) $("described").textContent = session.description || (meta && meta.description) || "";
    $("copy").hidden = !session.resume;
    sync($("brief"), [section("brief", brief(session), (parts) => el("span", "", ...parts.map((one) => el("span", "", one))))]);
    sync($("notes"), [section("notes", notes(doc), (all) => all.length &&
      el("div", "", ...all.map((text) => el("p", "notice", text))))].filter(Boolean));
    sync($("facts"), [
      section("remarks", remarks(doc), (all) => all.length && el("p", "dim", all.join(" "))),
      section("summary", meta && meta.summary, (text) => text &&
        el("div", "", el("h3", "unseen", "Summary"), prose(text))),
      section("facts", factsOf(session, meta, doc), factList),
      section("context", [doc.context, doc.footer], contextBox),
    ].filter(Boolean));
  }

  function began({ createdAt, modifiedAt, durationMs = 0 }) { // copied messages may be older than the file
    const first = new Date(Date.parse(modifiedAt) - durationMs);
    return first < new Date(createdAt) ? first.toISOString() : createdAt;
  }

  function paid(session) { // by it, and by its sub-agents
    const { subagents = {} } = session;
    const theirs = cost(subagents) || (subagents.unpricedTokens && "unknown cost");
    return [cost(session), theirs && `${theirs} in ${count(subagents.sessions, "sub-agent")}`].filter(Boolean).join(" + ");
  }

  function brief(session) { // what matters most, in one line
    const { agent, models = [], durationMs, userMessageCount: asks } = session;
    return [
      agent, models.length > 1 ? `${models[models.length - 1]} and ${models.length - 1} more` : models[0],
      paid(session), lasted(durationMs), asks ? count(asks, "prompt") : "",
      when(began(session))?.textContent, mark(session),
    ].filter(Boolean);
  }

  function mark({ promptsOnly, gone, archived }) { // as in the list
    return promptsOnly ? "prompts only" : gone ? "file gone" : archived ? "archived" : "";
  }

  function notes({ live, session, warnings = [] }) {
    const kept = "Its file is gone; this is its copy in the archive.";
    const copy = live && session.copyOnly;
    return copy ? [...warnings, `${kept} To put it back: indexerd restore ${session.sessionId}`] : warnings;
  }

  // -- facts ----------------------------------------------------------------------------------

  function remarks(doc) {
    const found = [], { subagent, parentSessionId } = doc.session;
    if (parentSessionId && !subagent) {
      found.push("Copied messages count here; their tokens, cost, tools and files count in the original, while that is on this machine.");
    }
    if (doc.redacted) found.push("Known kinds of secrets were removed from the texts, and all images.");
    if (doc.nodes.some((node) => node.length)) {
      found.push(`Entries of more than ${digits(doc.textMax)} characters are cut.`);
    }
    return found;
  }

  const spaced = (name) => name.replace(/[A-Z]/g, (big) => ` ${big.toLowerCase()}`); // "cacheRead"

  // [term, text, whether it is code]; {at} in a list of texts is a time.
  function factsOf(session, meta, doc) {
    const tools = Object.entries(session.toolsUsed || {}).sort((a, b) => b[1] - a[1]);
    const listed = (all) => all.filter(Boolean).join(", ");
    return [
      ["Session", session.sessionId, 1],
      ["Agent", [session.agent, (session.models || []).join(", ")].filter(Boolean).join(" · ")],
      ["Directory", session.cwd, 1],
      ["Git branch", session.gitBranch, 1],
      [`Time (${zone})`, timed("to", began(session), session.modifiedAt)],
      ["Messages", session.messageCount ? digits(session.messageCount) : ""],
      ["Tools", listed(tools.slice(0, 12).map(([tool, number]) => `${tool} ${number}`))],
      ["Tokens", listed(Object.entries(session.tokens || {}).map(([kind, many]) => many && `${digits(many)} ${spaced(kind)}`))],
      ["Cost", paid(session)],
      ["Tokens without a known price", session.unpricedTokens ? digits(session.unpricedTokens) : ""],
      ["Tags", listed(session.tags || [])],
      ["Parent", session.parentSessionId || session.parentSessionFile, 1],
      ["Resume", session.resume, 1],
      ["Summary by", meta ? [meta.model, ...timed("", meta.updatedAt)].filter(Boolean) : ""],
      ["Exported", doc.live ? "" : [...timed("", doc.exportedAt), doc.generator && `by ${doc.generator}`].filter(Boolean)],
    ].filter(([, text]) => text && text.length);
  }

  function timed(between, ...times) {
    const found = times.filter(moment).map((at) => ({ at }));
    return found.flatMap((one, at) => (at ? [between, one] : [one]));
  }

  const shown = (part) => (typeof part === "string" ? part : when(part.at));

  function factList(facts) {
    const list = el("dl", "facts");
    for (const [term, text, code] of facts) {
      const parts = Array.isArray(text) ? text.flatMap((part) => [shown(part), " "]) : [text];
      list.append(el("dt", "", term), el("dd", "", ...(code ? [el("code", "", text)] : parts)));
    }
    return list;
  }

  // -- the sets of context --------------------------------------------------------------------

  function contextBox([context, footer]) {
    const sets = Object.entries(context || {}).filter(([, held]) => held.length);
    if (!sets.length) return null;
    const one = el("details", "", el("summary", "", "Context: ", footer || sets.map(([name]) => name).join(", ")));
    for (const [name, held] of sets) {
      one.append(el("p", "dim", name), el("ul", "mono files", ...held.map((text) => el("li", "", text))));
    }
    return one;
  }

  $("details").append(el("div"));
  $("details").lastChild.id = "facts";
  indexerd.about = { draw };
})((window.indexerd ||= {}));
