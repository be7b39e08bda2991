r"""A session's page, live or as a file, and exports as HTML, Markdown or JSON.

A page's data is JSON in a script element of a type that no browser runs, with `<`, `>` and `&` as
`\uXXXX`, so nothing in it can close the element. In Markdown, the session's text is escaped in our
own lines, or quoted line by line; outside fenced code, tags are shown instead of rendered, and
images become links. Only a fence at the start of a line counts, as one in a list may not protect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from indexerd.daemon.library import Library
from indexerd.privacy.sanitize import bare, clean_line
from indexerd.protocol.wire import dump
from indexerd.web.assets import fill
from indexerd.web.document import Document, Stored, Wish, read_document

STEM_MAX, TITLE_MAX, LINE_MAX = 60, 300, 200  # characters

_MARK = re.compile(r"([\\`*_\[\]<>#&|~!$])")
_FENCE = re.compile(r"(`{3,})[^`]*$|(~{3,}).*$")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_LINE_END = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_SPACE = re.compile(r"(?<! ) +$|(?<=\n\n)\n+", re.MULTILINE)  # at a line's end, or of empty lines
_LOOSE = re.compile(r"^(- .*)\n\n(?=- )", re.MULTILINE)  # a blank line between two list items


def export(library: Library, stored: Stored, form: str, wish: Wish) -> tuple[str, str]:
    """Return a file name and the text of a session; FileGoneError if it has no file."""
    document = read_document(library, stored, wish)
    session = document["session"]
    name = clean_line(str(session.get("name", ""))[:400], 200).lower()
    stem = re.sub(r"[^a-z0-9]+", "-", name)[:STEM_MAX].strip("-") or "session"
    head = re.sub(r"[^A-Za-z0-9]", "", str(session["sessionId"]))[:8]
    return f"{stem}-{head}.{form}", FORMATS[form](document)


def session_page(document: Document, *, live: bool = False) -> str:
    """Make the page of the web view (`live`), or a self-contained file."""
    session = document["session"]
    name = str(session.get("name") or session["sessionId"])[: 4 * TITLE_MAX]
    shown = clean_line(name, TITLE_MAX) or "Session"
    return fill("page.html", name=shown, data=embedded(document), live=live)


def embedded(value: Mapping[str, Any]) -> str:
    text = dump(value).decode()
    for char in "<>&\u2028\u2029":  # much faster than a translation table on megabytes
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def markdown(document: Mapping[str, Any]) -> str:
    """Write the path to the document's leaf, below the facts about the session."""
    place, path = document["leaf"], list[Mapping[str, Any]]()
    while place >= 0:
        path.append(document["nodes"][place])
        place = path[-1]["above"]
    ways: dict[str, Any] = {"plain": plain, "code": code}
    ways["quoted"] = lambda text: "\n".join(quoted(text))
    text = fill("session.md", **document, **ways, path=path[::-1])
    return _LOOSE.sub(r"\1\n", _SPACE.sub("", text)).rstrip("\n") + "\n"


def plain(text: str, limit: int = LINE_MAX) -> str:
    """Escape text for one of our own lines."""
    return _MARK.sub(r"\\\1", clean_line(text[: 4 * limit], limit))


def code(text: str) -> str:
    """Write text as code in one of our own lines."""
    words = clean_line(text[: 4 * LINE_MAX], LINE_MAX).replace("`", "'")
    return f"`{words}`" if words else ""


def quoted(text: str) -> Iterator[str]:
    fence = ""
    for raw in _LINE_END.split(bare(text).rstrip()):
        line = raw.expandtabs(4)  # after our mark a tab would be narrower
        opened = _FENCE.match(line)
        if fence:
            mark = line.strip(" ")
            if not line.startswith("    ") and mark.startswith(fence) and not mark.strip(fence[0]):
                fence = ""
        elif opened:
            fence = opened[1] or opened[2]
        else:
            line = _TAG.sub("&lt;", line).replace("![", "&#33;[")
        yield f"> {line}".rstrip()


FORMATS: dict[str, Callable[[Document], str]] = {
    "html": session_page,
    "md": markdown,
    "json": lambda document: dump(document).decode() + "\n",
}
