"""What a line of Claude Code is: typed by a human, an answer, a result, or bookkeeping.

Half of what stands in lines of type `user` was typed by nobody: results of tools, expansions of
slash commands, notifications, reminders, summaries. Five things to know:

- what a machine tells the model, so that it goes to work, is coded as a result (TOOL, no
  message): the turn is open after it, and no human is counted;
- the output of a local command, its caveat and the command itself are CUSTOM: the model is not
  asked, and the turn stays as it was; but a command with a request is a prompt;
- the line that records an interruption, or that a hook stopped a prompt, ends the turn as a failed
  answer does, so it is coded as one (ASSISTANT, FAILED, no message), and its words are nobody's;
- a plan that is carried out with an empty context is a prompt of the client's;
- a prompt typed while the agent works may be a line of type `attachment`.

**Slash commands.** Words after a command's name are a request, unless the client itself carries
the command out. `/goal make the tests pass` is one; `/model opus` is a setting, and `/compact keep
the decisions` tells the client how to sum up. Of `/goal` the words are the whole request. Of a
skill or a custom command the name says what is to be done with them, so it stays: `/review 167`.
What surprised us: which tag comes first tells how a command works. `<command-message>`: it expands
to a prompt, which follows in a line of its own, and `<command-args>` is there only where words
were typed. `<command-name>`: it is the client's own; but `/goal` and `/plan`, whose words the
model gets, look just like `/model`. So the client's other commands are listed, and one that is
not listed counts: a request that is lost is worse than a setting that is counted.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from indexerd.agents.base import ANSWERS, KINDS, PROMPT, PROMPTED
from indexerd.agents.claude.lines import Block, Line, Origin, blocks
from indexerd.agents.json_lines import PREVIEWED, safe_line
from indexerd.events import KIND_MASK, Kind, Turn, code

RESULT = code(Kind.TOOL, message=True)
FAILED_RESULT = code(Kind.TOOL, turn=Turn.FAILED, message=True)
SUMMARY = code(Kind.COMPACTION)
INTERRUPTED = code(Kind.ASSISTANT, turn=Turn.FAILED)
OTHER = code(Kind.OTHER)
_SYSTEM = code(Kind.SYSTEM)
_QUIET = code(Kind.CUSTOM)  # said by a machine, and the model is not asked
_SHELL = code(Kind.BASH)

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
    ("This session is being continued from a previous conversation", SUMMARY),
    ("[Request interrupted", INTERRUPTED),
    ("Operation stopped by hook:", INTERRUPTED),
    ("<bash-input>", _SHELL),
    (_OUTPUT, _QUIET),
)
_NOTICE = ("<task-notification>", "<teammate-message", "Stop hook feedback:")
# What an editor or the client itself glues before a prompt.
_LEADING = re.compile(r"\s*<(system-reminder|ide_\w{1,40})>.*?</\1>", re.DOTALL)
_REMINDER = ("<system-reminder>", "</system-reminder>")
_REMINDERS_MAX = 100  # that are taken off a prompt's end


class Said(NamedTuple):
    """What a line is. `text` is a human's; `queued`: typed while the agent was at work."""

    code: int
    text: str = ""
    queued: bool = False

    @property
    def kind(self) -> Kind:
        """The kind alone."""
        return KINDS[self.code & KIND_MASK]


_ANSWERED = {turn: Said(packed) for turn, packed in ANSWERS.items()}


def said(line: Line, *, child: bool = False) -> Said:
    """What a line is; `child`: of a sub-agent's file, where no human types."""
    if line.type == "attachment":
        return _attachment(line, child)
    if line.type == "user":
        return Said(SUMMARY) if line.is_compact_summary else _user(line, child)
    if line.type == "assistant":
        if line.is_compact_summary:
            return Said(SUMMARY)
        stop = (line.message and line.message.stop_reason) or line.stop_reason
        turn = Turn.FAILED if line.is_api_error_message else _ENDS.get(stop, Turn.ENDED)
        return _ANSWERED[turn]
    return Said(_SYSTEM if line.type == "system" else OTHER)


def _user(line: Line, child: bool) -> Said:
    found = blocks(line.message.content) if line.message else []
    results = [block for block in found if block.type == "tool_result"]
    if results or memoryview(line.tool_use_result):
        failed = line.tool_denial_kind or any(block.is_error for block in results)
        return Said(FAILED_RESULT if failed else RESULT)
    text = "\n".join(words(found))
    machine = _by_machine(line, text)
    if machine is not None:
        return Said(machine)
    if not text and not any(block.type in _PICTURES for block in found):
        return Said(_QUIET)
    return Said(PROMPTED) if child else Said(PROMPT, request(text) or text)


def _by_machine(line: Line, text: str) -> int | None:
    """The code of a user line that no human typed as a prompt."""
    for opening, packed in _OPENINGS:
        if text.startswith(opening):
            return packed
    if text == "Operation stopped by hook":
        return INTERRUPTED
    by_program = _by_program(line.origin) or line.prompt_source == "system"
    unseen = line.is_visible_in_transcript_only
    if text.startswith(_COMMAND):
        return _QUIET if line.is_meta or unseen or by_program or not request(text) else None
    if unseen or (line.is_meta and text.startswith("Caveat:")):
        return _QUIET
    machine = line.is_meta or by_program or text.startswith(_NOTICE) or _is_plan(line, text)
    return PROMPTED if machine else None


def _by_program(origin: Origin | None) -> bool:
    return origin is not None and origin.kind not in (None, "human")


def _attachment(line: Line, child: bool) -> Said:
    """A prompt that was typed while the agent worked, a file named with @, or bookkeeping."""
    held = line.attachment
    if held is None or held.type != "queued_command":
        return Said(code(Kind.CALL) if held and held.type == "file" and held.filename else OTHER)
    if held.command_mode == "bash":
        return Said(_SHELL, queued=True)
    found = blocks(held.prompt)
    text = "\n".join(words(found))
    asked = request(text)
    machine = held.command_mode == "task-notification" or held.is_meta or line.is_meta or child
    machine = machine or (not asked and text.startswith((*_NOTICE, *_OUTPUT, *_COMMAND)))
    if machine or _by_program(held.origin):
        return Said(PROMPTED, queued=True)
    if not text and not any(block.type in _PICTURES for block in found):
        return Said(OTHER)
    return Said(PROMPT, asked or text, queued=True)


# -- words ---------------------------------------------------------------------------------------


def prompt_words(found: list[Block]) -> list[str]:
    """The texts of a human's prompt: what a slash command asks for, or the words of its blocks."""
    texts = words(found)
    asked = request("\n".join(texts))
    return [asked] if asked else texts


def words(found: list[Block]) -> list[str]:
    """The texts of blocks, without what was put around them; those with nothing left are gone."""
    bare = (_unwrapped(block.text) for block in found if block.type == "text")
    return [text for text in bare if text]


def preview(text: str) -> str:
    """A prompt as one line of at most 200 characters, without what was put around it."""
    head = text[:PREVIEWED]
    return safe_line(_unwrapped(head)) or safe_line(head)


def _unwrapped(text: str) -> str:
    """A prompt without reminders and an editor's notes before it, and reminders after it."""
    start = 0
    while found := _LEADING.match(text, start):
        start = found.end()
    opening, closing = _REMINDER
    text = text[start:].strip()
    for _ in range(_REMINDERS_MAX):
        before, mark, _rest = text.rpartition(opening)
        if not mark or not text.endswith(closing):
            break
        text = before.rstrip()
    return text


# -- slash commands ------------------------------------------------------------------------------

_COMMAND = ("<command-name>", "<command-message>", "<command-args>")
# The client's own commands that take words which the model is not asked.
_OWN = frozenset(
    "add-dir advisor agents autocompact branch btw bug cd chrome clear color compact config context"  # noqa: SIM905 - a table
    " continue copy cost effort exit export fast feedback focus fork hooks ide login logout"
    " marketplace mcp memory model name new output-style permissions plugin plugins"
    " privacy-settings quit rc recap release-notes reload-plugins remote-control remote-env rename"
    " reset resume rewind sandbox scroll-speed settings share skills stats status stop tag tasks"
    " teleport theme tui usage vim voice".split()
)
_SWITCHES = frozenset(
    "cancel clear none off on open reset share status stop".split()  # noqa: SIM905 - a table
)


def request(text: str) -> str:
    """The request of a command; "" for one without, and for any other text."""
    if not text.startswith(_COMMAND):
        return ""
    name, asked = _in_tag(text, "name"), _in_tag(text, "args")
    if not asked or not name.startswith("/"):
        return ""
    if text.startswith("<command-message>"):
        return f"{name} {asked}"
    return "" if name[1:] in _OWN or asked.lower() in _SWITCHES else asked


def _in_tag(text: str, tag: str) -> str:
    """What stands in a tag; up to the text's end where the tag is not closed."""
    inner = text.partition(f"<command-{tag}>")[2]
    closed, mark, rest = inner.rpartition(f"</command-{tag}>")
    return (closed if mark else rest).strip()


# -- plans ---------------------------------------------------------------------------------------

_PLAN_ASIDE = "If you need specific details from before exiting plan mode"
_SESSION = re.compile(r"(?:.*[/\\])?([A-Za-z0-9][\w.-]{0,127})\.jsonl", re.ASCII)
_HEADING = re.compile(r"^#{1,6}[ \t]+(\S.*)", re.MULTILINE)  # of the plan, wherever it stands


def plan_of(line: Line) -> tuple[str, str] | None:
    """The heading of the plan that a line carries out, and the session in which it was made.

    The client names that session by the path of its transcript. "" for what is not said.
    """
    text = "\n".join(words(blocks(line.message.content))) if line.message else ""
    if not _is_plan(line, text):
        return None
    plan, _, rest = text.rpartition(_PLAN_ASIDE)
    heading = _HEADING.search(plan or text)
    path = rest.partition("read the full transcript at: ")[2].partition("\n")[0] if plan else ""
    session = _SESSION.match(path[:8192])
    return heading[1] if heading else "", session[1] if session else ""


def _is_plan(line: Line, text: str) -> bool:
    """Whether the client wrote this text for a plan: without `planContent` in 2.1.12 to 2.1.17."""
    opened = text.startswith("Implement the following plan:") and _PLAN_ASIDE in text
    return line.plan_content is not None or opened
