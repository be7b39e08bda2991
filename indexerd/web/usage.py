"""The usage page: what all sessions used, as pictures that are made here, as SVG.

Every picture has a title, a description and a table with the same figures. Bars of one picture
have one scale, which begins at 0. Nothing in the page needs a script.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from indexerd.amounts import compact, cost, dollars
from indexerd.errors import IndexerdError
from indexerd.paths import directory_of
from indexerd.web.daemon_client import Daemon
from indexerd.web.home import (
    TITLE_MAX,
    Filters,
    Row,
    Shown,
    local_time,
    place_of,
    places_of,
    session_address,
)
from indexerd.web.markdown import to_text
from indexerd.web.responses import render

RANGES = {
    "30d": ("30 days", 30),
    "": ("90 days", 90),
    "1y": ("a year", 365),
    "all": ("all time", 0),
}
WEEKS = 54  # of the calendar, in two halves
BARS_MAX = 100  # of a picture


async def usage_page(daemon: Daemon, request: Request) -> Response:
    """Show the page for the range that the address names: without one, where there is use."""
    name = request.query_params.get("range", "")
    name = name if name in RANGES else ""
    days, today = RANGES[name][1], datetime.now(UTC).date()
    shown: Shown = {"problem": None, "answer": None}
    try:
        asked = {"since": str(today - timedelta(days=days - 1))} if days else {}
        answer = await daemon.read("usage", asked)
        if not (name or answer["days"]):
            name, days, answer = "all", 0, await daemon.read("usage", {})
        year = str(today - timedelta(days=7 * WEEKS))
        whole = await daemon.read("usage", {"since": year}) if days else answer
        shown |= _shown(answer, whole["days"], today, days, str(daemon.home).rstrip("/"))
    except IndexerdError as bad:
        shown["problem"] = bad
    return render("usage.html", ranges=RANGES, chosen=name, **shown)


def _shown(answer: Row, year: Sequence[Row], today: date, days: int, home: str) -> Shown:
    each, spans = _spans(answer["days"], today, days)
    labels = [f"{10 * n} to {10 * n + 10} %" for n in range(10)]
    contexts = _bars(labels, answer["context"]["tenths"], lambda number: f"{number:g}")
    agents = [row["agent"] for row in answer["agents"]]
    by = {
        "Agent": [{"name": name, "href": Filters().address(agent=name)} for name in agents],
        "Model": [{"name": row["model"] or "unknown"} for row in answer["models"]],
        "Project": places_of([row["cwd"] or "" for row in answer["projects"]], home),
    }
    return {
        "answer": answer,
        "calendar": _calendar({row["day"]: row["prompts"] for row in year}, today),
        "each": each,
        "costs": _bars(
            [*spans],
            [span.usd + span.estimated for span in spans.values()],
            dollars,
            [span.cost for span in spans.values()],
        ),
        "tokens": _bars([*spans], [span.tokens for span in spans.values()], compact),
        "groups": {
            title: _groups(names, answer[f"{title.lower()}s"]) for title, names in by.items()
        },
        "contexts": contexts and contexts | {"ends": ["0 %", "50 %", "100 %"]},
        "ranked": {
            "Longest sessions": _ranked(answer["longest"], home),
            "Most prompts": _ranked(answer["mostPrompts"], home),
        },
    }


def _groups(names: Sequence[Shown], rows: Sequence[Shown]) -> list[Shown]:
    """Add to rows their names, and their tokens in all, also as a share of the most (in %)."""
    sums = [sum(row["tokens"].values()) for row in rows]
    most = max(sums, default=0) or 1
    return [
        {
            "href": "",
            "path": "",
            **row,
            **name,
            "tokens": tokens,
            "width": round(100 * tokens / most, 2),
        }
        for row, name, tokens in zip(rows, names, sums, strict=True)
    ]


class _Span(NamedTuple):
    """The use in a day, a week or a month."""

    tokens: int = 0
    usd: float = 0.0
    estimated: float = 0.0
    unpriced: int = 0  # tokens of no known price

    @property
    def cost(self) -> str:
        known = cost(self.usd, self.estimated, self.unpriced) if self.tokens else ""
        return known or "-"


def _spans(rows: Sequence[Row], today: date, days: int) -> tuple[str, dict[str, _Span]]:
    """Sum up cost and tokens by day, or by week or month if that makes too many bars.

    A day without use counts, too.
    """
    known = {row["day"]: row for row in rows if row["day"] > "1970-01-01"}
    if not known:
        return "day", {}
    first = today - timedelta(days=days - 1) if days else date.fromisoformat(min(known))
    many = (today - first).days
    each = "day" if many < BARS_MAX else "week" if many < 7 * BARS_MAX else "month"
    spans = dict[str, _Span]()
    for day in (first + timedelta(number) for number in range(many + 1)):
        begins = day - timedelta(day.weekday()) if each == "week" else day
        label = f"{day:%b %Y}" if each == "month" else f"{begins.day} {begins:%b %Y}"
        span = spans.setdefault(label, _Span())
        if row := known.get(str(day)):
            costs = row["costUsd"] or 0.0, row["costEstimatedUsd"] or 0.0, row["unpricedTokens"]
            more = sum(row["tokens"].values()), *costs
            spans[label] = _Span(*map(sum, zip(span, more, strict=True)))
    return each, spans


def _bars(
    labels: Sequence[str],
    values: Sequence[float],
    text: Callable[[Any], str],
    texts: Sequence[str] = (),
) -> Shown | None:
    """Describe bars by their heights in a box of 100 by 100; None if all are 0.

    `texts` say more of the values than `text` does.
    """
    most = max(values, default=0)
    if not most:
        return None
    top, best = _scale(most), values.index(most)
    heights = [round(max(100 * value / top, 0.8 if value else 0), 3) for value in values]
    texts = texts or [*map(text, values)]
    return {
        "bars": [*zip(labels, texts, heights, strict=True)],
        "best": f"{texts[best]}: {labels[best]}",
        "top": text(top),
        "half": text(top / 2),
        "ends": [*dict.fromkeys((labels[0], labels[len(labels) // 2], labels[-1]))],
    }


def _scale(most: float) -> float:
    """Return the smallest round number that is not below `most`, as the end of an axis."""
    size = 10.0 ** math.floor(math.log10(most))
    ends = (round(size * factor, 9) for factor in (1, 2, 4, 6, 8, 10))  # halves are round, too
    return next(end for end in ends if end >= most)


def _calendar(prompts: Mapping[str, int], today: date) -> list[list[Shown]]:
    """List the days of the calendar's two halves, which begin with a Monday."""
    monday = today - timedelta(days=today.weekday() + 7 * (WEEKS - 1))
    busy = sorted(filter(None, prompts.values()))
    cells = list[Shown]()
    for number in range((today - monday).days + 1):
        day = monday + timedelta(number)
        count = prompts.get(str(day), 0)
        level = 1 + min(3, 4 * bisect_left(busy, count) // len(busy)) if count else 0
        place = {"week": number // 7 % (WEEKS // 2), "weekday": number % 7}
        cells.append({"day": day, "prompts": count, "level": level, **place})
    half = 7 * WEEKS // 2
    return [cells[:half], cells[half:]]


def _ranked(rows: Sequence[Shown], home: str) -> list[Shown]:
    return [
        row
        | {
            "name": to_text(row["name"], TITLE_MAX),
            "href": session_address(row["sessionId"]),
            "place": place_of(directory_of(row), Filters(), home)["name"],
            "then": local_time(row["modifiedAt"]),
        }
        for row in rows
    ]
