// The family of a session as a list of links, each indented below its parent.
//
// In: an element, the answer of the socket's method `family`, and the id of the page's session. A
// family of one is not drawn, except for a missing parent.
((indexerd) => {
  "use strict";
  const { $, el, button, count, when } = indexerd.helpers;
  const FROM = { fork: "fork of", subagent: "sub-agent of" };
  const NEAR = 3; // children named above the conversation
  const NAME = 60; // characters of their names
  const HOW = { fork: "fork", subagent: "sub-agent" };

  function item(member, own) {
    const one = el("a", `row kin${own ? " active" : ""}`);
    one.style.setProperty("--level", Math.min(member.depth, 12));
    one.href = `/s/${encodeURIComponent(member.sessionId)}`;
    if (own) one.setAttribute("aria-current", "page");
    one.dataset.id = member.sessionId;
    const asks = member.userMessageCount;
    const facts = [member.agent, when(member.modifiedAt), asks ? count(asks, "prompt") : "",
      member.gone ? "gone" : member.archived ? "archived" : ""].filter(Boolean);
    if (HOW[member.relation]) one.append(el("span", "who", HOW[member.relation]), " ");
    one.append(el("bdi", "words", member.name), " ",
      el("span", "kin-facts", ...facts.flatMap((fact, at) => (at ? [", ", fact] : [fact]))));
    if (own) one.append(" ", el("span", "now", "this session"));
    return el("li", "", one);
  }

  const link = ({ sessionId, name }) => {
    const one = el("a", "", name.length > NAME ? `${name.slice(0, NAME - 1)}…` : name);
    one.href = `/s/${encodeURIComponent(sessionId)}`;
    return one;
  };

  function all() { // show the whole family
    $("details").open = true;
    $("family").scrollIntoView({ block: "center" });
    $("family").querySelector("a").focus({ preventScroll: true });
  }

  function near(members, ownId) { // the parent and the children, as links
    const at = members.findIndex(({ sessionId }) => sessionId === ownId), own = members[at];
    if (!own) return [];
    const parent = members.slice(0, at).findLast(({ depth }) => depth < own.depth);
    const end = members.findIndex(({ depth }, place) => place > at && depth <= own.depth);
    const below = members.slice(at + 1, end < 0 ? members.length : end);
    const children = below.filter(({ depth }) => depth === own.depth + 1);
    const listed = children.slice(0, NEAR).flatMap((one, place) => (place ? [", ", link(one)] : [link(one)]));
    if (children.length > NEAR) listed.push(", ", button("plain", `${children.length - NEAR} more`, all));
    return [
      parent ? el("span", "", `${FROM[own.relation] || FROM.fork} `, link(parent)) : "",
      children.length ? el("span", "", "children: ", ...listed) : "",
    ].filter(Boolean);
  }

  indexerd.family = (box, { members, missingParent: missing, more }, ownId) => {
    const held = box.contains(document.activeElement) ? document.activeElement.dataset.id : null;
    const several = members.length > 1;
    $("kin").replaceChildren(...near(members, ownId));
    box.hidden = !several && !missing;
    box.replaceChildren();
    if (box.hidden) return;
    box.append(el("h2", "", several ? `Family: ${count(members.length + more, "session")}` : "Family"));
    if (several) box.append(el("ul", "files", ...members.map((one) => item(one, one.sessionId === ownId))));
    if (several && more) box.append(el("p", "kin-facts", `${more} more are not shown.`));
    if (missing) {
      const from = `The parent of ${several ? "the first" : "this"} session is unknown: `;
      box.append(el("p", "kin-facts", from, el("code", "", missing)));
    }
    if (held) [...box.querySelectorAll("[data-id]")].find((one) => one.dataset.id === held)?.focus();
  };
})((window.indexerd ||= {}));
