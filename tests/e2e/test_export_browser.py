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

    def open(self, page: Path, fragment: str = "", *, width: int = 1280, dark: bool = False) -> None:
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
