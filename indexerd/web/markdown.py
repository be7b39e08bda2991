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

LINE_MAX, HEADING_MAX, TEXT_MAX = 200, 120, 8000  # characters

_MARK = re.compile(r"([\\`*_\[\]<>#&|~!$])")
_FENCE = re.compile(r"(`{3,})[^`]*$|(~{3,}).*$")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_LINE_END = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_HEADINGS = {
    "assistant": "Answer",
    "bash": "Run by the user",
    "custom": "Said by an extension",
    "compaction": "Compaction: what came before, in short",
    "branch_summary": "Summary of a branch that was left",
}

Doc = Mapping[str, Any]


def markdown(document: Doc) -> str:
    """Write the path to the document's leaf, below the facts about the session."""
    return "\n".join([*_head(document), *_path(document)]).rstrip("\n") + "\n"


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


def _head(document: Doc) -> Iterator[str]:
    session, meta = document["session"], document["meta"] or {}
    yield from (f"# {plain(session.get('name', ''), HEADING_MAX) or 'A session'}", "")
    facts = {
        "Session": code(session.get("sessionId", "")),
        "Agent": plain(session.get("agent", "")),
        "Directory": code(session.get("cwd", "")),
        "Created": plain(session.get("createdAt", "")),
        "Last used": plain(session.get("modifiedAt", "")),
        "Messages": str(session.get("messageCount", "")),
        "Models": plain(", ".join(session.get("models", ()))),
        "Tags": plain(", ".join(session.get("tags", ()))),
        "Context": plain(document["footer"]),
        "Seen from": code(document["leafId"] or ""),
        "Parent": code(session.get("parentSessionId", "")),
        "Exported": plain(document["exportedAt"]),
    }
    yield from (f"- {name}: {value}" for name, value in facts.items() if value)
    if document["redacted"]:
        yield "- Note: secrets were removed from the texts; ones of an unknown kind may remain"
    yield from (f"- Note: {plain(one)}" for one in document["warnings"])
    yield ""
    if meta.get("description"):
        yield from (*quoted(meta["description"][:TEXT_MAX]), "")
    if meta.get("summary"):
        yield from ("## Summary", "", *quoted(meta["summary"][:TEXT_MAX]), "")
    for one in document["digests"]:
        first, last = one["covering_messages"]
        yield from (f"## Digest of messages {first} to {last}", "", *quoted(one["content"]), "")


def _path(document: Doc) -> Iterator[str]:
    nodes, place, path = document["nodes"], document["leaf"], list[Doc]()
    while place >= 0:
        path.append(nodes[place])
        place = nodes[place]["above"]
    asks, in_list = 0, False
    for node in reversed(path):
        if node.get("hidden"):
            continue
        asks += node["kind"] == "user"
        for line in _entry(node, asks):
            if in_list and not line.startswith("- "):
                yield ""
            yield line
            in_list = line.startswith("- ")


def _entry(node: Doc, number: int) -> Iterator[str]:
    kind, text = node["kind"], node["text"].strip()
    heading = f"**{_HEADINGS.get(kind)}{', failed' if node.get('failed') else ''}**"
    if kind == "user":
        first = text.partition("\n")[0]
        heading = f"## {number}. {plain(first, HEADING_MAX) or '(no words)'}"
    elif kind == "assistant" and node.get("model"):
        heading += f" ({plain(node['model'])})"
    is_quoted = kind == "user" or (kind in _HEADINGS and text)
    if is_quoted:
        yield from (heading, "")
    if node.get("label"):
        yield from (f"*Label: {plain(node['label'])}*", "")
    if is_quoted:
        yield from (*quoted(node["text"]), "")
        if node.get("length"):
            yield from (f"*Cut: {len(node['text'])} of {node['length']} characters.*", "")
        if node.get("images"):
            yield from (f"*Images: {node['images']}.*", "")
    elif kind == "tool" and node.get("failed"):
        yield f"- failed: {code(node.get('tool', ''))} {plain(text)}".rstrip()
    for name, detail in node.get("calls", ()):
        yield f"- {code(name) or 'a tool'} {code(detail)}".rstrip()
