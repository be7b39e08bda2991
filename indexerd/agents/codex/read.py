"""One codex line in full: what a transcript, a search or the facts of a session need of it.

Wrong types read as absent, texts come scrubbed of lone surrogates, and the only error is
ValueError for a line that is no JSON object. A line alone does not tell whether its session is
a sub-agent's, nor which of two copies counts: what a row is, its state knows better.

What a human said comes without what was put around it, and `sent` is what the model got. A
compaction that brings the history it leaves is all of that history, in codex's own roles: the
summary is in it, as a message of the user. Where an old one brings none, codex itself puts one
together: the newest of what humans said, and then the summary, as a message of the user, too.

Of the model's thoughts there is at most a summary; the rest of them is encrypted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from indexerd.agents.codex.effects import call_of, changed, failed, shown
from indexerd.agents.codex.human import said_by_event, said_in, summary_of
from indexerd.agents.codex.rows import name_of
from indexerd.agents.codex.shape import (
    Item,
    Line,
    images_in,
    item_of,
    parse_line,
    string,
    texts_of,
    value,
)
from indexerd.events import Entry, Kind, ToolCall, ToolResult
from indexerd.privacy.sanitize import scrub

RETAINED_MAX = 10_000  # messages of a replaced history, the newest
NO_SUMMARY = "(no summary available)"  # Codex's words
_ROLES = {"user": Kind.USER, "assistant": Kind.ASSISTANT}
_RETAINED_ROLES = {Kind.TOOL: "toolResult", Kind.CUSTOM: "custom"}  # of what has none
_Fields = dict[str, Any]


def read(line: bytes, entry_id: str) -> Entry:
    """Parse one entry's line in full; ValueError when it holds no JSON object."""
    held = parse_line(line)
    if held is None:
        raise ValueError("not an object")
    fields: _Fields = {"kind": Kind.OTHER, "role": None, "type": _type(held)}
    look = _LINES.get(held.type) if isinstance(held.type, str) else None
    fields |= look(held.payload) if look and held.payload else _item(held)
    return Entry(
        id=entry_id or name_of(held.body.id),
        timestamp=scrub(string(held.timestamp)),
        **fields,
    )


def _type(line: Line) -> str:
    envelope = string(line.type)
    inner = string(line.body.type)
    return scrub(inner if envelope.endswith(("_item", "_msg")) and inner else envelope or inner)


# -- items -----------------------------------------------------------------------------------


def _item(line: Line) -> _Fields:
    item = line.body
    kind = string(item.type)
    if kind == "message" or (not kind and isinstance(item.role, str)):
        return _message(item)
    if kind.endswith("_call"):
        return {"kind": Kind.CALL, "tools": (call_of(line),)}
    if kind.endswith(("_output", "_result")):
        return _output(item)
    if kind == "reasoning":
        return {"role": "assistant", "thinking": _thoughts(item)}
    if kind == "agent_message":
        return {"kind": Kind.CUSTOM, "texts": tuple(texts_of(value(item.content)))}
    return {}


def _message(item: Item) -> _Fields:
    content, role = value(item.content), scrub(string(item.role))
    fields: _Fields = {"role": role or None, "kind": _ROLES.get(role, Kind.SYSTEM)}
    fields["texts"] = tuple(texts_of(content))
    if role == "user":
        fields["images"] = images_in(content)
        said = said_in(content)
        fields["kind"] = Kind.USER if said.human else Kind.OTHER
        fields |= _said(said.text, fields["texts"])
    return fields


def _said(words: str, sent: tuple[str, ...]) -> _Fields:
    """A human's words, and the texts that the model got where they are others."""
    if not words or (words,) == sent:
        return {"texts": sent}
    return {"texts": (words,), "details": {"sent": sent}}


def _output(item: Item) -> _Fields:
    held, call = value(item.output), name_of(item.call_id)
    if isinstance(held, dict):
        held = held.get("output", held.get("content"))
    texts = tuple(texts_of(held))
    return {
        "kind": Kind.TOOL,
        "failed": (call,) if call and failed(item.output) else (),
        "texts": texts,
        "images": images_in(held),
        "results": (ToolResult(call, name_of(item.name), "".join(texts)),),
    }


def _thoughts(item: Item) -> tuple[str, ...]:
    return tuple(text for text in texts_of(value(item.summary)) if text)


# -- other lines -----------------------------------------------------------------------------


def _turn_context(payload: Item) -> _Fields:
    details = {"thinkingLevel": scrub(string(payload.effort))}
    provider = scrub(string(payload.model_provider))
    if provider:
        details["provider"] = provider
    model = scrub(string(payload.model)) or None
    return {"kind": Kind.SETTING, "model": model, "details": details}


def _compacted(payload: Item) -> _Fields:
    message = scrub(string(value(payload.message)))
    summary = summary_of(message)
    details: _Fields = {"kept": None}
    history = value(payload.replacement_history)
    if isinstance(history, list):
        details |= {"retained": _retained(history[-RETAINED_MAX:], message), "whole": True}
    else:
        details |= {"keeps": "users", "summaryRole": "user", "sent": (message or NO_SUMMARY,)}
    texts = (summary,) if summary else ()
    return {"kind": Kind.COMPACTION, "texts": texts, "details": details}


def _retained(history: list[Any], summary: str) -> list[_Fields]:
    """The messages that stay, as they are; which of them a human said, later compactions ask."""
    found: list[_Fields] = []
    for one in history:
        fields = _item(Line(payload=item_of(one))) if isinstance(one, dict) else {}
        kind = fields.get("kind", Kind.OTHER)
        role = fields.get("role") or _RETAINED_ROLES.get(kind)
        if role and "texts" in fields:
            text = "".join(fields.get("details", {}).get("sent", fields["texts"]))
            human = {"human": True} if kind is Kind.USER and text != summary else {}
            found.append({"role": role, "text": text} | human)
    return found


def _event(event: Item) -> _Fields:
    kind, item = string(event.type), event
    if kind == "item_completed":
        item = item_of(event.item)
        kind = string(item.type).lower()
    look = _EVENTS.get(kind)
    return look(item) if look else {}


def _user(event: Item) -> _Fields:
    words, content = said_by_event(event).text, value(event.content)
    sent = texts_of(string(value(event.message)) if content is None else content)
    fields = {"kind": Kind.USER, "role": "user", "images": _beside(event) + images_in(content)}
    return fields | _said(words, tuple(sent) if words else ())


def _beside(event: Item) -> int:
    """How many pictures an event names beside its message."""
    lists = (value(event.images), value(event.local_images))
    return sum(len(one) for one in lists if isinstance(one, list))


def _started(_event: Item) -> _Fields:
    return {"kind": Kind.SETTING}


def _changed(item: Item) -> _Fields:
    paths = changed(item)
    if paths is None:
        undone = name_of(item.call_id) or name_of(item.id)
        return {"kind": Kind.CALL, "failed": (undone,) if undone else ()}
    return {"kind": Kind.CALL, "tools": (ToolCall("", writes=paths),)}


def _shown(item: Item) -> _Fields:
    return {"kind": Kind.CALL, "tools": (ToolCall("", reads=shown(item)),)}


def _inter_agent(payload: Item) -> _Fields:
    return {"kind": Kind.CUSTOM, "texts": tuple(texts_of(value(payload.content)))}


_Look = Callable[[Item], _Fields]
_LINES: dict[str, _Look] = {
    "event_msg": _event,
    "turn_context": _turn_context,
    "compacted": _compacted,
    "inter_agent_communication": _inter_agent,
}
_EVENTS: dict[str, _Look] = {
    "user_message": _user,
    "usermessage": _user,
    "filechange": _changed,
    "patch_apply_end": _changed,
    "commandexecution": _shown,
    "exec_command_end": _shown,
    "task_started": _started,
    "turn_started": _started,
}
