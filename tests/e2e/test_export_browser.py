"""An exported page in a real browser: keys, branches, filters, small screens, hostile texts.

Chromium is driven by its own protocol over a pipe. It has no network to speak of: every name is
resolved to nothing, and the page's policy would not let it ask. Skipped where no Chromium is found.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from indexerd.core.card import card_of
from indexerd.core.segments import Segment, encode
from indexerd.core.tree import still
from indexerd.service import exports
from indexerd.service.views import Taken
from tests.core.tree_sessions import entry, said, session, state_of

PATIENCE = 20.0
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PROGRAM = next(filter(None, map(shutil.which, NAMES)), None)

pytestmark = pytest.mark.skipif(
    PROGRAM is None or shutil.which("bash") is None, reason="no Chromium to open the page in"
)

EVIL = "</script><script>window.owned=1</script><img src=http://127.0.0.1:9/x onerror=owned=1>"


class Browser:
    """One headless Chromium with one page."""

    def __init__(self, profile: Path) -> None:
        ours, theirs = os.pipe(), os.pipe()
        flags = ["--headless", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"]
        flags += [f"--user-data-dir={profile}", "--host-resolver-rules=MAP * ~NOTFOUND"]
        flags += ["--no-sandbox"] if os.geteuid() == 0 else []
        script = f'exec "$@" 3<&{ours[0]} 4>&{theirs[1]} 2>/dev/null'
        self.process = subprocess.Popen(
            ["bash", "-c", script, "bash", str(PROGRAM), *flags],
            pass_fds=(ours[0], theirs[1]),
            stdout=subprocess.DEVNULL,
        )
        os.close(ours[0])
        os.close(theirs[1])
        self._to, self._from = ours[1], theirs[0]
        self._held, self._last, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """One command; events that come meanwhile are kept."""
        self._last += 1
        sent: dict[str, Any] = {"id": self._last, "method": method, "params": params}
        sent |= {"sessionId": self._session} if self._session else {}
        os.write(self._to, json.dumps(sent).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == self._last:
                assert "error" not in told, told
                return told["result"]
            self.events.append(told)

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._held:
            ready, _, _ = select.select([self._from], [], [], max(0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            data = os.read(self._from, 1 << 20)
            assert data, "the browser has gone"
            self._held += data
        line, _, self._held = self._held.partition(b"\0")
        told: dict[str, Any] = json.loads(line)
        return told

    def open(
        self, page: Path, fragment: str = "", *, width: int = 1280, dark: bool = False
    ) -> None:
        """Load a page from disk, and wait until it is there."""
        self.call("Page.navigate", url="about:blank")
        metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri() + fragment)
        self.until("document.readyState === 'complete' && document.title !== 'Session'")

    def run(self, script: str) -> Any:
        """The value of an expression."""
        done = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def until(self, script: str) -> None:
        """Ask until an expression holds."""
        end = time.monotonic() + PATIENCE
        while not self.run(script):
            assert time.monotonic() < end, script

    def press(self, *keys: str) -> None:
        """Keys, one after the other, as a keyboard gives them."""
        for key in keys:
            text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
            codes = {"Enter": 13, "Escape": 27}
            code = {"windowsVirtualKeyCode": codes[key]} if key in codes else {}
            self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text, **code)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=key, **code)

    def troubles(self) -> list[dict[str, Any]]:
        """What went wrong since the page was opened, and what was asked of anybody."""
        self.run("0")
        bad = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
        found = [one for one in self.events if one["method"] in bad]
        asked = [one for one in self.events if one["method"] == "Network.requestWillBeSent"]
        return found + [
            one for one in asked if not one["params"]["request"]["url"].startswith("file:")
        ]

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(OSError, AssertionError):
            self._session = ""
            self.call("Browser.close")
        for fd in (self._to, self._from):
            os.close(fd)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


# -- pages ---------------------------------------------------------------------------------------


class Lines:
    """A session's lines, out of memory."""

    def __init__(self, state: Any, data: bytes) -> None:
        self._state, self._data = state, data

    def row(self, row: int) -> bytes:
        """The line of a row."""
        start = self._state.offsets[row]
        return self._data[start : start + self._state.lengths[row]]


def page_of(folder: Path, entries: list[bytes], *digests: Segment) -> Path:
    """The exported page of a session of these entries."""
    data = session(*entries)
    state = state_of(data)
    card = card_of(state, agent="pi", path="/s.jsonl", mtime_ms=0, since=None)
    assert card is not None
    (folder / "s1.digest.jsonl").write_text("".join(json.dumps(encode(one)) for one in digests))
    lines: Any = nullcontext(Lines(state, data))
    taken = Taken(card, still(state), lines, dict(state.labels), folder)
    read = exports.read_session(taken, lambda: None, exports.Wish())
    row = {"sessionId": "s1", "cwd": "/w", "name": f"Tidy up {EVIL}", "agent": "pi"}
    context = {"files": ["/w/<b>.py"]}
    head = exports.head_of({"session": row, "context": context}, {"parent": "p1"}, "")
    page = folder / "page.html"
    page.write_text(
        exports.text_of(exports.document_of(head, read, exports.Wish()), exports.Wish())
    )
    return page


def call(call_id: str) -> dict[str, Any]:
    """A block of an answer that calls a tool."""
    return {"type": "toolCall", "id": call_id, "name": "bash", "arguments": {"command": EVIL}}


FORKED = [
    said("a", None, "user", f"Where do alerts go? {EVIL}"),
    said(
        "b",
        "a",
        "assistant",
        "Look first.",
        content=[{"type": "text", "text": "I look."}, call("1")],
    ),
    said("c", "b", "toolResult", "alerts.py", toolCallId="1", toolName="bash", at=1),
    said("d", "c", "assistant", "Redis or a file.", at=2),
    entry("label", "l", "d", 2, targetId="d", label="storage"),
    said("e", "l", "user", "Take Redis.", at=3),
    said("f", "e", "assistant", "Redis is too big.", at=4),
    said("g", "l", "user", "Take a file.", at=5),
    said("h", "g", "assistant", "It is written.", at=6),
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests."""
    one = Browser(tmp_path_factory.mktemp("profile"))
    try:
        yield one
    finally:
        one.close()


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session of two branches, with a label, a digest, and markup in every text."""
    digest = Segment("x", 0, 2, f"- Alerts. {EVIL}", (), (), (), "", 1, "m", "d")
    return page_of(tmp_path_factory.mktemp("forked"), FORKED, digest)


SHOWN = "document.getElementById('path').textContent"  # innerText leaves out what is not in sight
ROWS = (
    "[...document.querySelectorAll('.row')].map((row) =>"
    " [...row.querySelectorAll('.label, .words')].map((one) => one.textContent).join(' '))"
)


def choose(browser: Browser, mode: str) -> list[str]:
    """The rows of the tree, by another filter."""
    browser.run(
        f"(() => {{ const one = document.getElementById('filter'); one.value = '{mode}';"
        "one.dispatchEvent(new Event('change')); })()"
    )
    rows: list[str] = browser.run(ROWS)
    return rows


def test_a_page_opens_without_a_word_from_outside(browser: Browser, forked: Path) -> None:
    """Markup in names, texts, calls and digests is text; nothing is asked for, nothing fails."""
    browser.open(forked)
    assert browser.run("document.title") == f"Tidy up {EVIL}"
    told = browser.run(SHOWN)
    assert f"Where do alerts go? {EVIL}" in told
    assert "It is written." in told
    assert "Redis is too big." not in told
    about = browser.run("document.getElementById('about').innerText")
    assert "<b>.py" in about
    assert "p1" in about
    browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    browser.until(f"{SHOWN}.includes('alerts.py')")
    assert browser.run("window.owned") is None
    assert browser.run("document.querySelectorAll('img, iframe, #path script').length") == 0
    assert browser.run("document.querySelector('.range .digest').innerText").endswith(EVIL)
    assert browser.troubles() == []


def test_the_tree_goes_by_keys_alone(browser: Browser, forked: Path) -> None:
    """S1.41: an abandoned branch is reached, opened and shown; Escape leads back to the leaf."""
    browser.open(forked)
    browser.run("document.querySelector('.row[tabindex=\"0\"]').focus()")
    browser.press("Home")
    on = "document.activeElement.innerText"
    assert "Where do alerts go?" in browser.run(on)
    browser.press("ArrowDown", "ArrowRight", "ArrowDown")
    assert "I look." in browser.run(on)
    browser.press("ArrowLeft", "ArrowLeft")
    assert browser.run("document.activeElement.getAttribute('aria-expanded')") == "false"
    browser.press("ArrowDown", "ArrowDown")
    assert "Take Redis." in browser.run(on)
    assert browser.run("document.activeElement.getAttribute('aria-expanded')") == "false"
    browser.press("ArrowRight", "ArrowRight", "Enter")
    browser.until(f"{SHOWN}.includes('Redis is too big.')")
    assert "It is written." not in browser.run(SHOWN)
    assert browser.run("location.hash") == "#leaf=f&target=e"
    assert browser.run("document.getElementById('reset').hidden") is False
    browser.press("Escape")
    browser.until(f"{SHOWN}.includes('It is written.')")
    assert browser.run("document.getElementById('reset').hidden") is True
    browser.press("End")
    assert "leaf" in browser.run(on)
    levels = browser.run(
        "[...document.querySelectorAll('[role=treeitem]')].map((r) => r.ariaLevel)"
    )
    assert levels == ["1", "1", "2", "1", "2", "2", "1", "2", "2"]
    assert browser.troubles() == []


def test_filters_and_search(browser: Browser, forked: Path) -> None:
    """S1.35: five filters, and a search for all words in texts, labels and calls."""
    browser.open(forked)
    assert len(choose(browser, "all")) == len(FORKED)
    assert [len(choose(browser, one)) for one in ("default", "no-tools")] == [7, 7]
    asks = choose(browser, "user-only")
    assert [one for one in asks if "Branch" not in one and "alerts" not in one] == ["Take a file."]
    (labelled,) = choose(browser, "labeled-only")
    assert "storage" in labelled
    choose(browser, "default")
    browser.press("/")
    assert browser.run("document.activeElement.id") == "search"
    browser.press(*"redis big")
    browser.press("Enter")
    assert browser.run(ROWS) == ["Answer: Redis is too big."]
    browser.press("Enter")
    browser.until(f"{SHOWN}.includes('Redis is too big.')")
    browser.press("/")
    browser.run("document.getElementById('search').value = 'onerror alerts go'")
    browser.press("Enter")
    (hit,) = browser.run(ROWS)
    assert hit.startswith("You: …")
    assert "onerror" in hit
    assert browser.troubles() == []


def test_a_link_leads_to_an_entry(browser: Browser, forked: Path) -> None:
    """A fragment names a leaf and an entry; one that is not there shows the session's leaf."""
    browser.open(forked, "#leaf=f&target=c")
    browser.until(f"{SHOWN}.includes('Redis is too big.')")
    assert browser.run("document.querySelector('.aim').innerText").startswith("bash:")
    assert browser.run("document.querySelector('[aria-selected=true]').className").count("work")
    browser.open(forked, "#target=e")
    browser.until(f"{SHOWN}.includes('Redis is too big.')")
    browser.open(forked, "#leaf=nowhere&target=%00")
    browser.until(f"{SHOWN}.includes('It is written.')")
    assert browser.troubles() == []


def test_small_screens_and_the_dark(browser: Browser, forked: Path) -> None:
    """S1.42: below 900 px the sidebar is folded away; at 360 px nothing is too wide."""
    browser.open(forked)
    side = "getComputedStyle(document.getElementById('side')).display"
    ground = "getComputedStyle(document.body).backgroundColor"
    assert browser.run(side) == "flex"
    light = browser.run(ground)
    browser.open(forked, width=360, dark=True)
    assert browser.run(side) == "none"
    assert browser.run(ground) != light
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    browser.run("document.getElementById('toggle').click()")
    assert browser.run(side) == "flex"
    browser.run("[...document.querySelectorAll('.row')].at(-1).click()")
    assert browser.run(side) == "none"


def test_a_long_and_hostile_session(browser: Browser, tmp_path: Path) -> None:
    """Many entries, words of megabytes, and forks within forks: all of it is there."""
    entries = [said("0", None, "user", "A" * 5_000_000)]
    for at in range(1, 1500):
        above = at - 1 if at % 3 else max(0, at - 2)
        role = "user" if at % 2 else "assistant"
        entries.append(said(str(at), str(above), role, f"{EVIL} \x1b]0;x\x07 {at}", at=at))
    page = page_of(tmp_path, entries)
    assert page.stat().st_size < 10_000_000
    browser.open(page, "#target=1")
    assert "of 5,000,000 characters" in browser.run(SHOWN)
    choose(browser, "all")
    browser.until("document.querySelectorAll('.row').length === 1500")
    assert browser.run("window.owned") is None
    assert browser.troubles() == []
