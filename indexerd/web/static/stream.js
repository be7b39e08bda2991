// The daemon's events, while the page is visible: a browser makes at most six connections to a server,
// and each stream needs one. A stream begins with the event `daemon`; a page must fetch what happened
// before. `broken(refused)` is called when the stream breaks; a browser does not reconnect after a
// refusal, as by a view that was restarted, so that is done here, at most once a minute.
((indexerd) => {
  "use strict";
  indexerd.stream = ({ heard, broken, seen }) => {
    let source = null, tries = 0;

    function close() {
      source?.close();
      source = null;
    }

    function open() {
      if (source || document.hidden) return;
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
  };
})((window.indexerd ||= {}));
