"""One line of a Claude Code file, with only the fields that matter.

Lines are long (prompts, tool results, base64 images repeat in several places) and little of them
matters: large values stay raw until somebody asks for them.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from indexerd.agents.json_lines import NOTHING, as_blocks, decoder, pick, value

# Fields that may stand behind what is long: a picture, a tool's result or a file.
BEHIND = (
    *("uuid", "timestamp", "cwd", "sessionId", "gitBranch", "requestSessionId", "isMeta"),
    *("isCompactSummary", "isApiErrorMessage", "stop_reason"),
)


class Block(Struct):
    """A block of a message's content; pictures and the like keep only their type."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    is_error: bool | None = None
    tool_use_id: str = ""
    input: Raw = NOTHING
    content: Raw = NOTHING


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
    stop_reason: str | None = field(default=None, name="stop_reason")  # out of a message, BEHIND


decode = decoder(Line)
_blocks = msgspec.json.Decoder(list[Block] | str).decode


def blocks(content: Raw) -> list[Block]:
    """A message's content as blocks: a bare string, alone or in a list, is a block of text."""
    try:
        held = _blocks(content)
    except (ValueError, RecursionError):
        return [pick(Block, one) for one in as_blocks(value(content))]
    return [Block("text", held)] if isinstance(held, str) else held
