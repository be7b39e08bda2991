"""The command about a session's relations: family. It reads, and does so without a daemon, too.

Each generation stands one step to the right of the one before. `*` marks the session asked about.
"""

from __future__ import annotations

import sys

from indexerd.cli import declare, render
from indexerd.cli.ask import project, read, show
from indexerd.cli.streams import aside, safe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from indexerd.cli.app import App

STEPS_MAX = 12  # to the right; what is deeper stays below one another
_ROUND = ("├─ ", "└─ ", "│  ")
_PLAIN = ("|- ", "`- ", "|  ")
_BLANK = "   "
_WORDS = {"root": "", "fork": "fork", "resumed": "resumed", "subagent": "sub-agent"}
_HEADS = ("session", "agent", "active", "asks", "", "name")


@declare.command()
@declare.argument("ref")
def family(app: App, ref: str) -> None:
    """Show the sessions that one came from, and all that came from them."""
    found = read(app, "family", {"ref": ref, "cwd": project()})
    if show(app, found):
        return
    from indexerd.times import iso_ms

    members = found["members"]
    rows = (
        (
            one["sessionId"],
            one["agent"],
            render.age(one["modifiedAt"]) if iso_ms(one["modifiedAt"]) else "",
            str(one["userMessageCount"]),
            "*" if one["sessionId"] == found["sessionId"] else "",
            drawn + _told(one),
        )
        for one, drawn in zip(members, _drawn(members), strict=True)
    )
    render.table(app, _HEADS, rows)
    if "missingParent" in found:
        from indexerd.privacy.redact_paths import shown_path

        named = render.exact(shown_path(found["missingParent"]))
        aside(f"the session that this began in is not known: {named}")
    if found["more"]:
        aside(f"{found['more']} more; the nearest are shown")


def _told(one: dict[str, Any]) -> str:
    """How it came to be, its name, and what is to be known before it is opened."""
    notes = [key for key in ("archived", "gone") if one[key]][-1:]
    how = _WORDS[one["relation"]]
    return f"{how}: " * bool(how) + safe(one["name"]) + "".join(f" ({note})" for note in notes)


def _drawn(members: list[dict[str, Any]]) -> Iterator[str]:
    """What stands before each name: lines from its parent."""
    utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    tee, corner, bar = _ROUND if utf8 else _PLAIN
    last = _lasts(members)
    below: list[str] = []  # by depth: what stands before the children of the newest member there
    for one, place in zip(members, last, strict=True):
        depth = min(one["depth"], len(below))
        del below[depth:]
        before = below[-1] if below else ""
        if depth == 0:
            below.append("")
            yield ""
            continue
        deep = depth >= STEPS_MAX
        below.append(before if deep else before + (_BLANK if place else bar))
        yield before + (corner if place else tee)


def _lasts(members: list[dict[str, Any]]) -> list[bool]:
    """Of each member, whether no other child of its parent follows."""
    found: list[bool] = []
    open_at: set[int] = set()  # depths at which a later member stands, with nothing higher between
    for one in reversed(members):
        depth = one["depth"]
        found.append(depth not in open_at)
        open_at = {at for at in open_at if at < depth} | {depth}
    return found[::-1]
