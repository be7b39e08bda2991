"""The session's page in Chromium, exported and live, against pages that do nothing.

    python bench/bench_view.py [--smoke] [--rounds 3] [--file SESSION.jsonl] [--entries 20000]

The real pi session of 2.4 MB that is kept beside the checkout (or one made like it) is exported,
and served by the real daemon and `indexerd web`. Each page is loaded in a fresh context; figures
are the browser's own (CDP `Performance.getMetrics`), medians of the rounds: `work` is script,
layout and style together, `tasks` all of the main thread, both until two frames after the tree is
there; `paint` is the first contentful paint. The floors of the same run, in turns with them, are
an empty page, one that does no more than parse the same data, and one that has as many plain rows
in a `<pre>`.

Then a session of 20,000 entries, a fork each few hundred: how long it takes to open, beside as many
plain rows, and what the frames are like (95th percentile of the intervals, 16.7 ms being the
screen's own) while its tree is scrolled and walked, a branch folded, and words are searched, beside
those of an empty page. Entries are appended to the file, and to one that a bare server tells a
plain page of, line by line, as server-sent events.

Targets: 300 ms of work for the real session; 100 ms to its first paint, as it is and beyond what an
empty page takes (a fresh renderer without a graphics card has its own price); two seconds to open
20,000 entries, and 34 ms (two frames) for the 95th percentile of frames. What misses its target is
marked as missed, and no more: a machine may be busy. What is broken, a page that does not come or
lacks entries, ends it with exit status 1: each page is held against its file, by the rows in sight
wherever one looks, and by what its conversation says. Without playwright or a Chromium it
says so, and nothing is measured.
"""

from __future__ import annotations

import importlib.util
import json
import random
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from measure import ROOT, Bench, Target
from view_browser import FRAMES, Browser, Figures, p95, spent
from view_limits import EMPTY, ROW, parsed, plain, tail, talk, whole

from bench_digest import WORDS, copied, session  # isort: skip - `measure` makes the way to the rest
from tests.browser.site import site
from tests.browser.tabs import FLAGS, program
from tests.e2e.world import World, until

REAL = ROOT.parent / "shared/fixtures/public/pi/pi-mono/before-compaction.jsonl"
WORK_MS, PAINT_MS, OPEN_MS, FRAME_MS = 300.0, 100.0, 2000.0, 34.0
LEAST, PARSED, ROWS = "an empty page", "its data, parsed only", "as many plain rows"
APPENDED = 3


def grown(made: random.Random, key: str, entries: int) -> bytes:
    """A session of many entries, in which the talk goes on from an earlier request at times."""
    stamp = "2026-01-01T00:00:00.000Z"
    lines: list[dict[str, Any]] = [{"type": "session", "version": 3, "id": key, "cwd": "/w"}]
    lines[0]["timestamp"] = stamp
    for n in range(entries):
        role = ("user", "assistant", "toolResult", "assistant")[n % 4]
        words = " ".join(made.choices(WORDS, k=25 if role != "toolResult" else 60))
        said: dict[str, Any] = {"role": role, "content": [{"type": "text", "text": words}]}
        if n % 4 == 1:
            call = {
                "type": "toolCall",
                "id": f"c{n}",
                "name": made.choice(("bash", "edit", "read")),
            }
            said["content"].append(call | {"arguments": {"command": words[:60]}})
        if role == "toolResult":
            said |= {"toolCallId": f"c{n - 1}", "toolName": "bash"}
        above = n - 201 if n and n % 400 == 0 else n - 1
        entry = {"type": "message", "id": f"e{n}", "parentId": f"e{above}" if n else None}
        lines.append(entry | {"timestamp": stamp, "message": said})
    return b"".join(json.dumps(one).encode() + b"\n" for one in lines)


def smooth(page: Any, entries: int) -> dict[str, tuple[float, float]]:
    """By what is done: the 95th percentile of frames and the longest task, in milliseconds."""
    found = {}

    def told(name: str, act: Callable[[], list[float]]) -> None:
        page.evaluate("measured.tasks.length = 0")
        frames = act()
        longest = page.evaluate("Math.max(0, ...measured.tasks)")
        found[name] = (p95(frames), longest)

    def scrolled() -> Any:
        scroll = "(() => { const box = document.getElementById('tree'); "
        scroll += "return () => { box.scrollTop += 90; }; })()"
        return page.evaluate(f"measured.frames({FRAMES}, {scroll})")

    def meanwhile(act: Callable[[], None]) -> Any:
        page.evaluate(f"void (measured.pending = measured.frames({FRAMES}))")
        act()
        return page.evaluate("measured.pending")

    def walked() -> None:
        page.locator(f"{ROW}[tabindex='0']").focus()
        page.keyboard.press("Home")
        for _ in range(60):
            page.keyboard.down("ArrowDown")
            page.wait_for_timeout(25)
        page.keyboard.up("ArrowDown")

    def folded() -> None:
        row = page.locator(f"{ROW}[aria-expanded]").first
        for key in ("ArrowRight", "ArrowLeft") * 6:
            row.focus()
            page.keyboard.press(key)
            page.wait_for_timeout(80)

    def searched() -> None:
        page.locator("#search").press_sequentially("cache login", delay=70)
        page.wait_for_timeout(400)
        page.locator("#search").fill("")

    told("scroll the tree", scrolled)
    told("hold ArrowDown", lambda: meanwhile(walked))
    told("fold a branch", lambda: meanwhile(folded))
    told(f"search {entries:,} entries", lambda: meanwhile(searched))
    return found


def appended(page: Any, protocol: Any, path: Path, entries: int) -> Figures:
    """Append requests one by one; how long each takes to be in the tree, and what it costs there.

    The tree counts it when it has it: what is far from sight is not drawn.
    """
    figures, sizes = Figures(), list[int]()
    page.on(
        "response", lambda one: sizes.extend([len(one.body())] if "/document" in one.url else [])
    )
    parent = json.loads(path.read_bytes().splitlines()[-1])["id"]
    for n in range(1, APPENDED + 1):
        said = {"role": "user", "content": [{"type": "text", "text": f"Request {n}."}]}
        entry = {"type": "message", "id": f"new{n}", "parentId": parent, "message": said}
        parent, before = f"new{n}", spent(protocol)
        page.evaluate("measured.tasks.length = 0")
        began = time.perf_counter()
        with path.open("ab") as file:
            file.write(json.dumps(entry).encode() + b"\n")
        there = page.locator("#count").get_by_text(f"{entries + n:,} entries")
        there.wait_for(state="attached")
        figures.add(seen=1000 * (time.perf_counter() - began))
        page.wait_for_timeout(300)
        after = spent(protocol)
        figures.add(**{name: after[name] - before[name] for name in after})
        figures.add(longest=page.evaluate("Math.max(0, ...measured.tasks)"))
    figures.size = max(sizes, default=0)
    return figures


def real(browser: Browser, world: World, rounds: int, data: bytes, bench: Bench) -> None:
    """The real session, exported and live, and the floors."""
    key = json.loads(data.splitlines()[0])["id"]
    (world.sessions / f"2026-01-01T00-00-00-000Z_{key}.jsonl").write_bytes(data)
    page, empty = world.root / "page.html", world.root / "empty.html"
    world.run("run", "--once")
    world.run("export", key, "-o", str(page))
    empty.write_text(EMPTY)
    files = {LEAST: empty, PARSED: parsed(page, world.root / "parsed.html")}
    files |= {ROWS: plain(data, world.root / "rows.html"), "export": page}
    urls = {name: file.as_uri() for name, file in files.items()}

    def done(name: str, opened: Any) -> None:
        if name not in ("export", "live"):
            return
        whole(bench, f"the {name} of {len(data) / 1e6:.1f} MB", opened, data)
        told = any(talk(opened, data) or opened.wait_for_timeout(100) for _ in range(100))
        bench.check(f"the {name} says in the end what was said", ok=told)

    with world.daemon(), site(world) as running:
        until(lambda: world.row(key).get("indexed"), "the session's name")
        urls["live"] = f"{running.origin}/s/{key}"
        found = browser.rounds(urls, browser.entered(running), rounds, done)
    found["export"].size = page.stat().st_size
    title = f"a session of {len(data) / 1e6:.1f} MB"
    drawn = "script, layout and style until its tree is drawn"
    for name in ("export", "live"):
        one = found[name]
        for what, part, limit, more in (
            (
                drawn,
                "work",
                PARSED,
                {"target": Target(WORK_MS), "note": f"{one.size / 1000:.0f} kB"},
            ),
            ("first paint", "paint", LEAST, {"target": Target(PAINT_MS)}),
            ("drawn", "drawn", ROWS, {}),
            ("all tasks", "tasks", ROWS, {"note": f"the longest {one.of('longest'):.0f} ms"}),
        ):
            told = one.beside(part, found[limit], limit) | more
            bench.add(f"{title}, {name}: {what}", one.of(part), "ms", **told)


def many(browser: Browser, world: World, rounds: int, entries: int, bench: Bench) -> None:
    """A session of many entries, exported and live."""
    key = str(uuid.uuid4())
    path = world.sessions / f"2026-01-02T00-00-00-000Z_{key}.jsonl"
    data = grown(random.Random(1), key, entries)
    path.write_bytes(data)
    page, empty = world.root / "many.html", world.root / "empty.html"
    world.run("run", "--once")
    world.run("export", key, "-o", str(page))
    empty.write_text(EMPTY)
    pre = plain(data, world.root / "rows.html")
    title = f"{entries:,} entries"
    with world.daemon(), site(world) as running:
        until(lambda: world.row(key).get("indexed"), "the session's name")
        urls = {ROWS: pre.as_uri(), "export": page.as_uri(), "live": f"{running.origin}/s/{key}"}
        state = browser.entered(running)

        def done(name: str, opened: Any) -> None:
            if name == "export":
                whole(bench, f"the {name} of {title}", opened, data)

        found = browser.rounds(urls, state, rounds, done)
        opened, protocol = browser.load(urls["live"], state, Figures())
        opened.wait_for_timeout(1500)  # what is filled in while nobody waits
        least = [browser.frames(empty.as_uri())]
        moved = smooth(opened, entries)
        least.append(browser.frames(empty.as_uri()))
        opened.wait_for_timeout(500)
        grew = appended(opened, protocol, path, entries)
        whole(bench, f"the live page of {title}, and {APPENDED}", opened, path.read_bytes())
    bare = bare_tail(browser, world, pre, data, entries)
    for name in ("export", "live"):
        told = found[name].beside("drawn", found[ROWS], ROWS) | {"target": Target(OPEN_MS)}
        bench.add(f"{title}, {name}: open", found[name].of("drawn"), "ms", **told)
    for name, (frame, longest) in moved.items():
        told = {"note": f"longest task {longest:.0f} ms", "target": Target(FRAME_MS)}
        told |= {"limit": LEAST, "floor": median(least)}
        bench.add(f"frames, p95: {name}", frame, "ms", **told)
    for what, part, note in (
        ("seen after", "seen", "it asks once a second, at most"),
        ("work", "work", f"{grew.size:,} bytes"),
    ):
        told = {"note": note} | grew.beside(part, bare, "a plain page that is sent each line")
        bench.add(f"an entry is appended: {what}", grew.of(part), "ms", **told)


def bare_tail(browser: Browser, world: World, pre: Path, data: bytes, entries: int) -> Figures:
    """What an append costs a page of plain rows that is sent each line."""
    other = world.root / "other.jsonl"
    other.write_bytes(data)
    with tail(pre, other, entries) as address:
        opened, protocol = browser.load(address, None, Figures())
        opened.wait_for_timeout(500)
        found = appended(opened, protocol, other, entries)
        opened.context.close()
    return found


@contextmanager
def home() -> Iterator[World]:
    """A home in which pi was used before."""
    with tempfile.TemporaryDirectory(prefix="ixd") as place:
        world = World(Path(place))
        world.install_pi()
        yield world


def main() -> int:
    bench = Bench("view", "The session's page in Chromium")
    bench.options.add_argument("--rounds", type=int, default=3)
    bench.options.add_argument("--file", type=Path, default=REAL)
    bench.options.add_argument("--entries", type=int, default=20_000)
    asked = bench.asked
    rounds, entries = (1, 2000) if bench.smoke else (asked.rounds, asked.entries)
    found = program()
    if importlib.util.find_spec("playwright") is None or found is None:
        print("not measured: this needs playwright and a Chromium")
        return bench.end()
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - it may be missing

    made = random.Random(1)
    key = str(uuid.UUID(int=made.getrandbits(128)))
    data = copied(asked.file, key) if asked.file.exists() else session(made, key, 1000)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=FLAGS)
        browser = Browser(chromium)
        with home() as world:
            real(browser, world, rounds, data, bench)
        with home() as world:
            many(browser, world, max(1, rounds - 1), entries, bench)
        chromium.close()
    return bench.end()


if __name__ == "__main__":
    sys.exit(main())
