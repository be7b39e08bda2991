r"""A session as one JSON document: what every other form of an export is made of.

In: a story, and what is known of the session besides (`Head`). Out: the document, and its text.
Deterministic; the caller says when it was made. Where a field has nothing to say it is absent.

    format "indexerd-export", schema 1, exportedAt, generator
    session    a row (interfaces.md §5), without what only the daemon needs
    meta       name, description, summary, tags, model, updatedAt, usage … of the meta file, or null
    context    the sets of relevant context; footer: the same in one line
    kin        {parent, forks: [id], subagents: [id]}
    leafId     the entry that the session stands at, or that was asked for; leaf: its place
    nodes      every entry, depth first, with texts:
               {id, parentId, above, ordinal, kind, type, role, time, text, length, calls: [[tool,
               what for]], results: [[tool, text]], tool, thinking, model, tokens, failed, images,
               label, quiet, hidden, active}. `above` is the place of the parent in this list, or
               -1: ids may repeat or be empty, places not. `length`: the text had so many
               characters, and was cut. `tokens`: {input, output, cacheRead, cacheWrite, costUsd}
    beats      the story over them: {kind: ask|work|compaction|branch-summary, first, last, depth,
               active, begins, text, answers, calls: {tool: n}, failed, tokens, ms, quiet, labels,
               gist, gistSource}; `first` to `last` are places
    tips       the branches (`branches` of interfaces.md §5), each with its `place`
    digests    the segments that hold on the path to the leaf, each with `from` and `to`: places
    textMax    characters that an entry had room for; redacted, omitted, warnings

Texts are the session's own, whole but for `textMax`, unless they were redacted. The text of the
document has no character in it that a terminal would act on: those are written `\uXXXX`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from indexerd.events import Kind, Tokens
from indexerd.privacy.sanitize import scrub
from indexerd.sessions.state import ROOT
from indexerd.web.story import Beat, Node, Story

FORMAT, SCHEMA = "indexerd-export", 1
SESSION = (
    "sessionId", "agent", "name", "nameSource", "agentTitle", "description", "tags", "cwd",
    "sessionFile", "createdAt", "modifiedAt", "durationMs", "messageCount", "userMessageCount",
    "firstUserMessage", "state", "archived", "subagent", "compactions", "gitBranch", "models",
    "tokens", "costUsd", "filesRead", "filesModified", "toolsUsed", "parentSessionId",
    "parentSessionFile", "resume",
)  # fmt: skip
META = (
    "name", "description", "summary", "tags", "model", "updatedAt", "lastIndexedLeafId", "usage",
    "keyDecisions", "redactions",
)  # fmt: skip


_KINDS = {kind: kind.name.lower() for kind in Kind}


@dataclass(frozen=True, slots=True)
class Head:
    """What is known of a session besides its entries."""

    row: Mapping[str, Any]
    meta: Mapping[str, Any] | None = None
    context: Mapping[str, Any] = field(default_factory=dict)
    footer: str = ""
    kin: Mapping[str, Any] = field(default_factory=dict)
    exported_at: str = ""
    generator: str = "indexerd"


def document(head: Head, story: Story, **more: Any) -> dict[str, Any]:
    """The document; `more` as for `about`."""
    return about(head, story, **more) | {
        "beats": [beat_json(one) for one in story.beats],
        "nodes": [node_json(one, story) for one in story.nodes],
    }


def about(
    head: Head,
    story: Story,
    *,
    tips: Iterable[Mapping[str, Any]] = (),
    digests: Iterable[Mapping[str, Any]] = (),
    text_max: int = 0,
    redacted: bool = False,
    warnings: Iterable[str] = (),
) -> dict[str, Any]:
    """The document but for its beats and nodes: what is made anew, while most of those stay.

    `tips` and `digests` have their places already.
    """
    row, meta = head.row, head.meta
    leaf = story.leaf
    return {
        "format": FORMAT,
        "schema": SCHEMA,
        "generator": head.generator,
        "exportedAt": head.exported_at,
        "session": {key: row[key] for key in SESSION if row.get(key) not in (None, "")},
        "meta": meta and {key: meta[key] for key in META if meta.get(key) is not None},
        "context": dict(head.context),
        "footer": head.footer,
        "kin": dict(head.kin),
        "leafId": None if leaf == ROOT else story.nodes[leaf].id,
        "leaf": leaf,
        "textMax": text_max,
        "redacted": redacted,
        "omitted": story.dropped,
        "warnings": list(warnings),
        "tips": [dict(one) for one in tips],
        "digests": [dict(one) for one in digests],
    }


def node_json(node: Node, story: Story) -> dict[str, Any]:
    """An entry as an object; what is empty is left out, but for its place and its text."""
    above = None if node.above == ROOT else story.nodes[node.above].id
    return {"id": node.id, "parentId": above} | _said(node)


def row_json(node: Node, row: int) -> dict[str, Any]:
    """An entry of a live document: its row tells it from all others, whatever comes and goes."""
    return {"row": row, "id": node.id} | _said(node)


def _said(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = {
        "above": node.above,
        "ordinal": node.ordinal,
        "kind": _KINDS[node.kind],
        "type": node.type,
        "time": node.time,
        "text": node.text,
    }
    rest = (
        ("role", node.role),
        ("length", node.length),
        ("calls", node.calls),
        ("results", node.results),
        ("tool", node.tool),
        ("thinking", node.thinking),
        ("model", node.model),
        ("tokens", node.tokens and _tokens(node.tokens)),
        ("failed", node.failed),
        ("images", node.images),
        ("label", node.label),
        ("quiet", node.quiet),
        ("hidden", node.hidden),
        ("active", node.active),
    )
    return found | {name: value for name, value in rest if value}


def beat_json(beat: Beat) -> dict[str, Any]:
    """A beat as an object; what is empty is left out."""
    named: dict[str, Any] = {
        "kind": beat.kind,
        "first": beat.first,
        "last": beat.last,
        "depth": beat.depth,
    }
    rest: dict[str, Any] = {
        "active": beat.active,
        "begins": beat.begins,
        "text": beat.text,
        "answers": beat.answers,
        "calls": beat.calls,
        "failed": beat.failed,
        "tokens": beat.tokens,
        "ms": beat.ms,
        "quiet": beat.quiet,
        "labels": beat.labels,
        "gist": beat.gist,
        "gistSource": beat.gist_source,
    }
    return named | {key: value for key, value in rest.items() if value}


def _tokens(tokens: Tokens) -> dict[str, Any]:
    found = {
        "input": tokens.input,
        "output": tokens.output,
        "cacheRead": tokens.cache_read,
        "cacheWrite": tokens.cache_write,
        "costUsd": tokens.cost_usd,
    }
    return {key: value for key, value in found.items() if value}


def to_json(found: Mapping[str, Any]) -> str:
    """The document's text: an object's fields a line each, long lists one element a line."""
    fields = (f"{json.dumps(key)}: {_value(value)}" for key, value in found.items())
    return harmless("{\n" + ",\n".join(fields) + "\n}\n")


def _value(value: Any) -> str:
    if not isinstance(value, list) or not value:
        return _dumped(value)
    return "[\n" + ",\n".join(map(_dumped, value)) + "\n]"


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def encoded(value: Any) -> str:
    r"""A value's JSON in one line, for our own pages; not `harmless` yet.

    Numbers may be written another way than by `json` (`1e-5`), and a number that is none is null.
    """
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError):  # half a character, or a number beyond 64 bits
        return _dumped(json.loads(_dumped(value), parse_constant=lambda _: None))


def harmless(text: str) -> str:
    r"""The same JSON, with what does not show or could act on a terminal written as `\uXXXX`."""
    text = scrub(text)
    if text.isprintable():
        return text
    odd = "".join(char for char in set(text) if not char.isprintable() and char != "\n")
    return re.sub(f"[{re.escape(odd)}]", _escaped, text) if odd else text


def _escaped(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]
