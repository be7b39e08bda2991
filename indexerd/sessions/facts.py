"""Gather the facts of a session: activity on its path, tokens and cost of all its branches.

A call's files are removed if its result says that the call failed. An answer that an agent stored
on several lines repeats its token counts on each: the largest counts. Entries that a fork or a
sub-agent copied were done and paid elsewhere.

Prompts, tokens and cost are kept by day and model, and a session's totals are the sums. Days are
UTC, so that they are the same wherever, and whenever, a session is read again.
"""

from __future__ import annotations

import ntpath
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import msgspec
from msgspec import field

from indexerd.agents.base import ContextUse
from indexerd.client import is_windows_path
from indexerd.entries import Entry, Kind, ToolCall
from indexerd.privacy.redact import redact, shown_path
from indexerd.privacy.sanitize import clean_line
from indexerd.protocol.limits import PATH_MAX, USE_MAX
from indexerd.sessions.list_prices import estimated_usd
from indexerd.sessions.titles import headings_in, titles_in
from indexerd.times import DAY_MS, iso_ms

TOKEN_KEYS = ("input", "output", "cacheRead", "cacheWrite")
FILES_MAX = 500  # of each list
TOOLS_MAX = 100
MODELS_MAX = 20
NAME_MAX = 80  # characters of a tool's or a model's name
USES_KEPT = 3  # notable uses of a tool
TITLES_KEPT = 20  # the first and the newest half
DOCUMENTS_KEPT = 6  # of them the first
TITLE_MAX = 200
CALLS_KEPT = 64  # calls whose result may still follow
FAILED_KEPT = 8  # failures whose call may still follow
ANSWERS_KEPT = 8  # answers of which more lines may follow
PAID_KEPT = 4096  # answers of which copies are recognised
USES_MAX = 200  # days and models of one session

_MODELLESS = frozenset({"<synthetic>", "unknown", ""})


class RowFacts(msgspec.Struct, frozen=True, rename="camel"):
    """A session's facts as fields of its row, gathered while its text is indexed."""

    files_read: list[str] = []
    files_modified: list[str] = []
    tools_used: dict[str, int] = {}
    tool_uses: dict[str, list[str]] = {}  # at most three per tool
    models: list[str] = []  # in order of their last use
    tokens: dict[str, int] = {}  # by TOKEN_KEYS
    cost_usd: float | None = None  # if the agent recorded it
    cost_estimated_usd: float | None = None  # at list prices, of what has no recorded cost
    unpriced_tokens: int = 0  # of models without a price, beside others with one
    duration_ms: int = 0  # from the first message to the last


class Use(msgspec.Struct, array_like=True):
    """What one model was used for on one day."""

    day: int  # since the epoch, in UTC
    model: str  # "" for prompts that nothing has answered
    prompts: int = 0
    tokens: tuple[int, ...] = (0, 0, 0, 0)  # by TOKEN_KEYS
    cost_usd: float | None = None  # if the agent recorded it
    estimated_usd: float | None = None  # else, at list prices
    hour: int = 0  # tokens of cache writes that last an hour

    def add(self, other: Use) -> None:
        self.prompts += other.prompts
        self.tokens = tuple(map(sum, zip(self.tokens, other.tokens, strict=True)))
        self.hour += other.hour
        if other.cost_usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + other.cost_usd


class SessionUsage(msgspec.Struct, frozen=True):
    """A session's use by day and model, and its context after the last answer."""

    uses: list[Use]
    context: int = 0  # tokens; 0: unknown
    window: int = 0  # that the agent recorded; 0: unknown
    provider: str = ""
    model: str = ""

    @property
    def estimated_usd(self) -> float | None:
        known = [use.estimated_usd for use in self.uses if use.estimated_usd is not None]
        return round(sum(known), 6) if known else None

    @property
    def unpriced_tokens(self) -> int:
        """How many tokens have no price, if others have one."""
        free = [use for use in self.uses if use.cost_usd is None and use.estimated_usd is None]
        return sum(sum(use.tokens) for use in free) if len(free) < len(self.uses) else 0


class Spent(msgspec.Struct, array_like=True):
    """Prompts, tokens and cost of all branches so far, without copied entries."""

    answers: dict[str, tuple[int, ...]] = field(default_factory=dict)
    uses: list[Use] = field(default_factory=list)  # in order of their first entry
    day: int = 0  # of the last entry with a time
    paid: list[int] = field(default_factory=list)  # hashes of the answers' ids

    def add(self, entry: Entry, current: str = "", *, prompt: bool = False) -> None:
        """Add an entry, by default of the `current` model.

        A `prompt` of the user counts for the model that answers it.
        """
        self.day = iso_ms(entry.timestamp) // DAY_MS or self.day
        if prompt:
            self.book(Use(self.day, "", 1))
        model = clean_line(entry.model or "", NAME_MAX)
        model = current if model in _MODELLESS else model
        if entry.kind is Kind.ASSISTANT and model:
            for waiting in [use for use in self.uses if not use.model and use.prompts]:
                self.book(Use(waiting.day, model, waiting.prompts))
                waiting.prompts = 0
        if (call := entry.tokens) is None:
            return
        new: tuple[int, ...] = (call.input, call.output, call.cache_read, call.cache_write)
        new = (*new, call.hour)
        old: tuple[int, ...] = (0, 0, 0, 0, 0)
        if call.answer:
            own = crc32(call.answer.encode("utf-8", "replace"))
            if call.answer not in self.answers and own in self.paid:
                return  # copied to another branch
            old = self.answers.pop(call.answer, old)
            self.answers[call.answer] = new = tuple(map(max, new, old))
            if not any(old):
                self.paid = [*self.paid[1 - PAID_KEPT :], own]
            _forget_oldest(self.answers, ANSWERS_KEPT)
        *more, hour = (a - b for a, b in zip(new, old, strict=True))
        usd = None if any(old) else call.cost_usd
        self.book(Use(self.day, model, 0, tuple(more), usd, hour=hour))

    def book(self, more: Use) -> None:
        """Add to the day and model; the oldest are put together if there are too many."""
        for use in reversed(self.uses):
            if (use.day, use.model) == (more.day, more.model):
                use.add(more)
                return
        self.uses.append(more)
        if len(self.uses) > USES_MAX:
            self.uses[1].add(self.uses.pop(0))

    def total(self) -> Use:
        whole = Use(0, "")
        for use in self.uses:
            whole.add(use)
        return whole


class ActivityStats(msgspec.Struct, array_like=True):
    """Activity so far. Uses of a file are counted, so a failed edit cancels only itself."""

    reads: dict[str, int] = field(default_factory=dict)
    writes: dict[str, int] = field(default_factory=dict)
    tools: dict[str, int] = field(default_factory=dict)
    uses: dict[str, list[str]] = field(default_factory=dict)
    models: list[str] = field(default_factory=list)  # in order of their last use
    calls: dict[str, tuple[list[str], list[str]]] = field(default_factory=dict)
    first_ms: int = 0
    last_ms: int = 0
    spent: Spent = field(default_factory=Spent)
    titles: list[tuple[str, str, str]] = field(default_factory=list)  # kind, title, call id
    context: tuple[int, str, str] = (0, "", "")  # after the last answer: tokens, provider, model
    failed: list[str] = field(default_factory=list)  # calls that may stand below their failure

    def add(self, entry: Entry, cwd: str, *, copied: bool = False) -> None:
        """Add an entry of the path; of a copied entry only the time and the model count."""
        at, kind = iso_ms(entry.timestamp), entry.kind
        if at and (kind in (Kind.USER, Kind.ASSISTANT) or entry.sent_as == "user"):
            self.first_ms = min(self.first_ms or at, at)
            self.last_ms = max(self.last_ms, at, iso_ms(entry.ended))
        model = clean_line(entry.model or "", NAME_MAX)
        if model not in _MODELLESS and kind in (Kind.ASSISTANT, Kind.SETTING):
            self.models = [*(name for name in self.models if name != model), model][-MODELS_MAX:]
            if entry.tokens and entry.tokens.total:
                self.context = entry.tokens.total, clean_line(entry.provider or "", NAME_MAX), model
        if copied:
            return
        if entry.plan:
            self._entitle("plan", entry.plan, *(call.id for call in entry.tools[:1]))
        for call in entry.tools:
            self._call(call, cwd)
        for call_id in (call_id[:NAME_MAX] for call_id in entry.failed if call_id):
            self.titles = [title for title in self.titles if title[2] != call_id]
            if call_id not in self.calls:
                self.failed = [*self.failed, call_id][-FAILED_KEPT:]
            reads, writes = self.calls.pop(call_id, ((), ()))
            for counts, paths in ((self.reads, reads), (self.writes, writes)):
                for path in paths:
                    counts[path] = counts.get(path, 1) - 1
                    if counts[path] <= 0:
                        del counts[path]

    def facts(self) -> RowFacts:
        """Return the facts of a row; a written file is not listed as read."""
        spent = self.spent.total()
        cost = spent.cost_usd
        return RowFacts(
            files_read=sorted(self.reads.keys() - self.writes.keys()),
            files_modified=sorted(self.writes),
            tools_used=dict(sorted(self.tools.items())),
            tool_uses=dict(sorted(self.uses.items())),
            models=list(self.models),
            tokens=dict(zip(TOKEN_KEYS, spent.tokens, strict=True)),
            cost_usd=None if cost is None else round(cost, 6),
            duration_ms=max(0, self.last_ms - self.first_ms),
        )

    def usage(
        self, counted: Mapping[tuple[int, str], tuple[int, ...]], own: ContextUse, provider: str
    ) -> SessionUsage:
        """Return the use by day; `counted` and `own` are what the agent itself summed up."""
        for (day, model), tokens in counted.items():
            self.spent.book(Use(day, clean_line(model, NAME_MAX), 0, tokens))
        context, of, model = self.context
        if own.used:
            context, of, model = own.used, "", next(reversed(self.models), "")
        uses = [use for use in self.spent.uses if use.prompts or any(use.tokens) or use.cost_usd]
        for use in uses:
            if use.cost_usd is None:
                use.estimated_usd = estimated_usd(use.model, use.tokens, use.hour)
        return SessionUsage(uses, context, own.window, of or clean_line(provider, NAME_MAX), model)

    def _entitle(self, kind: str, text: str, call_id: str = "") -> None:
        title = clean_line(redact(text[: 10 * TITLE_MAX]).text, TITLE_MAX)
        if title and (kind, title) not in ((old[0], old[1]) for old in self.titles):
            self.titles.append((kind, title, call_id[:NAME_MAX]))
            del self.titles[TITLES_KEPT // 2 : -TITLES_KEPT // 2]

    def _call(self, call: ToolCall, cwd: str) -> None:
        if "git revert" in call.detail:
            newest = [title for title in self.titles if title[0] == "commit"][-1:]
            self.titles = [title for title in self.titles if title not in newest]
        for kind, title in titles_in(call.detail):
            self._entitle(kind, title, call.id)
        for heading in headings_in(call):
            if sum(kind == "doc" for kind, *_ in self.titles) < DOCUMENTS_KEPT:
                self._entitle("doc", heading, call.id)
        name = call.name[:NAME_MAX]
        if name and (name in self.tools or len(self.tools) < TOOLS_MAX):
            self.tools[name] = self.tools.get(name, 0) + 1
            # The newest three different uses, without secrets.
            if use := clean_line(redact(call.detail[: 10 * USE_MAX]).text, USE_MAX):
                uses = [earlier for earlier in self.uses.get(name, []) if earlier != use]
                self.uses[name] = [*uses, use][-USES_KEPT:]
        if call.id[:NAME_MAX] in self.failed:
            return
        reads = [absolute(path[:PATH_MAX], cwd) for path in call.reads]
        writes = [absolute(path[:PATH_MAX], cwd) for path in call.writes]
        for counts, paths in ((self.reads, reads), (self.writes, writes)):
            for path in paths:
                if path in counts or len(counts) < FILES_MAX:
                    counts[path] = counts.get(path, 0) + 1
        if call.id and (reads or writes):
            self.calls[call.id[:NAME_MAX]] = (reads[:FILES_MAX], writes[:FILES_MAX])
            _forget_oldest(self.calls, CALLS_KEPT)


def _forget_oldest(entries: dict[str, Any], most: int) -> None:
    while len(entries) > most:
        del entries[next(iter(entries))]


def absolute(path: str, cwd: str) -> str:
    """Make a tool's path argument absolute, by the rules of the system that it is from."""
    path = path.removeprefix("@")
    if is_windows_path(path) or (is_windows_path(cwd) and not path.startswith("/")):
        return ntpath.normpath(ntpath.join(cwd, path))
    return posixpath.normpath(posixpath.join("/", cwd, path))


@dataclass(frozen=True, slots=True)
class FileLists:
    """Paths verbatim, sorted. A modified file is not also listed as read."""

    read: tuple[str, ...]
    modified: tuple[str, ...]


def file_lists(entries: Iterable[Entry]) -> FileLists:
    """List the files of these entries' calls, and those in the agent's own summaries."""
    read: set[str] = set()
    modified: set[str] = set()
    for entry in entries:
        for call in entry.tools:
            read.update(call.reads)
            modified.update(call.writes)
        sums_up = entry.kind in (Kind.COMPACTION, Kind.BRANCH_SUMMARY) and not entry.from_hook
        stored = entry.stored if sums_up and isinstance(entry.stored, dict) else {}
        for paths, key in ((read, "readFiles"), (modified, "modifiedFiles")):
            listed = stored.get(key)
            if isinstance(listed, list):
                paths.update(path for path in listed if isinstance(path, str))
    return FileLists(tuple(sorted(read - modified)), tuple(sorted(modified)))


def fact_fields(facts: RowFacts | None) -> dict[str, Any]:
    """Return the facts as fields of a row; without facts, sums are left out."""
    if facts is None:
        return {"filesRead": [], "filesModified": [], "toolsUsed": {}, "toolUses": {}, "models": []}
    fields: dict[str, Any] = msgspec.to_builtins(facts)
    for key in ("filesRead", "filesModified"):
        fields[key] = [*dict.fromkeys(map(shown_path, fields[key]))]
    if not fields["unpricedTokens"]:
        del fields["unpricedTokens"]
    return fields


def facts_of(row: dict[str, Any] | None) -> RowFacts | None:
    return msgspec.convert(row, RowFacts) if row and "durationMs" in row else None
