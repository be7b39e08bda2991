"""Relevant-context sets: what a session was working with, as named lists of strings.

In: the sets that a session has, and what an agent or its user wants changed. Out: the new sets
with the words to answer; the block for the first message after a resume; the line of a footer.
Limits are errors and never cut anything silently: a cut path would be another path.

Whoever writes sets is trusted little: items lose what could act on a terminal, and nothing in
them can end a line. A sidecar may have been written by hand, so that what is *shown* is cleaned
and bounded once more. Whether a file is there is somebody else's to know: `exists` is given.

Surprise: a set may hold a name twice. `replace` takes what it is given; only `merge` is a union.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from indexerd.core.clean import clean_line, escape_path
from indexerd.errors import ContextTooLargeError, UsageError

KNOWN = ("files", "applet", "endpoints", "ports")
SET_MAX = 10  # items of one set, and of one call
TOTAL_MAX = 50  # items of all sets of a session
ITEM_MAX = 1000  # characters
NAME_MAX = 64  # characters of a set's name
SHOWN_FILES = 5  # in a footer
FOOTER_MAX = 400  # characters of its line
SEPARATOR = " \N{MIDDLE DOT} "
NOTHING = "No context stored for this session"

Context = dict[str, list[str]]
Mode = Literal["replace", "merge"]
_ABSOLUTE = re.compile(r"[/~]|[A-Za-z]:[\\/]|\\\\|[A-Za-z][A-Za-z0-9+.-]*://")


@dataclass(frozen=True, slots=True)
class Change:
    """One set, and what is to become of it. Made by `change_of`, which checks it."""

    name: str
    items: tuple[str, ...]
    mode: Mode = "replace"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The sets after a change. `changed` is False where there was nothing to do."""

    context: Context
    text: str
    changed: bool = True
    warnings: tuple[str, ...] = ()


# -- changing ------------------------------------------------------------------------------------


def change_of(name: Any, items: Any, mode: Any = None) -> Change:
    """Check what somebody asks for; UsageError says what is wrong with it (S4.3, S4.4)."""
    if mode not in (None, "replace", "merge"):
        raise UsageError("mode is replace or merge")
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise UsageError("items is a list of strings")
    if len(items) > SET_MAX:
        raise UsageError(
            f"{len(items)} items are too many for one call: at most {SET_MAX}",
            hint="keep what matters most, or use several sets",
        )
    return Change(_name(name), tuple(item_of(item) for item in items), mode or "replace")


def item_of(text: str, what: str = "an item") -> str:
    """One item, or another line of the sidecar, cleaned; UsageError where nothing is left of it."""
    if len(text) > ITEM_MAX:
        raise UsageError(f"{what} has {len(text)} characters: at most {ITEM_MAX}")
    item = _tidy(text)
    if not item:
        raise UsageError(f"{what} is empty")
    return item


def _name(name: Any) -> str:
    if not isinstance(name, str) or not name.strip():
        raise UsageError("setName is required, and is a string")
    if len(name) > NAME_MAX or not name.isprintable():
        raise UsageError(f"setName has at most {NAME_MAX} characters, all of them visible")
    return name.strip()


def _tidy(text: str) -> str:
    """Text that stays on its line; spaces that a file's name may have stay as they are."""
    if all(char.isprintable() or unicodedata.category(char) == "Zs" for char in text):
        return text.strip()
    return clean_line(text, ITEM_MAX)


def apply(context: Mapping[str, Sequence[str]], change: Change) -> Outcome:
    """The sets with one change; ContextTooLargeError where they would hold too much (S4.5).

    Sets that a hand made too large may shrink step by step.
    """
    old = list(context.get(change.name, ()))
    warnings = _unknown(change.name)
    if change.mode == "merge" and not change.items:
        text = f"Nothing to merge into {change.name}: {len(old)} items"
        return Outcome(_copy(context), text, changed=False, warnings=warnings)
    items = list(change.items)
    if change.mode == "merge":
        items = list(dict.fromkeys([*old, *items]))
        items, rest = items[:SET_MAX], items[SET_MAX:]
        if rest:
            told = ", ".join(rest)
            warnings += (f"not stored, as a set holds at most {SET_MAX} items: {told}",)
    new = _copy(context)
    if items:
        new[change.name] = items
    else:
        new.pop(change.name, None)
    _refuse_excess(new, at_most=_count(context))
    if not items:
        return Outcome(new, f"Cleared {change.name}", warnings=warnings)
    verb = "Merged" if change.mode == "merge" else "Set"
    return Outcome(new, f"{verb} {change.name}: {len(items)} items", warnings=warnings)


def replace_all(value: Any) -> Outcome:
    """All sets at once, within the same limits; None clears them (S4.21)."""
    if value is not None and not isinstance(value, dict):
        raise UsageError("context is {set: [items]}, or null to clear it")
    new: Context = {}
    warnings: tuple[str, ...] = ()
    for name, items in (value or {}).items():
        outcome = apply(new, change_of(name, items))
        new, warnings = outcome.context, warnings + outcome.warnings
    return Outcome(new, f"Set context: {_count(new)} items", warnings=warnings)


def _copy(context: Mapping[str, Sequence[str]]) -> Context:
    return {name: list(items) for name, items in context.items() if items}


def _count(context: Mapping[str, Sequence[str]]) -> int:
    return sum(len(items) for items in context.values())


def _refuse_excess(context: Context, *, at_most: int) -> None:
    total = _count(context)
    if total > TOTAL_MAX and total > at_most:
        raise ContextTooLargeError(
            f"Context too large ({total} items, max {TOTAL_MAX}). Remove some items first.",
            hint="replace a set with no items to clear it",
        )


def _unknown(name: str) -> tuple[str, ...]:
    known = ", ".join(KNOWN)
    return () if name in KNOWN else (f"unknown set {name!r}; the known ones are {known}",)


# -- showing -------------------------------------------------------------------------------------


def resume_block(
    cwd: str,
    env_hint: str | None,
    context: Mapping[str, Sequence[str]],
    exists: Callable[[str], bool],
) -> tuple[str, int]:
    """What goes before the first message after a resume, and how many files are gone (S4.15).

    `exists` is asked of every file that is shown, as it is stored.
    """
    text = "[SESSION RESUMED]\nShell state was reset. Re-run environment setup before continuing.\n"
    text += f"\nSession directory: {escape_path(cwd)}\n"
    hint = _tidy(env_hint or "")[:ITEM_MAX]
    if hint:
        text += f"Environment hint: {hint}\n"
    told, missing = told_context(context, exists)
    if told:
        text += f"\n{told}\n"
    return text + "---\n\n", missing


def told_context(
    context: Mapping[str, Sequence[str]], exists: Callable[[str], bool]
) -> tuple[str, int]:
    """The sets as an agent reads them, and how many of the files are gone (S4.16, S4.17)."""
    shown = _presentable(context)
    files, applet = shown.pop("files", []), shown.pop("applet", [])
    there = [item for item in files if exists(item)]
    missing = len(files) - len(there)
    parts = []
    if files:
        lines = ["Relevant files:", *(f"- {item}" for item in there)]
        lines += [f"({missing} file(s) no longer exist)"] if missing else []
        parts.append("\n".join(lines))
    if applet:
        slug, *params = applet
        parts.append(f"Last applet: {slug}" + (f" ({', '.join(params)})" if params else ""))
    parts += [f"{name}: {', '.join(items)}" for name, items in shown.items()]
    return "\n\n".join(parts), missing


def _presentable(context: Mapping[str, Sequence[str]]) -> Context:
    """The sets in their order, clean, and no more of them than could have been stored."""
    found: Context = {}
    room = TOTAL_MAX
    for key, held in context.items():
        name = clean_line(key, NAME_MAX)
        items = [item for one in held[:SET_MAX] if (item := _tidy(one[:ITEM_MAX]))][:room]
        room -= len(items)
        if name and items:
            found[name] = items
    return found


def footer(context: Mapping[str, Sequence[str]], cwd: str) -> dict[str, Any]:
    """The first files, the applet, and both as one line; all empty without sets (S4.22)."""
    shown = _presentable(context)
    files, applet = shown.get("files", []), shown.get("applet", [])
    more = max(0, len(files) - SHOWN_FILES)
    named = [
        {"basename": basename(item), "path": absolute(cwd, item)} for item in files[:SHOWN_FILES]
    ]
    words = [one["basename"] for one in named]
    words += [f"+{more} more"] if more else []
    words += [f"[{applet[0]}]"] if applet else []
    text = clean_line(SEPARATOR.join(words), FOOTER_MAX)
    found: dict[str, Any] = {"files": named, "more": more, "text": text}
    if applet:
        found["applet"] = {"slug": applet[0], "params": applet[1:]}
    return found


def basename(path: str) -> str:
    """The last part of a path, whichever way its separators lean."""
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1] or path


def absolute(cwd: str, item: str) -> str:
    """A file's whole path: a relative one is meant from the session's directory."""
    if _ABSOLUTE.match(item) or not cwd:
        return item
    return f"{cwd.rstrip('/')}/{item.removeprefix('./')}"


def relative(cwd: str, path: str) -> str:
    """A path for people: without the session's directory, where it is below that."""
    base = cwd.rstrip("/") + "/"
    return path.removeprefix(base) or path if base != "/" else path
