"""The usage page: what all sessions used, as pictures that are made here, as SVG.

Every picture has a title, a description and a table with the same figures. Bars of one picture
have one scale, which begins at 0. Nothing in the page needs a script.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from indexerd.amounts import compact, dollars, duration
from indexerd.errors import IndexerdError
from indexerd.web.daemon_client import Daemon
from indexerd.web.home import Filters, local_time, place_of, places_of, session_address
from indexerd.web.responses import render

RANGES = {
    "30d": ("30 days", 30),
    "": ("90 days", 90),
    "1y": ("a year", 365),
    "all": ("all time", 0),
}
WEEKS = 54  # of the calendar, in two halves
GROUPS, BARS_MAX = 10, 100  # groups of a table that are not folded; bars of a picture
CELL = 13  # pixels of a day in the calendar, with the space around it

Row = Mapping[str, Any]
Shown = dict[str, Any]  # values for the template


async def usage_page(daemon: Daemon, request: Request) -> Response:
    """Show the page for the range that the address names."""
    name = request.query_params.get("range", "")
    name = name if name in RANGES else ""
    days, today = RANGES[name][1], datetime.now(UTC).date()
    shown: Shown = {"problem": None, "answer": None}
    try:
        asked = {"since": str(today - timedelta(days=days - 1))} if days else {}
        answer = await daemon.read("usage", asked)
        whole = answer
        if name != "all":
            since = today - timedelta(days=7 * WEEKS)  # for the calendar
            whole = await daemon.read("usage", {"since": str(since)})
        shown |= _shown(answer, whole["days"], today, days, str(daemon.home).rstrip("/"))
    except IndexerdError as bad:
        shown["problem"] = {"message": str(bad), "hint": bad.hint}
    return render("usage.html", ranges=RANGES, chosen=name, **shown)


def _shown(answer: Row, year: Sequence[Row], today: date, days: int, home: str) -> Shown:
    spans = _spans(answer["days"], today, days)
    groups = {
        title: _groups(title, answer[key], home)
        for title, key in {"Agent": "agents", "Model": "models", "Project": "projects"}.items()
    }
    totals, shares = (
        answer["totals"],
        [{"label": f"{10 * n} to {10 * n + 10} %"} for n in range(10)],
    )
    contexts = _bars(shares, answer["context"]["tenths"], lambda number: f"{number:g}")
    return {
        "answer": answer,
        "totals": {
            "prompts": f"{totals['prompts']:,}",
            "sessions": f"{totals['sessions']:,}",
            "tokens": compact(_tokens(totals)),
            "recorded cost": dollars(totals["costUsd"]) or "none",
        },
        "calendar": _calendar({row["day"]: row["prompts"] for row in year}, today),
        "each": spans[0]["each"] if spans else "day",
        "costs": _bars(spans, [span["cost"] for span in spans], dollars),
        "tokens": _bars(spans, [span["tokens"] for span in spans], compact),
        "groups": groups,
        "ranked": {
            "Longest sessions": _ranked(answer["longest"], home, "durationMs"),
            "Most prompts": _ranked(answer["mostPrompts"], home, "userMessageCount"),
        },
        "contexts": contexts and contexts | {"ends": ["0 %", "50 %", "100 %"]},
        "indexing": _indexing(answer["indexing"]),
    }


def _tokens(sums: Row) -> int:
    return sum(sums["tokens"].values())


def _spans(rows: Sequence[Row], today: date, days: int) -> list[Shown]:
    """Put days together so that there are not too many bars; a day without use counts, too."""
    known = {date.fromisoformat(row["day"]): row for row in rows if row["day"] > "1970-01-01"}
    if not known:
        return []
    first = today - timedelta(days=days - 1) if days else min(known)
    each = "day" if (today - first).days < BARS_MAX else "week"
    each = each if (today - first).days < 7 * BARS_MAX else "month"
    spans: dict[date, Shown] = {}
    for number in range((today - first).days + 1):
        day = first + timedelta(days=number)
        begins = day.replace(day=1) if each == "month" else day
        begins = day - timedelta(days=day.weekday()) if each == "week" else begins
        label = f"{begins:%b %Y}" if each == "month" else f"{begins.day} {begins:%b %Y}"
        span = spans.setdefault(
            begins, {"each": each, "label": label, "cost": 0.0, "tokens": 0, "prompts": 0}
        )
        if row := known.get(day):
            span["cost"] += row["costUsd"] or 0.0
            span["tokens"] += _tokens(row)
            span["prompts"] += row["prompts"]
    return [*spans.values()]


def _bars(
    spans: Sequence[Shown], values: Sequence[float], text: Callable[[Any], str]
) -> Shown | None:
    """Describe bars by their places in a box of 100 by 100; None if all are 0."""
    most = max(values, default=0)
    if not most:
        return None
    top, step = _scale(most), 100 / len(values)
    bars = [
        {
            "label": span["label"],
            "text": text(value),
            "x": round(at * step + step * 0.1, 3),
            "width": round(step * 0.8, 3),
            "height": round(max(100 * value / top, 0.8 if value else 0), 3),
        }
        for at, (span, value) in enumerate(zip(spans, values, strict=True))
    ]
    best = max(range(len(values)), key=values.__getitem__)
    labels = [bar["label"] for bar in bars]
    ends = [labels[0], labels[len(bars) // 2], labels[-1]]
    axis = {"top": text(top), "half": text(top / 2), "ends": [*dict.fromkeys(ends)]}
    return {"bars": bars, "best": bars[best], **axis}


def _scale(most: float) -> float:
    """Return the smallest round number that is not below `most`, as the end of an axis."""
    size = 1e-6
    while size < most:
        for factor in (1, 1.5, 2, 3, 4, 5, 6, 8, 10):
            if size * factor >= most:
                return round(size * factor, 6) if size * factor < 1 else int(size * factor)
        size *= 10
    return size


def _calendar(prompts: Mapping[str, int], today: date) -> list[Shown]:
    """Describe the calendar's two halves: weeks from left to right, Monday on top."""
    monday = today - timedelta(days=today.weekday() + 7 * (WEEKS - 1))
    busy = sorted(count for count in prompts.values() if count)
    halves = []
    weeks = WEEKS // 2
    for first in (0, weeks):
        cells, months = list[Shown](), list[Shown]()
        for week in range(weeks):
            for weekday in range(7):
                day = monday + timedelta(days=7 * (first + week) + weekday)
                if day > today:
                    break
                count = prompts.get(str(day), 0)
                below = sum(other < count for other in busy)
                level = 1 + min(3, 4 * below // len(busy)) if count else 0
                title = f"{day:%a} {day.day} {day:%b %Y}: {_prompts(count)}"
                cells.append(
                    {"x": CELL * week, "y": CELL * weekday, "level": level, "title": title}
                )
                if day.day == 1:
                    months.append({"x": CELL * (week + (weekday > 0)), "name": f"{day:%b}"})
        begin = monday + timedelta(days=7 * first)
        end = min(today, begin + timedelta(days=7 * weeks - 1))
        inside = {day: n for day, n in prompts.items() if str(begin) <= day <= str(end)}
        total, active = sum(inside.values()), sum(map(bool, inside.values()))
        days = f"{active} day{'s' * (active != 1)}"
        halves.append(
            {
                "cells": cells,
                "months": [month for month in months if month["x"] <= CELL * (weeks - 2)],
                "width": CELL * weeks,
                "title": f"Prompts by day, {begin:%B %Y} to {end:%B %Y}",
                "text": f"{_prompts(total)} on {days}.",
                "active": active,
            }
        )
    return halves


def _prompts(count: int) -> str:
    return f"{count:,} prompt{'s' * (count != 1)}" if count else "no prompts"


def _groups(title: str, rows: Sequence[Row], home: str) -> list[Shown]:
    most = max((_tokens(row) for row in rows), default=0) or 1
    places = places_of([row["cwd"] or "" for row in rows], home) if title == "Project" else []
    groups = []
    for at, row in enumerate(rows):
        name, href, path = row.get("agent") or row.get("model") or "unknown", "", ""
        if places:
            name, href, path = (places[at][key] for key in ("name", "href", "path"))
        elif title == "Agent":
            href = Filters().address(agent=name)
        groups.append(
            {
                "name": name,
                "href": href,
                "path": path,
                "width": round(100 * _tokens(row) / most, 2),
                "sessions": f"{row['sessions']:,}",
                "prompts": f"{row['prompts']:,}",
                "tokens": compact(_tokens(row)),
                "cost": dollars(row["costUsd"]) or "-",
            }
        )
    return groups


def _ranked(rows: Sequence[Row], home: str, by: str) -> list[Shown]:
    return [
        {
            "href": session_address(row["sessionId"]),
            "name": row["name"],
            "place": place_of(row["cwd"] or "", Filters(), home)["name"],
            "agent": row["agent"],
            "value": duration(row[by]) if by == "durationMs" else _prompts(row[by]),
            "day": f"{then.day} {then:%b %Y}" if (then := local_time(row["modifiedAt"])) else "",
        }
        for row in rows
    ]


def _indexing(sums: Row) -> Shown:
    calls, unpriced = sums["calls"], sums["unpricedCalls"]
    return {
        "calls": f"{calls:,} call{'s' * (calls != 1)}",
        "cost": dollars(sums["costUsd"]),
        "unpriced": unpriced,
        "since": sums["since"],
        "models": [row | {"cost": dollars(row["costUsd"])} for row in sums["models"]],
    }
