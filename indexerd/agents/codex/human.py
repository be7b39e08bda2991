"""Tell what a human said in Codex from what was only added in the user's role.

Codex adds context under the user's role: the environment, instructions, skills, notices. Such a
block begins and ends with known marks. An editor puts its open files around a human's own words,
and images are named in tags.
"""

from __future__ import annotations

import re
import zlib

from indexerd.agents.json_lines import Fields, as_blocks, string

_PICTURE = "[Image]"  # what codex itself shows for a message without words
_SUMMARY_START = "Another language model started to solve this problem"
_REQUEST = "## My request for Codex:"
_TAG = re.compile(
    r"<(environment_context|user_instructions|skill|user_shell_command|turn_aborted"
    r"|subagent_notification|recommended_plugins|hook_prompt|codex_internal_context|goal_context"
    r"|extension_context|external_[\w.-]{1,100})(?:\s[^>]{0,1000})?>",
    re.IGNORECASE,
)
_AGENTS, _AGENTS_END = "# agents.md instructions", "</instructions>"
_NOTICES = (
    _SUMMARY_START,
    "Warning: The maximum number of unified exec processes you can keep open is",
    "Warning: Your account was flagged for potentially high-risk cyber activity",
    "Warning: apply_patch was requested via ",
)
_WRAPS_MAX = 20  # pieces of context before a prompt in one block
_ANY_TAG = re.compile(r"<([A-Za-z][\w.-]{0,100})(?:\s[^>]{0,1000})?>")
_IMAGE_TAG = re.compile(r"\s*</?image\b[^>]{0,4096}>\s*")
_CWD = re.compile(
    r"<cwd>([^<]{1,4096})</cwd>|^Current working directory: (.{1,4096})$", re.MULTILINE
)
_TASK = re.compile(
    r"Message Type: NEW_TASK\s+(?:Task name: (\S{1,1000})\s+)?(?:Sender: .{0,1000}\n)?Payload:(.*)",
    re.DOTALL,
)


def texts_of(content: list[Fields]) -> list[str]:
    """Return the texts of a content: of input_text, output_text, Text, and types yet to come."""
    texts = (one for one in content if string(one.get("type")).lower().endswith("text"))
    return [string(one.get("text")) for one in texts]


def images_in(content: list[Fields]) -> int:
    """Count the pictures of a content: input_image, local_image, localImage."""
    return sum([string(one.get("type")).endswith(("image", "Image")) for one in content])


def said_in(content: list[Fields]) -> tuple[str, list[str]]:
    """Split a user message into its text without context, and the blocks that are all context.

    A human wrote it if there are no such blocks.
    """
    pictured = images_in(content) > 0
    rests: list[str] = []
    notices: list[str] = []
    for text in map(str.strip, texts_of(content)):
        if text and not (pictured and _IMAGE_TAG.fullmatch(text)):
            rest = _unwrapped(text)
            (rests if rest else notices).append(rest or text)
    words = "\n".join(rests)
    words = (words.partition(_REQUEST)[2] if _REQUEST in words else words).strip()
    return words or (_PICTURE if pictured and not notices else ""), notices


def cwd_in(notices: list[str]) -> str:
    for notice in notices:
        found = _CWD.search(notice[:20_000])
        if found and notice.startswith("<environment_context>"):
            return str(found[1] or found[2]).strip()
    return ""


def said_by_event(event: Fields) -> str:
    if event.get("content") is not None:
        return said_in(as_blocks(event["content"]))[0]
    words, _ = said_in(as_blocks(string(event.get("message"))))
    return words or (_PICTURE if event.get("images") or event.get("local_images") else "")


def is_tagged(text: str) -> bool:
    """Return whether one tag surrounds the whole text, as programs write."""
    tag = _ANY_TAG.match(text)
    return tag is not None and text.endswith(f"</{tag[1]}>")


def task_in(texts: list[str]) -> tuple[str, str]:
    """Return the task that an agent gives another, and the task's name; the task may be sealed."""
    found = _TASK.match("".join(texts))
    return (found[2].strip(), string(found[1]).rpartition("/")[2]) if found else ("", "")


def likeness(text: str) -> int:
    """Return the same number for texts of the same words, however they are spaced."""
    return zlib.crc32("".join(text.split()).encode("utf-8", "replace"))


def summary_of(message: str) -> str:
    """Return a compaction's summary without the sentence that introduces it to the next model."""
    _, newline, rest = message.partition("\n")
    return (rest if newline and message.startswith(_SUMMARY_START) else message).strip()


def _unwrapped(text: str) -> str:
    """Cut off the context that a block begins with; empty where that is all."""
    for _ in range(_WRAPS_MAX):
        if text.startswith(_NOTICES):
            return ""
        tag = _TAG.match(text)
        if tag is None and text[: len(_AGENTS)].lower() != _AGENTS:
            break
        end = f"</{tag[1].lower()}>" if tag else _AGENTS_END
        if text[-len(end) :].lower() == end:
            return ""
        found = re.search(re.escape(end), text, re.IGNORECASE)
        if found is None:
            break
        text = text[found.end() :].strip()
    return text
