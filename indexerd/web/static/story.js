// The document of web/document.py, and what is computed from it: where branches end, which entry is
// the newest below another, which path is the session's own.
//
// `take` sets the document; if it lacks the first `keep` nodes, the present ones are kept. A node that
// did not change remains the same object. Everything else is recomputed, in a few milliseconds.
((indexerd) => {
  "use strict";
  const story = {
    doc: null, nodes: [], beats: [],
    ends: null, // the last place below each
    newest: null, // the last thing said below each
    active: null, // 1 on the path to the session's leaf
    beatOf: null, // the beat of each place
    asksTo: [], // number of prompts in the beats before each
    places: new Map(), // by name
  };

  // A node's name in addresses, which does not change with the document.
  const nameOf = (node, place) => node.id || `~${node.row ?? place}`;
  const name = (place) => nameOf(story.nodes[place], place);

  function take({ keep = 0, ...doc }) {
    const old = new Map(story.nodes.slice(keep).map((node) => [node.row, node]));
    const { beats } = doc;
    const nodes = doc.nodes = [...story.nodes.slice(0, keep),
      ...doc.nodes.map((node) => reused(node, old.get(node.row)))];
    Object.assign(story, { doc, nodes, beats, places: new Map() });
    indexerd.prose.seed(doc);
    story.ends = new Int32Array(nodes.length);
    story.newest = new Int32Array(nodes.length).fill(-1);
    story.active = new Uint8Array(nodes.length);
    story.beatOf = new Int32Array(nodes.length);
    for (let place = 0; place < nodes.length; place++) story.places.set(name(place), place);
    beats.forEach((beat, at) => story.beatOf.fill(at, beat.first, beat.last + 1));
    story.asksTo = [0];
    for (const beat of beats) {
      story.asksTo.push(story.asksTo[story.asksTo.length - 1] + (nodes[beat.first].kind === "user" ? 1 : 0));
    }
    for (const place of pathTo(doc.leaf)) story.active[place] = 1;
    ends();
  }

  function ends() {
    const { nodes, ends: last, newest } = story;
    const spoken = new Uint8Array(nodes.length);
    for (let place = nodes.length - 1; place >= 0; place--) { // children come after their parents
      const { above, kind } = nodes[place];
      if (last[place] < place) last[place] = place;
      if (kind === "user" || kind === "assistant") spoken[place] = 1;
      if (newest[place] < 0) newest[place] = place;
      if (above < 0) continue;
      if (last[above] < last[place]) last[above] = last[place];
      const best = newest[above];
      const better = best < 0 || (spoken[place] && !spoken[above]) ||
        (spoken[place] >= spoken[above] && nodes[newest[place]].ordinal > nodes[best].ordinal);
      if (better) newest[above] = newest[place];
      spoken[above] |= spoken[place];
    }
  }

  const PLACED = ["above", "active", "ordinal"]; // may differ in a node that counts as unchanged
  const said = (node) => JSON.stringify(node, (key, value) => (PLACED.includes(key) ? undefined : value));

  function reused(node, old) {
    if (!old || said(old) !== said(node)) return node;
    for (const key of PLACED) old[key] = node[key];
    return old;
  }

  function pathTo(leaf) {
    const found = [];
    for (let place = leaf; place >= 0; place = story.nodes[place].above) found.push(place);
    return found.reverse();
  }

  const under = (place, above) => place >= above && place <= story.ends[above];

  function through(place) { // the leaf of the path on which an entry is shown
    const { leaf } = story.doc;
    return leaf >= 0 && under(leaf, place) ? leaf : story.newest[place];
  }

  indexerd.story = Object.assign(story, { take, name, nameOf, pathTo, through });
})((window.indexerd ||= {}));
