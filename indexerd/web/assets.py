"""The files of `static/`: scripts, styles, and the templates of pages and exports.

Only a fixed list of files is served, so no name in an address becomes a path. Pages contain the
hash of each file (`integrity`), because another program may have used the same address before.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined, select_autoescape

from indexerd.amounts import compact, count, dollars, duration

_DRAWING = (
    "helpers.js",
    "prose.js",
    "story.js",
    "rows.js",
    "tree.js",
    "edits.js",
    "talk.js",
    "about.js",
)
_LIVE = ("stream.js", "family.js", "actions.js", "panel.js", "session.js", "live.js")
_BUNDLES = {  # scripts made of several files, so that a page makes one request
    "export.js": (*_DRAWING, "session.js"),
    "live-page.js": (*_DRAWING, *_LIVE),
    "home.js": ("helpers.js", "stream.js", "home.js"),
}
FILES = frozenset({"view.css", "home.css", "usage.css", "favicon.svg", "live-page.js", "home.js"})


def read_static(name: str) -> str:
    """Read a file of `static/`, or a bundle of files."""
    folder = files("indexerd") / "web" / "static"
    parts = _BUNDLES.get(name, (name,))
    return "\n".join((folder / part).read_text(encoding="utf-8") for part in parts)


def content_hash(text: str) -> str:
    """Hash a text for a content security policy or an `integrity` attribute."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


_templates = Environment(
    loader=FunctionLoader(read_static),
    autoescape=select_autoescape(),  # for HTML; `session.md` escapes for Markdown itself
    undefined=StrictUndefined,
    keep_trailing_newline=True,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.globals |= {"static": read_static, "hash": content_hash}
_templates.filters |= {"compact": compact, "dollars": dollars, "duration": duration}
_templates.filters["counted"] = count


def fill(template: str, /, **values: Any) -> str:
    """Fill in a template; values are escaped, and a name without a value is an error."""
    return _templates.get_template(template).render(values)
