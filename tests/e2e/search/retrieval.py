"""The retrieval set: what people ask for weeks later, and which session they mean.

`questions.jsonl` holds `{in, kind, q, right?, agent?, cwd?}`. `in` says where the sessions are:
`corpus` (written for this, with distractors that share words) or `real` (written by the clients,
with ids). `kind`: `search`; `resolve`, a name; `none`, which means nobody or several.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from indexerd.errors import AmbiguousError, NotFoundError
from tests.e2e.search import corpus
from tests.e2e.world import FIXTURES, REAL, World


@dataclass(frozen=True)
class Item:
    place: str
    kind: str
    asked: str
    right: tuple[str, ...]
    filters: dict[str, str]

    def __str__(self) -> str:
        within = "".join(f" {key}={value}" for key, value in self.filters.items())
        return f"{self.kind} {self.asked!r}{within}"


def items() -> list[Item]:
    found = []
    text = (FIXTURES / "retrieval/questions.jsonl").read_text()
    for line in text.splitlines():
        held = json.loads(line)
        if held["in"] not in ("corpus", "real"):
            continue
        filters = {key: held[key] for key in ("agent", "cwd") if key in held}
        right = tuple(held.get("right", ()))
        item = Item(held["in"], held["kind"], held["q"], right, filters)
        found.append(item)
    return found


def fill(world: World, place: str) -> dict[str, str]:
    if place == "corpus":
        told = corpus.read(FIXTURES / "retrieval/corpus.txt")
        corpus.write(world, told)
        return {one.key: one.id for one in told}
    _fill_real(world)
    return {}


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


def _copy(source: Path, target: Path) -> None:
    if source.exists():
        shutil.copytree(source, target, dirs_exist_ok=True)


@dataclass
class Told:
    item: Item
    place: int = 0
    first: str = ""  # what stood first, or was resolved to, where that was not right
    note: str = ""


def ask(world: World, item: Item, known: dict[str, str], files: dict[str, str]) -> Told:
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
    rows = world.call("list", limit=500, archived=True)["sessions"]
    return {row["sessionFile"]: row["sessionId"] for row in rows}


def answers(world: World, place: str, chosen: Iterable[Item]) -> list[Told]:
    known = fill(world, place)
    world.run("run", "--once", code=None)
    with world.daemon():
        files = listed_files(world)
        return [ask(world, item, known, files) for item in chosen]


def share(told: Iterable[Told], good: Callable[[Told], Any]) -> float:
    verdicts = [bool(good(one)) for one in told]
    return sum(verdicts) / max(1, len(verdicts))
