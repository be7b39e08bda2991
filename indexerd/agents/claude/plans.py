"""The prompt that the client writes when a plan is to be carried out with an empty context.

In: a line. Out: what it says of the session that it opens: the plan's heading, and the session in
which the plan was made, which is named by the path of its transcript. Nobody typed that prompt.
Its line has `planContent`; without it (2.1.12 to 2.1.17), the words behind the plan tell it from a
human's.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from indexerd.agents.claude.lines import Line, blocks

_OPENING = "Implement the following plan:"
_ASIDE = "If you need specific details from before exiting plan mode"
_TRANSCRIPT = "read the full transcript at: "
_SESSION = re.compile(r"(?:.*[/\\])?([A-Za-z0-9][\w.-]{0,127})\.jsonl", re.ASCII)
_HEADING = re.compile(r"#{1,6}[ \t]+(.*)")
_LOOKED_AT = 8192  # characters of a path


class Plan(NamedTuple):
    """What the prompt says of its session; "" where it does not."""

    heading: str
    parent: str  # id of the session in which the plan was made


def is_plan(line: Line, text: str) -> bool:
    """Whether the client wrote this text for a plan."""
    return line.plan_content is not None or (text.startswith(_OPENING) and _ASIDE in text)


def plan_of(line: Line) -> Plan | None:
    """What a line says of the session that it opens, if it is such a prompt."""
    text = "\n".join(block.text for block in blocks(line.message.content)) if line.message else ""
    if not is_plan(line, text):
        return None
    heading = _HEADING.match(text.removeprefix(_OPENING).lstrip())
    _, mark, rest = text.rpartition(_ASIDE)
    path = rest.partition(_TRANSCRIPT)[2].partition("\n")[0][:_LOOKED_AT] if mark else ""
    session = _SESSION.match(path)
    return Plan(heading[1] if heading else "", session[1] if session else "")
