r"""One path of a session as Markdown: a heading for each request, answers quoted, a line per call.

Text of the session is either escaped on a line of ours or quoted line by line, so that a heading, a
rule or a list in it stays in the quotation. Quoted text remains Markdown, with two exceptions
outside fenced code: a tag is shown instead of rendered, and an image becomes a link, because a
reader's program must not load it. Only a fence at the beginning of a line counts: one in a list or
a nested quotation protects nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from indexerd.privacy.sanitize import bare, clean_line
from indexerd.web.assets import fill

LINE_MAX = 200  # characters

_MARK = re.compile(r"([\\`*_\[\]<>#&|~!$])")
_FENCE = re.compile(r"(`{3,})[^`]*$|(~{3,}).*$")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_LINE_END = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_SPACE = re.compile(r"(?<! ) +$|(?<=\n\n)\n+", re.MULTILINE)  # at a line's end, or of empty lines
_LOOSE = re.compile(r"^(- .*)\n\n(?=- )", re.MULTILINE)  # a blank line between two list items


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
    """Escape text for a line of ours."""
    return _MARK.sub(r"\\\1", clean_line(text[: 4 * limit], limit))


def code(text: str) -> str:
    """Write text as code on a line of ours."""
    words = clean_line(text[: 4 * LINE_MAX], LINE_MAX).replace("`", "'")
    return f"`{words}`" if words else ""


def quoted(text: str) -> Iterator[str]:
    """Quote the lines of a text."""
    fence = ""
    for raw in _LINE_END.split(bare(text).rstrip()):
        line = raw.expandtabs(4)  # behind our mark a tab would be narrower
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
