"""One line of a Claude Code file, with only the fields that matter, and one too long to hold.

Lines are long (prompts, tool results, base64 images repeat in several places) and little of them
matters: large values stay raw until somebody asks for them.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType, field

from indexerd.agents.base import Oversize, Tree
from indexerd.agents.lines import NOTHING, decoder, from_ends, tail_value


class Message(Struct):
    """What was said. One answer of a model is several lines, with one `id`."""

    role: str = ""
    content: Raw = NOTHING
    id: str = ""
    model: str = ""
    stop_reason: str | None = None
    usage: Raw = NOTHING


class Origin(Struct):
    """Who made a prompt."""

    kind: str | None = None


class Attachment(Struct, rename="camel"):
    """What is put beside a prompt; a prompt typed while the agent worked is one, too."""

    type: str = ""
    prompt: Raw = NOTHING
    command_mode: str | None = None
    origin: Origin | None = None
    is_meta: bool | None = None
    filename: str = ""
    timestamp: str = ""
    source: str = field(default="", name="source_uuid")


class Line(Struct, rename="camel"):
    """One line of the file, whatever its type."""

    parent_uuid: str | UnsetType | None = UNSET
    is_sidechain: bool | None = None
    type: str = ""
    message: Message | None = None
    uuid: str = ""
    timestamp: str = ""
    cwd: str = ""
    session_id: str = ""
    git_branch: str | None = None
    request_session_id: str | None = None  # on a copied answer: the session it was copied from
    session_kind: str | None = None
    logical_parent_uuid: str | None = None
    subtype: str = ""
    content: Raw = NOTHING  # of a system line
    is_meta: bool | None = None
    is_compact_summary: bool | None = None
    is_visible_in_transcript_only: bool | None = None
    is_api_error_message: bool | None = None
    origin: Origin | None = None
    prompt_source: str | None = None
    plan_content: str | None = None  # on a prompt that the client wrote for a plan
    tool_use_result: Raw = NOTHING
    tool_denial_kind: str | None = None
    compact_metadata: Raw = NOTHING
    attachment: Attachment | None = None
    cost: Any = field(default=None, name="costUSD")
    custom_title: str | None = None
    ai_title: str | None = None
    agent_name: str | None = None
    summary: str | None = None
    leaf_uuid: str | None = None


decode = decoder(Line)
_BEHIND = {  # what may stand behind what is long
    "uuid": str,
    "timestamp": str,
    "cwd": str,
    "sessionId": str,
    "gitBranch": str,
    "requestSessionId": str,
    "isMeta": bool,
    "isCompactSummary": bool,
    "isApiErrorMessage": bool,
}


def oversize_line(tree: Tree, ends: Oversize) -> tuple[Line, int]:
    """A line as far as its two ends tell, and its offset.

    What is long is a picture, a tool's result or a file. An id that stands between two long values
    is lost: the line gets a made one, and the next line, which names an unknown parent, is put
    below it all the same.
    """
    found, offset, _ = from_ends(tree, ends, decode)
    line = found or Line()
    for key, kind in _BEHIND.items():
        name = "".join(f"_{one.lower()}" if one.isupper() else one for one in key)
        held = None if getattr(line, name) else tail_value(ends.tail, key)
        if isinstance(held, kind):
            setattr(line, name, held)
    if line.message is not None:
        stop = tail_value(ends.tail, "stop_reason")
        line.message.stop_reason = line.message.stop_reason or (stop if stop is not True else None)
    return line, offset
