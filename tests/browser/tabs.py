"""Pages in a real Chromium that fail a test on any problem.

Problems are errors and warnings of the console, uncaught errors, policy violations and requests to
other hosts; `forgive` names those that the test causes itself.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request

PATIENCE = 20.0  # seconds before a step fails
WIDE, NARROW = 1280, 360  # pixels
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    *(["--no-sandbox"] if os.geteuid() == 0 else []),
]
_TELL = """addEventListener("securitypolicyviolation", (event) => console.error(
    `policy: ${event.effectiveDirective} ${event.blockedURI} ${event.sourceFile}`));"""


def program() -> str | None:
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Tabs:
    """The pages of one test."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self._troubles: list[str] = []
        self._forgiven: list[str] = []

    def context(
        self,
        home: str,
        *,
        width: int = WIDE,
        dark: bool = False,
        offline: bool = False,
        cookies: Sequence[Any] = (),
    ) -> BrowserContext:
        """A new browser with its own cookies; `home` is the only host that it may ask."""
        context = self._browser.new_context(
            viewport={"width": width, "height": 800},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
            offline=offline,
        )
        self._contexts.append(context)
        context.add_cookies([*cookies])
        context.set_default_timeout(1000 * PATIENCE)
        context.add_init_script(_TELL)
        context.on("console", self._said)
        context.on("weberror", lambda error: self._troubles.append(f"error: {error.error}"))
        origin = _origin(home)
        context.on("request", lambda request: self._asked(origin, request))
        return context

    def open(self, url: str, **how: Any) -> Page:
        """Open and load one page in its own context; options are those of `context`."""
        page = self.context(url, **how).new_page()
        page.goto(url)
        return page

    def forgive(self, pattern: str) -> None:
        """Ignore matching problems, earlier and later ones."""
        self._forgiven.append(pattern)

    def troubles(self) -> list[str]:
        """Problems so far."""
        return [one for one in self._troubles if not self._pardoned(one)]

    def close(self) -> None:
        """End all contexts."""
        for context in self._contexts:
            context.close()

    def _pardoned(self, told: str) -> bool:
        return any(re.search(pattern, told) for pattern in self._forgiven)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            where = message.location["url"]
            self._troubles.append(f"{message.type}: {message.text} ({where})")

    def _asked(self, origin: str, request: Request) -> None:
        if _origin(request.url) != origin:
            self._troubles.append(f"request: {request.method} {request.url}")


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def findings(page: Page) -> list[str]:
    """Serious accessibility problems that axe-core finds in the page, and gaps between headings."""
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text("utf-8") + "\n;0")
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{violation['id']}: {node['html'][:200]}: {node['failureSummary']}"
        for violation in found["violations"]
        if violation["impact"] in ("serious", "critical") or violation["id"] == "heading-order"
        for node in violation["nodes"][:5]
    ]
