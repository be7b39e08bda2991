r"""One path of a session as Markdown: a heading for each ask, answers quoted, tools one line each.

Made of a document (web/document.py). Nothing of the session stands in it but behind our own marks:
words on a line of ours have every mark of Markdown escaped; texts are quoted, each line of them, so
that a heading, a rule or a list in one is one in the quotation. Quoted text stays
Markdown, with two exceptions outside of fenced code: a tag is shown, not rendered, and an image
becomes a link, as a reader's program must not be made to load it. Control characters are gone.

A fence counts only where it begins a line: there it is one for every renderer. One inside a list
or a nested quotation ends with that, sooner than its own end mark, and so protects nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from indexerd.privacy.sanitize import bare, clean_line

LINE_MAX = 200
HEADING_MAX = 120
TEXT_MAX = 8000  # characters of a summary

_MARK = re.compile(r"([\\`*_\[\]<>#&|~!$])")
_FENCE = re.compile(r"(`{3,})[^`]*$|(~{3,}).*$")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")

Doc = Mapping[str, Any]


def markdown(found: Doc) -> str:
    """The path to the document's leaf, below what is known of the session."""
    lines = [*_head(found), *_digests(found), *_path(found)]
    return "\n".join(lines).rstrip("\n") + "\n"


# -- words and texts -----------------------------------------------------------------------------


def plain(text: str, limit: int = LINE_MAX) -> str:
    """Foreign words on a line of ours: nothing in them is Markdown."""
    return _MARK.sub(r"\\\1", clean_line(text[: 4 * limit], limit))


def code(text: str, limit: int = LINE_MAX) -> str:
    """Foreign words as code on a line of ours."""
    held = clean_line(text[: 4 * limit], limit).replace("`", "'")
    return f"`{held}`" if held else ""


def quoted(text: str) -> Iterator[str]:
    """A text's lines, each quoted."""
    fence = ""
    for line in re.split(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]", bare(text).rstrip()):
        line = line.expandtabs(4)  # noqa: PLW2901 - a tab is not as wide behind our mark
        opened = _FENCE.match(line)
        if fence:
            held = line.strip(" ")
            if not line.startswith("    ") and held.startswith(fence) and not held.strip(fence[0]):
                fence = ""
        elif opened:
            fence = opened[1] or opened[2]
        else:
            line = _TAG.sub("&lt;", line).replace("![", "&#33;[")  # noqa: PLW2901 - the same line, made safe
        yield f"> {line}".rstrip()


# -- parts ---------------------------------------------------------------------------------------


def _head(found: Doc) -> Iterator[str]:
    session, meta = found["session"], found["meta"] or {}
    yield f"# {plain(session.get('name', ''), HEADING_MAX) or 'A session'}"
    yield ""
    told = {
        "Session": code(session.get("sessionId", "")),
        "Agent": plain(session.get("agent", "")),
        "Directory": code(session.get("cwd", "")),
        "Created": plain(session.get("createdAt", "")),
        "Last used": plain(session.get("modifiedAt", "")),
        "Messages": str(session.get("messageCount", "")),
        "Models": plain(", ".join(session.get("models", ()))),
        "Tags": plain(", ".join(session.get("tags", ()))),
        "Context": plain(found["footer"]),
        "Seen from": code(found["leafId"] or ""),
        **_kin(found),
        "Exported": plain(found["exportedAt"]),
    }
    yield from (f"- {name}: {value}" for name, value in told.items() if value)
    yield from (f"- Note: {plain(one)}" for one in _notes(found))
    yield ""
    if meta.get("description"):
        yield from quoted(meta["description"][:TEXT_MAX])
        yield ""
    if meta.get("summary"):
        yield from ("## Summary", "")
        yield from quoted(meta["summary"][:TEXT_MAX])
        yield ""


def _kin(found: Doc) -> dict[str, str]:
    kin = found["kin"]
    lists = (("Forks", "forks"), ("Sub-agents", "subagents"))
    named = {name: ", ".join(code(one) for one in kin.get(key, ())) for name, key in lists}
    return {"Parent": code(kin.get("parent") or "")} | named


def _notes(found: Doc) -> Iterator[str]:
    if found["redacted"]:
        yield "secrets were taken out of the texts; what was not known as one may still be there"
    if found["omitted"]:
        yield f"{found['omitted']} older entries are left out"
    yield from found["warnings"]


def _digests(found: Doc) -> Iterator[str]:
    for one in found["digests"]:
        first, last = one["covering_messages"]
        yield f"## Digest of messages {first} to {last}"
        yield ""
        yield from quoted(one["content"])
        yield ""


def _path(found: Doc) -> Iterator[str]:
    nodes, place, path = found["nodes"], found["leaf"], list[int]()
    while place >= 0:
        path.append(place)
        place = nodes[place]["above"]
    asked, listed = 0, False
    for place in reversed(path):
        node = nodes[place]
        if node.get("hidden"):
            continue
        asked += node["kind"] == "user"
        lines = list(_ask(node, asked) if node["kind"] == "user" else _told(node))
        if not lines:
            continue
        item = lines[0].startswith("- ")
        if listed and not item:
            yield ""
        yield from lines
        listed = lines[-1].startswith("- ")
        if not listed:
            yield ""


def _ask(node: Doc, number: int) -> Iterator[str]:
    first = node["text"].lstrip()[: 4 * HEADING_MAX].partition("\n")[0]
    yield f"## {number}. {plain(first, HEADING_MAX) or '(no words)'}"
    yield ""
    yield from _mark(node)
    yield from _body(node)


def _told(node: Doc) -> Iterator[str]:
    """Whatever is no ask."""
    kind, text = node["kind"], node["text"].strip()
    heading = _HEADINGS.get(kind)
    if node.get("label"):
        yield from _mark(node)
    if heading and text:
        model = plain(node.get("model", "")) if kind == "assistant" else ""
        failed = ", failed" if node.get("failed") else ""
        yield f"**{heading}{failed}**" + (f" ({model})" if model else "")
        yield ""
        yield from _body(node)
        if node.get("calls"):
            yield ""
    elif kind == "tool" and node.get("failed"):
        yield f"- failed: {code(node.get('tool', ''))} {plain(text)}".rstrip()
    for name, detail in node.get("calls", ()):
        yield f"- {code(name) or 'a tool'} {code(detail)}".rstrip()


_HEADINGS = {
    "assistant": "Answer",
    "bash": "Run by the user",
    "custom": "Said by an extension",
    "compaction": "Compaction: what came before, in short",
    "branch_summary": "Summary of a branch that was left",
}


def _mark(node: Doc) -> Iterator[str]:
    if node.get("label"):
        yield f"*Label: {plain(node['label'])}*"
        yield ""


def _body(node: Doc) -> Iterator[str]:
    yield from quoted(node["text"])
    if node.get("length"):
        yield ""
        yield f"*Cut: {len(node['text'])} of {node['length']} characters.*"
    if node.get("images"):
        yield ""
        yield f"*Images: {node['images']}.*"
