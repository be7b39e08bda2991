"""What a session's sidecar says, with the context sets that a fork has of its parent.

A fork starts with a copy of its parent's sets. As long as neither has changed them, the
copy is not written, and the parent's are read in its place. No sets are a copy, too, and are
written as such. In: paths of sidecars, a session's own first, then those of the sessions that it
came from, the nearest first. Who changes a parent's file by hand changes it for those forks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    """What a session's sidecar says, and the sets that count."""

    user: UserFile
    context: Context


class Edited(NamedTuple):
    """A sidecar to write, or None; the sets that are other ones in it; what to warn of."""

    user: UserFile | None
    names: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    text: str = ""  # of the last change of a set


def read_sidecar(paths: Sequence[Path]) -> Held:
    """What is in a sidecar, and the nearest sets of its session and of those before it.

    A bad file of its own is an error with its path; one of an ancestor is that ancestor's.
    """
    try:
        user = read_user(paths[0]) or UserFile()
    except InvalidMetaError as bad:
        hint = f"mend {paths[0]}, or move it away: it holds what no model can write anew"
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
    """Whether the sets of a file are what counts, although there may be none."""
    return bool(user.context) or bool((user.model_extra or {}).get(CLEARED))


def with_sets(user: UserFile, context: Context, *, fork: bool) -> UserFile:
    """The file with these sets."""
    fields = {key: one for key, one in user.model_dump().items() if key != CLEARED}
    fields["context"] = context
    if fork and not context:
        fields[CLEARED] = True
    return UserFile.model_validate(fields)


def read_all(session_id: str, paths: Sequence[Path]) -> dict[str, Any]:
    """What meta file, sidecar and digest of a session say; what is invalid becomes a warning."""
    directory, warnings = paths[0].parent, list[str]()

    def attempt(read: Callable[[], Any]) -> Any:
        try:
            return read()
        except IndexerdError as bad:
            warnings.append(str(bad))
            return None

    meta = attempt(lambda: read_meta(directory / meta_name(session_id)))
    held = attempt(lambda: read_sidecar(paths))
    found = {
        "meta": meta.model_dump(mode="json", by_alias=True, exclude_none=True) if meta else None,
        "labels": held.user.labels if held else {},
        "context": held.context if held else {},
        "digest": {"segments": attempt(lambda: read_digest(directory / digest_name(session_id)))},
    }
    found["digest"]["segments"] = found["digest"]["segments"] or []
    return found | ({"warnings": warnings} if warnings else {})


def edit(held: Held, asked: Update, *, fork: bool) -> Edited:
    """The sidecar with what is asked for; null clears."""
    fields, warnings = held.user.model_dump(), list[str]()
    if asked.title is not UNSET:
        fields["title"] = _line(asked.title, "title")
    if asked.env_hint is not UNSET:
        hint = asked.env_hint or ""  # a command line: cutting it would make it another one
        fields["env_hint"] = sets.item_of(hint, "envHint") if hint.strip() else None
        warnings += secret_warnings(fields["env_hint"] or "", "envHint")
    if asked.label is not UNSET:
        entry_id, text = label_of(asked)
        labels = {key: one for key, one in held.user.labels.items() if key != entry_id}
        fields["labels"] = labels | ({entry_id: text} if text else {})
    context, names, text = held.context, list[str](), ""
    changes: list[sets.Change] = []
    if asked.context is not UNSET or asked.set_context is None:  # all sets at once
        context, names = {}, [*context]
        if asked.context not in (UNSET, None):
            changes += _changes(asked.context, "context is {set: [items]}, or null to clear it")
    if asked.set_context not in (UNSET, None):
        one = asked.set_context
        if isinstance(one, dict) and "setName" in one:
            items = [] if one.get("items") is None else one["items"]
            changes.append(sets.change_of(one["setName"], items, one.get("mode")))
        else:
            changes += _changes(one, "setContext is {setName, items, mode?}")
    for change in changes:
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


def _changes(value: Any, form: str) -> list[sets.Change]:
    """`{set: items}`; items that are null clear a set."""
    if not isinstance(value, dict):
        raise UsageError(form)
    changes = [sets.change_of(name, [] if one is None else one) for name, one in value.items()]
    if len({one.name for one in changes}) < len(changes):
        raise UsageError("a set is named twice")
    return changes


def label_of(asked: Update) -> tuple[str, str | None]:
    """An entry's id, and its label; None takes that back."""
    given = asked.label
    if not isinstance(given, dict) or not isinstance(given.get("entryId"), str):
        raise UsageError("label is {entryId, text}")
    return given["entryId"], _line(given.get("text"), "label text")


def _line(value: Any, what: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise UsageError(f"{what} is a string, or null to clear it")
    return clean_line(value, NAME_MAX) or None
