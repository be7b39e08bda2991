r"""A session as one HTML file that asks nothing of anybody: the page of a live view, with its data.

In: a document (core/export_json.py), and the three assets of `indexerd/view`. Out: the file.

The data stands in a script element of a type that no browser runs, as JSON in which `<`, `>` and
`&` are written `\uXXXX`: nothing in it can end the element, open a comment, or be an entity. The
page's own script puts texts into the document as text, never as markup, and the policy sees to it
that it could not do otherwise (trusted types), nor load, send or frame anything. Script and style
are allowed by their hashes alone: a byte more, and a browser leaves them out.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from indexerd.core.export_json import harmless

ASSETS = ("page.html", "view.css", "view.js")
_MARKS = ("@POLICY@", "@STYLE@", "@DATA@", "@SCRIPT@")
_UNSAFE = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


@dataclass(frozen=True, slots=True)
class Assets:
    """The page and what it is styled and moved by; ours, and trusted."""

    page: str
    style: str
    script: str


def html(found: Mapping[str, Any], assets: Assets) -> str:
    """The file. ValueError for a page without its marks, or assets that would end an element."""
    for text, end in (
        (assets.style, "</style"),
        (assets.script, "</script"),
        (assets.script, "<!--"),
    ):
        if end in text.lower():
            raise ValueError(f"an asset of the view holds {end}")
    texts = (policy(assets), assets.style, island(found), assets.script)
    rest, parts = assets.page, list[str]()
    for mark, text in zip(_MARKS, texts, strict=True):  # in the page's order: data is not searched
        before, between, rest = rest.partition(mark)
        if not between:
            raise ValueError(f"the page of the view lacks {mark}")
        parts += [before, text]
    return "".join([*parts, rest])


def island(found: Any) -> str:
    """A value as JSON that can stand in a script element."""
    dumped = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    return harmless(dumped).translate(_UNSAFE)


def policy(assets: Assets) -> str:
    """The content security policy: nothing but this script and this style."""
    rules = (
        "default-src 'none'",
        f"script-src '{_hash(assets.script)}'",
        f"style-src '{_hash(assets.style)}'",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
    return "; ".join(rules)


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
