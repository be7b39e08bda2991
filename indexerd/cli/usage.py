"""`stats`: what one session, or all of them, used.

Tables have bars on a terminal. On a narrow one, columns are left out before the bar gets too short.
"""

from __future__ import annotations

import shutil
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
from indexerd.errors import UsageError
from indexerd.times import since as moment

Row = dict[str, Any]

DAYS, NAMES = 14, 8  # rows of each group without --by
BAR_MIN, BAR_MAX, NAME_MAX = 6, 40, 36  # columns
_GROUPS = {"day": "days", "agent": "agents", "model": "models", "project": "projects"}
_DROPPED = ("sessions", "prompts", "cost")  # columns, in this order, for want of room
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
        by: [_named(row[field]) for row in rows],
        "sessions": [str(row["sessions"]) for row in rows],
        "prompts": [str(row["prompts"]) for row in rows],
        "tokens": [compact(_tokens(row)) for row in rows],
        "cost": [cost(*_costs(row)) or "-" for row in rows],
    }
    return _bars(cells, [_tokens(row) for row in rows])


def _named(name: str | None) -> str:
    if name and name.startswith("/"):
        from indexerd.privacy.redact import shown_path

        name = render.exact(shown_path(name))
        home = str(Path.home())
        name = f"~{name.removeprefix(home)}" if name.startswith(f"{home}/") else name
    return safe(name or "unknown")


def _costs(sums: Row) -> tuple[float | None, float | None, int]:
    return sums["costUsd"], sums["costEstimatedUsd"], sums["unpricedTokens"]


def _tokens(sums: Row) -> int:
    return sum(sums["tokens"].values())


def _bars(cells: dict[str, list[str]], values: Sequence[int]) -> Iterator[str]:
    """Lay out columns, names first; on a terminal with a bar for each value."""
    if not render.on_terminal():
        yield from map("\t".join, zip(*cells.values(), strict=True))
        return
    from wcwidth import width

    columns = shutil.get_terminal_size().columns
    widths = {name: max(map(width, (name, *texts))) for name, texts in cells.items()}
    first = next(iter(cells))
    widths[first] = min(widths[first], NAME_MAX, max(10, columns // 3))

    def room() -> int:
        return min(BAR_MAX, columns - sum(widths[name] + 2 for name in cells))

    for name in _DROPPED:
        if room() < BAR_MIN and name in cells and len(cells) > 2:  # noqa: PLR2004 - name and value
            del cells[name]
    most = max(values, default=0)

    def line(texts: Sequence[str]) -> str:
        text, *numbers = texts
        while width(text) > widths[first] and "/" in text[2:]:  # a path's end says more
            text = f"…/{text[2:].partition('/')[2]}"
        if len(text) > widths[first] and text.isascii():  # names of models differ at their ends
            text = f"{text[: widths[first] // 2]}…{text[-((widths[first] - 1) // 2) :]}"
        numbers = [
            number.rjust(widths[name]) for number, name in zip(numbers, [*cells][1:], strict=True)
        ]
        return "  ".join([render.fitted(text, widths[first]), *numbers])

    yield render.dim(line([*cells]))
    for texts, value in zip(zip(*cells.values(), strict=True), values, strict=True):
        bar = "█" * round(room() * value / most) if most else ""
        yield f"{line(texts)}  {bar or '▏' * (value > 0)}".rstrip()
