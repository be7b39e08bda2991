"""The retrieval set: what people ask for weeks later, and which session they mean.

`questions.jsonl` holds `{in, kind, q, right?, agent?, cwd?, late?}`. `in` says where the sessions
are: `corpus` (written for this, with distractors that share words), `real` (written by the
clients, with ids), `public` (published by others, by file; only where these files are). `kind`:
`search`; `resolve`, a name; `none`, which means nobody or several. The questions were written
before the ranking was worked on; every third is held out: its figures are for the end, not for
tuning. Those with `late` were written when the ranking was done, and are held out, too.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from indexerd.errors import AmbiguousError, NotFoundError
from tests.e2e import corpus
from tests.e2e.world import World

FIXTURES = Path(__file__).parent.parent / "fixtures"
REAL = FIXTURES / "real"
PUBLIC = FIXTURES.parents[2] / "shared/fixtures/public"
HELD_OUT = 3  # every n-th


@dataclass(frozen=True)
class Item:
    """One question."""

    place: str
    kind: str
    asked: str
    right: tuple[str, ...]
    filters: dict[str, str]
    held_out: bool

    def __str__(self) -> str:
        within = "".join(f" {key}={value}" for key, value in self.filters.items())
        return f"{self.kind} {self.asked!r}{within}"


def items() -> list[Item]:
    """Every question of the set."""
    found = []
    text = (FIXTURES / "retrieval/questions.jsonl").read_text()
    for n, line in enumerate(text.splitlines(), 1):
        held = json.loads(line)
        filters = {key: held[key] for key in ("agent", "cwd") if key in held}
        right = tuple(held.get("right", ()))
        held_out = n % HELD_OUT == 0 or bool(held.get("late"))
        item = Item(held["in"], held["kind"], held["q"], right, filters, held_out)
        found.append(item)
    return found


def fill(world: World, place: str) -> dict[str, str]:
    """Put the sessions of a place into a home; says which id stands for which word in `right`."""
    if place == "corpus":
        told = corpus.read(FIXTURES / "retrieval/corpus.txt")
        corpus.write(world, told)
        return {one.key: one.id for one in told}
    if place == "real":
        _fill_real(world)
        return {}
    return _fill_public(world)


def _fill_real(world: World) -> None:
    home = world.root / "home"
    for name in ("pi", "pi-0.32.3-v2", "pi-0.30.2-v1"):
        _copy(REAL / name / "sessions", world.pi / "sessions")
    _copy(REAL / "claude/projects", home / ".claude/projects")
    index = []
    for name in ("codex", "codex-0.120.0"):
        for folder in ("sessions", "archived_sessions"):
            _copy(REAL / name / folder, home / ".codex" / folder)
        index.append((REAL / name / "session_index.jsonl").read_text())
    (home / ".codex/session_index.jsonl").write_text("".join(index))
    _copy(REAL / "opencode", world.root / "data/opencode")


def _fill_public(world: World) -> dict[str, str]:
    home = world.root / "home"
    ids: dict[str, str] = {}
    for path in sorted(PUBLIC.glob("*/**/*.jsonl")):
        name = str(path.relative_to(PUBLIC))
        stem = name.replace("/", "_")
        if name.startswith("pi/"):
            target = world.pi / "sessions/--public--" / stem
        elif name.startswith("claude/") and "/subagents/" not in name:
            target = home / ".claude/projects" / path.parent.name / path.name
        elif name.startswith("codex/synthetic/sessions"):
            target = home / ".codex" / path.relative_to(PUBLIC / "codex/synthetic")
        else:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        ids[name] = str(target.resolve())
    return ids


def _copy(source: Path, target: Path) -> None:
    if source.exists():
        shutil.copytree(source, target, dirs_exist_ok=True)


@dataclass
class Told:
    """How a question was answered. `place` counts from 1; 0 stands for not found at all."""

    item: Item
    place: int = 0
    first: str = ""  # what stood first, or was resolved to, where that was not right
    note: str = ""


def ask(world: World, item: Item, known: dict[str, str], files: dict[str, str]) -> Told:
    """Put one question to a running daemon; `files`: the id of the session in a file."""
    right = {files.get(known.get(one, one), known.get(one, one)) for one in item.right}
    if item.kind == "search":
        hits = world.call("search", query=item.asked, **item.filters)["hits"]
        order = list(dict.fromkeys(hit["sessionId"] for hit in hits))
        for hit in hits:
            assert hit["field"] != "message" or hit["entryId"], hit
        place = next((n for n, one in enumerate(order, 1) if one in right), 0)
        wrong = next((hit for hit in hits if hit["sessionId"] not in right), None)
        note = f"{wrong['field']} {wrong['snippet']}" if wrong else ""
        return Told(item, place, order[0] if order else "nothing", note)
    try:
        found = world.call("resolve", ref=item.asked, **item.filters)
    except (NotFoundError, AmbiguousError) as error:
        return Told(item, 0, "", error.kind)
    meant = found["sessionId"]
    return Told(item, int(meant in right), "" if meant in right else meant, found["how"])


def listed_files(world: World) -> dict[str, str]:
    """The id of the session in each file."""
    rows = world.call("list", limit=500, archived=True)["sessions"]
    return {row["sessionFile"]: row["sessionId"] for row in rows}


def answers(world: World, place: str, chosen: Iterable[Item]) -> list[Told]:
    """Fill a home, run the program, put the questions."""
    known = fill(world, place)
    world.run("run", "--once", code=None)
    with world.daemon():
        files = listed_files(world)
        return [ask(world, item, known, files) for item in chosen]


def share(told: Iterable[Told], good: Callable[[Told], Any]) -> float:
    """How many of these are good."""
    verdicts = [bool(good(one)) for one in told]
    return sum(verdicts) / max(1, len(verdicts))
