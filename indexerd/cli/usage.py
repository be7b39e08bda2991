"""`stats`: what one session, or all of them, used.

Tables have bars on a terminal; a narrow one has room for tokens only.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from indexerd.amounts import compact, cost, count, dollars, duration
from indexerd.cli import main as cli
from indexerd.cli import printing as render
from indexerd.cli.backend import aside, project, safe
from indexerd.cli.sessions import SINCE
from indexerd.client import is_windows_path
from indexerd.errors import UsageError
from indexerd.times import since as moment

Row = dict[str, Any]

DAYS, NAMES = 14, 8  # rows of each group without --by
BAR_MAX, NAME_MAX, BESIDE = 40, 24, 80  # columns: of a bar, of a name, beside a longer name
ALL_FIT = 70  # columns of a terminal, below which a table has tokens only
_GROUPS = {"day": "days", "agent": "agents", "model": "models", "project": "projects"}
UNTIL = cli.option(
    "--until",
    "Only days until then, included: yesterday, 2026-10-31.",
    metavar="TIME",
    type=lambda text: moment(text, time.time()),
)
BY = cli.option("--by", "Only this grouping, in full.", type=click.Choice([*_GROUPS]))


@cli.command(cli.ANY_REF, SINCE, UNTIL, BY)
def stats(ref: str | None, since: str | None, until: str | None, by: str | None) -> Iterator[str]:
    """Show what all sessions used, or how full one's context is.

    Without REF: prompts, tokens and cost by day (UTC), agent, model and project, the longest
    sessions, how full contexts were at the last answer, and what indexing cost.
    """
    if ref:
        if since or until or by:
            raise UsageError("--since, --until and --by are for all sessions", hint="omit REF")
        answer = cli.current().call("stats", {"ref": ref, "cwd": project()})
        if not cli.as_json(answer):
            yield from render.fields(_of_one(answer))
        return
    answer = cli.current().call("usage", {"since": since, "until": until})
    if cli.as_json(answer):
        return
    if not answer["days"]:
        days = (("on or after", answer["since"]), ("until", answer["until"]))
        named = " and ".join(f"{when} {day} (UTC)" for when, day in days if day)
        aside(f"nothing was used {named or 'yet'}")
    elif by:
        yield from _group(by, answer[_GROUPS[by]])
    else:
        for line in _overview(answer):
            yield from render.wrapped(line)


def _of_one(answer: Row) -> Row:
    used, window, sums = answer["contextTokens"], answer.get("window"), answer["totals"]
    size = f"{'about ' * answer['estimated']}{compact(used)}"
    context = f"{size} tokens; the size of the model's window is not known"
    if window:
        context = f"{size} of {compact(window)} tokens ({100 * used / window:.0f}%)"
    due = ", ".join(agent for agent, is_due in answer["shouldCompact"].items() if is_due)
    shown = {"context": context, "warnings": answer["warnings"]}
    shown |= {"compaction": f"due by the rules of {due}" if due else window and "not due"}
    kept = "userMessages messages entries compactions toolCalls filesRead filesModified"
    shown |= {name: sums[name] for name in kept.split()}
    if done := sums["foldedMessages"]:
        shown["summarised"] = f"{done:,} of {sums['fullMessageCount']:,} prompts and answers"
        shown["tokensSaved"] = sums["savedTokens"]
    keys = ("input", "output", "cacheRead", "cacheWrite")
    shown["tokens"] = {key: sums.get(f"{key}Tokens", 0) for key in keys}
    costs = ("costUsd", "costEstimatedUsd", "unpricedTokens")
    shown |= {key: sums.get(key) for key in (*costs, "durationMs")}
    return shown | render.unpriced(shown)


def _overview(answer: Row) -> Iterator[str]:
    sums = answer["totals"]
    sessions = count(sums["sessions"], "session")
    yield from render.heading(f"{sessions} with use, {count(sums['prompts'], 'prompt')}")
    tokens, (recorded, estimated, unpriced) = compact(_tokens(sums)), _costs(sums)
    facts = [f"{tokens} tokens"]
    facts += [f"{dollars(recorded)} recorded by agents"] if recorded is not None else []
    facts += [f"{cost(None, estimated)} estimated at list prices"] if estimated else []
    yield ", ".join(facts)
    if unpriced:
        yield f"{compact(unpriced)} of {tokens} tokens have no known price"
    for by, key in _GROUPS.items():
        rows = answer[key][-DAYS:] if by == "day" else answer[key][:NAMES]
        more = len(answer[key]) - len(rows)
        yield from ("", *_group(by, rows))
        if more:
            yield f"{more} more; --by {by} shows all"
    longest = [row for row in answer["longest"] if row["durationMs"]][:5]
    lines = [(duration(row["durationMs"]), row["name"]) for row in longest]
    yield from ("", *render.table(("lasted", "longest sessions"), lines))
    tenths, unknown = answer["context"]["tenths"], answer["context"]["unknown"]
    if any(tenths):
        labels = [f"{10 * at}-{10 * at + 10}%" for at in range(10)]
        cells = {"context used": labels, "sessions": [*map(str, tenths)]}
        yield from ("", *_bars(cells, tenths))
        if unknown:
            yield f"{count(unknown, 'session')} with a model of unknown window"
    indexing = answer["indexing"]
    since, unpriced = indexing["since"], indexing["unpricedCalls"]
    spent = dollars(indexing["costUsd"])
    yield from ("", f"Indexing: {spent} since {since}" if since else "Indexing: no remote calls")
    if unpriced:
        yield f"{count(unpriced, 'call')} of unknown cost"


def _group(by: str, rows: Sequence[Row]) -> Iterator[str]:
    field = "cwd" if by == "project" else by
    cells = {
        by: _ends([_named(row[field]) for row in rows]),
        "sessions": [str(row["sessions"]) for row in rows],
        "prompts": [str(row["prompts"]) for row in rows],
        "tokens": [compact(_tokens(row)) for row in rows],
        "cost": [cost(*_costs(row)) or "-" for row in rows],
    }
    if render.columns() < ALL_FIT:
        cells = {name: cells[name] for name in (by, "tokens")}
    return _bars(cells, [_tokens(row) for row in rows])


def _named(name: str | None) -> str:
    if name and (name.startswith("/") or is_windows_path(name)):
        from indexerd.privacy.redact import shown_path

        name = render.exact(shown_path(name))
        home = str(Path.home())
        name = f"~{name.removeprefix(home)}" if name.startswith(f"{home}/") else name
    return safe(name or "unknown")


def _ends(names: list[str]) -> list[str]:
    """On a terminal, cut long names to their ends, which say more, and still tell them apart."""
    if not render.on_terminal():
        return names
    for most in range(max(NAME_MAX, int(render.columns()) - BESIDE), NAME_MAX + BESIDE, 4):
        cut = [name if len(name) <= most else f"…{name[1 - most :]}" for name in names]
        if len({*cut}) == len(names):
            return cut
    return names


def _costs(sums: Row) -> tuple[float | None, float | None, int]:
    return sums["costUsd"], sums["costEstimatedUsd"], sums["unpricedTokens"]


def _tokens(sums: Row) -> int:
    return sum(sums["tokens"].values())


def _bars(cells: dict[str, list[str]], values: Sequence[int]) -> Iterator[str]:
    """Lay out columns, names first; on a terminal with a bar for each value."""
    if render.on_terminal():
        from wcwidth import width

        for name in [*cells][1:]:
            cells[name] = [text.rjust(max(map(len, (name, *cells[name])))) for text in cells[name]]
        used = sum(max(map(width, (name, *texts))) + 2 for name, texts in cells.items())
        room, most = min(BAR_MAX, render.columns() - used), max(values, default=0) or 1
        cells[""] = ["█" * round(room * value / most) or "▏" * (value > 0) for value in values]
    return render.table([*cells], zip(*cells.values(), strict=True))
