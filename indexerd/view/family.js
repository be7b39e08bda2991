// The family of a session: what it came from, and what came from it, as a tree of links.
//
// In: an element, the answer of the socket's method `family`, the id of the session whose page this
// is. Every text is put in as text; ids go into addresses encoded. A family of one draws nothing.
// The tree is flat in the document: levels are in aria-level, and one item at a time is in the tab
// order (arrow keys, Home and End move; Left and Right go to the parent and to the first child).
(() => {
  "use strict";
  const HOW = { fork: "fork", resumed: "resumed", subagent: "sub-agent" };
  const count = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;
  const when = (time) =>
    /^\d{4}-\d\d-\d\dT\d\d:\d\d/.test(time || "") ? time.slice(0, 16).replace("T", " ") : "";

  function el(tag, name, text) {
    const one = document.createElement(tag);
    if (name) one.className = name;
    if (text) one.textContent = text;
    return one;
  }

  function item(member, own) {
    const depth = `d${Math.min(member.depth, 12)}`; // as view.css has them
    const one = el("a", `row kin ${depth}${own ? " active" : ""}`);
    one.href = `/s/${encodeURIComponent(member.sessionId)}`;
    one.setAttribute("role", "treeitem");
    one.setAttribute("aria-level", String(member.depth + 1));
    if (own) one.setAttribute("aria-current", "page");
    one.dataset.id = member.sessionId;
    one.tabIndex = -1;
    const facts = [member.agent, when(member.modifiedAt), count(member.userMessageCount, "ask")];
    if (member.gone) facts.push("gone");
    else if (member.archived) facts.push("archived");
    if (HOW[member.relation]) one.append(el("span", "who", HOW[member.relation]), " ");
    one.append(el("bdi", "words", member.name), " ");
    one.append(el("span", "kin-facts", facts.filter(Boolean).join(", ")));
    if (own) one.append(" ", el("span", "now", "this one"));
    return one;
  }

  // Every item says how many stand beside it below one parent, and which of them it is.
  function number(items) {
    const open = []; // by level: the items below the newest parent there
    const close = (level) => {
      for (const group of open.splice(level)) {
        for (const one of group) one.setAttribute("aria-setsize", String(group.length));
      }
    };
    for (const one of items) {
      const level = Number(one.getAttribute("aria-level"));
      close(level + 1);
      while (open.length <= level) open.push([]);
      open[level].push(one);
      one.setAttribute("aria-posinset", String(open[level].length));
    }
    close(0);
  }

  function target(items, at, key) {
    const level = (place) => Number(items[place]?.getAttribute("aria-level"));
    if (key === "ArrowDown") return at + 1;
    if (key === "ArrowUp") return at - 1;
    if (key === "Home") return 0;
    if (key === "End") return items.length - 1;
    if (key === "ArrowRight") return level(at + 1) > level(at) ? at + 1 : at;
    if (key !== "ArrowLeft") return null;
    let above = at - 1;
    while (above >= 0 && level(above) >= level(at)) above--;
    return above;
  }

  function moves(tree, items) {
    const enter = (one) => {
      for (const other of items) other.tabIndex = other === one ? 0 : -1;
    };
    tree.addEventListener("focusin", (event) => {
      const one = event.target.closest("[role=treeitem]");
      if (one) enter(one);
    });
    tree.addEventListener("keydown", (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
      const at = items.indexOf(document.activeElement);
      if (at < 0) return;
      if (event.key === " ") items[at].click(); // Enter is the link's own
      const to = target(items, at, event.key);
      if (to === null && event.key !== " ") return;
      event.preventDefault();
      event.stopPropagation();
      items[to]?.focus();
    });
    enter(items.find((one) => one.hasAttribute("aria-current")) || items[0]);
  }

  function family(box, result, ownId) {
    const members = result?.members || [];
    box.hidden = members.length < 2;
    const held = box.contains(document.activeElement) ? document.activeElement.dataset.id : null;
    box.replaceChildren();
    if (box.hidden) return;
    const tree = el("div", "kin-tree");
    tree.setAttribute("role", "tree");
    tree.setAttribute("aria-label", "Family of this session");
    const items = members.map((one) => item(one, one.sessionId === ownId));
    number(items);
    tree.append(...items);
    moves(tree, items);
    const all = members.length + result.more;
    box.append(el("h2", "", `Family: ${count(all, "session")}`), tree);
    if (result.more) box.append(el("p", "kin-facts", `${result.more} more are not shown.`));
    if (result.missingParent) {
      const told = el("p", "kin-facts", "It began in a session that is not known here: ");
      told.append(el("code", "", result.missingParent));
      box.append(told);
    }
    if (held) items.find((one) => one.dataset.id === held)?.focus();
  }

  const indexerd = (window.indexerd ||= {});
  indexerd.family = family;
})();
