"""`run --once`: what it indexes, what it skips, and by which model."""

from contextlib import suppress
from pathlib import Path

from tests.e2e.world import World


def test_sessions_without_an_answer_or_a_header_get_no_meta_file(world: World) -> None:
    """S0.5, S0.17, S1.3: files without an answer, a header or any text get no meta file."""
    silent = world.session()
    for number in range(6):
        silent.say("user", f"Hello? {number}")
    foreign = world.sessions / "notes.jsonl"
    foreign.write_text('{"type":"note"}\n' * 9)
    (world.sessions / "empty.jsonl").touch()
    mute = world.session()
    for _ in range(6):
        mute.say("user", " ")
        mute.answer("")
    report = world.run("run", "--once", "--json", code=None)
    assert report["indexed"] == []
    assert [{"sessionId": mute.id, "kind": "session_empty"}] == report["failed"]
    assert not list(world.metas.glob("*"))
    assert foreign.read_text() == '{"type":"note"}\n' * 9


def test_only_the_current_branch_counts(world: World) -> None:
    """S0.9, S0.10, S1.13: after a branch switch only the new path is counted and described."""
    world.scripted()
    session = world.session(turns=5)
    fork = session.last
    for _ in range(3):
        session.turn("The abandoned idea: zebra stripes.")
    assert [session.id] == world.run("run", "--once", "--json")["indexed"]
    session.last = fork
    session.turn("Back at the fork, choose plain colours.")
    row = world.run("show", session.id, "--json")["session"]
    assert row["userMessageCount"] == 8
    assert [session.id] == world.run("run", "--once", "--json")["indexed"]
    meta = world.meta(session.id)
    assert meta is not None
    assert (6, session.last) == (meta["userMessageCount"], meta["lastIndexedLeafId"])


def test_without_any_model_nothing_fails(world: World) -> None:
    """S0.28: without a usable model nothing fails, and sessions are still listed."""
    world.env["INDEXERD_MODEL_KEYS"] = '["google/gemini-3.5-flash-lite"]'
    world.session(turns=5)
    report = world.run("run", "--once", "--json")
    assert (report["indexed"], report["failed"], report["sessions"]) == ([], [], 1)


def test_old_sessions_stay_on_this_machine(world: World) -> None:
    """interfaces.md 2: a session older than `backfill_days` is only sent to a local model."""
    world.scripted()
    world.env["INDEXERD_MODEL_KEYS"] = '["scripted/test", "local/extractive"]'
    old = world.session(turns=0)
    for number in range(5):
        stamp = 1_600_000_000_000 + number
        old.say("user", f"Ask {number}", timestamp=stamp)
        old.answer("Yes.", timestamp=stamp)
    new = world.session(turns=5)
    report = world.run("run", "--once", "--json")
    assert {old.id, new.id} == set(report["indexed"])
    models = [(world.meta(session.id) or {})["model"] for session in (old, new)]
    assert models == ["local/extractive", "scripted/test"]
    assert len(world.calls()) == 1


def test_many_sessions_get_the_names_that_few_get(world: World) -> None:
    """S3.16: from fifty due sessions on, the built-in model has processes of its own, which end.

    Digests are made after that, too.
    """
    world.env["INDEXERD_INDEX__QUIET_SECONDS"] = "0"
    grown = world.session(turns=12)

    def session() -> str:
        every = world.session()
        for animal in ("quagga", "okapi", "tapir", "zebra", "bongo"):
            every.turn(f"Teach the {animal} parser to read stripes.", "It reads them now.")
        return every.id

    first = session()
    assert {*world.run("run", "--once", "--json")["indexed"]} == {first, grown.id}
    many = [session() for _ in range(60)]
    grown.talk(30)
    report = world.run("run", "--once", "--json")
    assert ({*report["indexed"]}, report["digested"]) == ({*many, grown.id}, [grown.id])
    metas = [world.meta(key) or {} for key in (first, *many)]
    assert len({(meta["name"], meta["summary"]) for meta in metas}) == 1
    mine = str(world.root).encode()
    left = [path.parent.name for path in Path("/proc").glob("[0-9]*/environ") if mine in read(path)]
    assert left == []


def read(path: Path) -> bytes:
    with suppress(OSError):  # another user's, or it ended
        return path.read_bytes()
    return b""
