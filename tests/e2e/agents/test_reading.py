"""How the daemon finds and reads the files of each agent."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from indexerd.errors import SessionEmptyError
from tests.e2e.clients import ClaudeSession, CodexThread
from tests.e2e.world import (
    FIXTURES,
    ROOT,
    Session,
    World,
    append,
    chat,
    opencode_rows,
    scanned,
    until,
    wait,
)
from tests.sessions.opencode_rows import Rows

KNOWN = FIXTURES / "known/pi-every-kind.jsonl"
KINDS = {
    *("message", "thinking_level_change", "model_change", "compaction", "branch_summary"),
    *("custom", "custom_message", "label", "session_info"),
}
PREFIX = "Another language model started to solve this problem and produced a summary of its"
CONTEXT = (
    "# AGENTS.md instructions for /w\n\n<INSTRUCTIONS>\nOPAQUE\n</INSTRUCTIONS>",
    "<environment_context>OPAQUE</environment_context>",
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("agents"))
    world.pi = world.root / "pi elsewhere"
    world.sessions = world.pi / "sessions/--w--"
    world.metas = world.pi / "sessions-meta"
    world.install_pi()
    (world.root / "flat").mkdir()
    world.env |= {
        "PI_CODING_AGENT_DIR": str(world.pi),
        "PI_CODING_AGENT_SESSION_DIR": str(world.root / "flat"),
        "INDEXERD_MIN_NEW_USER_MESSAGES": "10000",
        "INDEXERD_WATCH__RESCAN_SECONDS": "0.3",
    }
    rows = opencode_rows(world)
    rows.session("ses_one", directory="/w")
    chat(rows, "ses_one", "Where?")
    with world.daemon():
        yield world


def messages_of(world: World, session_id: str) -> list[tuple[str, str]]:
    found = world.call("context", ref=session_id)["messages"]
    return [(message["role"], message["text"]) for message in found]


def test_pi_sessions_are_found_through_its_variables(world: World) -> None:
    """Custom directories and unusual names are read; `session.txt` is not (S3.7)."""
    deep = Session(world.pi / "sessions/--home-u-ä b--", cwd="/home/u/ä b")
    flat = Session(world.root / "flat")
    text = Session(world.root / "elsewhere")
    for session in (deep, flat, text):
        session.talk(1)
    (world.sessions / "2026-11-21").mkdir()
    text.path.rename(world.sessions / "2026-11-21/session.txt")
    assert wait(world, deep.id, userMessageCount=1)["cwd"] == "/home/u/ä b"
    row = wait(world, flat.id, userMessageCount=1)
    assert row["sessionFile"] == str(flat.path)
    scanned(world)
    assert world.row(text.id) == {}
    world.call("index", ref=flat.id, force=True, wait=True)
    assert world.meta(flat.id)


def test_every_kind_of_pi_entry_is_read(world: World) -> None:
    """A version 3 file with every kind of entry becomes one tree without losing an entry (S3.8)."""
    shutil.copy(KNOWN, world.sessions / "every-kind.jsonl")
    entries = [json.loads(line) for line in KNOWN.read_text().splitlines()]
    row = wait(world, "every-kind", version=3)
    nodes = world.call("tree", ref="every-kind", filter="all")["nodes"]
    found = {node["id"]: node for node in nodes}
    assert {node["type"] for node in nodes} >= KINDS
    assert found.keys() == {entry["id"] for entry in entries if entry["type"] != "session"}
    assert all(found[entry["id"]]["type"] == entry["type"] for entry in entries[1:])
    assert [node["id"] for node in nodes if node.get("label")] == ["e005"]
    assert (row["agentTitle"], row["cwd"]) == ("Cache lock", "/srv/rig/work")


def test_no_meta_file_before_the_first_answer(world: World) -> None:
    """A session without an answer gets no meta file, not even on request (S3.20)."""
    session = world.session()
    session.say("user", "Is anybody there?")
    wait(world, session.id, userMessageCount=1)
    with pytest.raises(SessionEmptyError):
        world.call("index", ref=session.id, force=True, wait=True)
    assert not [path for path in world.metas.glob("*") if session.id in path.name]
    session.answer("Yes.")
    wait(world, session.id, messageCount=2)
    world.call("index", ref=session.id, force=True, wait=True)
    assert world.meta(session.id)


@pytest.mark.parametrize("repeated", [("FIRST", "SECOND"), ("FIRST",), ()])
def test_duplicate_codex_messages_are_read_once(
    world: World, home: Path, repeated: tuple[str, ...]
) -> None:
    """Events that repeat an item are dropped; instructions and summaries never count (S3.4)."""
    thread = CodexThread(home)
    for text in (*CONTEXT, f"{PREFIX} thinking process.\nOPAQUE"):
        thread.item("user", text)
    for turn in ("FIRST", "SECOND"):
        thread.event("task_started", turn_id=turn)
        thread.item("user", f"{turn} question")
        if turn in repeated:
            thread.event("user_message", message=f"{turn} question", images=[])
            thread.event("agent_message", message=f"{turn} answer")
        thread.item("assistant", f"{turn} answer")
        thread.event("task_complete", turn_id=turn, last_agent_message=f"{turn} answer")
        thread.item("user", CONTEXT[1])
    row = wait(world, thread.id, userMessageCount=2, messageCount=4)
    assert row["firstUserMessage"] == "FIRST question"
    sent = world.call("as_sent", ref=thread.id)["user"]
    for turn in ("FIRST", "SECOND"):
        assert (sent.count(f"{turn} question"), sent.count(f"{turn} answer")) == (1, 1)
    assert "OPAQUE" not in sent


def test_a_codex_compaction_replaces_earlier_context(world: World, home: Path) -> None:
    """Its replacement history replaces all earlier text; without one, user messages stay (S3.5)."""
    summary = f"{PREFIX} thinking process.\nSUMMARY"
    kept = [
        {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}
        for role, text in (("user", "KEPT"), ("user", summary))
    ]
    for replaced in (True, False):
        thread = CodexThread(home)
        thread.turn("BEFORE")
        history = {"replacement_history": kept} if replaced else {}
        thread.write("compacted", {"message": summary} | history)
        thread.turn("AFTER")
        row = wait(world, thread.id, compactions=1, userMessageCount=2)
        words = " ".join(text for _, text in messages_of(world, thread.id))
        assert "SUMMARY" in words
        assert "AFTER" in words
        assert "Done: BEFORE" not in words
        assert (("KEPT" in words), ("BEFORE" in words)) == (replaced, not replaced)
        assert row["firstUserMessage"] == "BEFORE"


def test_a_name_removed_from_codexs_index_is_dropped(world: World, home: Path) -> None:
    """S3.3: a line is removed from the index; the other thread keeps its name."""
    first, second = threads = CodexThread(home), CodexThread(home)
    for thread in threads:
        thread.turn()
        thread.rename("The name")
        wait(world, thread.id, agentTitle="The name")
    index = home / ".codex/session_index.jsonl"
    index.write_text(index.read_text().splitlines(keepends=True)[-1])
    wait(world, first.id, agentTitle=None)
    wait(world, second.id, agentTitle="The name")


def test_internal_records_of_agents_are_never_sent(world: World, home: Path) -> None:
    """Approvals, snapshots and reverts reach no prompt and cannot be searched for (S3.28)."""
    claude, codex = ClaudeSession(home), CodexThread(home)
    mark = "OPAQUEQ7X9Z2W4"
    claude.turn("Where?")
    snapshot = {"type": "file-history-snapshot", "messageId": "m", "snapshot": {"a": mark}}
    mode = {"type": "permission-mode", "permissionMode": mark, "sessionId": claude.id}
    append(claude.path, snapshot, mode)
    codex.write("response_item", {"type": "ghost_snapshot", "ghost_commit": {"id": mark}})
    codex.event("exec_approval_request", command=[mark], reason=mark)
    codex.turn("Where?")
    rows = Rows(world.root / "data/opencode/opencode.db", schema="")
    rows.session("ses_opaque", directory="/w")
    rows.said("ses_opaque", "msg_o1", "user", "Where?")
    rows.said("ses_opaque", "msg_o2", "assistant", "There.", permission=mark, snapshot=mark)
    rows.part("ses_opaque", "msg_o2", "prt_o1", type="snapshot", snapshot=mark)
    rows.part("ses_opaque", "msg_o2", "prt_o2", type="patch", hash=mark, files=[])
    for session_id in (claude.id, codex.id, "ses_opaque"):
        wait(world, session_id, userMessageCount=1, messageCount=2)
        sent = world.call("as_sent", ref=session_id)
        handed = world.call("compact", ref=session_id, handoff=True)
        assert "Where?" in sent["user"]
        assert mark not in json.dumps([sent, handed]), session_id
    until(lambda: world.call("status")["textPending"] == 0, "the texts")
    assert world.call("search", query=mark)["hits"] == []


def test_a_truncated_replaced_or_moved_file_is_read_again(world: World) -> None:
    """Appends are added; a truncated, replaced or moved file is read from its start (S3.27)."""
    session = world.session(turns=4)
    wait(world, session.id, userMessageCount=4)
    session.turn()
    wait(world, session.id, userMessageCount=5, leafId=session.last)
    lines = session.path.read_bytes().splitlines(keepends=True)
    session.path.write_bytes(b"".join(lines[:5]))
    wait(world, session.id, userMessageCount=2, messageCount=4)
    session.path.write_bytes(b"".join(lines).replace(b"widget", b"gadget"))
    wait(world, session.id, userMessageCount=5)
    other = session.path.with_suffix(".new")
    other.write_bytes(b"".join(lines[:7]))
    other.replace(session.path)
    wait(world, session.id, userMessageCount=3, messageCount=6)
    moved = world.pi / "sessions/--moved--" / session.path.name
    moved.parent.mkdir(exist_ok=True)
    session.path = session.path.rename(moved)
    wait(world, session.id, userMessageCount=3, sessionFile=str(moved), gone=False)
    texts = [text for _, text in messages_of(world, session.id)]
    assert len(texts) == 6
    assert "widget" in texts[0]


def test_missing_knowledge_notes_are_documented(world: World) -> None:
    """The documentation says that there are no knowledge notes; no method offers them (S3.31)."""
    said = "extracts no knowledge notes (patterns, preferences, corrections)"
    assert said in (ROOT / "docs/CLI.md").read_text()
    methods = world.call("hello")["capabilities"]
    assert not [name for name in methods if "note" in name or "knowledge" in name]


def test_older_pi_files_are_upgraded_in_memory(world: World) -> None:
    """S1.8, S1.9, S3.21: v1 files become a chain with stable ids; hook messages become custom."""
    roles = (("user", "One."), ("assistant", "Two."), ("hookMessage", "Psst."), ("user", "Three."))
    said = [{"type": "message", "message": {"role": role, "content": text}} for role, text in roles]
    for version in (None, 2):
        name = f"version-{version}"
        header = {"type": "session", "id": name, "timestamp": "2026-11-21T10:00:00.000Z"}
        lines = [header | {"cwd": "/w"} | ({"version": version} if version else {})]
        for number, message in enumerate(said):
            link = {"id": f"e{number}", "parentId": f"e{number - 1}" if number else None}
            lines.append(message | {"timestamp": header["timestamp"]} | (link if version else {}))
        path = world.sessions / f"{name}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        data = path.read_bytes()
        wait(world, name, userMessageCount=2)
        assert [message for message in messages_of(world, name) if message[0] != "assistant"] == [
            ("user", "One."),
            ("custom", "Psst."),
            ("user", "Three."),
        ]
        nodes = world.call("tree", ref=name)["nodes"]
        ids = [node["id"] for node in nodes]
        assert all(ids)
        assert [node["parentId"] for node in nodes] == [None, *ids[:-1]]
        scanned(world)
        assert [node["id"] for node in world.call("tree", ref=name)["nodes"]] == ids
        assert path.read_bytes() == data


def test_a_session_that_pi_migrates_stays_one_with_its_meta_file(world: World) -> None:
    """S1.11: a version 1 file is replaced by one of version 3, with ids and another inode."""
    at = {"timestamp": "2026-11-21T10:00:00.000Z"}
    header = {"type": "session", "id": "migrated", "cwd": "/w"} | at
    roles = ("user", "assistant") * 2
    said = [
        {"type": "message", "message": {"role": role, "content": "One."}} | at for role in roles
    ]
    links = [{"id": f"e{n}", "parentId": f"e{n - 1}" if n else None} for n in range(len(said))]
    path, new = world.sessions / "migrated.jsonl", world.sessions / "migrated.new"
    append(path, header, *said)
    wait(world, "migrated", userMessageCount=2)
    world.call("index", ref="migrated", force=True, wait=True)
    before = wait(world, "migrated", indexed=True), world.meta("migrated")
    append(new, header | {"version": 3}, *(one | two for one, two in zip(said, links, strict=True)))
    new.replace(path)
    row = wait(world, "migrated", version=3, userMessageCount=2, leafId="e3", gone=False)
    scanned(world)
    assert (row["name"], world.meta("migrated")) == (before[0]["name"], before[1])
    rows = world.call("list", archived=True, limit=500)["sessions"]
    assert [row["sessionFile"] for row in rows].count(str(path)) == 1
