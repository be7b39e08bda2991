// Edits of files: a diff below its file's name, and the view *Files*, which has all edits of the shown
// path by file, in order.
((indexerd) => {
  "use strict";
  const { $, el, button, base, digits, count, clock } = indexerd.helpers;
  const { story } = indexerd;
  const SHORT = 30; // lines of a diff that is open at first
  const LISTED = 300; // files without edits
  const KINDS = { create: "new", write: "written", delete: "deleted", rename: "renamed" };
  const LINES = { "+": "add", "-": "del", "@": "part" };

  function local(path) { // relative to the session's directory
    const { cwd } = story.doc.session;
    return cwd && path.startsWith(cwd) && /[/\\]/.test(path[cwd.length]) ? path.slice(cwd.length + 1) : path;
  }

  function amounts({ added = 0, removed = 0 }) {
    return el("span", "amounts", added ? el("span", "plus", `+${digits(added)}`) : "", added && removed ? " " : "",
      removed ? el("span", "minus", `−${digits(removed)}`) : "");
  }

  function lines({ diff, cut }) {
    const held = el("pre", "diff");
    held.tabIndex = 0; // it scrolls
    for (const line of diff ? diff.split("\n") : []) held.append(el("span", LINES[line[0]] || "", `${line}\n`));
    return [held, cut ? el("p", "cut", `${count(cut, "more line")} left out`) : ""];
  }

  function folded(one, open, build) { // fill it when it is first opened
    const fill = () => { if (one.open && one.childNodes.length === 1) one.append(...build().filter(Boolean)); };
    one.open = open;
    one.addEventListener("toggle", fill);
    fill();
    return one;
  }

  const size = ({ diff }) => diff.split("\n").length;

  function diffBox(edit, failed, name = "") { // `name`: instead of the file's
    const path = local(edit.path), file = edit.movedTo ? `${path} → ${local(edit.movedTo)}` : path;
    const title = el("summary", "", name || el("code", "path", file),
      KINDS[edit.kind] ? el("span", "kind", KINDS[edit.kind]) : "", amounts(edit),
      failed ? el("span", "bad", failed) : "");
    return folded(el("details", "edit", title), size(edit) <= SHORT && !failed, () => lines(edit));
  }

  // -- the view of all files -------------------------------------------------------------------

  function changed(path) { // the edits of a path's entries, by file
    const files = new Map();
    for (const place of path) {
      for (const call of story.nodes[place].calls || []) {
        for (const edit of call.edits || []) {
          const name = local(edit.path); // an agent names the same file both ways
          if (!files.has(name)) files.set(name, []);
          files.get(name).push({ edit, place, failed: call.failed });
        }
      }
    }
    return files;
  }

  function sum(edits) {
    const done = edits.filter(({ failed }) => !failed).map(({ edit }) => edit);
    const add = (name) => done.reduce((all, edit) => all + (edit[name] || 0), 0);
    return { added: add("added"), removed: add("removed") };
  }

  function fileBox(name, edits) {
    const several = edits.length > 1;
    const boxes = () => edits.map(({ edit, place, failed }, at) => {
      const link = el("a", "", "message ", clock(story.nodes[place].time) || "");
      link.href = indexerd.session.address(place);
      link.title = "Show this edit in the conversation";
      const moved = edit.movedTo ? ` → ${local(edit.movedTo)}` : "";
      const name = several ? el("span", "", `Edit ${at + 1}${moved}`) : "";
      return el("div", "entry", diffBox(edit, failed, name), link);
    });
    if (!several) return boxes()[0];
    const failed = edits.filter((one) => one.failed).length, done = count(edits.length - failed, "edit");
    const title = el("summary", "", el("code", "path", local(name)), amounts(sum(edits)), el("span", "dim", done),
      failed ? el("span", "bad", `${failed} failed`) : "");
    const short = edits.reduce((all, { edit }) => all + size(edit), 0) <= SHORT;
    return folded(el("details", "file", title), short, boxes);
  }

  function found(path) { // searches the tree for the file's name
    const one = button("plain", local(path), () => indexerd.session.find(base(path)));
    one.title = `Search this session for ${base(path)}`;
    return el("li", "", one);
  }

  function listed(name, paths) {
    if (!paths.length) return [];
    const list = el("ul", "mono files", ...paths.slice(0, LISTED).map(found));
    if (paths.length > LISTED) list.append(el("li", "cut", `and ${digits(paths.length - LISTED)} more`));
    return [el("h3", "", `${name} (${digits(paths.length)})`), list];
  }

  let drawn = null; // the path whose files are shown

  function draw(path, force = false) {
    const sign = path.length ? `${path.length} ${story.name(path[path.length - 1])}` : "";
    if (sign === drawn && !force) return;
    drawn = sign;
    const files = changed(path), { session } = story.doc;
    const { cwd = "" } = session, onWindows = /^[a-z]:[\\/]/i;
    const slashed = (name) => (onWindows.test(cwd) ? name.replaceAll("\\", "/") : name);
    const whole = (name) => slashed(name.startsWith("/") || onWindows.test(name) || !cwd ? name : `${cwd}/${name}`);
    const all = [...files.values()].flat();
    const targets = all.map(({ edit }) => edit.movedTo).filter(Boolean);
    const known = new Set([...files.keys(), ...targets].map(whole));
    const others = (session.filesModified || []).filter((name) => !known.has(whole(name)));
    const edited = [...files.values()].filter((edits) => edits.some(({ failed }) => !failed)).length;
    $("files").replaceChildren(
      ...(files.size ? [el("p", "dim", `${count(edited, "file")} edited on this path `, amounts(sum(all)))] : []),
      ...[...files].map(([name, edits]) => fileBox(name, edits)),
      ...listed(files.size ? "Also changed, by commands or on other paths" : "Changed", others),
      ...listed("Read", session.filesRead || []));
    if (!$("files").firstChild) $("files").append(el("p", "dim", "No files were read or changed."));
    $("see-files").textContent = edited ? `Files ${digits(edited)}` : "Files";
  }

  indexerd.edits = { diffBox, draw };
})((window.indexerd ||= {}));
