// The family of a session: what it came from, and what came from it, as a tree of links.
//
// In: an element, the answer of the socket's method `family`, the id of the session whose page this
// is. Every text is put in as text; ids go into addresses encoded. A family of one draws nothing, but
// for what it came from where that is not here.
// The tree is flat in the document: levels are in aria-level, and one item at a time is in the tab
// order (arrow keys, Home and End move; Left and Right go to the parent and to the first child).
((indexerd) => {
  "use strict";
  const { el, count, when } = indexerd.words;
  const HOW = { fork: "fork", resumed: "resumed", subagent: "sub-agent" };

  function item(member, own) {
    const depth = `d${Math.min(member.depth, 12)}`; // as view.css has them
    const one = el("a", `row kin ${depth}${own ? " active" : ""}`);
    one.href = `/s/${encodeURIComponent(member.sessionId)}`;
    one.setAttribute("role", "treeitem");
    one.setAttribute("aria-level", String(member.depth + 1));
    if (own) one.setAttribute("aria-current", "page");
    one.dataset.id = member.sessionId;
    one.tabIndex = -1;
    const facts = [member.agent, when(member.modifiedAt), count(member.userMessageCount, "ask")].filter(Boolean);
    if (member.gone) facts.push("gone");
    else if (member.archived) facts.push("archived");
    if (HOW[member.relation]) one.append(el("span", "who", HOW[member.relation]), " ");
    one.append(el("bdi", "words", member.name), " ");
    const told = el("span", "kin-facts");
    told.append(...facts.flatMap((fact, at) => (at ? [", ", fact] : [fact])));
    one.append(told);
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
    const missing = result?.missingParent;
    box.hidden = members.length < 2 && !missing;
    const held = box.contains(document.activeElement) ? document.activeElement.dataset.id : null;
    box.replaceChildren();
    if (box.hidden) return;
    if (members.length > 1) drawTree(box, members, result.more, ownId);
    else box.append(el("h2", "", "Family"));
    if (missing) {
      const told = el("p", "kin-facts", members.length > 1 ? "The first came from a session that is not here: "
        : "It came from a session that is not here: ");
      told.append(el("code", "", missing));
      box.append(told);
    }
    if (held) [...box.querySelectorAll("[data-id]")].find((one) => one.dataset.id === held)?.focus();
  }

  function drawTree(box, members, more, ownId) {
    const tree = el("div", "kin-tree");
    tree.setAttribute("role", "tree");
    tree.setAttribute("aria-label", "Family of this session");
    const items = members.map((one) => item(one, one.sessionId === ownId));
    number(items);
    tree.append(...items);
    moves(tree, items);
    const all = members.length + more;
    box.append(el("h2", "", `Family: ${count(all, "session")}`), tree);
    if (more) box.append(el("p", "kin-facts", `${more} more are not shown.`));
  }

  indexerd.family = family;
})((window.indexerd ||= {}));
