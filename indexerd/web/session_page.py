r"""The page of a session, live or as a file, and a session exported as HTML, Markdown or JSON.

A page's data is JSON in a script element of a type that no browser runs, with `<`, `>` and `&` as
`\uXXXX`, so nothing in it can end the element, open a comment or be an entity. Scripts insert texts
as text only, and the policy prevents anything else, as well as loading, sending and framing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from indexerd.daemon.library import Library
from indexerd.privacy.sanitize import clean_line
from indexerd.protocol.wire import dump
from indexerd.web.assets import fill
from indexerd.web.document import Document, Stored, Wish, read_document
from indexerd.web.markdown import markdown

STEM_MAX, TITLE_MAX = 60, 300  # characters


def export(library: Library, stored: Stored, form: str, wish: Wish) -> tuple[str, str]:
    """Return a file name and the text of a session; FileGoneError if it has no file."""
    document = read_document(library, stored, wish)
    session = document["session"]
    name = clean_line(str(session.get("name", ""))[:400], 200).lower()
    stem = re.sub(r"[^a-z0-9]+", "-", name)[:STEM_MAX].strip("-") or "session"
    head = re.sub(r"[^A-Za-z0-9]", "", str(session["sessionId"]))[:8]
    return f"{stem}-{head}.{form}", FORMATS[form](document)


def session_page(document: Document, *, live: bool = False) -> str:
    """Make the page of the web view (`live`), or one file that needs nothing else."""
    session = document["session"]
    name = str(session.get("name") or session["sessionId"])[: 4 * TITLE_MAX]
    shown = clean_line(name, TITLE_MAX) or "Session"
    return fill("page.html", name=shown, data=embedded(document), live=live)


def embedded(value: Mapping[str, Any]) -> str:
    """Write a value as JSON for a script element."""
    text = dump(value).decode()
    for char in "<>&\u2028\u2029":  # much faster than a translation table on megabytes
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


FORMATS: dict[str, Callable[[Document], str]] = {
    "html": session_page,
    "md": markdown,
    "json": lambda document: dump(document).decode() + "\n",
}
