// The daemon's events, while the page is visible: a browser makes at most six connections to a server,
// and each stream needs one. A stream begins with the event `daemon`; a page must fetch what happened
// before. `broken(refused)` is called when the stream breaks; a browser does not reconnect after a
// refusal. `barred`: the view was restarted and refuses this browser; no requests are made until the
// user returns to the page.
((indexerd) => {
  "use strict";
  indexerd.stream = ({ heard, broken, seen }) => {
    let source = null, tries = 0, barred = false;

    function close() {
      source?.close();
      source = null;
    }

    function open() {
      if (source || barred || document.hidden) return;
      const mine = source = new EventSource("/events");
      mine.onopen = () => { tries = 0; };
      mine.onmessage = ({ data }) => heard(JSON.parse(data));
      mine.onerror = () => {
        const refused = mine.readyState === EventSource.CLOSED;
        tries++;
        if (refused && mine === source) {
          source = null;
          setTimeout(open, Math.min(60_000, 1000 * 2 ** tries)); // ms
        }
        broken(refused, tries);
      };
    }

    document.addEventListener("visibilitychange", () => {
      if (document.hidden) return close();
      open();
      return seen();
    });
    addEventListener("pagehide", close);
    addEventListener("pageshow", open);
    open();
    return (now) => { // stop the stream, or start it again
      barred = now;
      if (now) close();
      else open();
    };
  };
})((window.indexerd ||= {}));
