// The document of web/export_json.py, and what is worked out of it: where branches end, which
// entry is the newest below another, which path is the session's own.
//
// `take` takes a whole document; `patch` one of the live view's patches: entries that it does not
// bring are kept, as the very same objects, so that whoever drew them can tell. Everything else is
// worked out anew: that is linear, and some milliseconds for twenty thousand entries. What a patch
// is, web/live_told.py says; of fields that it does not bring, those that are here stay.
((indexerd) => {
  "use strict";
  const story = {
    doc: null, nodes: [], beats: [],
    ends: null, // the last place below each
    newest: null, // the last thing said below each
    active: null, // 1 on the path to the session's leaf
    beatOf: null, // the beat of each place
    asksTo: [], // asks in the beats before each
    places: new Map(), // by name
  };

  // The same before and after a patch, and in addresses.
  const nameOf = (node, place) => node.id || `~${node.row ?? place}`;
  const name = (place) => nameOf(story.nodes[place], place);

  function take(doc) {
    const { nodes, beats } = doc;
    Object.assign(story, { doc, nodes, beats, places: new Map() });
    story.ends = new Int32Array(nodes.length);
    story.newest = new Int32Array(nodes.length).fill(-1);
    story.active = new Uint8Array(nodes.length);
    story.beatOf = new Int32Array(nodes.length);
    for (let place = 0; place < nodes.length; place++) story.places.set(name(place), place);
    beats.forEach((beat, at) => story.beatOf.fill(at, beat.first, beat.last + 1));
    story.asksTo = [0];
    for (const beat of beats) {
      story.asksTo.push(story.asksTo[story.asksTo.length - 1] + (beat.kind === "ask" ? 1 : 0));
    }
    for (const place of pathTo(doc.leaf)) story.active[place] = 1;
    ends();
  }

  function ends() {
    const { nodes, ends: last, newest } = story;
    const spoken = new Uint8Array(nodes.length);
    for (let place = nodes.length - 1; place >= 0; place--) { // children stand after their parents
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

  // A list of which the first and the last stay (web/live_told.py).
  const spliced = (held, { keep, put, end }) =>
    [...held.slice(0, keep), ...put, ...held.slice(held.length - end)];

  function patch(change) { // false: it does not fit what is here, the whole is needed
    const { base, rows, beats, nodes: brought, ...rest } = change;
    const old = story.nodes;
    const fit = (held, { keep, end }) => keep + end <= held.length;
    if (!fit(old, rows) || !fit(story.beats, beats)) return false;
    const order = spliced(old.map(({ row }) => row), rows);
    const held = new Map(), over = new Map(), places = new Map([[-1, -1]]);
    for (const node of old) {
      held.set(node.row, node);
      over.set(node.row, node.above < 0 ? -1 : old[node.above].row);
    }
    for (const node of brought) {
      held.set(node.row, node);
      over.delete(node.row); // it says itself where it hangs
    }
    order.forEach((row, place) => places.set(row, place));
    const nodes = order.map((row) => held.get(row));
    const above = order.map((row, place) =>
      over.has(row) ? places.get(over.get(row)) : nodes[place] && nodes[place].above);
    if (nodes.includes(undefined) || above.includes(undefined)) return false;
    nodes.forEach((node, place) => { node.above = above[place]; });
    const kept = story.beats.length - beats.end, by = nodes.length - old.length;
    const stayed = story.beats.map((beat, at) => at < kept ? beat : moved(beat, by));
    take({ ...story.doc, ...rest, nodes, beats: spliced(stayed, beats) });
    return true;
  }

  function moved(beat, by) { // the same, so many places further on
    if (!by) return beat;
    const found = { ...beat, first: beat.first + by, last: beat.last + by };
    if (beat.labels) found.labels = beat.labels.map((place) => place + by);
    return found;
  }

  function pathTo(leaf) {
    const found = [];
    for (let place = leaf; place >= 0; place = story.nodes[place].above) found.push(place);
    return found.reverse();
  }

  const under = (place, above) => place >= above && place <= story.ends[above];

  function through(place) { // the leaf whose path an entry is shown on
    const { leaf } = story.doc;
    return leaf >= 0 && under(leaf, place) ? leaf : story.newest[place];
  }

  indexerd.story = Object.assign(story, { take, patch, name, nameOf, pathTo, through });
})((window.indexerd ||= {}));
