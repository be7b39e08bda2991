"""What a line of Claude Code is: typed by a human, an answer, a result, or bookkeeping.

Half of what stands in lines of type `user` was typed by nobody: results of tools, expansions of
slash commands, notifications, reminders, summaries (formats.md 2.3). Five things to know:

- what a machine tells the model, so that it goes to work, is coded as a result (TOOL, no
  message): the turn is open after it, and no human is counted;
- the output of a local command, its caveat and the command itself are CUSTOM: the model is not
  asked, and the turn stays as it was; but a command with a request is a prompt (commands.py);
- the line that records an interruption, or that a hook stopped a prompt, ends the turn as a failed
  answer does, so it is coded as one (ASSISTANT, FAILED, no message), and its words are nobody's;
- a plan that is carried out with an empty context is a prompt of the client's (plans.py);
- a prompt typed while the agent works may be a line of type `attachment`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from indexerd.agents.claude.commands import COMMAND, request
from indexerd.agents.claude.lines import Block, Line, blocks
from indexerd.agents.claude.plans import is_plan
from indexerd.events import KIND_MASK, Kind, Turn, code

PROMPT = code(Kind.USER, message=True)
PROMPTED = code(Kind.TOOL)  # said by a machine, to the model
RESULT = code(Kind.TOOL, message=True)
FAILED_RESULT = code(Kind.TOOL, turn=Turn.FAILED, message=True)
QUIET = code(Kind.CUSTOM)  # said by a machine, and the model is not asked
SHELL = code(Kind.BASH)
SUMMARY = code(Kind.COMPACTION)
INTERRUPTED = code(Kind.ASSISTANT, turn=Turn.FAILED)
FILE = code(Kind.CALL)
SYSTEM = code(Kind.SYSTEM)
OTHER = code(Kind.OTHER)

TALK = frozenset({Kind.USER, Kind.ASSISTANT, Kind.TOOL, Kind.COMPACTION})  # what moves the leaf

_KINDS = {int(one): one for one in Kind}  # quicker than asking the enum
_ENDS = {None: Turn.OPEN, "tool_use": Turn.OPEN, "pause_turn": Turn.OPEN}
_PICTURES = frozenset({"image", "document"})
_OUTPUT = (
    "<local-command-stdout>",
    "<local-command-stderr>",
    "<local-command-caveat>",
    "<bash-stdout>",
    "<bash-stderr>",
    "<user-memory-input>",
    "Caveat: The messages below",
)
_OPENINGS = (
    (("This session is being continued from a previous conversation",), SUMMARY),
    (("[Request interrupted",), INTERRUPTED),
    (("<bash-input>",), SHELL),
    (_OUTPUT, QUIET),
)
_STOPPED = "Operation stopped by hook"  # then the hook's reason, if it gave one
_CAVEAT = "Caveat:"
_NOTICE = ("<task-notification>", "<teammate-message", "Stop hook feedback:")
# What an editor or the client itself glues before a prompt.
_LEADING = re.compile(r"\s*<(system-reminder|ide_\w{1,40})>.*?</\1>", re.DOTALL)
_REMINDER = ("<system-reminder>", "</system-reminder>")


class Said(NamedTuple):
    """What a line is. `text` is a human's; `queued`: typed while the agent was at work."""

    code: int
    text: str = ""
    queued: bool = False

    @property
    def kind(self) -> Kind:
        """The kind alone."""
        return _KINDS[self.code & KIND_MASK]


def said(line: Line, *, child: bool = False) -> Said:
    """What a line is; `child`: of a sub-agent's file, where no human types."""
    if line.type == "assistant":
        return Said(_answer(line))
    if line.type == "user":
        return _user(line, child)
    if line.type == "attachment":
        return _attachment(line, child)
    return Said(SYSTEM if line.type == "system" else OTHER)


def _answer(line: Line) -> int:
    if line.is_compact_summary:
        return SUMMARY
    if line.is_api_error_message:
        return code(Kind.ASSISTANT, turn=Turn.FAILED, message=True)
    stop = line.message.stop_reason if line.message else None
    return code(Kind.ASSISTANT, turn=_ENDS.get(stop, Turn.ENDED), message=True)


def _user(line: Line, child: bool) -> Said:
    if line.is_compact_summary:
        return Said(SUMMARY)
    found = blocks(line.message.content) if line.message else []
    result = _result(line, found)
    if result is not None:
        return Said(result)
    text = "\n".join(words(found))
    machine = _by_machine(line, text)
    if machine is not None:
        return Said(machine)
    if not text and not any(block.type in _PICTURES for block in found):
        return Said(QUIET)
    return Said(PROMPTED) if child else Said(PROMPT, request(text) or text)


def _result(line: Line, found: list[Block]) -> int | None:
    results = [block for block in found if block.type == "tool_result"]
    if not results and not memoryview(line.tool_use_result):
        return None
    failed = line.tool_denial_kind or any(block.is_error for block in results)
    return FAILED_RESULT if failed else RESULT


def _by_machine(line: Line, text: str) -> int | None:
    """The code of a user line that no human typed as a prompt."""
    opening = next((packed for words, packed in _OPENINGS if text.startswith(words)), None)
    if opening is not None:
        return opening
    if text == _STOPPED or text.startswith(f"{_STOPPED}: "):
        return INTERRUPTED
    if text.startswith(COMMAND):
        by_machine = line.is_meta or line.is_visible_in_transcript_only or _by_program(line)
        return QUIET if by_machine or not request(text) else None
    if line.is_visible_in_transcript_only:
        return QUIET
    if line.is_meta:
        return QUIET if text.startswith(_CAVEAT) else PROMPTED
    machine = _by_program(line) or text.startswith(_NOTICE) or is_plan(line, text)
    return PROMPTED if machine else None


def _by_program(line: Line) -> bool:
    """Whether a line says that no human made it."""
    kind = line.origin.kind if line.origin else None
    return kind not in (None, "human") or line.prompt_source == "system"


def _attachment(line: Line, child: bool) -> Said:
    """A prompt that was typed while the agent worked, a file named with @, or bookkeeping."""
    held = line.attachment
    if held is None:
        return Said(OTHER)
    if held.type != "queued_command":
        return Said(FILE if held.type == "file" and held.filename else OTHER)
    found = blocks(held.prompt)
    text = "\n".join(words(found))
    if held.command_mode == "bash":
        return Said(SHELL, queued=True)
    kind = held.origin.kind if held.origin else None
    machine = held.command_mode == "task-notification" or held.is_meta or line.is_meta or child
    if machine or kind not in (None, "human") or text.startswith((*_NOTICE, *_OUTPUT, *COMMAND)):
        return Said(PROMPTED, queued=True)
    if not text and not any(block.type in _PICTURES for block in found):
        return Said(OTHER)
    return Said(PROMPT, text, queued=True)


def own_words(found: list[Block]) -> list[str]:
    """The texts of a human's prompt: what a slash command asks for, or the words of its blocks."""
    said = words(found)
    asked = request("\n".join(said))
    return [asked] if asked else said


def words(found: list[Block]) -> list[str]:
    """The texts of blocks, without what was put around them; those with nothing left are gone."""
    bare = (unwrapped(block.text) for block in found if block.type == "text")
    return [text for text in bare if text]


def unwrapped(text: str) -> str:
    """A prompt without reminders and an editor's notes before it, and reminders after it."""
    start, end = 0, _trimmed(text, 0, len(text))
    while found := _LEADING.match(text, start, end):
        start = found.end()
    opening, closing = _REMINDER
    while text.endswith(closing, start, end):
        mark = text.rfind(opening, start, end)
        if mark < 0:
            break
        end = _trimmed(text, start, mark)
    return text[start:end].strip()


def _trimmed(text: str, start: int, end: int) -> int:
    """Where a text ends without the white space at its end."""
    while end > start and text[end - 1].isspace():
        end -= 1
    return end
