// Changes made on the live page: names and labels, each with a small form. Enter saves, Escape
// cancels, an empty field removes the user's own name or label.
//
// Also the live page's requests: `get`, `post`, and `trouble`, which returns an error's text.
((indexerd) => {
  "use strict";
  const { $, el, button, coded, say } = indexerd.helpers;
  const { story, rows } = indexerd;
  const NAME_MAX = 120; // characters of a name or a label (indexerd/protocol/limits.py)
  const id = decodeURIComponent(location.pathname.split("/")[2] || "");
  const address = (what) => `/s/${encodeURIComponent(id)}/${what}`;

  async function ask(url, options) { // the answer, or an error with a hint
    const fail = (message, more) => { throw Object.assign(new Error(message), more); };
    const answer = await fetch(url, { headers: { Accept: "application/json" }, ...options })
      .catch(() => fail("the web view does not answer", { hint: "is `indexerd web` still running?" }));
    const { status } = answer, found = await answer.json().catch(() => null); // null: not our JSON
    if (answer.ok && found) return found;
    const { message = `the web view answered with status ${status}`, hint, code } = found?.error || {};
    return fail(message, { hint, code });
  }

  const get = (what) => ask(address(what), { cache: "no-store" });
  const post = (what, held) => send(address(what), held);
  const send = (url, held) => ask(url, {
    method: "POST",
    headers: { Accept: "application/json", "Content-Type": "application/json" },
    body: JSON.stringify(held),
  });
  const trouble = (error) => [error.message, error.hint].filter(Boolean).join("; ");

  // -- a form of one line ---------------------------------------------------------------------

  // `most` is in characters; `back` is called when the form closes.
  function form(name, value, most, save, back) {
    const field = el("input");
    const problem = el("p", "bad");
    const keep = el("button", "", "Save");
    const label = el("label", "", `${name} `, field);
    field.value = value;
    field.maxLength = most;
    const before = field.value.trim(); // the field may have normalised it
    field.autocomplete = "off";
    problem.setAttribute("role", "alert");
    const one = el("form", "small", label, keep, button("", "Cancel", () => close()), problem);
    const close = () => { one.remove(); back(); };
    one.addEventListener("submit", async (event) => {
      event.preventDefault();
      const text = field.value.trim();
      if (text === before) {
        say("Nothing was changed.");
        return close();
      }
      keep.disabled = true;
      problem.textContent = "";
      try {
        await save(text || null);
        close();
      } catch (error) {
        problem.replaceChildren(...coded(trouble(error)));
        keep.disabled = false;
      }
    });
    one.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.preventDefault();
      event.stopPropagation();
      close();
    });
    return { one, begin: () => { field.focus(); field.select(); } };
  }

  // -- its name -------------------------------------------------------------------------------

  const renaming = button("change", "Rename", () => {
    const title = $("title");
    const { one, begin } = form("Name", title.textContent, NAME_MAX, async (text) => {
      const { nameSource, name, agentTitle } = story.doc.session;
      if (!text && (nameSource !== "user" || name === agentTitle)) return say("There is no name of your own to remove.");
      await post("rename", { title: text || null });
      say(text ? "Renamed." : "Your name was removed.");
      return indexerd.live.refresh();
    }, () => {
      title.classList.remove("unseen");
      renaming.hidden = false;
      renaming.focus();
    });
    title.classList.add("unseen"); // it is still the page's heading
    renaming.hidden = true;
    title.after(one);
    begin();
  });
  renaming.id = "rename";
  $("title").after(renaming);

  // -- labels ---------------------------------------------------------------------------------

  function label(place, after, back = () => indexerd.tree.refocus()) {
    const node = story.nodes[place];
    const old = document.querySelector("form.labels");
    if (old) old.remove();
    if (!node || !node.id) return say("This entry has no id, so it cannot have a label.");
    const { one, begin } = form(`Label of “${rows.line(node, 40)}”`, node.label || "", NAME_MAX, async (text) => {
      await post("label", { entryId: node.id, text: text || null });
      say(text ? "Labelled." : "Label removed.");
      indexerd.live.refresh();
    }, back);
    one.classList.add("labels");
    after.after(one);
    return begin();
  }

  $("path").addEventListener("click", (event) => {
    const one = event.target.closest("button.label-it");
    if (!one) return;
    const place = indexerd.talk.placeOf(one);
    if (place >= 0) label(place, one.closest("header"), () => one.isConnected && one.focus());
  });

  indexerd.render = async (kind, text) => (await send("/rendered", { kind, text })).html;
  indexerd.label = label;
  indexerd.labelButton = () => button("label-it change", "label");
  indexerd.actions = { id, get, post, trouble, address };
})((window.indexerd ||= {}));
