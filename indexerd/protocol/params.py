"""The params of each method of the socket, and how they are checked.

Unknown fields are ignored. Null is the same as an absent field, but in `Update` it clears a field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from indexerd.errors import UsageError
from indexerd.protocol.limits import TAGS_MAX

Text = Annotated[str, Meta(min_length=1)]
Instructions = Annotated[str, Meta(max_length=4000)]
Limit = Annotated[int, Meta(ge=1, le=500)]  # rows or hits of one answer

Scope = Literal["project", "all"]


class Params(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The params of a method that takes none."""


class RefParams(Params, frozen=True, kw_only=True):
    """A session by id, id prefix or name; names are looked up in `cwd` first."""

    ref: Text
    cwd: str | None = None


class LeafParams(RefParams, frozen=True, kw_only=True):
    """A session as seen from an entry; None: from its current leaf."""

    leaf: Text | None = None


class SessionParams(Params, frozen=True, kw_only=True):
    """Like `RefParams`, for methods that agents call."""

    session: Text
    cwd: str | None = None


class Filters(Params, frozen=True, kw_only=True):
    agent: str | None = None
    cwd: str | None = None
    since: str | None = None
    tag: str | None = None
    archived: bool = False
    subagents: bool = False
    hidden: bool = False


class List(Filters, frozen=True, kw_only=True):
    limit: Limit = 50
    cursor: str | None = None
    sort: Literal["recent", "cost", "longest", "prompts"] = "recent"
    state: Literal["waiting", "active", "failed", "compacted", "idle", "archived"] | None = None


class Counts(Filters, frozen=True, kw_only=True):
    """Count sessions; `times` are further values of `since` to count for."""

    times: Annotated[list[str], Meta(max_length=10)] = []


class Usage(Params, frozen=True, kw_only=True):
    """Days, in UTC, from `since` to `until`, both included; None: without end."""

    since: str | None = None
    until: str | None = None


class Resolve(RefParams, frozen=True, kw_only=True):
    scope: Scope | None = None
    exclude: str | None = None  # the session that asks


class Complete(Params, frozen=True, kw_only=True):
    prefix: str | None = None
    cwd: str | None = None
    exclude: str | None = None
    limit: Limit = 20


class Search(Params, frozen=True, kw_only=True):
    query: Text
    agent: str | None = None
    cwd: str | None = None
    since: str | None = None
    tag: str | None = None
    limit: Limit = 20
    rows: bool = False


class Tree(LeafParams, frozen=True, kw_only=True):
    filter: Literal["default", "no-tools", "user-only", "labeled-only", "all"] | None = None
    search: str | None = None


class Path(LeafParams, frozen=True, kw_only=True):
    custom_type: str | None = None


class Rule(Params, frozen=True, kw_only=True, tag_field="rule", forbid_unknown_fields=True):
    """A rule that changes one answer of `context`, and never the session itself."""


class Prune(Rule, tag="prune", frozen=True, kw_only=True):
    """Clear the results of tools, except the newest `protect_tokens` tokens of them."""

    protect_tokens: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 40_000  # as opencode does


class Summary(Rule, tag="summary", frozen=True, kw_only=True):
    """Replace the messages from one entry to another, both included, by a text."""

    text: Annotated[str, Meta(min_length=1, max_length=65_536)]
    first: Text | None = msgspec.field(default=None, name="from")  # None: from the start
    last: Text | None = msgspec.field(default=None, name="to")


class Truncate(Rule, tag="truncate", frozen=True, kw_only=True):
    """Keep only the head or the tail of texts longer than `chars`; `roles` None: of every role."""

    chars: Annotated[int, Meta(ge=100, le=1_000_000_000)]
    keep: Literal["head", "tail"] = "head"
    roles: list[Text] | None = None


class Context(LeafParams, frozen=True, kw_only=True):
    transforms: Annotated[list[Prune | Summary | Truncate], Meta(max_length=20)] | None = None
    serialize: bool = False


class History(LeafParams, frozen=True, kw_only=True):
    full: bool = False


class Compact(LeafParams, frozen=True, kw_only=True):
    strategy: Literal["pi", "codex", "opencode"] | None = None
    instructions: Instructions | None = None
    handoff: bool = False
    keep_recent_tokens: Annotated[int, Meta(ge=0, le=1_000_000)] = 20_000


class BranchSummary(RefParams, frozen=True, kw_only=True):
    leaf: Text
    instructions: Instructions | None = None
    replace_instructions: bool = False


class Branch(RefParams, frozen=True, kw_only=True):
    leaf: Text
    file: str | None = None


class Label(RefParams, frozen=True, kw_only=True):
    entry_id: Text
    text: str | None = None


class EntryLabel(Params, frozen=True, kw_only=True):
    """A label to set on an entry; without a text the label is removed."""

    entry_id: Text
    text: str | None = None


class ContextSet(Params, frozen=True, kw_only=True):
    """A context set to store; without items it is cleared."""

    set_name: Text
    items: list[str] | None = None
    mode: Any = None  # meta.sidecar checks it


class Update(RefParams, frozen=True, kw_only=True):
    title: str | UnsetType | None = UNSET
    env_hint: str | UnsetType | None = UNSET
    label: EntryLabel | UnsetType = UNSET
    context: dict[str, list[str] | None] | UnsetType | None = UNSET
    set_context: ContextSet | UnsetType | None = UNSET
    tags: Annotated[list[str], Meta(max_length=TAGS_MAX)] | UnsetType | None = UNSET
    pinned: bool | UnsetType | None = UNSET
    hidden: bool | UnsetType | None = UNSET


class Expand(Params, frozen=True, kw_only=True):
    text: str
    session_id: str | None = None
    cwd: str | None = None
    turn_id: str | None = None
    max_bytes: Annotated[int, Meta(ge=500)] | UnsetType = UNSET


class QuerySession(SessionParams, frozen=True, kw_only=True):
    question: Text
    leaf: str | None = None
    turn_id: str | None = None


class SetContext(SessionParams, frozen=True, kw_only=True):
    set_name: Text
    items: list[str]
    mode: Any = None  # meta.sidecar checks it


class GetContext(SessionParams, frozen=True, kw_only=True):
    set_name: str | None = None


class ResumeContext(SessionParams, frozen=True, kw_only=True):
    resume_id: str | None = None


class Index(Params, frozen=True, kw_only=True):
    ref: Text | None = None
    cwd: str | None = None
    force: bool = False
    wait: bool = False
    all: bool = False
    dry_run: bool = False


class Move(Params, frozen=True, kw_only=True):
    """Without directories, only list the moves."""

    old: Text | None = None
    new: Text | None = None
    undo: bool = False


class Fleet(Params, frozen=True, kw_only=True):
    """`target`: the server's address for `init`, a code for `join`, a machine for `remove`."""

    do: Literal["status", "init", "join", "leave", "remove", "rotate-key"] = "status"
    target: Text | None = None


class Purge(RefParams, frozen=True, kw_only=True):
    transcript: bool = False
    dry_run: bool = False
    by: Literal["cli", "socket"] | None = None


class Subscribe(Params, frozen=True, kw_only=True):
    events: list[str] | None = None


_P = TypeVar("_P", bound=msgspec.Struct)


def decode(shape: type[_P], params: Mapping[str, Any], *, strict: bool = True) -> _P:
    """Check params; UsageError says which field is wrong, without its value."""
    try:
        return msgspec.convert(params, shape, strict=strict)
    except msgspec.ValidationError as bad:
        why, _, at = str(bad).partition(" - at `$")
        why = re.sub("Invalid enum value .*", "not one of the known values", why, flags=re.DOTALL)
        why = re.sub("Expected `array` of length <= (.*)", r"at most \1 are allowed", why)
        why = re.sub("Expected `str` of length <= (.*)", r"at most \1 characters are allowed", why)
        why = why.replace("Expected `str` of length >= 1", "is empty")
        why = re.sub("Expected `(?:int|float)` >= (.*)", r"must be at least \1", why)
        why = re.sub("Expected `(?:int|float)` <= (.*)", r"must be at most \1", why)
        field = at.strip(".`") or "params"
        if missing := re.fullmatch(r"Object missing required field `(\w+)`", why):
            field, why = missing[1], "is required"
        raise UsageError(f"{field}: {why}") from None
