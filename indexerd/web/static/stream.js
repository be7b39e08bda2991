// The daemon's events, while somebody looks: a browser has six connections to one server, and each
// stream holds one. Each stream begins with the event `daemon`: whatever happened before it, the page
// has to ask for. `broken(refused)` is called when the stream breaks; where it was refused, the
// browser does not try again by itself. `barred`: the view was started again, and does not know this
// browser; nothing is asked until somebody comes back to the page.
((indexerd) => {
  "use strict";
  const LONGEST = 60_000; // ms between two tries

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
          setTimeout(open, Math.min(LONGEST, 1000 * 2 ** tries));
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
    return (now) => { // bar the page, or let it in again
      barred = now;
      if (now) close();
      else open();
    };
  };
})((window.indexerd ||= {}));
