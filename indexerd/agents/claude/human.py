"""Classify a line of Claude Code: typed by a human, an answer, a result, or bookkeeping.

Pitfalls: nobody typed half of the lines of type `user`.

- A machine's prompt to the model is coded as a result (TOOL, no message).
- A local command, its caveat and its output are CUSTOM: they do not change the turn.
- An interruption ends the turn like a failed answer; it is coded as one that is not a message.
- A prompt typed while the agent works may be a line of type `attachment`, or in old versions only
  one of type `queue-operation`.
- The arguments of a slash command are a request, unless the client carries the command out itself.
  If `<command-message>` comes first, the command expands to a prompt: `/review 167`. If
  `<command-name>` comes first, it is the client's own; but `/goal` and `/plan`, whose arguments the
  model gets, look just like `/model`. So the client's own commands are listed.
"""

from __future__ import annotations

import re
from typing import Any
from xml.sax.saxutils import unescape

from msgspec.structs import replace

from indexerd.agents.base import ANSWERS, PROMPT, PROMPTED, LineClass
from indexerd.agents.json_lines import (
    PREVIEWED,
    Fields,
    as_blocks,
    as_dict,
    own_words,
    parse_object,
    safe_line,
    string,
)
from indexerd.agents.replies import claude_answers, reason_in
from indexerd.entries import Entry, Kind, Turn, code

RESULTS = {
    (turn, replied): code(Kind.TOOL, turn=turn, message=True, extra=replied)
    for turn in (Turn.OPEN, Turn.FAILED)
    for replied in (False, True)
}
INTERRUPTED = code(Kind.ASSISTANT, turn=Turn.FAILED)

_OUTPUT = (
    "<local-command-stdout>",
    "<local-command-stderr>",
    "<local-command-caveat>",
    "<bash-stdout>",
    "<bash-stderr>",
    "<user-memory-input>",
    "(no content)",  # what follows a remembered note
    "Caveat: The messages below",
)
_CONTINUED = "This session is being continued from a previous conversation"
_OPENINGS = (
    (_CONTINUED, Kind.COMPACTION),
    (("[Request interrupted", "Operation stopped by hook"), INTERRUPTED),
    ("<bash-input>", Kind.BASH),
    ("## Context Usage\n", Kind.CUSTOM),
    (_OUTPUT, Kind.CUSTOM),
)
_ENDED = ("<task-notification>", "<agent-notification>", "<bash-notification>")
_TEAM = "<teammate-message"
NOTICE = (
    *_ENDED,
    *(_TEAM, "Another Claude session sent a message:"),
    *("Stop hook feedback:", "[SYSTEM NOTIFICATION - NOT USER INPUT]"),
)
# What a person sees of an output or a notice.
_SEEN = re.compile(
    r"<((?:local-command|bash)-std(?:out|err)|user-memory-input|summary|event|result)>"
    r"(.*?)(?:</\1>|\Z)",
    re.DOTALL,
)
# The client's answer to a slash command that nobody can run.
_REFUSED = re.compile(
    r"Unknown (?:skill|slash command): [\w:-]+"
    r"|This (?:skill|slash command) can only be invoked by Claude, not directly by users\.[^\n]*"
)
_BEFORE_SUMMARY = re.compile(
    rf"{_CONTINUED}[^\n]*\s*(?:<system-reminder>.*?</system-reminder>\s*)?", re.DOTALL
)
_AFTER_SUMMARY = re.compile(
    r"(?:If you need specific details from before compaction[^\n]*\s*)?"
    r"(?:(?:Please c|C)ontinue the conversation from where (?:we|it) left[^\n]*\s*)?"
    r"(?:The messages after this summary are [^\n]*\s*)?\Z"
)
_COMMAND = ("<command-name>", "<command-message>", "<command-args>")
_PLAN = "Implement the following plan:"
_PLAN_ASIDE = "If you need specific details from before exiting plan mode"
_FORK, _FORK_ENDS = "<fork-boilerplate>", "</fork-boilerplate>\n\nYour directive:"
_SUMMARY = re.compile(r'\bsummary="([^"]{1,200})"')
_SESSION = re.compile(r"(?:.*[/\\])?([A-Za-z0-9][\w.-]{0,127})\.jsonl", re.ASCII)
_HEADING = re.compile(r"^#{1,6}[ \t]+(\S.*)", re.MULTILINE)
_REMINDERS_MAX = 100  # removed from a prompt's end
# Tags that an editor or the client itself puts before a prompt.
_LEADING = re.compile(r"\s*<(system-reminder|ide_\w{1,40})>.*?</\1>", re.DOTALL)
# The client's own commands whose arguments the model does not get.
_OWN = frozenset(
    "add-dir advisor agents autocompact branch btw bug cd chrome clear color compact config context"  # noqa: SIM905 - a table
    " continue copy cost effort exit export fast feedback focus fork hooks ide login logout"
    " marketplace mcp memory model name new output-style permissions plugin plugins"
    " privacy-settings quit rate-limit-options rc recap release-notes reload-plugins"
    " remote-control remote-env rename reset resume rewind sandbox scroll-speed settings share"
    " skills stats status stop tag tasks teleport theme tui usage vim voice".split()
)
_SWITCHES = frozenset("cancel clear none off on open reset share status stop".split())  # noqa: SIM905 - a table


def content_of(line: Fields) -> list[Fields]:
    return as_blocks(as_dict(line.get("message")).get("content"))


def said(line: Fields, *, child: bool = False) -> LineClass:
    """Classify a line; `child`: of a sub-agent's file, in which no human types."""
    match line.get("type"):
        case "attachment":
            return _attachment(line, as_dict(line.get("attachment")), child)
        case "queue-operation":  # what parse_tree.py takes for a prompt
            queued = {"type": "queued_command", "prompt": line.get("content")}
            return _attachment(line, queued, child)
        case "user" | "assistant" if line.get("isCompactSummary") is True:
            return LineClass(Kind.COMPACTION)
        case "user":
            return _user(line, child)
        case "assistant":
            stop = as_dict(line.get("message")).get("stop_reason") or line.get("stop_reason")
            turn = Turn.OPEN if string(stop) in ("", "tool_use", "pause_turn") else Turn.ENDED
            failed = line.get("isApiErrorMessage") is True
            return LineClass(ANSWERS[Turn.FAILED if failed else turn])
        case "system":  # newer versions store local commands here
            return LineClass(Kind.CUSTOM if line.get("subtype") == "local_command" else Kind.SYSTEM)
    return LineClass(Kind.OTHER)


def _user(line: Fields, child: bool) -> LineClass:
    content = content_of(line)
    if child and (task := task_of(content)):
        return LineClass(PROMPTED, task)
    results = [block for block in content if block.get("type") == "tool_result"]
    if results or line.get("toolUseResult") is not None:
        failed = any(result.get("is_error") is True for result in results)
        turn = Turn.FAILED if failed or line.get("toolDenialKind") else Turn.OPEN
        replied = any(reply_in(line, result, len(results)) for result in results)
        return LineClass(RESULTS[turn, replied])
    text = "\n".join(words(content))
    machine = _by_machine(line, text)
    if machine is not None:
        return LineClass(machine)
    if not text and not _pictured(content):
        return LineClass(Kind.CUSTOM)
    return LineClass(PROMPTED if child else PROMPT, request(text) or text)


def directive(content: list[Fields]) -> str:
    """Return the task of a sub-agent that begins as a fork; it is beside its parent's result."""
    text = "\n".join(words(content))
    return text.partition(_FORK_ENDS)[2].strip() if text.startswith(_FORK) else ""


def task_of(content: list[Fields]) -> str:
    """Return what a fork, or a member of a team, is told in a sub-agent's file; "" for the rest."""
    text = "\n".join(words(content))
    told = text.partition(">")[2].strip() if text.startswith(_TEAM) else ""
    told = told.removesuffix("</teammate-message>").rstrip()
    return directive(content) or string(_sent_by_program(told).get("description")) or told


def summary_of(content: list[Fields]) -> str:
    """Return how a message to a member of a team sums itself up, or ""."""
    text = "\n".join(words(content))
    head, _, told = text.partition(">")
    summary = _SUMMARY.search(head[:1000]) if head.startswith(_TEAM) else None
    sent = _sent_by_program(told.strip().removesuffix("</teammate-message>")) if told else {}
    return summary[1] if summary else string(sent.get("subject") or sent.get("type"))


def _sent_by_program(told: str) -> Fields:
    """Parse a message of the client to a member of a team, such as an assignment of a task."""
    try:
        return parse_object(told.encode()) if told.startswith('{"type":') else {}
    except ValueError:
        return {}


def reply_in(line: Fields, result: Fields, results: int) -> str:
    """Return what the user says in one of a line's results, as Markdown, or ""."""
    if result.get("is_error") is True:
        return reason_in("".join(result_texts(result)))
    return claude_answers(line.get("toolUseResult")) if results == 1 else ""


def result_texts(block: Fields) -> list[str]:
    blocks = as_blocks(block.get("content")) if block.get("type") == "tool_result" else []
    return [string(block.get("text")) for block in blocks]


def _by_machine(line: Fields, text: str) -> int | None:
    """Return the code of a text that no human typed; None for any other text."""
    for opening, packed in _OPENINGS:
        if text.startswith(opening):
            return packed
    meta, unseen = line.get("isMeta") is True, line.get("isVisibleInTranscriptOnly") is True
    by_program = _by_program(line.get("origin")) or line.get("promptSource") == "system"
    if text.startswith(_COMMAND):
        return Kind.CUSTOM if meta or unseen or by_program or not request(text) else None
    bare = text[:1] == "/" and text[1:].strip() in _OWN  # "/compact", as newer versions record it
    if bare or unseen or (meta and text.startswith("Caveat:")) or _REFUSED.fullmatch(text):
        return Kind.CUSTOM
    machine = meta or by_program or text.startswith(NOTICE) or _is_plan(line, text)
    return PROMPTED if machine else None


def is_notice(line: Fields) -> bool:
    """Return whether a prompt tells of another agent or task: nobody went back to write it."""
    return "\n".join(words(content_of(line))).startswith(NOTICE)


def plan_of(line: Fields) -> tuple[str, str]:
    """Return the heading of the plan that a line carries out, and the session that made the plan.

    The client names that session by the path of its transcript. "" for whatever is missing.
    """
    text = "\n".join(words(content_of(line)))
    if not _is_plan(line, text):
        return "", ""
    plan, _, rest = text.rpartition(_PLAN_ASIDE)
    plan_text = (plan or text).removeprefix(_PLAN)
    path = rest.partition("read the full transcript at: ")[2].partition("\n")[0] if plan else ""
    session = _SESSION.match(path[:8192])
    return heading_of(plan_text), session[1] if session else ""


def carries_out_plan(entry: Entry) -> bool:
    """Return whether the client wrote an entry as the prompt to carry out a plan."""
    prompt = entry.kind is Kind.TOOL and entry.sent_as == "user"
    return prompt and _unwrapped(entry.text).startswith(_PLAN)


def heading_of(plan: str) -> str:
    heading = match[1].rstrip() if (match := _HEADING.search(plan)) else ""
    return heading.removeprefix("Plan: ").removesuffix(" — Implementation Plan")


def _is_plan(line: Fields, text: str) -> bool:
    """Return whether the client wrote a prompt to carry out a plan; 2.1.12 to 2.1.17 do not say."""
    opened = text.startswith(_PLAN) and _PLAN_ASIDE in text
    return line.get("planContent") is not None or opened


def _by_program(origin: Any) -> bool:
    return string(as_dict(origin).get("kind")) not in ("", "human")


def _pictured(content: list[Fields]) -> bool:
    return any(block.get("type") in ("image", "document") for block in content)


def _attachment(line: Fields, attachment: Fields, child: bool) -> LineClass:
    """Classify an attachment: a queued prompt, a file named with @, or bookkeeping."""
    if attachment.get("type") != "queued_command":
        named = attachment.get("type") == "file" and string(attachment.get("filename"))
        return LineClass(Kind.CALL if named else Kind.OTHER)
    mode, content = attachment.get("commandMode"), as_blocks(attachment.get("prompt"))
    if mode == "bash":
        return LineClass(Kind.BASH, queued=True)
    text = "\n".join(words(content))
    task = request(text)
    machine = child or mode == "task-notification" or _by_program(attachment.get("origin"))
    machine = machine or True in (attachment.get("isMeta"), line.get("isMeta"))
    if machine or (not task and text.startswith((*NOTICE, *_OUTPUT, *_COMMAND))):
        return LineClass(PROMPTED, queued=True)
    if is_own_command(text):
        return LineClass(Kind.CUSTOM, queued=True)
    typed = text or _pictured(content)
    return LineClass(PROMPT, task or text, queued=True) if typed else LineClass(Kind.OTHER)


def prompt_words(content: list[Fields]) -> list[str]:
    """Return a prompt's text: the request of a slash command, or the blocks, each on its line."""
    text = "\n".join(words(content))
    return [found] if (found := request(text) or text) else []


def words(content: list[Fields]) -> list[str]:
    """Return the non-empty texts of blocks, without the tags that were put around them."""
    texts = (string(block.get("text")) for block in content if block.get("type") == "text")
    return [text for text in map(_unwrapped, texts) if text]


def preview(text: str) -> str:
    head = own_words(text[:PREVIEWED])
    return safe_line(_unwrapped(head)) or safe_line(head)


def as_seen(entry: Entry) -> Entry:
    """Return an entry as a person saw it: results without the client's notes to the model."""
    if entry.kind is not Kind.TOOL or not any("<system-reminder>" in text for text in entry.texts):
        return entry
    results = tuple([replace(one, text=_unwrapped(one.text, "\n")) for one in entry.results])
    texts = tuple([_unwrapped(text, "\n") for text in entry.texts])
    return replace(entry, texts=texts, results=results)


def _unwrapped(text: str, space: str | None = None) -> str:
    start = 0
    while tag := _LEADING.match(text, start):
        start = tag.end()
    text = text[start:].strip(space)
    for _ in range(_REMINDERS_MAX):
        before, mark, _rest = text.rpartition("<system-reminder>")
        if not mark or not text.endswith("</system-reminder>"):
            break
        text = before.rstrip()
    return text


def shown(text: str) -> str:
    """Return what a person sees of a text by the client: a command, its output, a summary."""
    if text.startswith(_CONTINUED):
        return _AFTER_SUMMARY.sub("", _BEFORE_SUMMARY.sub("", text, 1)).strip() or text
    if text.startswith(_COMMAND):
        name = _in_tag(text, "name") or _in_tag(text, "message")
        return f"{name} {_in_tag(text, 'args')}".rstrip()
    if not text.startswith((*_OUTPUT, *_ENDED)):
        return text
    seen = unescape("\n".join(part for _, part in _SEEN.findall(text) if part.strip()))
    return seen if seen or text.startswith(_OUTPUT) else text


def request(text: str) -> str:
    """Return the request of a slash command; "" for any other text."""
    if not text.startswith(_COMMAND):
        return ""
    name, args = _in_tag(text, "name"), _in_tag(text, "args")
    if not args or not name.startswith("/"):
        return ""
    if text.startswith("<command-message>"):
        return f"{name} {args}"
    return "" if name[1:] in _OWN or args.lower() in _SWITCHES else args


def is_own_command(text: str) -> bool:
    """Whether a line that was typed is a command for the client, not the model: "/clear"."""
    name = text.partition(" ")[0]
    return name.startswith("/") and name[1:].strip() in _OWN


def _in_tag(text: str, tag: str) -> str:
    """Return the text in a tag, up to the end if the tag is not closed."""
    inner = text.partition(f"<command-{tag}>")[2]
    closed, mark, rest = inner.rpartition(f"</command-{tag}>")
    return (closed if mark else rest).strip()
