"""The files of `static/`: scripts and styles that the pages are made of.

What is served is on a fixed list, so that no name out of an address becomes a path. Addresses carry
a hash, so that a browser may keep the files, and pages say what each must hold (`integrity`), since
another program may have answered under the same address before.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

DRAWING = ("words.js", "prose.js", "story.js", "rows.js", "tree.js", "talk.js", "about.js")
BUNDLES = {  # one script of several parts, so that a page waits for one answer
    "export.js": (*DRAWING, "session.js"),
    "live-page.js": (
        *(*DRAWING, "stream.js", "family.js"),
        *("acts.js", "panel.js", "session.js", "live.js"),
    ),
    "home.js": ("words.js", "stream.js", "home.js"),
}
MEDIA_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
FILES = frozenset({"view.css", "home.css", "favicon.svg", "live-page.js", "home.js"})


def read_static(name: str) -> str:
    """The text of a file of `static/`, or of a bundle of them."""
    folder = files("indexerd") / "web" / "static"
    parts = BUNDLES.get(name, (name,))
    return "\n".join((folder / part).read_text(encoding="utf-8") for part in parts)


def content_hash(text: str) -> str:
    """What a policy or an `integrity` names a text by."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that is served; `url` has the hash `version`."""

    body: str
    media_type: str
    version: str
    url: str
    integrity: str


@cache
def asset(name: str) -> Asset:
    """A file of the list. KeyError for any other name."""
    if name not in FILES:
        raise KeyError(name)
    body = read_static(name)
    version = hashlib.sha256(body.encode()).hexdigest()[:16]
    media_type = MEDIA_TYPES[name.rpartition(".")[2]]
    return Asset(body, media_type, version, f"/static/{name}?v={version}", content_hash(body))
