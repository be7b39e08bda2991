r"""One path of a session as Markdown: a heading for each ask, answers quoted, tools one line each.

Nothing of the session is in it but behind our own marks: words on a line of ours have every mark of
Markdown escaped; texts are quoted line by line, so that a heading, a rule or a list in one stays in
the quotation. Quoted text stays Markdown, with two exceptions outside of fenced code: a tag is
shown, not rendered, and an image becomes a link, since a reader's program must not load it. A fence
counts only where it begins a line: one inside a list or a nested quotation protects nothing.
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
    """The path to the document's leaf, below what is known of the session."""
    lines = [*_head(document), *_path(document)]
    return "\n".join(lines).rstrip("\n") + "\n"


def plain(text: str, limit: int = LINE_MAX) -> str:
    """Foreign words on a line of ours: nothing in them is Markdown."""
    return _MARK.sub(r"\\\1", clean_line(text[: 4 * limit], limit))


def code(text: str, limit: int = LINE_MAX) -> str:
    """Foreign words as code on a line of ours."""
    words = clean_line(text[: 4 * limit], limit).replace("`", "'")
    return f"`{words}`" if words else ""


def quoted(text: str) -> Iterator[str]:
    """A text's lines, each quoted."""
    fence = ""
    for raw in _LINE_END.split(bare(text).rstrip()):
        line = raw.expandtabs(4)  # a tab is not as wide behind our mark
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
    session, meta, kin = document["session"], document["meta"] or {}, document["kin"]
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
        "Parent": code(kin.get("parent") or ""),
        "Forks": ", ".join(map(code, kin.get("forks", ()))),
        "Sub-agents": ", ".join(map(code, kin.get("subagents", ()))),
        "Exported": plain(document["exportedAt"]),
    }
    yield from (f"- {name}: {value}" for name, value in facts.items() if value)
    if document["redacted"]:
        yield "- Note: secrets were taken out of the texts; an unknown kind may still be there"
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
        asks += node["kind"] == "user" and not node.get("hidden")
        lines = [] if node.get("hidden") else [*_entry(node, asks)]
        if not lines:
            continue
        if in_list and not lines[0].startswith("- "):
            yield ""
        yield from lines
        in_list = lines[-1].startswith("- ")
        if not in_list:
            yield ""


def _entry(node: Doc, number: int) -> Iterator[str]:
    kind, text = node["kind"], node["text"].strip()
    label = (f"*Label: {plain(node['label'])}*", "") if node.get("label") else ()
    if kind == "user":
        first = node["text"].lstrip()[: 4 * HEADING_MAX].partition("\n")[0]
        yield f"## {number}. {plain(first, HEADING_MAX) or '(no words)'}"
        yield from ("", *label, *_body(node))
        return
    yield from label
    heading = _HEADINGS.get(kind)
    if heading and text:
        model = plain(node.get("model", "")) if kind == "assistant" else ""
        failed = ", failed" if node.get("failed") else ""
        yield f"**{heading}{failed}**" + (f" ({model})" if model else "")
        yield from ("", *_body(node))
        if node.get("calls"):
            yield ""
    elif kind == "tool" and node.get("failed"):
        yield f"- failed: {code(node.get('tool', ''))} {plain(text)}".rstrip()
    for name, detail in node.get("calls", ()):
        yield f"- {code(name) or 'a tool'} {code(detail)}".rstrip()


def _body(node: Doc) -> Iterator[str]:
    yield from quoted(node["text"])
    if node.get("length"):
        yield from ("", f"*Cut: {len(node['text'])} of {node['length']} characters.*")
    if node.get("images"):
        yield from ("", f"*Images: {node['images']}.*")
