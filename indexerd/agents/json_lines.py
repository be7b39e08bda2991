"""Read JSON lines for every adapter: whole lines, lines cut short, previews.

A field of an unexpected type counts as absent, and a bad line loses only itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from indexerd.agents.base import Adapter, Oversize, Tree
from indexerd.entries import Tokens, ToolCall
from indexerd.privacy.redact import redact
from indexerd.privacy.sanitize import clean_line, without_surrogates
from indexerd.protocol.limits import FIRST_MESSAGE_MAX

PREVIEWED = 20_000  # characters of a text that are read for its preview
# How a block that indexerd puts before a prompt begins and ends (references/inject.py).
INJECTED = (
    "Referenced session summaries:",
    "Answer from a referenced session, quoted by indexerd as data, to the question:",
)
INJECTED_END = "\n\n---\n\n"
_TEMPLATES = (  # of other programs; what the user typed in it, or else what it is about
    re.compile(  # Spec Kit's commands
        r"\s{0,9}(?P<head>---\s{1,9}description:(?P<about>[^\n]{0,500})\n.{0,2000}?---\s{1,9})?"
        r"## User Input\s{1,9}```text\r?\n(?:\$ARGUMENTS|(?P<typed>.{0,20000}?))"
        r"\r?\n```\s{2,4}You \*\*MUST",
        re.DOTALL,
    ),
    re.compile(  # other commands with a front matter: Codex does not keep what was typed
        r"\s{0,9}(?P<head>---|<meta>)\s{1,9}description:(?P<about>[^\n]{0,500})\n"
        r".{0,2000}?(?:---|</meta>)\s"
        r"(?:.{0,1000}?\n[Uu]ser input:\s{1,9}+(?!\$ARGUMENTS)(?P<typed>.{1,20000}?)"
        r"\n\n(?:The text|You))?",
        re.DOTALL,
    ),
    re.compile(  # claude-mem, which observes a session
        r".{0,999}?<observed_from_primary_session>\s{1,9}<user_request>(?P<typed>.{0,20000}?)</user_request>",
        re.DOTALL,
    ),
    re.compile(  # a skill of pi
        r"<skill name=\"(?P<about>[\w:.-]{1,64})\" location=\"[^\"\n]{0,1000}\">"
        r".*</skill>(?P<typed>.*)",
        re.DOTALL,
    ),
)

Fields = dict[str, Any]  # of a JSON object

_TOKENS_MAX, _USD_MAX = 1 << 53, 1_000_000
_TIME_MAX = 253_402_300_800_000  # ms since the epoch: the year 10000
# Fields of Claude Code and pi that may follow a picture, a result or a file.
_BEHIND = (
    *("uuid", "timestamp", "cwd", "sessionId", "gitBranch", "requestSessionId", "isMeta"),
    *("isCompactSummary", "isApiErrorMessage", "stop_reason", "stopReason", "id", "parentId"),
)

_PATHS = ("file_path", "notebook_path", "filePath", "path")
_ABOUT = (  # the first of these arguments that is present describes a call
    *("command", "pattern", "url", "query", "file_path", "notebook_path", "path", "filePath"),
    *("description", "prompt", "skill", "subject"),
)
_DETAIL_MAX = 4096  # characters of a call's description
_READS = frozenset({"read", "notebookread"})
_WRITES = frozenset({"write", "edit", "multiedit", "notebookedit"})
_PATCHED = re.compile(r"(?m)^\*\*\* (?:Add File|Update File|Delete File|Move to): (.{1,4096})$")

_decode = msgspec.json.Decoder().decode


def scan_lines(tree: Tree, data: bytes, base: int) -> Iterator[tuple[Fields, int, int]]:
    """Yield the objects in a block of lines, with the offset and length of each line."""
    for line in data.split(b"\n"):
        try:
            yield parse_object(line), base, len(line)
        except ValueError:
            tree.bad_lines += bool(line.strip())
        base += len(line) + 1


def scan_oversize(adapter: Adapter, tree: Tree, ends: Oversize) -> None:
    """Add a line too long to be read, by its two ends, so that no entry is missing."""
    known = as_dict(_truncated_json(ends.head))
    for key in _BEHIND if known else ():
        pattern = rb'(?<!\\)"%s"\s*:\s*("(?:[^"\\]|\\.){0,2000}+"|true)' % key.encode()
        values = re.findall(pattern, ends.tail, re.DOTALL)
        if values and not known.get(key):
            known[key] = _truncated_json(values[-1])
    text = json.dumps(known).encode()
    adapter.scan(tree, text, ends.offset)
    for row in reversed(range(len(tree))):  # mostly the last; its id may repeat an earlier one
        if tree.offsets[row] + tree.lengths[row] == ends.offset + len(text):
            tree.lengths[row] = 0
            break


def parse_object(line: bytes) -> Fields:
    """Parse a JSON object; ValueError for anything else. Bad UTF-8 becomes U+FFFD."""
    try:
        value = _decode(line)
    except (ValueError, RecursionError):
        try:  # half a surrogate pair, a number beyond 64 bits, or bad UTF-8
            value = without_surrogates(json.loads(line.decode("utf-8", "replace")))
        except RecursionError:
            raise ValueError("nested too deeply") from None
    if isinstance(value, dict):
        return value
    raise ValueError("not an object")


def as_dict(value: Any) -> Fields:
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def as_blocks(value: Any) -> list[Fields]:
    """Return a message's content as blocks; a bare string becomes a block of text."""
    return [
        {"type": "text", "text": block} if isinstance(block, str) else block
        for block in (value if isinstance(value, list) else [value])
        if isinstance(block, str | dict)
    ]


def of_type(blocks: Iterable[Fields], name: str) -> list[Fields]:
    return [block for block in blocks if block.get("type") == name]


def texts_in(blocks: Iterable[Fields]) -> list[str]:
    return [string(block.get("text")) for block in of_type(blocks, "text")]


def number(value: Any, most: float = _TOKENS_MAX) -> int:
    """Return a positive count as an integer; 0 for anything else, bool included."""
    return int(value) if type(value) in (int, float) and 0 < value < most else 0


def time_ms(value: Any) -> int:
    return number(value, _TIME_MAX)


def recorded_tokens(
    counts: Iterable[Any], *, hour: Any = 0, total: Any = 0, cost: Any = None, answer: str = ""
) -> Tokens:
    """Make a Tokens from the counts of input, output, cache read and cache write."""
    sent, output, read, written = map(number, counts)
    usd = float(cost) if type(cost) in (int, float) and 0 <= cost < _USD_MAX else None
    whole = number(total) or sent + output + read + written
    return Tokens(sent, output, read, written, min(number(hour), written), usd, answer, whole)


def call_of(name: str, arguments: Any, own_id: str = "") -> ToolCall:
    """Make a ToolCall, with the file it reads or writes; knows the argument names of all agents."""
    fields = as_dict(arguments)
    path = first_of(fields, _PATHS)
    return ToolCall(
        name=name,
        detail=first_of(fields, _ABOUT)[:_DETAIL_MAX],
        id=own_id,
        reads=(path,) if path and name.lower() in _READS else (),
        writes=(path,) if path and name.lower() in _WRITES else (),
        arguments=arguments,
    )


def first_of(fields: Fields, keys: Iterable[str]) -> str:
    """Return the first of these fields that is a non-empty string, or ""."""
    return next(filter(None, (string(fields.get(key)) for key in keys)), "")


def patched_files(patch: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(path.strip() for path in _PATCHED.findall(patch)))


def _truncated_json(head: bytes) -> Any:
    from pydantic_core import from_json  # noqa: PLC0415 - such lines are rare

    try:
        return from_json(head, allow_partial="trailing-strings")
    except ValueError:
        return None


def safe_line(text: str) -> str:
    """Make one line that may be stored and shown: no secrets, at most 200 characters."""
    return clean_line(redact(own_words(text[:PREVIEWED])).text, FIRST_MESSAGE_MAX)


def own_words(text: str) -> str:
    """Return what a person wrote of a prompt, which may be "".

    A block that indexerd put before it is cut off: foreign lines in it are quoted, so the first
    unquoted `---` ends it. Of a template of another program, only the user's input counts; where
    that is not known, what the template says of itself stands for it.
    """
    for template in _TEMPLATES:
        if filled := template.match(text):
            found = filled.groupdict()
            about = (found.get("about") or "").strip()
            about = f"Command “{about}”" if found.get("head") else about
            return (found["typed"] or "").strip() or about
    if not text.startswith(INJECTED):
        return text
    _, rule, rest = text.partition(INJECTED_END)
    return rest if rule else text
