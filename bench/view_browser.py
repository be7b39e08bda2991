"""Loads of pages in a browser, and what it says that they took, for `bench_view.py`.

A page is loaded in a fresh context, and is there two frames after it has a row of a tree. Figures
are the browser's own, in milliseconds: `work` is script, layout and style together, `tasks` all of
the main thread, `paint` the first contentful paint, `drawn` when it was there, `longest` its
longest task of more than 50 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any

from measure import ROOT, ratio

from tests.browser.site import Site
from tests.browser.tabs import PATIENCE

assert ROOT.is_dir()  # `measure` makes the way to the rest
FRAMES = 100
INIT = """(() => {
  const told = (window.measured = { tasks: [] });
  let tell;
  const soon = (what) => Promise.race([what, new Promise((_, refuse) => {
    setTimeout(() => refuse(new Error("nothing is drawn")), 20_000);
  })]);
  told.ready = soon(new Promise((done) => { tell = done; }));
  const note = (list) => told.tasks.push(...list.getEntries().map((one) => one.duration));
  new PerformanceObserver(note).observe({ type: "longtask", buffered: true });
  told.paint = soon(new Promise((done) => new PerformanceObserver((list) => {
    for (const one of list.getEntriesByName("first-contentful-paint")) done(one.startTime);
  }).observe({ type: "paint", buffered: true })));
  const look = () => requestAnimationFrame(() => {
    if (!document.querySelector("[role=treeitem]")) look();
    else requestAnimationFrame(() => tell((told.drawn = performance.now())));
  });
  addEventListener("DOMContentLoaded", look);
  told.frames = (count, act) => new Promise((done) => {
    const found = [];
    let last = performance.now();
    const step = () => {
      const now = performance.now();
      found.push(now - last);
      last = now;
      if (act) act();
      if (found.length < count) requestAnimationFrame(step); else done(found);
    };
    requestAnimationFrame(step);
  });
})();"""


@dataclass(slots=True)
class Figures:
    """Of one page: milliseconds by what they are, round by round, and bytes."""

    size: int = 0
    took: dict[str, list[float]] = field(default_factory=dict)

    def add(self, **took: float) -> None:
        for name, one in took.items():
            self.took.setdefault(name, []).append(one)

    def of(self, name: str) -> float:
        return median(self.took[name])

    def beside(self, name: str, limit: Figures, what: str) -> dict[str, Any]:
        """How it stands beside what a limit took for the same, round by round."""
        least = limit.took[name]
        return {"limit": what, "floor": median(least), "ratio": ratio(self.took[name], least)}


class Browser:
    """A browser, and the loads of pages in it."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser

    def load(self, url: str, state: Any, figures: Figures) -> tuple[Any, Any]:
        """A page that has drawn its tree, with what that took; and a way to ask for more."""
        context = self._browser.new_context(
            viewport={"width": 1280, "height": 800}, storage_state=state
        )
        context.set_default_timeout(1000 * PATIENCE)
        context.add_init_script(INIT)
        page = context.new_page()
        protocol = context.new_cdp_session(page)
        protocol.send("Performance.enable")
        page.goto(url, wait_until="commit")
        page.evaluate("measured.ready")
        figures.add(**spent(protocol))
        told = page.evaluate(
            "(async () => ({drawn: measured.drawn, paint: await measured.paint,"
            " longest: Math.max(0, ...measured.tasks),"
            " size: performance.getEntriesByType('navigation')[0].decodedBodySize}))()"
        )
        figures.size = told.pop("size") or figures.size
        figures.add(**told)
        return page, protocol

    def rounds(
        self,
        urls: dict[str, str],
        state: Any,
        rounds: int,
        done: Callable[[str, Any], None] = lambda *_: None,
    ) -> dict[str, Figures]:
        """Pages, loaded again and again, in turns; `done` sees each once, at the end."""
        found = {name: Figures() for name in urls}
        for turn in range(rounds):
            for name, url in urls.items():
                page, _protocol = self.load(url, state, found[name])
                if turn == rounds - 1:
                    done(name, page)
                page.context.close()
        return found

    def frames(self, url: str) -> float:
        """The 95th percentile of the frames of a page on which nothing happens."""
        page, _protocol = self.load(url, None, Figures())
        told = p95(page.evaluate(f"measured.frames({FRAMES})"))
        page.context.close()
        return told

    def entered(self, running: Site) -> Any:
        """The cookie of a server."""
        context = self._browser.new_context()
        context.new_page().goto(running.link)
        state = context.storage_state()
        context.close()
        return state


def spent(protocol: Any) -> dict[str, float]:
    """Milliseconds of the main thread so far."""
    told = {one["name"]: one["value"] for one in protocol.send("Performance.getMetrics")["metrics"]}
    parts = ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration")
    return {
        "work": 1000 * sum(told[part] for part in parts),
        "tasks": 1000 * told["TaskDuration"],
    }


def p95(found: list[float]) -> float:
    return quantiles(found, n=20)[-1]
