"""Everything that the core says of one session file, as values that can be written down.

`answers(path)` goes from bytes to the last page: what an adapter skims and reads, the tree, the
context, the conversation, what would be compacted, the story and its documents, and what is said
without a model. `test_known_answers.py` compares it with what was written down, and
`python -m tests.indexing.known_answers` writes it down anew: the change is then there to be read.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from indexerd.agents import ADAPTERS, opencode
from indexerd.digests import branch_pi, compact_codex, compact_opencode, compact_pi, segments
from indexerd.digests.handoff import Handoff, Verbatim
from indexerd.digests.handoff import document as handoff
from indexerd.digests.serialize import lines_of, serialize
from indexerd.digests.spoken import conversation, summed
from indexerd.digests.talk import said_in, talk_of
from indexerd.events import TURN_MASK, TURN_SHIFT, Entry, Facts, Kind, Stretch, Turn
from indexerd.models.extract import extract
from indexerd.models.gist import gist
from indexerd.sessions import tree
from indexerd.sessions.branches import asks, names, summary_rows, tips
from indexerd.sessions.context import ContextEntry, context_entries, context_of
from indexerd.sessions.facts import ActivityStats
from indexerd.sessions.history import compactions, file_lists
from indexerd.sessions.info import info_of
from indexerd.sessions.state import SessionState
from indexerd.sources.lines import Block
from indexerd.sources.opencode_db import Database, lines, tail
from indexerd.web.export_json import Head, document
from indexerd.web.export_md import markdown
from indexerd.web.story import kept_rows, story_of
from indexerd.web.story_nodes import node_of, turn_of
from tests.fuzz.targets import corpus

FIXTURES = Path(__file__).parents[1] / "fixtures"
REAL = FIXTURES / "real"
KNOWN = FIXTURES / "known"
TEXT_MAX = 160  # characters of a text that are written down; of a longer one, a check sum too
EMPTY: tuple[Any, ...] = (None, "", [], {}, False, 0)
SHORT = 2000  # characters: documents are written down line by line

Read = Callable[[int], Entry]


def agent_of(name: str) -> str:
    """Whose session it is, by the folder of its fixtures."""
    return name.partition("/")[0].partition("-")[0]


def file_of(name: str) -> Path:
    """The file of a session: a real one's, or one made to be known."""
    return next(one / name for one in (KNOWN, REAL) if (one / name).is_file())


def taken(name: str) -> tuple[SessionState, Read]:
    """A session's state, and its entries by row.

    opencode's are copied out of its database. A `corpus` is all that the fuzz targets of an agent
    begin with, as one file.
    """
    agent = agent_of(name)
    if name.endswith("/corpus"):
        data = b"".join(path.read_bytes().rstrip(b"\n") + b"\n" for path in corpus(agent))
    elif agent == "opencode":
        return _stored(name)
    else:
        data = file_of(name).read_bytes()
    state = SessionState(name)
    ADAPTERS[agent].skim(state, data if data.endswith(b"\n") else data + b"\n", 0)

    def read(row: int) -> Entry:
        start = state.offsets[row]
        try:
            return ADAPTERS[agent].read(data[start : start + state.lengths[row]], state.id(row))
        except ValueError:
            return Entry(state.id(row), Kind.OTHER, "(unreadable)", None, "")

    return state, read


@contextmanager
def _database(name: str) -> Iterator[str]:
    """A copy of opencode's database, and the path of a session in it."""
    folder, _, session_id = name.rpartition("/")
    with tempfile.TemporaryDirectory() as copy:
        database = shutil.copy(REAL / folder, copy)
        yield next(one.path for one in Database(database).sessions() if session_id in one.path)


def stored_lines(name: str) -> list[bytes]:
    """The lines of one of its sessions, as they are skimmed."""
    with _database(name) as path:
        blocks = [one for one in tail().read(path).lines if isinstance(one, Block)]
    return [line for one in blocks for line in one.data.splitlines(keepends=True)]


def _stored(name: str) -> tuple[SessionState, Read]:
    state, held = SessionState(name), {}
    with _database(name) as path:
        for block in tail().read(path).lines:
            assert isinstance(block, Block)
            opencode.skim(state, block.data, block.offset)
        with lines(path) as stored:
            for row in range(len(state)):
                line = stored.at(state.offsets[row], state.lengths[row])
                held[row] = opencode.read(line, state.id(row))
    return state, held.__getitem__


def answers(name: str) -> dict[str, Any]:
    """All that is said of a session."""
    agent = agent_of(name)
    state, read = taken(name)
    rows = range(len(state))
    return plain(
        {
            "state": _state(state),
            "entries": [read(row) for row in rows],
            "card": _card(agent, state),
            **_tree(state, read),
            **_path(agent, state, read),
            **_documents(agent, state, read),
        }
    )


# -- the parts ---------------------------------------------------------------------------------


def _state(state: SessionState) -> dict[str, Any]:
    held = state
    return {
        "rows": [
            f"{held.id(row)} < {held.parent(row)} {held.kind(row).name} code {held.codes[row]}"
            f" line {held.ordinals[row]} at {held.offsets[row]}+{held.lengths[row]}"
            for row in range(len(held))
        ],
        "header": held.header,
        "leaf": held.leaf_id,
        "name": held.name,
        "labels": held.labels,
        "notes": held.notes,
        "parts": held.parts,
        "archived": held.archived,
        "activity": held.activity_ms,
        "born": held.born_ms,
        "first user": held.first_user,
        "users": held.user_messages(),
        "turn": held.turn.name,
        "path": held.path(),
        "tips": held.tips(),
        "cycles": held.cycles(),
    }


def _card(agent: str, state: SessionState) -> Any:
    return msgspec.to_builtins(
        info_of(state, agent=agent, path=f"/s/{agent}.jsonl", mtime_ms=1_700_000_000_000, since="")
    )


def _tree(state: SessionState, read: Read) -> dict[str, Any]:
    sketches = {
        row: tree.sketch(read(row), Turn((state.codes[row] & TURN_MASK) >> TURN_SHIFT))
        for row in range(len(state))
    }
    shown = {
        mode: list(tree.nodes(state, sketches, state.labels, tree.wanted(mode, None)))
        for mode in tree.FILTERS
    }
    found = tips(state, {row: read(row) for row in summary_rows(state)})
    return {
        "tree": shown["all"],
        "filters": {mode: [one["id"] for one in nodes] for mode, nodes in shown.items()},
        "branches": [
            {**one._asdict(), "asks": list(asks(state, one)), "names": sorted(names(state, one))}
            for one in found
        ],
    }


def _path(agent: str, state: SessionState, read: Read) -> dict[str, Any]:
    steps = context_entries(state, read)
    speeches = [one for step in steps for one in step.speeches]
    said = summed(speeches, state, agent)
    deeds = ActivityStats()
    path = state.path()
    for row in path:
        deeds.add(read(row), "/srv/rig/work")
        deeds.pay(read(row))
    facts = deeds.facts()
    talk = talk_of(lines_of(said, tool_result_max=500), lambda text: (text, {}))
    turns = said_in(talk.parts)
    held = [read(row) for row in path]
    modified, uses = segments.deeds_of(held, "/srv/rig/work")
    return {
        "context": context_of(state, read),
        "speeches": serialize(speeches),
        "summed": serialize(said),
        "conversation": len([*conversation(speeches, state, agent)]),
        "messages": segments.message_rows(state),
        "deeds": facts,
        "segment": [modified, uses],
        "history": [[one.id for one in compactions(held)], file_lists(held)],
        "compaction": _compaction(agent, state, steps),
        **_without_a_model(turns, facts),
        "hand-off": _handoff(agent, state, turns, facts),
    }


def _compaction(agent: str, state: SessionState, steps: list[ContextEntry]) -> Any:
    if agent == "codex":
        found = compact_codex.prepare(state, steps)
        size = compact_codex.tokens_of(state, steps)
        noted = compact_codex.noted(state)
        return {"size": size, "noted": noted, "users": found and len(found.users)}
    if agent == "opencode":
        return {"size": compact_opencode.tokens_of(steps)}
    found = {keep: compact_pi.prepare(steps, keep) for keep in (200, 2000)}
    left = branch_pi.prepare_branch(steps)
    return {
        "size": compact_pi.context_tokens(steps),
        "cuts": {keep: one and _counts(one) for keep, one in found.items()},
        "files": compact_pi.file_blocks(compact_pi.files_of(steps, [])),
        "branch": _counts(left),
    }


def _counts(found: Any) -> dict[str, Any]:
    return {
        field.name: len(held) if isinstance(held, tuple | list) else held
        for field in fields(found)
        if not isinstance(held := getattr(found, field.name), msgspec.Struct)
        and not is_dataclass(held)
    }


def _without_a_model(turns: tuple[tuple[str, str], ...], facts: Any) -> dict[str, Any]:
    tools = dict(facts.tools_used)
    told = Facts(turns, facts.files_read, facts.files_modified, tools, "/srv/rig/work")
    kinds = ("segment", "checkpoint", "turn", "branch")
    if not turns:
        return {}
    return {
        "extract": extract(told).model_dump(),
        "gist": {
            kind: gist(
                Stretch(kind, turns, facts.files_read, facts.files_modified, tools, "/srv/rig"),
                lambda: None,
            )
            for kind in kinds
        },
    }


def _handoff(agent: str, state: SessionState, turns: Any, facts: Any) -> str:
    return handoff(
        Handoff(
            session_id=state.header.session_id if state.header else "",
            agent=agent,
            name=state.name or "",
            cwd="/srv/rig/work",
            modified=facts.files_modified,
            read=facts.files_read,
            messages=[Verbatim(role, text, "e") for role, text in turns[-6:]],
            resume=ADAPTERS[agent].resume_command("an id", "/a place", "/s.jsonl"),
        )
    )


def _documents(agent: str, state: SessionState, read: Read) -> dict[str, Any]:
    drafts = {
        row: node_of(read(row), turn_of(state, row), 4000, lambda text, limit: text[:limit], {})
        for row in sorted(kept_rows(state))
    }
    story = story_of(state, drafts, state.labels)
    row = {"sessionId": "s1", "agent": agent, "name": state.name or "", "cwd": "/srv/rig/work"}
    found = document(Head(row, exported_at="2026-01-01T00:00:00Z"), story, text_max=4000)
    return {"document": found, "markdown": markdown(found)}


# -- as values ---------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A value as JSON: short texts whole, documents line by line, what is empty left out."""
    if isinstance(value, msgspec.Struct):
        value = {name: getattr(value, name) for name in value.__struct_fields__}
    elif is_dataclass(value) and not isinstance(value, type):
        value = {one.name: getattr(value, one.name) for one in fields(value)}
    if isinstance(value, Enum):
        return value.name
    match value:
        case dict():
            held = {str(key): plain(one) for key, one in value.items()}
            return {key: one for key, one in held.items() if one not in EMPTY}
        case bytes() | str():
            return _text(value if isinstance(value, str) else value.decode("utf-8", "replace"))
        case set() | frozenset():
            return [plain(one) for one in sorted(value)]
        case tuple() | list():
            return [plain(one) for one in value]
    return value


def _text(text: str) -> Any:
    if len(text) <= TEXT_MAX and text.count("\n") <= 1:
        return text
    if len(text) > SHORT or "\n" not in text:
        rest = f"{len(text)} characters, {zlib.crc32(text.encode('utf-8', 'replace')):08x}"
        return f"{text[:TEXT_MAX]} … {rest}"
    return [one if len(one) <= TEXT_MAX else _text(one) for one in text.split("\n")]


def sessions() -> list[str]:
    """The sessions whose answers are written down, by the names of their files."""
    return sorted(json.loads((KNOWN / "sessions.json").read_text()))


def note_of(name: str) -> Path:
    """Where the answers of a session stand."""
    agent = agent_of(name)
    return KNOWN / f"{agent}-{Path(name).stem.removeprefix(f'{agent}-')[-12:]}.json"


def main() -> None:
    """Write all of them down."""
    for name in sessions():
        found = json.dumps(answers(name), indent=1, ensure_ascii=False, sort_keys=True)
        note_of(name).write_text(found + "\n")


if __name__ == "__main__":
    main()
