"""One codex line in full: what a transcript, a search or the facts of a session need of it.

A line alone does not tell whether its session is a sub-agent's, nor which of two copies counts:
what a row is, its state knows better.

What a human said comes without what was put around it, and `sent` is what the model got. A
compaction that brings the history it leaves is all of that history, in codex's own roles: the
summary is in it, as a message of the user. Where an old one brings none, codex itself puts one
together: the newest of what humans said, and then the summary, as a message of the user, too.

Of the model's thoughts there is at most a summary; the rest of them is encrypted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from indexerd.agents.codex.human import said_by_event, said_in, summary_of
from indexerd.agents.codex.lines import Item, decode, images_in, item_of, name_of, texts_of
from indexerd.agents.codex.tools import call_of, changed, failed, shown
from indexerd.agents.lines import as_blocks, as_dict, as_list, blocks, is_object, string, value
from indexerd.events import Compaction, Entry, Kind, Retained, ToolCall, ToolResult

NO_SUMMARY = "(no summary available)"  # codex's words
_RETAINED_MAX = 10_000  # messages of a replaced history, the newest
_ROLES = {"user": Kind.USER, "assistant": Kind.ASSISTANT}
_RETAINED_ROLES = {Kind.TOOL: "toolResult", Kind.CUSTOM: "custom"}  # of what has none
_Fields = dict[str, Any]  # of an entry
_history = msgspec.json.Decoder(list[Raw]).decode


def read(data: bytes, entry_id: str) -> Entry:
    """Parse one entry's line in full; ValueError where it holds no JSON object."""
    line = decode(data)
    item = line.payload or item_of(Raw(data))
    envelope, inner = line.type or "", item.type or ""
    named = envelope.endswith(("_item", "_msg")) and inner
    fields: _Fields = {"kind": Kind.OTHER, "role": None, "type": inner if named else envelope}
    look = _LINES.get(envelope) if line.payload else None
    fields |= look(item) if look else _item(item, recorded=line.ordinal is not None)
    own = entry_id or name_of(item.id)
    return Entry(id=own, timestamp=line.timestamp or "", **fields)


# -- items -----------------------------------------------------------------------------------


def _item(item: Item, *, recorded: bool = False) -> _Fields:
    """An item; `recorded`: in a file that notes what its patches changed."""
    kind = item.type or ""
    if kind == "message" or (not kind and item.role is not None):
        return _message(item)
    if kind.endswith("_call"):
        return {"kind": Kind.CALL, "tools": (call_of(item, recorded=recorded),)}
    if kind.endswith(("_output", "_result")):
        return _output(item)
    if kind == "reasoning":
        thoughts = tuple([text for text in texts_of(blocks(item.summary)) if text])
        return {"role": "assistant", "thinking": thoughts}
    return _inter_agent(item) if kind == "agent_message" else {}


def _message(item: Item) -> _Fields:
    content, role = blocks(item.content), item.role or ""
    texts = tuple(texts_of(content))
    fields: _Fields = {"role": role or None, "kind": _ROLES.get(role, Kind.SYSTEM), "texts": texts}
    if role == "user":
        said = said_in(content)
        fields |= {"images": images_in(content), "kind": Kind.USER if said.human else Kind.OTHER}
        fields |= _said(said.text, texts)
    return fields


def _said(words: str, sent: tuple[str, ...]) -> _Fields:
    """A human's words, and the texts that the model got where they are others."""
    if not words or (words,) == sent:
        return {"texts": sent}
    return {"texts": (words,), "sent": sent}


def _output(item: Item) -> _Fields:
    call, held = name_of(item.call_id), as_dict(value(item.output))
    inner = as_blocks(held.get("output", held.get("content")))
    found = inner if is_object(item.output) else blocks(item.output)
    texts = tuple(texts_of(found))
    return {
        "kind": Kind.TOOL,
        "failed": (call,) if call and failed(item.output) else (),
        "texts": texts,
        "images": images_in(found),
        "results": (ToolResult(call, name_of(item.name), "".join(texts)),),
    }


# -- other lines -----------------------------------------------------------------------------


def _turn_context(payload: Item) -> _Fields:
    return {
        "kind": Kind.SETTING,
        "model": payload.model or None,
        "provider": payload.model_provider or None,
        "thinking_level": payload.effort or "",
    }


def _compacted(payload: Item) -> _Fields:
    message = string(value(payload.message))
    summary = summary_of(message)
    retained = _retained(payload.replacement_history, message)
    fields: _Fields = {"kind": Kind.COMPACTION, "texts": (summary,) if summary else ()}
    if retained is not None:
        return fields | {"compaction": Compaction(retained=retained, whole=True)}
    kept = Compaction(keeps_users=True, role="user")
    return fields | {"compaction": kept, "sent": (message or NO_SUMMARY,)}


def _retained(history: Raw, summary: str) -> tuple[Retained, ...] | None:
    """The messages that stay, as they are; which of them a human said, later compactions ask."""
    try:
        items = [item_of(one) for one in _history(history)[-_RETAINED_MAX:]]
    except (ValueError, RecursionError):
        return None
    found: list[Retained] = []
    for one in items:
        fields = _item(one)
        kind = fields.get("kind", Kind.OTHER)
        role = fields.get("role") or _RETAINED_ROLES.get(kind)
        if role and "texts" in fields:
            text = "".join(fields.get("sent") or fields["texts"])
            found.append(Retained(role, text, human=kind is Kind.USER and text != summary))
    return tuple(found)


def _event(event: Item) -> _Fields:
    kind, item = event.type or "", event
    if kind == "item_completed":
        item = item_of(event.item)
        kind = (item.type or "").lower()
    look = _EVENTS.get(kind)
    return look(item) if look else {}


def _user(event: Item) -> _Fields:
    words, content = said_by_event(event).text, value(event.content)
    held = as_blocks(string(value(event.message)) if content is None else content)
    beside = (as_list(value(one)) for one in (event.images, event.local_images))
    images = sum(map(len, beside)) + (0 if content is None else images_in(held))
    fields = {"kind": Kind.USER, "role": "user", "images": images}
    return fields | _said(words, tuple(texts_of(held)) if words else ())


def _changed(item: Item) -> _Fields:
    paths = changed(item)
    if paths is None:
        undone = name_of(item.call_id) or name_of(item.id)
        return {"kind": Kind.CALL, "failed": (undone,) if undone else ()}
    return {"kind": Kind.CALL, "tools": (ToolCall("", writes=paths),)}


def _shown(item: Item) -> _Fields:
    return {"kind": Kind.CALL, "tools": (ToolCall("", reads=shown(item)),)}


def _started(_event: Item) -> _Fields:
    return {"kind": Kind.SETTING}


def _inter_agent(payload: Item) -> _Fields:
    return {"kind": Kind.CUSTOM, "texts": tuple(texts_of(blocks(payload.content)))}


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
