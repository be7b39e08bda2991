"""Memory for large sessions is bounded while they are read, and given back within a minute."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from indexerd.client import Client
from indexerd.errors import ContextTooLargeError, SessionEmptyError
from tests.e2e.clients import ClaudeSession, CodexThread
from tests.e2e.world import NEW_PYTHON, Session, World, append, entry_ids, hit_by, proc, until

pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc"),
]

RESULTS, SIZE = 200, 1_000_000  # number of tool results, characters in each
MORE_MB = 60  # growth allowed during one operation
BACK_MB = 20  # growth allowed after all operations (fragmentation)
MANY_BACK_MB = 40  # BACK_MB for very many small entries, which fragment more
LINE = "src/importer/feed.py:120:    amount = checked(row)  # a line that a tool printed\n"
OUTPUT = (LINE * (SIZE // len(LINE) + 1))[:SIZE]
SAID = "We decided to adjust it."


def pi(session: Session, output: str) -> None:
    session.say("user", "Please adjust it.")
    if output:
        session.tool("bash", output, command="make")
    session.answer(SAID)


def claude(session: ClaudeSession, output: str) -> None:  # Claude stores output twice
    session.turns += 1
    session.prompt(f"Please adjust row {session.turns}.")
    if output:
        session.tool("Bash", output, command="make")
    session.say(SAID)


def codex(thread: CodexThread, output: str) -> None:
    if output:
        call = {"type": "function_call", "name": "shell", "arguments": '{"command":["make"]}'}
        thread.write("response_item", call | {"call_id": "c"})
        result = {"type": "function_call_output", "call_id": "c", "output": output}
        thread.write("response_item", result)
    thread.turn("Please adjust the importer.", answer=SAID)


AGENTS: dict[str, tuple[Callable[[World], Any], Callable[[Any, str], None]]] = {
    "pi": (lambda world: world.session(), pi),
    "claude": (lambda world: ClaudeSession(world.root / "home"), claude),
    "codex": (lambda world: CodexThread(world.root / "home"), codex),
}


class Memory:
    def __init__(self, pid: int) -> None:
        self._pid = pid

    def now(self) -> float:
        return proc(self._pid, "status", "VmRSS") / 1024

    def peak_growth(self, work: Callable[[], Any]) -> float:
        before = self.now()
        Path(f"/proc/{self._pid}/clear_refs").write_text("5")
        work()
        return proc(self._pid, "status", "VmHWM") / 1024 - before


def wait_turns(world: World, session_id: str, count: int) -> None:
    until(lambda: world.row(session_id).get("userMessageCount") == count, "the turns", patience=60)


ASKED: list[tuple[str, dict[str, Any]]] = [
    *((method, {}) for method in ("stats", "digest", "tree", "branches", "path", "context")),
    *(("compact", {"strategy": strategy}) for strategy in ("pi", "codex", "opencode")),
    ("compact", {"handoff": True}),
    ("index", {"force": True, "wait": True}),
    ("history", {"full": True}),
    ("context", {"serialize": True}),
    ("query_session", {"question": "What was decided?"}),
]


def ask(world: World, session_id: str, method: str, params: dict[str, Any]) -> None:
    key = "session" if method == "query_session" else "ref"
    with Client(world.socket, timeout=60) as client:
        client.call(method, params | {key: session_id})


@contextmanager
def measured(world: World, agent: str, turns: int, output: str) -> Iterator[Measured]:
    make, turn = AGENTS[agent]
    small, large = make(world), make(world)
    for session, count, text in ((small, 40, "a few words"), (large, turns, output)):
        for _ in range(count):
            turn(session, text)
    with world.daemon(under=NEW_PYTHON) as process:
        wait_turns(world, small.id, 40)
        wait_turns(world, large.id, turns)
        for each in (small, large):  # the daemon indexes both by itself
            until(lambda key=each.id: world.row(key).get("newUserMessages") == 0, "an index run")
        for method, params in ASKED:  # load lazy imports before measuring
            with suppress(SessionEmptyError):
                ask(world, small.id, method, params)
        yield Measured(world, large.id, partial(turn, large, ""), Memory(process.pid))


class Measured:
    def __init__(self, world: World, large: str, turn: Any, memory: Memory) -> None:
        self.world, self.large, self.turn, self.memory = world, large, turn, memory
        self.started = memory.now()
        self.counts: dict[str, float] = {}
        self.refused: set[str] = set()

    def end(self, kept: int) -> None:
        for method, params in ASKED:
            try:
                work = partial(ask, self.world, self.large, method, params)
                self.counts[f"{method} {params}"] = self.memory.peak_growth(work)
            except ContextTooLargeError:
                self.refused.add(method)
        assert not {name: more for name, more in self.counts.items() if more > MORE_MB}
        until(lambda: self.memory.now() < self.started + kept, "giving it back", patience=60)


@pytest.mark.parametrize("agent", AGENTS)
def test_a_session_of_200_mb_takes_no_more_than_a_small_one(world: World, agent: str) -> None:
    """Digests, summaries, questions and views of a 200 MB session stay within MORE_MB."""
    with measured(world, agent, RESULTS, OUTPUT) as at:

        def digested() -> None:
            for _ in range(10):
                at.turn()
            until(lambda: world.call("get", ref=at.large)["digest"]["segments"], "a digest")

        at.counts["a digest by itself"] = at.memory.peak_growth(digested)
        for _ in range(30):
            at.turn()
        wait_turns(world, at.large, RESULTS + 40)
        at.end(BACK_MB)


def test_a_context_of_very_many_entries_is_refused(world: World) -> None:
    """Methods refuse a context larger than any model's (`context` only if serialized)."""
    with measured(world, "pi", 9_000, "a few words") as at:
        at.end(MANY_BACK_MB)
        assert at.refused == {"compact", "context", "stats"}


def test_a_tree_of_very_many_entries_stays_small(world: World) -> None:
    """A session of 160,000 entries takes little memory in each method and after it.

    Python's own allocator keeps a block of 1 MB for each object that is left in it: 25 MB or more,
    differently in each run. The C allocator shows what the program itself keeps.
    """
    world.configure("[digest]\nenabled = false\n")
    small, large = world.session(3), world.session(1)
    known = {"type": "message", "message": {"role": "assistant", "content": "Looked at it."}}
    ids = [str(large.last), *(next(entry_ids) for _ in range(160_000))]
    wanted = [(method, {}) for method in ("tree", "branches", "path", "index")]
    wanted += [("query_session", {"question": "What was looked at?"})]
    with world.daemon(under=(*NEW_PYTHON, "PYTHONMALLOC=malloc")) as process:
        for method, params in wanted:  # load lazy imports before measuring
            ask(world, small.id, method, params)
        hit_by(world, "zeppelin")  # a word that nothing has yet
        memory = Memory(process.pid)
        before = memory.now()

        def read() -> None:
            entries = (
                {**known, "id": entry_id, "parentId": parent} for parent, entry_id in pairwise(ids)
            )
            append(large.path, *entries)
            large.last = ids[-1]
            large.say("user", "Zeppelin")
            until(lambda: hit_by(world, "zeppelin"), "all its words in the index", patience=180)

        counts = {"reading": memory.peak_growth(read)}
        for method, params in wanted:
            counts[method] = memory.peak_growth(partial(ask, world, large.id, method, params))
        assert not {name: more for name, more in counts.items() if more > MORE_MB}
        until(lambda: memory.now() < before + BACK_MB, "giving it back", patience=60)
