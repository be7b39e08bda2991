// The family of a session: what it came from, and what came from it, as a tree of links.
//
// In: an element, the answer of the socket's method `family`, the id of the session whose page this
// is. A family of one draws nothing, but for what it came from where that is not here. The tree is
// flat in the document: levels are in aria-level, and one item at a time is in the tab order.
((indexerd) => {
  "use strict";
  const { el, count, when } = indexerd.words;
  const HOW = { fork: "fork", resumed: "resumed", subagent: "sub-agent" };
  const level = (one) => Number(one?.getAttribute("aria-level"));

  function item(member, own) {
    const one = el("a", `row kin${own ? " active" : ""}`);
    one.style.setProperty("--level", Math.min(member.depth, 12));
    one.href = `/s/${encodeURIComponent(member.sessionId)}`;
    one.setAttribute("role", "treeitem");
    one.setAttribute("aria-level", member.depth + 1);
    if (own) one.setAttribute("aria-current", "page");
    one.dataset.id = member.sessionId;
    one.tabIndex = own ? 0 : -1;
    const facts = [member.agent, when(member.modifiedAt), count(member.userMessageCount, "ask"),
      member.gone ? "gone" : member.archived ? "archived" : ""].filter(Boolean);
    if (HOW[member.relation]) one.append(el("span", "who", HOW[member.relation]), " ");
    one.append(el("bdi", "words", member.name), " ",
      el("span", "kin-facts", ...facts.flatMap((fact, at) => (at ? [", ", fact] : [fact]))));
    if (own) one.append(" ", el("span", "now", "this one"));
    return one;
  }

  const MOVES = {
    ArrowDown: (items, at) => items[at + 1],
    ArrowUp: (items, at) => items[at - 1],
    Home: (items) => items[0],
    End: (items) => items[items.length - 1],
    ArrowRight: (items, at) => (level(items[at + 1]) > level(items[at]) ? items[at + 1] : null),
    ArrowLeft: (items, at) => items.slice(0, at).findLast((one) => level(one) < level(items[at])),
    " ": (items, at) => void items[at].click(), // Enter is the link's own
  };

  function treeOf(items) {
    const tree = el("div", "kin-tree", ...items);
    tree.setAttribute("role", "tree");
    tree.setAttribute("aria-label", "Family of this session");
    tree.addEventListener("focusin", (event) => {
      for (const one of items) one.tabIndex = one.contains(event.target) ? 0 : -1;
    });
    tree.addEventListener("keydown", (event) => {
      const move = MOVES[event.key], at = items.indexOf(document.activeElement);
      if (!move || at < 0 || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      event.stopPropagation();
      move(items, at)?.focus();
    });
    return tree;
  }

  indexerd.family = (box, { members, missingParent: missing, more }, ownId) => {
    const held = box.contains(document.activeElement) ? document.activeElement.dataset.id : null;
    const several = members.length > 1;
    box.hidden = !several && !missing;
    box.replaceChildren();
    if (box.hidden) return;
    box.append(el("h2", "", several ? `Family: ${count(members.length + more, "session")}` : "Family"));
    if (several) box.append(treeOf(members.map((one) => item(one, one.sessionId === ownId))));
    if (several && more) box.append(el("p", "kin-facts", `${more} more are not shown.`));
    if (missing) {
      const from = `${several ? "The first" : "It"} came from a session that is not here: `;
      box.append(el("p", "kin-facts", from, el("code", "", missing)));
    }
    if (held) [...box.querySelectorAll("[data-id]")].find((one) => one.dataset.id === held)?.focus();
  };
})((window.indexerd ||= {}));
