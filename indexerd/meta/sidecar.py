"""A session's sidecar, with the context sets that a fork has from its parent.

A fork without sets of its own has its parent's; one whose sets were cleared says so in its file.
Paths of sidecars begin with the session's own, then come those of its ancestors, nearest first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import UNSET

from indexerd.errors import AccessError, IndexerdError, InvalidMetaError
from indexerd.meta import context_sets as sets
from indexerd.meta.context_sets import Context
from indexerd.meta.model import UserFile, digest_name, read_digest, read_meta, read_user
from indexerd.paths import meta_name
from indexerd.privacy.redact import secret_warnings
from indexerd.privacy.sanitize import clean_line
from indexerd.protocol.limits import NAME_MAX
from indexerd.protocol.params import ContextSet, Update


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
    found = user
    for path in paths[1:]:
        if found.context or found.context_cleared:
            break
        with suppress(InvalidMetaError, AccessError):
            found = read_user(path) or found
    return Held(user, found.context)


def read_all(session_id: str, paths: Sequence[Path]) -> dict[str, Any]:
    """Read a session's meta file, sidecar and digest; an invalid file becomes a warning."""
    directory, warnings = paths[0].parent, list[str]()
    found: dict[str, Any] = {"meta": None, "labels": {}, "context": {}, "digest": {"segments": []}}

    @contextmanager
    def attempt() -> Iterator[None]:
        try:
            yield
        except IndexerdError as bad:
            warnings.append(str(bad))

    with attempt():
        if meta := read_meta(directory / meta_name(session_id)):
            found["meta"] = meta.model_dump(mode="json", by_alias=True, exclude_none=True)
    with attempt():
        held = read_sidecar(paths)
        found |= {"labels": held.user.labels, "context": held.context}
    with attempt():
        found["digest"] = {"segments": read_digest(directory / digest_name(session_id))}
    return found | ({"warnings": warnings} if warnings else {})


def edit(held: Held, asked: Update, *, fork: bool) -> Edited:
    """Make the sidecar with the changes that a client asks for; null clears."""
    fields, warnings = dict[str, Any](), list[str]()
    if asked.title is not UNSET:
        fields["title"] = clean_line(asked.title or "", NAME_MAX) or None
    if asked.env_hint is not UNSET:
        hint = asked.env_hint or ""  # a command line: cutting it would make it another command
        fields["env_hint"] = sets.item_of(hint, "envHint") if hint.strip() else None
        warnings += secret_warnings(hint, "envHint")
    if asked.label:
        text = clean_line(asked.label.text or "", NAME_MAX)
        labels = held.user.labels | {asked.label.entry_id: text}
        fields["labels"] = {key: one for key, one in labels.items() if one}
    context, names, text = held.context, list[str](), ""
    changes = list[ContextSet]()
    if asked.context is not UNSET or asked.set_context is None:  # all sets at once
        context, names = {}, [*context]
        given = (asked.context or {}).items()
        changes = [ContextSet(set_name=name, items=items) for name, items in given]
    changes += [asked.set_context] if asked.set_context else []
    for change in changes:
        outcome = sets.apply(context, change.set_name, change.items or [], change.mode)
        names += [outcome.name] if outcome.changed else []
        context, text = outcome.context, outcome.text
        warnings += outcome.warnings
    if names:
        fields |= {"context": context, "context_cleared": True if fork and not context else None}
    new = held.user.model_copy(update=fields) if fields else None
    return Edited(new, tuple(dict.fromkeys(names)), tuple(warnings), text)
