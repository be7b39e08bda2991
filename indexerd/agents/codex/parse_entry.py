"""Parse one Codex line in full. Its kind is only a guess: the tree knows the lines around it.

A compaction's `replacement_history` is the whole new history, with the summary as a user message.
Files of a call are those that its patch names, unless its output says that it failed. If lines have
an `ordinal`, each applied patch is recorded on a line of its own, and only that counts. Of shell
commands, only those that codex itself notes as reading a file count.

Codex sends context under the user's role: the environment, instructions, skills, notices. Such a
block begins and ends with known marks. An editor puts its open files before a human's own words,
and tags name the images.
"""

from __future__ import annotations

import re
import zlib
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from indexerd.agents.json_lines import (
    Fields,
    as_blocks,
    as_dict,
    as_list,
    first_of,
    of_type,
    parse_object,
    patched_files,
    string,
)
from indexerd.agents.replies import codex_answers
from indexerd.entries import Compaction, Entry, Kind, Retained, ToolCall, ToolResult

NO_SUMMARY = "(no summary available)"  # codex's words
_NAME_MAX = 128  # characters of an id
_DETAIL_MAX = 20_000  # characters
_ROLES = {"user": Kind.USER, "assistant": Kind.ASSISTANT}
_RETAINED_ROLES = {Kind.TOOL: "toolResult", Kind.CUSTOM: "custom"}  # for items without a role
_ABOUT = ("path", "file_path", "query", "q", "pattern", "url", "uri", "ref_id", "input")
_SHELL_FLAGS = (["-c"], ["-lc"], ["-Command"], ["/c"])
# How codex's own outputs begin, after the command; the rest is another program's and is ignored.
_EXIT = re.compile(
    r"(?:Chunk ID: .{0,64}\n)?(?:Wall time: .{0,64}\n)?"
    r"(?:Process exited with code|Exit code:) (-?\d{1,10})"
)
_CHUNK = "\nChunk ID: "
_NOTHING = re.compile(
    r"(?:Wall time: .{0,64}\n)?(?:aborted(?: by user)?\b|apply_patch verification failed"
    r"|patch rejected|[\w ]{0,40}rejected by user|failed to parse function arguments"
    r"|unsupported call|execution error|failed in sandbox|(?:exec_command|write_stdin) failed\b"
    r"|error: (?:Failed to |invalid (?:hunk|patch)))"
)
PICTURE = "[Image]"  # codex's own text for a message of pictures alone
_SUMMARY_START = "Another language model started to solve this problem"
_ATTACHED, _FILES = "[Files]", "# Files mentioned by the user:"  # a message of files alone
_REQUEST = "## My request for Codex:"
_TAG = re.compile(
    r"<(environment_context|user_instructions|skill|user_shell_command|turn_aborted"
    r"|subagent_notification|recommended_plugins|hook_prompt|codex_internal_context|goal_context"
    r"|extension_context|external_[\w.-]{1,100})(?:\s[^>]{0,1000})?>",
    re.IGNORECASE,
)
_WRAPPED = '{"output":'  # a result and its exit code, as a string; the newest versions have none
_AGENTS, _AGENTS_END = "# agents.md instructions", "</instructions>"
_NOTICES = (
    _SUMMARY_START,
    "Warning: The maximum number of unified exec processes you can keep open is",
    "Warning: Your account was flagged for potentially high-risk cyber activity",
    "Warning: apply_patch was requested via ",
)
_WRAPS_MAX = 20  # pieces of context before the prompt in one block
_ANY_TAG = re.compile(r"<([A-Za-z][\w.-]{0,100})(?:\s[^>]{0,1000})?>")
_IMAGE_TAG = re.compile(r"\s*</?image\b[^>]{0,4096}>\s*")
_CWD = re.compile(r"(?m)<cwd>([^<]{1,4096})</cwd>|^Current working directory: (.{1,4096})$")
_TASK = re.compile(
    r"Message Type: NEW_TASK\s+(?:Task name: (\S{1,1000})\s+)?(?:Sender: .{0,1000}\n)?Payload:(.*)",
    re.DOTALL,
)


def name_of(value: Any) -> str:
    return string(value)[:_NAME_MAX]


def read(data: bytes, entry_id: str) -> Entry:
    """Parse one entry's line; ValueError if it is not a JSON object."""
    line = parse_object(data)
    payload, envelope = line.get("payload"), string(line.get("type"))
    item = payload if isinstance(payload, dict) else line
    inner = string(item.get("type"))
    named = envelope.endswith(("_item", "_msg")) and inner
    fields: Fields = {"kind": Kind.OTHER, "role": None, "type": inner if named else envelope}
    match envelope if item is not line else "":
        case "event_msg":
            fields |= _event(item)
        case "turn_context":
            fields["kind"] = Kind.SETTING
            fields["model"] = string(item.get("model")) or None
            fields["provider"] = string(item.get("model_provider")) or None
            fields["thinking_level"] = string(item.get("effort"))
        case "compacted":
            fields |= _compacted(item)
        case "inter_agent_communication":
            fields |= _inter_agent(item)
        case _:
            fields |= _item(item, recorded=type(line.get("ordinal")) is int)
    own = entry_id or name_of(item.get("id"))
    return Entry(id=own, timestamp=string(line.get("timestamp")), **fields)


def _item(item: Fields, *, recorded: bool = False) -> Fields:
    kind = string(item.get("type"))
    if kind == "message" or (not kind and isinstance(item.get("role"), str)):
        return _message(item)
    if kind.endswith("_call"):
        return {"kind": Kind.CALL, "tools": (_call(item, recorded=recorded),)}
    if kind.endswith(("_output", "_result")):
        return _output(item)
    if kind == "reasoning":  # at most a summary: the rest is encrypted
        thoughts = filter(None, texts_of(as_blocks(item.get("summary"))))
        return {"role": "assistant", "thinking": tuple(thoughts)}
    return _inter_agent(item) if kind == "agent_message" else {}


def _message(item: Fields) -> Fields:
    content, role = as_blocks(item.get("content")), string(item.get("role"))
    texts = tuple(texts_of(content))
    fields: Fields = {"role": role or None, "kind": _ROLES.get(role, Kind.SYSTEM), "texts": texts}
    if role == "user":
        text, notices = said_in(content)
        human = text and not notices
        fields |= {"images": images_in(content), "kind": Kind.USER if human else Kind.OTHER}
        fields |= _said(text, texts)
    return fields


def _said(words: str, sent: tuple[str, ...]) -> Fields:
    """Return a human's words, and the texts that the model got if they differ."""
    return {"texts": (words,), "sent": sent} if words and (words,) != sent else {"texts": sent}


def _output(item: Fields) -> Fields:
    call, output = name_of(item.get("call_id")), item.get("output")
    found = parsed(output) if string(output).startswith(_WRAPPED) else {}
    wrapped = found if "metadata" in found else {}
    outer = as_dict(output) or wrapped
    blocks = as_blocks(outer.get("output", outer.get("content")) if outer else output)
    texts = tuple(texts_of(blocks))
    text = "".join(texts)
    result = ToolResult(call, name_of(item.get("name")), text, reply=codex_answers(text))
    return {
        "kind": Kind.TOOL,
        "failed": (call,) if call and failed(output) else (),
        "texts": texts,
        "sent": (output,) if wrapped else None,
        "images": images_in(blocks),
        "results": (result,),
    }


def failed(output: Any) -> bool:
    outer = as_dict(output) or parsed(output)
    about = as_dict(outer.get("metadata"))  # {"output": …, "metadata": {"exit_code": 1}}
    if isinstance(output, dict) or about:
        code = about.get("exit_code", outer.get("exit_code"))
        return code != 0 if type(code) is int else outer.get("success") is False
    text = next(iter(texts_of(as_blocks(output))), "")
    if text.startswith("Command: "):
        text = text[text.find(_CHUNK) + 1 :]
    code = _EXIT.match(text)
    return int(code[1]) != 0 if code else _NOTHING.match(text) is not None


def _compacted(payload: Fields) -> Fields:
    message, history = string(payload.get("message")), payload.get("replacement_history")
    summary = summary_of(message)
    fields: Fields = {"kind": Kind.COMPACTION, "texts": (summary,) if summary else ()}
    if isinstance(history, list):
        kept = Compaction(retained=_retained(history, message), whole=True)
        return fields | {"compaction": kept}
    return fields | {"compaction": Compaction(role="user"), "sent": (message or NO_SUMMARY,)}


def _retained(history: list[Any], summary: str) -> tuple[Retained, ...]:
    """List the retained messages; `human` marks those that later compactions keep."""
    messages: list[Retained] = []
    for fields in map(_item, map(as_dict, history)):
        kind = fields.get("kind", Kind.OTHER)
        role = fields.get("role") or _RETAINED_ROLES.get(kind)
        if role and "texts" in fields:
            text = "".join(fields.get("sent") or fields["texts"])
            messages.append(Retained(role, text, human=kind is Kind.USER and text != summary))
    return tuple(messages)


def _event(event: Fields) -> Fields:
    kind = string(event.get("type"))
    if kind == "item_completed":
        event = as_dict(event.get("item"))
        kind = string(event.get("type")).lower()
    match kind:
        case "user_message" | "usermessage":
            return _user(event)
        case "filechange" | "patch_apply_end":
            paths, made_by = changed(event), name_of(event.get("call_id") or event.get("id"))
            if paths is None:  # the patch was not applied: its call changed nothing
                return {"kind": Kind.CALL, "failed": (made_by,) if made_by else ()}
            done = {"call": made_by, "changes": event.get("changes")}
            return {"kind": Kind.CALL, "tools": (ToolCall("", writes=paths, arguments=done),)}
        case "commandexecution" | "exec_command_end":
            return {"kind": Kind.CALL, "tools": (ToolCall("", reads=files_read(event)),)}
        case "task_started" | "turn_started":
            return {"kind": Kind.SETTING}
        case "error":
            return {"kind": Kind.ASSISTANT, "error": string(event.get("message"))}
    return {}


def _user(event: Fields) -> Fields:
    words, content = said_by_event(event), event.get("content")
    blocks = as_blocks(string(event.get("message")) if content is None else content)
    beside = (as_list(event.get(key)) for key in ("images", "local_images"))
    images = sum(map(len, beside)) + (0 if content is None else images_in(blocks))
    fields: Fields = {"kind": Kind.USER, "role": "user", "images": images}
    return fields | _said(words, tuple(texts_of(blocks)) if words else ())


def _inter_agent(payload: Fields) -> Fields:
    texts = tuple(texts_of(as_blocks(payload.get("content"))))
    task, _ = task_in(list(texts))
    if not task:
        return {"kind": Kind.CUSTOM, "texts": texts}
    return {"kind": Kind.USER, "role": "user"} | _said(task, texts)


def _call(item: Fields, *, recorded: bool) -> ToolCall:
    kind, own = string(item.get("type")), name_of(item.get("call_id")) or name_of(item.get("id"))
    name = string(item.get("name")) or kind.removesuffix("_call")
    # Arguments are stored as a string, mostly JSON, or as an object.
    fields = (item.get(key) for key in ("arguments", "input", "action"))
    stored = next((value for value in fields if isinstance(value, str | dict)), None)
    arguments = as_dict(stored) or parsed(stored)
    script = _script(arguments)
    place = first_of(arguments, ("workdir", "working_directory"))
    patch = script if "*** Begin Patch" in script and "apply_patch" in script[:400] else ""
    if name == "apply_patch":
        patch = first_of(arguments, ("input", "patch", "patchText")) or script
    picture = string(arguments.get("path")) if name == "view_image" else ""
    writes = tuple(_joined(place, path) for path in patched_files(patch))
    detail = ", ".join(writes) if patch and not script else script or first_of(arguments, _ABOUT)
    return ToolCall(
        name=name,
        detail=detail[:_DETAIL_MAX],
        id=own,
        reads=(picture,) if picture else (),
        writes=() if recorded else writes,
        arguments=stored,
    )


def changed(item: Fields) -> tuple[str, ...] | None:
    """List the files that a recorded patch changed; None if it was not applied."""
    if item.get("success") is not True and string(item.get("status")).lower() != "completed":
        return None
    changes = as_dict(item.get("changes")).items()
    paths = [file for path, change in changes for file in (path, as_dict(change).get("move_path"))]
    return tuple(dict.fromkeys(filter(None, map(string, paths))))


def files_read(item: Fields) -> tuple[str, ...]:
    """List the files that a successful command only read."""
    code = item.get("exit_code")
    noted = as_list(item.get("parsed_cmd")) if type(code) is int and code == 0 else []
    reads = [string(action.get("path")) for action in of_type(map(as_dict, noted), "read")]
    place = unquote(string(item.get("cwd")).removeprefix("file://"))
    return tuple(dict.fromkeys(_joined(place, path) for path in reads if path))


def parsed(value: Any) -> Fields:
    """Parse a string as a JSON object; any other string becomes `input`."""
    text = string(value)
    if "{" in text[:8]:
        with suppress(ValueError):
            return parse_object(text.encode("utf-8", "replace"))
    return {"input": text} if text else {}


def _script(arguments: Fields) -> str:
    """Return the command line of a shell call; for `bash -lc SCRIPT` the script."""
    command = arguments.get("command") or arguments.get("cmd")
    if not isinstance(command, list):
        return string(command)
    words = [string(word) for word in command]
    return words[2] if words[1:2] in _SHELL_FLAGS and words[2:] else " ".join(words)


def _joined(place: str, path: str) -> str:
    return path if path.startswith("/") or not place else f"{place.rstrip('/')}/{path}"


def texts_of(content: list[Fields]) -> list[str]:
    """Return the texts of a content: input_text, output_text, Text, and any future …text type."""
    texts = (block for block in content if string(block.get("type")).lower().endswith("text"))
    return [string(block.get("text")) for block in texts]


def images_in(content: list[Fields]) -> int:
    """Count the pictures of a content: input_image, local_image, localImage."""
    return sum([string(block.get("type")).endswith(("image", "Image")) for block in content])


def said_in(content: list[Fields]) -> tuple[str, list[str]]:
    """Split a user message into its text without context, and the blocks that are only context.

    A human wrote the message if it has text and no such blocks.
    """
    pictured = images_in(content) > 0
    rests: list[str] = []
    notices: list[str] = []
    for text in map(str.strip, texts_of(content)):
        if text and not (pictured and _IMAGE_TAG.fullmatch(text)):
            rest = _unwrapped(text)
            (rests if rest else notices).append(rest or text)
    words, files = "\n".join(rests), ""
    if _REQUEST in words:
        around, _, words = words.partition(_REQUEST)
        files = _ATTACHED if around.startswith(_FILES) and not pictured else ""
    words = words.strip() or files
    return words or (PICTURE if pictured and not notices else ""), notices


def cwd_in(notices: list[str]) -> str:
    for notice in notices:
        match = _CWD.search(notice[:20_000])
        if match and notice.startswith("<environment_context>"):
            return str(match[1] or match[2]).strip()
    return ""


def said_by_event(event: Fields) -> str:
    if event.get("content") is not None:
        return said_in(as_blocks(event["content"]))[0]
    words, _ = said_in(as_blocks(string(event.get("message"))))
    return words or (PICTURE if event.get("images") or event.get("local_images") else "")


def is_tagged(text: str) -> bool:
    """Return whether one tag surrounds the whole text, as in texts of programs."""
    tag = _ANY_TAG.match(text)
    return tag is not None and text.endswith(f"</{tag[1]}>")


def task_in(texts: list[str]) -> tuple[str, str]:
    """Return the task that one agent gives another, and its name; an encrypted task is ""."""
    match = _TASK.match("".join(texts))
    return (match[2].strip(), string(match[1]).rpartition("/")[2]) if match else ("", "")


def likeness(text: str) -> int:
    """Hash a text without its white space."""
    return zlib.crc32("".join(text.split()).encode("utf-8", "replace"))


def summary_of(message: str) -> str:
    """Return a compaction's summary without the line that introduces it to the next model."""
    _, newline, rest = message.partition("\n")
    return (rest if newline and message.startswith(_SUMMARY_START) else message).strip()


def _unwrapped(text: str) -> str:
    """Cut off the context at the beginning of a block; "" if there is nothing else."""
    for _ in range(_WRAPS_MAX):
        if text.startswith(_NOTICES):
            return ""
        tag = _TAG.match(text)
        if tag is None and text[: len(_AGENTS)].lower() != _AGENTS:
            break
        end = f"</{tag[1].lower()}>" if tag else _AGENTS_END
        if text[-len(end) :].lower() == end:
            return ""
        closing = re.search(re.escape(end), text, re.IGNORECASE)
        if closing is None:
            break
        text = text[closing.end() :].strip()
    return text
