"""What the sessions used: prompts, tokens and cost by day, agent, model and project.

Days are UTC; lines without a time count on the day their session began. A day of a session counts
if something was used on it; sub-agents' sessions use tokens but are not counted as sessions.
The longest sessions, and contexts, are those of the sessions last active in the range. What
indexing cost is what the budget's journal still has.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from indexerd.errors import UsageError
from indexerd.models.budget import journal
from indexerd.models.prices import window_of
from indexerd.protocol.params import Usage
from indexerd.sessions.facts import TOKEN_KEYS
from indexerd.store.store import StateStore
from indexerd.times import DAY_MS, iso_ms, iso_of_ms

RANKED, GROUPS_MAX, DAYS_MAX = 10, 1000, 4000
_COSTS = ("costUsd", "costEstimatedUsd")
_AMOUNTS = ("durationMs", "userMessageCount", *_COSTS)
_TOTALS = ("sessions", "prompts", "tokens", *_COSTS, "unpricedTokens")
_SHOWN = ("sessionId", "name", "agent", "cwd", "movedTo", "modifiedAt", *_AMOUNTS)

_USED = """WITH used AS MATERIALIZED (
  SELECT iif(day, day, created / 86400000) AS date, agent, usage.model AS model, project AS cwd,
    CASE WHEN NOT subagent THEN id END AS own, session.hidden AS hidden,
    usage.prompts AS prompts, input, output, cache_read, cache_write, usage.cost AS cost, estimated,
    iif(coalesce(usage.cost, estimated) IS NULL, input + output + cache_read + cache_write, 0)
      AS unpriced
  FROM usage JOIN session USING (id)
  WHERE date BETWEEN ? AND ?)
"""
_SUMS = (
    "count(DISTINCT own), total(prompts), total(input), total(output), total(cache_read),"
    " total(cache_write), sum(cost), sum(estimated), total(unpriced)"
)
_GROUPS = {"days": "date", "agents": "agent", "models": "model", "projects": "cwd"}
_IN_SPAN = "NOT subagent AND NOT hidden AND modified >= ? AND modified < ?"

Row = dict[str, Any]
Span = tuple[int, int]  # first and last day


def usage(store: StateStore, args: Usage, calls: Path) -> Row:
    """Sum up the sessions' use; `calls` is the budget's journal."""
    first, last = span = _day(args.since, 0), _day(args.until, sys.maxsize // DAY_MS)
    return {
        "since": _date(first) if args.since else None,
        "until": _date(last) if args.until else None,
        **_grouped(store, span),
        "longest": _longest(store, span),
        "mostPrompts": _most_prompts(store, span),
        "context": _contexts(store, span),
        "indexing": _indexing(calls, span),
    }


def _day(time: str | None, default: int) -> int:
    if time is None:
        return default
    if not iso_ms(time):
        raise UsageError("not a time", hint="write it like 2026-01-31, or 2026-01-31T12:00:00Z")
    return iso_ms(time) // DAY_MS


def _date(day: int) -> str:
    return iso_of_ms(day * DAY_MS)[:10]


def _grouped(store: StateStore, span: Span) -> Row:
    """Return the totals, the days in order, and the other groups by tokens."""
    queries = [f"SELECT 'totals', '', {_SUMS} FROM used"]  # noqa: S608 - our own
    for key, column in _GROUPS.items():
        queries.append(f"SELECT '{key}', {column}, {_SUMS} FROM used GROUP BY {column}")  # noqa: S608 - our own
    found = defaultdict[str, list[Row]](list)
    for key, value, *sums in store.select(_USED + " UNION ALL ".join(queries), *span):
        named = {"day": _date(value)} if key == "days" else {_GROUPS.get(key, ""): value}
        found[key].append(named | _sums(sums))
    for key, groups in found.items():
        if key != "days":
            groups.sort(key=lambda group: -sum(group["tokens"].values()))
    answer: Row = {key: found[key][:GROUPS_MAX] for key in _GROUPS}
    answer["days"] = sorted(found["days"], key=lambda group: group["day"])[-DAYS_MAX:]
    return {"totals": {key: found["totals"][0][key] for key in _TOTALS}, **answer}


def _sums(sums: Sequence[Any]) -> Row:
    sessions, prompts, *tokens, cost, estimated, unpriced = sums
    return {
        "sessions": sessions,
        "prompts": int(prompts),
        "tokens": dict(zip(TOKEN_KEYS, map(int, tokens), strict=True)),
        "costUsd": None if cost is None else round(cost, 6),
        "costEstimatedUsd": None if estimated is None else round(estimated, 6),
        "unpricedTokens": int(unpriced),
    }


def _longest(store: StateStore, span: Span) -> list[Row]:
    sql = (
        f"SELECT id FROM session WHERE {_IN_SPAN} AND duration > 0"  # noqa: S608 - our own
        f" ORDER BY duration DESC, id LIMIT {RANKED}"
    )
    return _shown(store, (row[0] for row in store.select(sql, *_times(span))))


def _most_prompts(store: StateStore, span: Span) -> list[Row]:
    """List the sessions with the most prompts in the range; these are their `userMessageCount`."""
    sql = (
        f"{_USED} SELECT own, total(prompts) AS asked FROM used WHERE own NOTNULL AND NOT hidden"  # noqa: S608 - our own
        f" GROUP BY own HAVING asked ORDER BY asked DESC, own LIMIT {RANKED}"
    )
    asked = dict(store.select(sql, *span))
    rows = _shown(store, asked)
    return [row | {"userMessageCount": int(asked[row["sessionId"]])} for row in rows]


def _shown(store: StateStore, session_ids: Iterable[str]) -> list[Row]:
    rows = store.get_many(session_ids).values()
    return [{key: row.get(key) for key in _SHOWN} for row in rows]


def _times(span: Span) -> tuple[int, int]:
    first, last = span
    return first * DAY_MS, min((last + 1) * DAY_MS, sys.maxsize)


def _contexts(store: StateStore, span: Span) -> Row:
    """Count sessions by how full their context was at the last answer, in tenths of the window."""
    tenths, unknown = [0] * 10, 0
    sql = (
        "SELECT context, context_window, provider, model FROM session"  # noqa: S608 - our own
        f" WHERE {_IN_SPAN} AND context > 0"
    )
    for used, recorded, provider, model in store.select(sql, *_times(span)):
        known = recorded if recorded and recorded >= used else None
        if window := known or window_of(provider, model or "", used):
            tenths[min(9, 10 * used // window)] += 1
        else:
            unknown += 1
    return {"tenths": tenths, "unknown": unknown}


def _indexing(path: Path, span: Span) -> Row:
    first, last = span
    calls = [call for call in journal(path) if first <= 1000 * call.t // DAY_MS <= last]
    days, models = defaultdict[str, list[Any]](list), defaultdict[str, list[Any]](list)
    for call in calls:
        days[_date(int(1000 * call.t // DAY_MS))].append(call.usd)
        models[call.model].append(call.usd)
    return {
        **_cost(call.usd for call in calls),
        "since": min(days, default=None),
        "days": [{"day": day, **_cost(costs)} for day, costs in sorted(days.items())],
        "models": [{"model": model, **_cost(costs)} for model, costs in sorted(models.items())],
    }


def _cost(costs: Iterable[float | None]) -> Row:
    known = [*costs]
    total = round(sum(cost or 0.0 for cost in known), 6)
    return {"calls": len(known), "costUsd": total, "unpricedCalls": known.count(None)}
