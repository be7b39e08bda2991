"""A session's sidecar: the user's title, tags, labels, environment hint and context sets.

A context set is a named list of strings that a session was working with. A fork begins with none.

Writers of sets are not trusted. An item is stored unchanged or refused: a path that was cut or
cleaned would be another path; a secret is stored with a warning. A set's name begins a line of the
resume block, so it must be plain words and not a speaker's role. A sidecar may have been edited by
hand, so everything is cleaned and bounded again before it is *shown*.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import UNSET

from indexerd.errors import ContextTooLargeError, IndexerdError, UsageError
from indexerd.meta.model import UserFile, digest_name, distinct, read_digest, read_meta, read_user
from indexerd.paths import basename, meta_name, user_name
from indexerd.privacy.patterns import lazy_pattern
from indexerd.privacy.redact import quotable, secret_warnings, shown_path
from indexerd.privacy.sanitize import clean_line, escape_path, harmless, inline
from indexerd.protocol import limits
from indexerd.protocol.params import ContextSet, Update

KNOWN = ("files", "applet", "endpoints", "ports")
SET_MAX = 10  # items of one set, and in one call
TOTAL_MAX = 50  # items in all sets of a session
ITEM_MAX = 1000  # characters
NAME_MAX = 64  # characters of a set's name
SHOWN_FILES = 5  # in a footer
FOOTER_MAX = 400  # characters of a footer's line

Context = dict[str, list[str]]
Sets = Mapping[str, Sequence[str]]
_NAME = lazy_pattern(r"[^\W_][\w ./-]*")
_ROLE = lazy_pattern("system|user|assistant|human|tool|developer|model|function|ai|bot|agent")
_SAID = lazy_pattern(  # a role followed by such a word is also refused: System prompt, Tool result
    "(?:call|instruction|message|note|output|prompt|reminder|response|result|reply|turn)s?"
)
_PORT = lazy_pattern(r"(?<!\d)[1-9]\d{0,4}(?!\d)")
_ABSOLUTE = lazy_pattern(r"[/~]|[A-Za-z]:[\\/]|\\\\|[A-Za-z][A-Za-z0-9+.-]*://")


def item_of(text: str, what: str = "an item") -> str:
    """Strip a line for the sidecar; UsageError if more would have to change."""
    if len(text) > ITEM_MAX:
        raise UsageError(f"{what} has {len(text)} characters: at most {ITEM_MAX}")
    item = text.strip(" \t")
    if not item.strip():
        raise UsageError(f"{what} is empty")
    if not _is_plain(item):
        raise UsageError(
            f"{what} has invisible characters or more than one line: {quotable(item)}",
            hint="it is stored unchanged or not at all: a cleaned path would be another path",
        )
    return item


def _is_name(text: str) -> bool:
    """Return whether a line may begin with this name: it is safe and not a speaker's role."""
    words = re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", text[:NAME_MAX]).casefold())
    roles = [word for word in words if _ROLE.fullmatch(word)]
    if roles and all(word in roles or _SAID.fullmatch(word) for word in words):
        return False
    # Some Unicode letters are invisible, hence `harmless`.
    return len(text) <= NAME_MAX and bool(_NAME.fullmatch(text)) and harmless(text) == text


def _is_plain(text: str) -> bool:
    """Return whether cleaning would not change the text; runs of spaces may stay."""
    spaces = {ord(char): " " for char in set(text) if unicodedata.category(char) == "Zs"}
    return all(clean_line(part, ITEM_MAX) == part for part in text.translate(spaces).split(" "))


def apply(
    context: Sets, name: str, texts: Sequence[str], mode: Any = None
) -> tuple[Context, str, list[str]]:
    """Replace a set or merge items into it; return all sets, a message, and warnings.

    UsageError for invalid input. ContextTooLargeError if there would be too many items; sets that
    were made too large by hand may shrink step by step, and a merge removes nothing from them.
    """
    if mode not in (None, "replace", "merge"):
        raise UsageError("mode is replace or merge")
    if len(texts) > SET_MAX:
        why = f"{len(texts)} items are too many for one call: at most {SET_MAX}"
        raise UsageError(why, hint="keep the most important ones, or use several sets")
    name, items, done = name.strip(" "), [*map(item_of, texts)], "Set"
    if not _is_name(name):
        raise UsageError(
            f"setName must have at most {NAME_MAX} characters, begin with a letter or a digit, and"
            " not be a speaker's role",
            hint="use letters, digits, spaces and _ - . /",
        )
    warnings = list[str]()
    if name not in KNOWN:
        warnings.append(f"unknown set {name!r}; the known ones are {', '.join(KNOWN)}")
    current = {key: list(items) for key, items in context.items() if items}
    old = current.get(name, [])
    if mode == "merge":
        if not items:
            text = f"Nothing to merge into {name}: {len(old)} items"
            return current, text, warnings
        union, done = list(dict.fromkeys([*old, *items])), "Merged"
        room = max(SET_MAX, len(set(old)))
        if rest := ", ".join(map(quotable, union[room:])):
            warnings.append(f"not stored, because a set has at most {SET_MAX} items: {rest}")
        items = union[:room]
    for place, item in enumerate(items, 1):
        if done == "Set" or item not in old:
            warnings += secret_warnings(item, f"item {place} of {name}")
            if name == "ports" and not _PORT.search(item):
                raise UsageError(f"not a port: {quotable(item)}", hint="write it like web 8080")
    new = {key: kept for key, kept in {**current, name: items}.items() if kept}
    count = sum(map(len, new.values()))
    if TOTAL_MAX < count > sum(map(len, current.values())):
        raise ContextTooLargeError(
            f"Context too large ({count} items, max {TOTAL_MAX}). Remove some items first.",
            hint="replace a set with no items to clear it",
        )
    text = f"{done} {name}: {len(items)} items" if items else f"Cleared {name}"
    return new, text, warnings


def listed(context: Sets, name: str | None = None) -> tuple[str, Context]:
    """Return all sets or the named set, as text and as data."""
    sets = {key: list(items) for key, items in context.items()}
    if wanted := (name or "").strip(" "):  # models send "" for no name
        sets = {wanted: sets.get(wanted, [])}
    text = json.dumps(sets, indent=2, ensure_ascii=False)
    return text if sets else "No context stored for this session", sets


def resume_block(
    cwd: str, env_hint: str | None, context: Sets, exists: Callable[[str], bool]
) -> tuple[str, int]:
    """Make the block for the first message after a resume; also count missing files.

    `exists` is called for every file shown, as stored.
    """
    text = "[SESSION RESUMED]\nShell state was reset. Re-run environment setup before continuing.\n"
    text += f"\nSession directory: {_on_a_line(escape_path(cwd)) or '(unknown)'}\n"
    hint = (env_hint or "").strip()
    if len(hint) > ITEM_MAX:
        hint = f"(not shown: {len(hint)} characters)"  # a part would be another command
    if hint := _on_a_line(hint):
        text += f"Environment hint: {hint}\n"
    shown, missing = context_text(context, exists)
    return text + (f"\n{shown}\n" if shown else "") + "---\n\n", missing


def context_text(context: Sets, exists: Callable[[str], bool]) -> tuple[str, int]:
    """Render the sets for an agent; also count missing files."""
    parts, missing = list[str](), 0
    for name, items in _shown(context).items():
        if name == "files":
            there = [_on_a_line(item) for item in items if exists(item)]
            missing = len(items) - len(there)
            lines = ["Relevant files:", *(f"- {item}" for item in there)]
            lines += [f"({missing} file(s) no longer exist)"] if missing else []
            parts.append("\n".join(lines))
        elif name == "applet":
            slug, *params = map(_on_a_line, items)
            parts.append(f"Last applet: {slug}" + (f" ({', '.join(params)})" if params else ""))
        elif _is_name(name):
            parts.append(f"{name}: {', '.join(map(_on_a_line, items))}")
    return "\n\n".join(parts), missing


def _shown(context: Sets) -> dict[str, list[str]]:
    """Return the non-empty sets, files and applet first, with at most TOTAL_MAX items."""
    shown: dict[str, list[str]] = {}
    room = TOTAL_MAX
    for name in sorted(context, key=lambda key: {"files": 0, "applet": 1}.get(key, 2)):
        short = (item for item in context[name] if len(item) <= ITEM_MAX)
        if items := [item for item in short if clean_line(item, ITEM_MAX)][:room]:
            shown[name] = items
            room -= len(items)
    return shown


def _on_a_line(text: str) -> str:
    """Make a line for a prompt or a terminal; runs of spaces stay if the text is plain."""
    if not _is_plain(text):
        return inline(text, len(text))
    drawn = text.replace("\ufe0f", "")  # it follows many emoji
    drawn = drawn.replace("<(", "((")  # shell syntax, not a tag
    return text if harmless(drawn) == drawn else harmless(text)


def footer(context: Sets, cwd: str) -> dict[str, Any]:
    """Return the first files, the applet, and both as one line; all empty without sets."""
    shown = {
        name: [item if _is_plain(item) else clean_line(item, ITEM_MAX) for item in items]
        for name, items in _shown(context).items()
    }
    files, named = shown.get("files", []), []
    for item in files[:SHOWN_FILES]:
        name = shown_path(basename(item) or item)
        named.append({"basename": name, "path": absolute(cwd, item)})
    more = max(0, len(files) - SHOWN_FILES)
    words = [file["basename"] for file in named]
    words += [f"+{more} more"] if more else []
    slug, *params = shown.get("applet", [""])
    words += [f"[{slug}]"] if slug else []
    text = clean_line(" \N{MIDDLE DOT} ".join(words), FOOTER_MAX)
    fields: dict[str, Any] = {"files": named, "more": more, "text": text}
    return fields | ({"applet": {"slug": slug, "params": params}} if slug else {})


def absolute(cwd: str, item: str) -> str:
    """Return a file's absolute path; a relative one starts at the session's directory."""
    if _ABSOLUTE.match(item) or not cwd:
        return item
    return f"{cwd.rstrip('/')}/{item.removeprefix('./')}"


class Edited(NamedTuple):
    """A sidecar to write, or None, and the names of its changed sets."""

    user: UserFile | None
    names: tuple[str, ...]
    warnings: tuple[str, ...]
    text: str  # a message about the last set


def read_all(session_id: str, home: str | None) -> dict[str, Any]:
    """Read a session's meta file, sidecar and digest; an invalid file becomes a warning."""
    result: dict[str, Any] = {"meta": None, "context": {}, "labels": {}, "tags": []}
    result["digest"] = {"segments": []}
    if home is None:
        return result
    directory, warnings = Path(home), list[str]()

    @contextmanager
    def attempt() -> Iterator[None]:
        try:
            yield
        except IndexerdError as bad:
            warnings.append(shown_path(str(bad)))

    with attempt():
        if meta := read_meta(directory / meta_name(session_id)):
            result["meta"] = meta.model_dump(mode="json", by_alias=True, exclude_none=True)
    with attempt():
        user = read_user(directory / user_name(session_id))
        result |= {"labels": user.labels, "context": user.context, "tags": user.tags or []}
    with attempt():
        result["digest"] = {"segments": read_digest(directory / digest_name(session_id))}
    return result | ({"warnings": warnings} if warnings else {})


def edit(old: UserFile, update: Update) -> Edited:
    """Apply a client's changes to a sidecar; null clears a field."""
    fields, warnings = dict[str, Any](), list[str]()
    if update.title is not UNSET:
        fields["title"] = clean_line(update.title or "", limits.NAME_MAX) or None
    if update.env_hint is not UNSET:
        hint = update.env_hint or ""  # a command line: cutting it would make it another command
        fields["env_hint"] = item_of(hint, "envHint") if hint.strip() else None
        warnings += secret_warnings(hint, "envHint")
    if update.tags is not UNSET:
        tags = (clean_line(tag, limits.TAG_MAX) for tag in update.tags or ())
        fields["tags"] = distinct(tags) or None
    for name, flag in (("pinned", update.pinned), ("hidden", update.hidden)):
        if flag is not UNSET:
            fields[name] = flag or None
    if update.label:
        text = clean_line(update.label.text or "", limits.NAME_MAX)
        labels = old.labels | {update.label.entry_id: text}
        fields["labels"] = {key: label for key, label in labels.items() if label}
    context = {key: items for key, items in old.context.items() if items}
    names, text = list[str](), ""
    changes = list[ContextSet]()
    if update.context is not UNSET or update.set_context is None:  # all sets at once
        context, names = {}, [*context]
        sets = (update.context or {}).items()
        changes = [ContextSet(set_name=name, items=items) for name, items in sets]
    changes += [update.set_context] if update.set_context else []
    for change in changes:
        name, items, before = change.set_name.strip(" "), change.items or [], context
        context, text, more = apply(context, name, items, change.mode)
        is_set = bool(items) and change.mode != "merge"  # counts even if nothing changed
        names += [name] if is_set or context != before else []
        warnings += more
    if names:
        fields["context"] = context
    new = old.model_copy(update=fields) if fields else None
    return Edited(new, tuple(dict.fromkeys(names)), tuple(warnings), text)
