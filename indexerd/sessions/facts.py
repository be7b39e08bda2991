"""What was done on a session's path, and what all of the session took, entry by entry.

In: entries read in full, each once: those of the path, root first, for files, tools and models;
those of every branch for tokens and cost, because what was paid for stays paid when a branch is
left. Out: `Facts`, as rows and meta files show them. A call counts when it is made; what it read
or wrote is taken back if its result says that it came to nothing, which is why the newest calls
are remembered. An answer that an agent stored on several lines repeats its token counts on each:
of one answer the largest counts. What a fork or a sub-agent copied was done and paid in the
session it was copied from.

Everything is bounded: what a session holds was written by any hand.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import Any

import msgspec

from indexerd.events import Entry, Kind, Tokens, ToolCall
from indexerd.privacy.redact import redact, shown_paths
from indexerd.privacy.sanitize import clean_line
from indexerd.protocol.limits import USE_MAX
from indexerd.times import iso_ms

TOKEN_KEYS = ("input", "output", "cacheRead", "cacheWrite")
FILES_MAX = 500  # of each list
TOOLS_MAX = 100
MODELS_MAX = 20
NAME_MAX = 80  # characters of a tool's or a model's name
USES_KEPT = 3  # notable uses of a tool (S2.12)
CALLS_KEPT = 64  # calls whose result may still come
ANSWERS_KEPT = 8  # answers whose further lines may still come
PATH_MAX = 4096

_MODELLESS = frozenset({"<synthetic>", "unknown", ""})


@dataclass(frozen=True, slots=True)
class Facts:
    """What was done on a session's path, gathered as its text was indexed."""

    files_read: tuple[str, ...] = ()
    files_modified: tuple[str, ...] = ()
    tools_used: tuple[tuple[str, int], ...] = ()
    tool_uses: tuple[tuple[str, tuple[str, ...]], ...] = ()  # at most three a tool
    models: tuple[str, ...] = ()  # in order of their last use
    tokens: tuple[int, int, int, int] = (0, 0, 0, 0)  # input, output, cache read, cache write
    cost_usd: float | None = None  # where the agent recorded it
    duration_ms: int = 0  # from the first message to the last


class Spent(msgspec.Struct, array_like=True):
    """Tokens and cost so far."""

    answers: dict[str, tuple[int, int, int, int]] = msgspec.field(default_factory=dict)
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost_usd: float | None = None

    def add(self, tokens: Tokens) -> None:
        """Take in what one line says."""
        new = (tokens.input, tokens.output, tokens.cache_read, tokens.cache_write)
        old = (0, 0, 0, 0)
        if tokens.answer:
            old = self.answers.pop(tokens.answer, old)
            new = tuple(map(max, new, old))  # type: ignore[assignment]  # four stay four
            self.answers[tokens.answer] = new
            while len(self.answers) > ANSWERS_KEPT:
                del self.answers[next(iter(self.answers))]
        self.input += new[0] - old[0]
        self.output += new[1] - old[1]
        self.cache_read += new[2] - old[2]
        self.cache_write += new[3] - old[3]
        if tokens.cost_usd is not None and not any(old):
            self.cost_usd = (self.cost_usd or 0.0) + tokens.cost_usd


class ActivityStats(msgspec.Struct, array_like=True):
    """The sum so far. Files are counted, so that one failed edit leaves the good ones."""

    reads: dict[str, int] = msgspec.field(default_factory=dict)
    writes: dict[str, int] = msgspec.field(default_factory=dict)
    tools: dict[str, int] = msgspec.field(default_factory=dict)
    uses: dict[str, list[str]] = msgspec.field(default_factory=dict)
    models: list[str] = msgspec.field(default_factory=list)  # in order of their last use
    calls: dict[str, tuple[list[str], list[str]]] = msgspec.field(default_factory=dict)
    first_ms: int = 0
    last_ms: int = 0
    spent: Spent = msgspec.field(default_factory=Spent)

    def add(self, entry: Entry, cwd: str, *, copied: bool = False) -> None:
        """Take in one entry of the path. Paths are made absolute against `cwd`.

        Of one that was copied from another session only its time and its model are told.
        """
        self._time(entry)
        if entry.model and entry.kind in (Kind.ASSISTANT, Kind.SETTING):
            self._model(entry.model)
        if copied:
            return
        for call in entry.tools:
            self._call(call, cwd)
        for call_id in entry.failed:
            self._take_back(call_id)

    def pay(self, entry: Entry) -> None:
        """Take in what one entry took, on whichever branch it is; not of one that was copied."""
        if entry.tokens is not None:
            self.spent.add(entry.tokens)

    def facts(self) -> Facts:
        """What is shown of it: a file that was written is not listed as read, too."""
        written = {path for path, count in self.writes.items() if count > 0}
        seen = [path for path, n in self.reads.items() if n > 0 and path not in written]
        spent = self.spent
        return Facts(
            files_read=tuple(sorted(seen)),
            files_modified=tuple(sorted(written)),
            tools_used=tuple(sorted(self.tools.items())),
            tool_uses=tuple((name, tuple(uses)) for name, uses in sorted(self.uses.items())),
            models=tuple(self.models),
            tokens=(spent.input, spent.output, spent.cache_read, spent.cache_write),
            cost_usd=None if spent.cost_usd is None else round(spent.cost_usd, 6),
            duration_ms=max(0, self.last_ms - self.first_ms),
        )

    def _time(self, entry: Entry) -> None:
        at = iso_ms(entry.timestamp)
        if at and entry.kind in (Kind.USER, Kind.ASSISTANT):
            self.first_ms = min(self.first_ms or at, at)
            self.last_ms = max(self.last_ms, at)

    def _call(self, call: ToolCall, cwd: str) -> None:
        name = call.name[:NAME_MAX]
        if name and (name in self.tools or len(self.tools) < TOOLS_MAX):
            self.tools[name] = self.tools.get(name, 0) + 1
            self._use(name, call.detail)
        reads, writes = (
            [absolute(path[:PATH_MAX], cwd) for path in paths]
            for paths in (call.reads, call.writes)
        )
        for counts, paths in ((self.reads, reads), (self.writes, writes)):
            for path in paths:
                if path in counts or len(counts) < FILES_MAX:
                    counts[path] = counts.get(path, 0) + 1
        if call.id and (reads or writes):
            self.calls[call.id[:NAME_MAX]] = (reads[:FILES_MAX], writes[:FILES_MAX])
            while len(self.calls) > CALLS_KEPT:
                del self.calls[next(iter(self.calls))]

    def _use(self, name: str, detail: str) -> None:
        """Keep the newest three uses that differ, without secrets."""
        use = clean_line(redact(detail[: 10 * USE_MAX]).text, USE_MAX)
        if not use:
            return
        uses = [one for one in self.uses.get(name, []) if one != use]
        self.uses[name] = [*uses, use][-USES_KEPT:]

    def _take_back(self, call_id: str) -> None:
        reads, writes = self.calls.pop(call_id[:NAME_MAX], ((), ()))
        for counts, paths in ((self.reads, reads), (self.writes, writes)):
            for path in paths:
                counts[path] = counts.get(path, 1) - 1
                if counts[path] <= 0:
                    del counts[path]

    def _model(self, model: str) -> None:
        name = clean_line(model, NAME_MAX)
        if name not in _MODELLESS:
            self.models = [*(one for one in self.models if one != name), name][-MODELS_MAX:]


def absolute(path: str, cwd: str) -> str:
    """A path as a tool was given it, made absolute."""
    path = path.removeprefix("@")
    return posixpath.normpath(posixpath.join("/", cwd, path))


def fact_fields(facts: Facts | None) -> dict[str, Any]:
    """The facts as fields of a row; without them no sum is said, not even 0."""
    if facts is None:
        return {"filesRead": [], "filesModified": [], "toolsUsed": {}, "toolUses": {}, "models": []}
    return {
        "filesRead": list(shown_paths(facts.files_read)),
        "filesModified": list(shown_paths(facts.files_modified)),
        "toolsUsed": dict(facts.tools_used),
        "toolUses": {name: list(uses) for name, uses in facts.tool_uses},
        "models": list(facts.models),
        "tokens": dict(zip(TOKEN_KEYS, facts.tokens, strict=True)),
        "costUsd": facts.cost_usd,
        "durationMs": facts.duration_ms,
    }


def facts_of(row: dict[str, Any] | None) -> Facts | None:
    """The facts that a row holds, if its session was read."""
    if row is None or "durationMs" not in row:
        return None
    tokens = row.get("tokens", {})
    return Facts(
        files_read=tuple(row.get("filesRead", ())),
        files_modified=tuple(row.get("filesModified", ())),
        tools_used=tuple(row.get("toolsUsed", {}).items()),
        tool_uses=tuple((name, tuple(uses)) for name, uses in row.get("toolUses", {}).items()),
        models=tuple(row.get("models", ())),
        tokens=(*(tokens.get(key, 0) for key in TOKEN_KEYS),),
        cost_usd=row.get("costUsd"),
        duration_ms=row["durationMs"],
    )
