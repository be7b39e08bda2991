r"""A session's page, live or as a file, and exports as HTML, Markdown or JSON.

A page's data is JSON in a script element of a type that no browser runs, with `<`, `>` and `&` as
`\uXXXX`, so nothing in it can close the element. In Markdown, the session's text is escaped in our
own lines, or quoted line by line; outside fenced code, tags are shown instead of rendered, and
images become links. Only a fence at the start of a line counts, as one in a list may not protect.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from indexerd.daemon.library import Library
from indexerd.privacy.redact import Redactor
from indexerd.privacy.sanitize import bare, clean_line
from indexerd.protocol import words
from indexerd.protocol.wire import dump
from indexerd.web.document import Document, Stored, Wish, read_document
from indexerd.web.markdown import to_html, typed_to_html
from indexerd.web.responses import fill

STEM_MAX, TITLE_MAX, LINE_MAX = 60, 300, 200  # characters
FIRST = (30, 60_000)  # messages and characters rendered before the live page is sent
WHOLE = (sys.maxsize, 4_000_000)  # in an exported page: at most some seconds

_MESSAGES = frozenset(
    {"user", "reply", "task", "plan", "assistant", "call", "custom", "compaction", "branch_summary"}
)
_SLOT = "\ue000{}\ue000"  # stands for a diff; texts have no such characters
_MARK = re.compile(r"([\\`*_\[\]<>#&|~!$])")
_FENCE = re.compile(r"(`{3,})[^`]*$|(~{3,}).*$")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_LINE_END = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_SPACE = re.compile(r"(?<! ) +$|(?<=\n\n)\n+", re.MULTILINE)  # at a line's end, or of empty lines
_LOOSE = re.compile(r"^(- .*)\n\n(?=- )", re.MULTILINE)  # a blank line between two list items


def wish_for(
    form: str, *, redact: Redactor | None = None, leaf: str | None = None, newest: int = sys.maxsize
) -> Wish:
    """Make the options of an export."""
    whole, pictures = form == "json", form != "md"
    return Wish(redact=redact, whole=whole, pictures=pictures, leaf=leaf, newest=newest)


def export(library: Library, stored: Stored, form: str, wish: Wish) -> tuple[str, str]:
    """Return a file name and the text of a session; FileGoneError if it has no file."""
    document = read_document(library, stored, wish)
    session = document["session"]
    name = clean_line(str(session.get("name", ""))[:400], 200).lower()
    stem = re.sub(r"[^a-z0-9]+", "-", name)[:STEM_MAX].strip("-") or "session"
    head = re.sub(r"[^A-Za-z0-9]", "", str(session["sessionId"]))[:8]
    return f"{stem}-{head}.{form}", FORMATS[form](document)


def session_page(document: Document) -> str:
    """Make a page that is one self-contained file."""
    start, end = page_frame(document["session"], live=False)
    return start + page_data(document, WHOLE) + end


def page_frame(session: Mapping[str, Any], *, live: bool) -> tuple[str, str]:
    """Make what is before and after a page's data: a browser shows it before the data is there."""
    name = str(session.get("name") or session["sessionId"])[: 4 * TITLE_MAX]
    shown = clean_line(name, TITLE_MAX) or "Session"
    start, _, end = fill("page.html", name=shown, data="\0", live=live).partition("\0")
    return start, end


def page_data(document: Document, amount: tuple[int, int]) -> str:
    """Write a page's data, with so many messages rendered (see `rendered`)."""
    return embedded({**document, "html": rendered(document, *amount)})


def rendered(document: Document, messages: int, left: int) -> dict[str, Any]:
    """Render the Markdown of so many messages, up to `left` characters, those on the path first.

    Messages are named by row. A live page asks for those that are missing.
    """
    shown = dict[int, str]()
    for node in [*_path(document), *document["nodes"]]:
        text = node["text"] if node["kind"] in _MESSAGES else ""
        if node["row"] in shown or not text.strip():
            continue
        left -= len(text)
        if left < 0 or len(shown) == messages:
            break
        shown[node["row"]] = (typed_to_html if node["kind"] == "user" else to_html)(text)
    return {
        "nodes": shown,
        "digests": [to_html(digest["content"]) for digest in document["digests"]],
        "summary": to_html((document["meta"] or {}).get("summary") or ""),
    }


def _path(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    place, path = document["leaf"], list[Mapping[str, Any]]()
    while place >= 0:
        path.append(document["nodes"][place])
        place = path[-1]["above"]
    return path[::-1]


def embedded(value: Mapping[str, Any]) -> str:
    text = dump(value).decode()
    for char in "<>&\u2028\u2029":  # much faster than a translation table on megabytes
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def markdown(document: Mapping[str, Any]) -> str:
    """Write the path to the document's leaf, below the facts about the session."""
    blocks = list[str]()

    def block(text: str, language: str = "") -> str:
        blocks.append(fenced(text, language))
        return _SLOT.format(len(blocks) - 1)

    ways: dict[str, Any] = {"plain": plain, "code": code, "block": block}
    ways["began"] = words.began(document["session"])
    ways["quoted"] = lambda text: "\n".join(quoted(text))
    text = fill("session.md", **document, **ways, path=_path(document))
    text = _LOOSE.sub(r"\1\n", _SPACE.sub("", text)).rstrip("\n") + "\n"
    for at, fence in enumerate(blocks):
        text = text.replace(_SLOT.format(at), fence, 1)
    return text


def fenced(text: str, language: str) -> str:
    """Write a text as fenced code; the fence is longer than any in the text."""
    lines = [bare(line) for line in _LINE_END.split(text)]
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}{language}", *lines, fence])


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
