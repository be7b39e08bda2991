"""A session's sidecar, with the context sets that a fork has from its parent.

A fork starts with a copy of its parent's sets. Until either changes them, the copy is not written,
and the parent's are read in its place; a fork whose sets were cleared says so in its file. Paths
of sidecars begin with the session's own, then come those of its ancestors, the nearest first.
Changing a parent's file by hand changes the sets of those forks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import UNSET

from indexerd.errors import AccessError, IndexerdError, InvalidMetaError, UsageError
from indexerd.meta import context_sets as sets
from indexerd.meta.context_sets import Context
from indexerd.meta.model import UserFile
from indexerd.meta.reader import digest_name, read_digest, read_meta, read_user
from indexerd.paths import meta_name
from indexerd.privacy.redact import secret_warnings
from indexerd.privacy.sanitize import clean_line
from indexerd.protocol.limits import NAME_MAX
from indexerd.protocol.params import Update

CLEARED = "contextCleared"  # in a fork's file: no sets, and none of its parent's either


class Held(NamedTuple):
    """A session's sidecar, and its sets or those of its nearest ancestor with any."""

    user: UserFile
    context: Context


class Edited(NamedTuple):
    """A sidecar to write, or None; the names of the sets that changed in it."""

    user: UserFile | None
    names: tuple[str, ...]
    warnings: tuple[str, ...]
    text: str  # about the last set


def read_sidecar(paths: Sequence[Path]) -> Held:
    """Read a session's sidecar, and find its sets.

    If its own file is invalid, that is an error with its path; an ancestor's is passed over.
    """
    try:
        user = read_user(paths[0]) or UserFile()
    except InvalidMetaError as bad:
        hint = f"mend {paths[0]}, or move it away: it holds what no model can write again"
        raise InvalidMetaError(str(bad), hint=hint) from None
    if has_own_sets(user):
        return Held(user, user.context)
    for path in paths[1:]:
        with suppress(InvalidMetaError, AccessError):
            found = read_user(path)
            if found is not None and has_own_sets(found):
                return Held(user, found.context)
    return Held(user, {})


def has_own_sets(user: UserFile) -> bool:
    """Whether a file's sets count, even if they are none, and not the parent's."""
    return bool(user.context) or bool((user.model_extra or {}).get(CLEARED))


def with_sets(user: UserFile, context: Context, *, fork: bool) -> UserFile:
    fields = {key: one for key, one in user.model_dump().items() if key != CLEARED}
    fields["context"] = context
    if fork and not context:
        fields[CLEARED] = True
    return UserFile.model_validate(fields)


def read_all(session_id: str, paths: Sequence[Path]) -> dict[str, Any]:
    """Read a session's meta file, sidecar and digest; an invalid file becomes a warning."""
    directory, warnings = paths[0].parent, list[str]()

    def attempt(read: Callable[[], Any]) -> Any:
        try:
            return read()
        except IndexerdError as bad:
            warnings.append(str(bad))
            return None

    meta = attempt(lambda: read_meta(directory / meta_name(session_id)))
    held = attempt(lambda: read_sidecar(paths))
    segments = attempt(lambda: read_digest(directory / digest_name(session_id)))
    found = {
        "meta": meta.model_dump(mode="json", by_alias=True, exclude_none=True) if meta else None,
        "labels": held.user.labels if held else {},
        "context": held.context if held else {},
        "digest": {"segments": segments or []},
    }
    return found | ({"warnings": warnings} if warnings else {})


def edit(held: Held, asked: Update, *, fork: bool) -> Edited:
    """Make the sidecar with the changes that a client asks for; null clears."""
    fields, warnings = held.user.model_dump(), list[str]()
    if asked.title is not UNSET:
        fields["title"] = _line(asked.title, "title")
    if asked.env_hint is not UNSET:
        hint = asked.env_hint or ""  # a command line: cutting it would make it another command
        fields["env_hint"] = sets.item_of(hint, "envHint") if hint.strip() else None
        warnings += secret_warnings(fields["env_hint"] or "", "envHint")
    if asked.label is not UNSET:
        entry_id, text = label_of(asked)
        labels = {key: one for key, one in held.user.labels.items() if key != entry_id}
        fields["labels"] = labels | ({entry_id: text} if text else {})
    context, names, text = held.context, list[str](), ""
    if asked.context is not UNSET or asked.set_context is None:  # all sets at once
        context, names = {}, [*context]
    for change in _changes(asked):
        outcome = sets.apply(context, change)
        names += [change.name] if outcome.changed else []
        context, text = outcome.context, outcome.text
        warnings += outcome.warnings
    user: UserFile | None = UserFile.model_validate(fields)
    if user and names:
        user = with_sets(user, context, fork=fork)
    elif all(one is UNSET for one in (asked.title, asked.env_hint, asked.label)):
        user = None
    return Edited(user, tuple(dict.fromkeys(names)), tuple(warnings), text)


def _changes(asked: Update) -> Iterator[sets.Change]:
    """Check the changes of sets; items that are null clear a set."""
    if asked.context not in (UNSET, None):
        if not isinstance(asked.context, dict):
            raise UsageError("context is {set: [items]}, or null to clear it")
        for name, items in asked.context.items():
            yield sets.change_of(name, [] if items is None else items)
    if (one := asked.set_context) not in (UNSET, None):
        if not isinstance(one, dict):
            raise UsageError("setContext is {setName, items, mode?}")
        items = [] if one.get("items") is None else one["items"]
        yield sets.change_of(one.get("setName"), items, one.get("mode"))


def label_of(asked: Update) -> tuple[str, str | None]:
    """Check a label; give its entry's id and its text, None to remove it."""
    given = asked.label
    if not isinstance(given, dict) or not isinstance(given.get("entryId"), str):
        raise UsageError("label is {entryId, text}")
    return given["entryId"], _line(given.get("text"), "label text")


def _line(value: Any, what: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{what} is a string, or null to clear it")
    return clean_line(value or "", NAME_MAX) or None
