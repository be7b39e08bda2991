"""Whatever happens to session files, what is known of them is what a fresh reading finds.

A machine appends, branches, rolls back, tears, truncates, rewrites, renames, archives and
deletes the files of three agents, in any order, and restarts in between; after each step it
compares every session's card and tree with those of a reader that starts from nothing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from indexerd.daemon.files import Files
from indexerd.sessions.info import SessionInfo
from tests.daemon.files_world import World

IDS = [f"01a1fff2-0000-7000-8000-00000000000{n}" for n in range(3)]
NOON = "2026-11-21T12:00:00.000Z"
small = st.integers(0, 7)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _thread(path: str) -> str:
    found: str = _UUID.findall(path.rpartition("/")[2])[0]
    return found


def known(files: Files) -> dict[str, tuple[SessionInfo, list[tuple[Any, ...]], str | None]]:
    """Every session's card, its tree, and where the leaf is."""
    made = {}
    for card in files.owners.cards():
        state = files.state(card.session_id)
        assert state is not None
        tree = [
            (state.id(row), state.parent(row), state.codes[row], state.offsets[row])
            for row in range(len(state))
        ]
        made[card.session_id] = (msgspec.structs.replace(card, mtime_ms=0), tree, state.leaf_id)
    return made


class FilesMachine(RuleBasedStateMachine):
    """Any order of what clients, users, file systems do: F2, F10, F11, F12, F13, F14, F15, F18."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[Path, tuple[bytes, int]] = {}  # what files held, and their times
        self.home = Path(tempfile.mkdtemp(prefix="machine-"))
        self.world = World(self.home / "agents")
        self.ledger = self.home / "store.sqlite"
        self.files = self.world.reader(self.ledger)
        self.count = 0
        self.ids: dict[Path, list[str]] = {}  # entries written to each file, newest last

    def teardown(self) -> None:
        """Leave nothing."""
        shutil.rmtree(self.home)

    def paths(self) -> list[Path]:
        """Every session file there is, in a stable order."""
        return sorted((self.home / "agents").rglob("*.jsonl"))

    def pick(self, number: int) -> Path:
        """One of them."""
        paths = self.paths()
        return paths[number % len(paths)]

    def write(self, path: Path, *lines: dict[str, Any]) -> None:
        """Append lines, as a client does."""
        with path.open("ab") as file:
            for line in lines:
                file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def fresh(self) -> str:
        """An id, or a text, that was not used before."""
        self.count += 1
        return f"{self.count:08x}"

    # -- new sessions --------------------------------------------------------------------

    @rule(number=small)
    def new_pi(self, number: int) -> None:
        path = self.home / f"agents/pi/sessions/{number}.jsonl"
        if not path.exists():
            head = {"type": "session", "version": 3, "id": IDS[number % 3], "timestamp": NOON}
            self.write(path, head | {"cwd": "/w"})
            self.ids[path] = []

    @rule(number=small)
    def new_claude(self, number: int) -> None:
        path = self.home / f"agents/claude/projects/{number}.jsonl"
        path.touch()
        self.ids.setdefault(path, [])

    @rule(number=small)
    def new_codex(self, number: int) -> None:
        name = f"rollout-2026-11-21T12-00-0{number}-{IDS[number % 3]}.jsonl"
        if not list((self.home / "agents/codex").rglob(name)):
            path = self.home / "agents/codex/sessions" / name
            time = f"2026-11-21T12:00:0{number}.000Z"
            meta = {"id": IDS[number % 3], "timestamp": time, "cwd": "/w", "source": "cli"}
            self.write(path, {"timestamp": time, "type": "session_meta", "payload": meta})

    @precondition(lambda self: any("codex" in path.parts for path in self.paths()))
    @rule(number=small, other=small, back=small)
    def go_on(self, number: int, other: int, back: int) -> None:
        """A fork in Codex, or a revert: a new file that begins in another, at one of its lines."""
        bases = [path for path in self.paths() if "codex" in path.parts]
        base = bases[other % len(bases)]
        lines = base.read_bytes().splitlines(keepends=True)
        lines = lines[: max(1, len(lines) - back)]
        thread = _UUID.findall(base.name)[0]
        mine = IDS[number % 3]
        segment = f"_{uuid.UUID(int=self.count)}" if mine == thread else ""
        self.count += 1
        name = f"rollout-2026-11-21T12-01-{self.count % 60:02}-{mine}{segment}.jsonl"
        if list((self.home / "agents/codex").rglob(name)):
            return
        time = f"2026-11-21T12:01:{self.count % 60:02}.000Z"
        end = {"end_ordinal_exclusive": 0, "end_byte_offset": len(b"".join(lines))}
        meta: dict[str, Any] = {"id": mine, "timestamp": time, "cwd": "/w", "source": "cli"}
        meta |= {"history_base": {"thread_id": thread, **end}}
        line = {"timestamp": time, "type": "session_meta", "payload": meta}
        self.write(self.home / "agents/codex/sessions" / name, line)

    # -- what agents do ------------------------------------------------------------------

    @precondition(lambda self: self.paths())
    @rule(number=small, back=small, kind=st.sampled_from(["user", "assistant"]))
    def say(self, number: int, back: int, kind: str) -> None:
        """Append an entry: below the newest, or (a branch) below an earlier one."""
        path = self.pick(number)
        if "codex" in path.parts:
            self.turn(path)
            return
        ids = self.ids.setdefault(path, [])
        above = ids[max(0, len(ids) - 1 - back)] if ids else None
        entry = self.fresh()
        ids.append(entry)
        text = [{"type": "text", "text": f"words {entry}"}]
        if "pi" in path.parts:
            said = {"role": kind, "content": text, "timestamp": 1_700_000_000_000 + self.count}
            line = {"type": "message", "id": entry, "parentId": above, "timestamp": NOON}
            self.write(path, line | {"message": said | {"stopReason": "stop"}})
        else:
            line = {"type": kind, "uuid": entry, "parentUuid": above, "timestamp": NOON}
            line |= {"sessionId": path.stem, "cwd": "/w", "isSidechain": False, "version": "2.1"}
            said = {"role": kind, "content": text}
            if kind == "assistant":
                said |= {"id": f"msg_{entry}", "model": "m", "stop_reason": "end_turn"}
            self.write(path, line | {"message": said})

    def turn(self, path: Path) -> None:
        """A turn in Codex."""
        turn = self.fresh()

        def event(kind: str, **fields: Any) -> dict[str, Any]:
            payload = {"type": kind, **fields}
            return {"timestamp": NOON, "type": "event_msg", "payload": payload}

        answer = [{"type": "output_text", "text": f"answer {turn}"}]
        said = {"type": "message", "role": "assistant", "content": answer}
        self.write(
            path,
            event("task_started", turn_id=turn),
            event("user_message", message=f"question {turn}"),
            {"timestamp": NOON, "type": "response_item", "payload": said},
            event("task_complete", turn_id=turn, last_agent_message=f"answer {turn}"),
        )

    @precondition(lambda self: any("codex" in path.parts for path in self.paths()))
    @rule(number=small, turns=small)
    def roll_back(self, number: int, turns: int) -> None:
        paths = [path for path in self.paths() if "codex" in path.parts]
        payload = {"type": "thread_rolled_back", "num_turns": turns}
        line = {"timestamp": NOON, "type": "event_msg", "payload": payload}
        self.write(paths[number % len(paths)], line)

    @precondition(lambda self: self.paths())
    @rule(number=small)
    def archive(self, number: int) -> None:
        """Codex moves a file to and fro; other files are only renamed."""
        path = self.pick(number)
        if "archived_sessions" in path.parts:
            there = path.parents[1] / "sessions" / path.name
        elif "codex" in path.parts:
            there = path.parents[1] / "archived_sessions" / path.name
        else:
            there = path.with_name(f"r{path.name}")
        if not there.exists():
            path.rename(there)
            self.ids[there] = self.ids.pop(path, [])

    # -- what happens to files -----------------------------------------------------------

    @precondition(lambda self: self.paths())
    @rule(number=small, data=st.binary(max_size=8))
    def tear(self, number: int, data: bytes) -> None:
        """Something is written in half, or is no JSON at all."""
        with self.pick(number).open("ab") as file:
            file.write(data)

    @precondition(lambda self: self.paths())
    @rule(number=small, part=st.floats(0, 1))
    def truncate(self, number: int, part: float) -> None:
        """A file keeps its first line: an emptied one is known for a while (S1.11)."""
        path = self.pick(number)
        first = path.read_bytes().find(b"\n") + 1
        os.truncate(path, first + int((path.stat().st_size - first) * part))

    @precondition(lambda self: self.paths())
    @rule(number=small, other=small)
    def rewrite(self, number: int, other: int) -> None:
        """A file gets another's content, in place or as a new file under its name."""
        path, content = self.pick(number), self.pick(other).read_bytes()
        if b"\n" not in content:
            return
        if other % 2:
            path.write_bytes(content)
        else:
            path.with_suffix(".tmp").write_bytes(content)
            path.with_suffix(".tmp").rename(path)

    @precondition(lambda self: self.paths())
    @rule(number=small)
    def delete(self, number: int) -> None:
        self.pick(number).unlink()

    @rule()
    def restart(self) -> None:
        """The daemon starts again on its ledger."""
        self.files.checkpoint()
        self.files = self.world.reader(self.ledger)

    @rule()
    def crash(self) -> None:
        """It starts again on what the ledger last heard."""
        self.files = self.world.reader(self.ledger)

    def undecided(self, files: Files) -> set[str]:
        """Sessions that went on from a thread of which two files differ: either may be meant.

        The one that was newer then was read, and is kept; a fresh reading takes what is newer now.
        """
        own = Counter(
            _thread(path.name)
            for path in (self.home / "agents/codex").rglob("rollout-*.jsonl")
            if "_" not in path.name
        )
        states = {card.session_id: files.state(card.session_id) for card in files.owners.cards()}
        return {
            key
            for key, state in states.items()
            if state is not None
            and any(
                own[key_of] > 1
                for _, path in state.borrowed_files
                for key_of in _UUID.findall(path)[:1]
            )
        }

    def apart(self) -> None:
        """See that what changed has another time: the clock of files stands still for 4 ms.

        Who writes so soon again, and as much, in a file of the same number, cannot be told apart.
        """
        for path in self.paths():
            data, stamp = path.read_bytes(), path.stat().st_mtime_ns
            before = self.seen.get(path)
            if before is not None and before[1] == stamp and before[0] != data:
                stamp += 1000
                os.utime(path, ns=(stamp, stamp))
            self.seen[path] = data, stamp

    @invariant()
    def it_is_as_if_read_from_scratch(self) -> None:
        self.apart()
        self.world.look(self.files)
        scratch = self.world.reader(self.home / "scratch.sqlite")
        self.world.look(scratch)
        for name in ("scratch.sqlite", "scratch.sqlite-wal", "scratch.sqlite-shm"):
            (self.home / name).unlink(missing_ok=True)
        # What was read of a base that is gone is kept; a fresh reading has none of it.
        lost = {path for one in (self.files, scratch) for path in one.problems()}
        ids = {_thread(path) for path in lost} | self.undecided(scratch)
        mine, theirs = known(self.files), known(scratch)
        assert mine.keys() == theirs.keys()
        assert {key: mine[key] for key in mine if key not in ids} == {
            key: theirs[key] for key in theirs if key not in ids
        }


TestFiles = FilesMachine.TestCase
TestFiles.settings = settings(
    max_examples=20,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
