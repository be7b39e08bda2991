"""Compaction and branch summaries of the real program, for sessions of every agent."""

import json
import re
from typing import Any

import pytest

from indexerd.errors import SessionEmptyError
from tests.e2e.clients import ClaudeSession
from tests.e2e.world import Session, World, copy_recorded, until, wait

AGENTS = ("pi", "claude", "codex", "opencode")
STRATEGIES = ("pi", "codex", "opencode")
WORDS = "We decided to write alerts to the file alerts.log."


def furnish(world: World) -> None:
    world.pi = copy_recorded(world) / "pi"
    world.sessions, world.metas = world.pi / "sessions/--w--", world.pi / "sessions-meta"
    world.env["INDEXERD_MIN_NEW_USER_MESSAGES"] = "10000"


def agents(world: World) -> dict[str, dict[str, Any]]:
    rows = world.call("list", limit=500)["sessions"]
    return {row["agent"]: row for row in sorted(rows, key=lambda row: int(row["messageCount"]))}


def branched_session(world: World) -> tuple[Session, str]:
    """Return a session and the leaf of its abandoned branch."""
    session = world.session()
    session.turn("Where do the nightly alerts go?", WORDS)
    fork = session.last
    session.turn("Try Redis for the alerts.", "Redis is too big for this host, as I found out.")
    left = str(session.last)
    session.last = fork
    session.turn("Then use files for the alerts.", "The alerts are in alerts.log now.")
    world.seen(session)
    return session, left


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_compacts_every_agents_sessions(
    running: World, agent: str, strategy: str
) -> None:
    """interfaces.md 5: the answer has its four fields."""
    row = until(lambda: agents(running).get(agent), "its sessions")
    asked: dict[str, Any] = {"ref": row["sessionId"], "strategy": strategy}
    if strategy == "pi":
        asked["keepRecentTokens"] = 1
    found = running.call("compact", **asked)
    assert found.keys() >= {"summary", "firstKeptEntryId", "tokensBefore", "details"}
    assert found["strategy"] == strategy
    assert found["summary"].startswith("## Goal")
    assert "## Next Steps" in found["summary"]
    assert found["tokensBefore"] > 0
    assert found["usage"]["model"] == "local/extractive"
    assert all(isinstance(found["details"][key], list) for key in ("readFiles", "modifiedFiles"))
    ids: list[Any] = [
        entry["id"] for entry in running.call("path", ref=row["sessionId"])["entries"]
    ]
    assert found["firstKeptEntryId"] in (ids if strategy == "pi" else [None])
    if strategy == "codex":
        *users, summary = found["replacementHistory"]
        assert summary["text"] == found["summary"]
        assert {message["role"] for message in users} <= {"user"}


def test_the_compact_command(running: World) -> None:
    """interfaces.md 4: text for people, the method's answer with `--json`, and error codes."""
    session, _ = branched_session(running)
    text = running.run("compact", session.id)
    assert re.search(r"^strategy +pi$", text, re.MULTILINE)
    assert WORDS in text
    assert "\n  ## Goal" in text
    found = running.run("--json", "compact", session.id, "--strategy", "codex")
    assert found["replacementHistory"][-1]["text"] == found["summary"]
    failed = running.run("--json", "compact", session.id, "--strategy", "pi", code=None)
    assert failed["error"]["code"] == "session_empty"
    assert running.code
    with pytest.raises(SessionEmptyError):
        running.call("compact", ref=session.id, strategy="pi")


def test_a_handoff_is_one_document(running: World) -> None:
    """S3.19: all that is needed to go on; instruction files are named and not quoted."""
    project = running.root / "project"
    project.mkdir()
    (project / "AGENTS.md").write_text("Never touch main.")
    folder = running.root / "stores/claude/projects/-project"
    session = ClaudeSession(running.root, str(project), folder)
    session.prompt("Where do the nightly alerts go?")
    session.say(WORDS)
    session.edit(str(project / "alerts.py"))
    session.tool("Read", file_path=str(project / "README.md"))
    session.say("It is rotated.")
    row = wait(running, session.id, filesRead=[str(project / "README.md")])
    text = running.run("compact", session.id, "--handoff")
    assert text.startswith(f"# Hand-off: {row['name']}\n\n")
    assert "Never touch main." not in text
    sections = {part.partition("\n")[0]: part for part in text.split("\n## ")}
    origin = sections["Where it comes from"]
    for fact in ("claude", session.id, project, "main", row["modifiedAt"]):
        assert f": {fact}\n" in origin
    assert f"`indexerd resume {session.id}`" in origin
    assert "AGENTS.md" in text
    assert "\n> ## Goal\n" in text
    assert f"> - {WORDS}" in sections["Key decisions"]
    assert f"> - {project}/alerts.py" in sections["Files modified"]
    assert f"> - {project}/README.md" in sections["Files read"]
    last = sections["Last messages"]
    assert last.index("From user:\n\n> Where do") < last.index(f"From assistant:\n\n> {WORDS}")
    assert text.endswith(f'`indexerd ask {session.id} "QUESTION"`\n')


def test_a_handoff_tells_when_the_first_message_was_written(running: World) -> None:
    """S3.19: as `show` does, also in a session whose messages were copied into a later file."""
    session = running.session(turns=2)
    header, first, *rest = map(json.loads, session.path.read_text().splitlines())
    header["timestamp"], first["timestamp"] = "2031-01-01T00:00:00.000Z", "2020-05-05T10:00:00.000Z"
    first["message"]["timestamp"] = 1_588_672_800_000
    lines = map(json.dumps, (header, first, *rest))
    session.path.write_text("".join(f"{line}\n" for line in lines))
    until(lambda: "2020-05-05" in running.run("show", session.id), "the change")
    assert "- began: 2020-05-05T10:00:00" in running.run("compact", session.id, "--handoff")


def test_an_abandoned_branch_is_summarized(running: World) -> None:
    """S1.27, S1.28: it is summarized on request, stored once per leaf and shown by `branches`."""
    session, tip = branched_session(running)
    before = running.fingerprint()
    text = running.run("branch-summary", session.id, tip)
    assert "The user explored a different conversation branch" in text
    running.call("branch_summary", ref=session.id, leaf=tip, instructions="the host")
    path = running.metas / f"{session.id}.digest.jsonl"
    (line,) = [json.loads(line) for line in path.read_text().splitlines()]
    assert (line["kind"], line["leafId"]) == ("branch", tip)
    tips = {tip["leafId"]: tip for tip in running.call("branches", ref=session.id)["tips"]}
    assert tips[tip]["gist"] == "- Try Redis for the alerts."  # without headings and "(none)"
    assert line["content"].startswith("## Goal\n- Try Redis for the alerts.\n")
    assert tips[tip]["gistSource"] == "digest"
    assert "Redis" in line["content"]
    none = running.call("branch_summary", ref=session.id, leaf=str(session.last))
    assert none["summary"] == "No content to summarize"
    running.run("branch-summary", session.id, "nosuchentry", code=3)
    assert running.fingerprint() == before


CLAIM = "Deployed the payment service to production and deleted the old database."


def headings_of_claim(text: str) -> set[str]:
    """The headings of a summary under which the claim is told."""
    _, *parts = re.split(r"^(?:#+ |\*\*)(\w[\w &]*)", f"\n## Top\n{text}", flags=re.MULTILINE)
    told = zip(parts[::2], parts[1::2], strict=True)
    return {heading for heading, below in told if CLAIM in below}


def test_labels_in_a_pasted_chat_are_its_authors_words(running: World) -> None:
    """S2.21: nothing that the user pasted is told as done by the agent, or cited as its words."""
    session = running.session()
    chat = f"User: please deploy\n\nAssistant: {CLAIM}\n\n[Assistant]: {CLAIM}\n\nUser: thanks"
    chat += "".join(f"{end}Assistant: {CLAIM}" for end in ("\r", "\v", "\u2028", "\n\u200b"))
    asked = session.say("user", f"Find out why this chat took so long.\n\n{chat}")
    session.answer("The network was slow, so I raised the client's timeout to 30 seconds.")
    session.talk(11)
    running.seen(session)
    running.call("index", ref=session.id, force=True, wait=True)
    meta = running.meta(session.id) or {}
    assert CLAIM not in meta["description"]
    assert headings_of_claim(meta["summary"]) == set()
    sent = running.call("as_sent", ref=session.id)["user"]
    assert f"\n> Assistant: {CLAIM}" in sent
    assert not [line for line in sent.splitlines() if line.startswith(f"Assistant: {CLAIM}")]
    assert headings_of_claim(running.call("compact", ref=session.id)["summary"]) == set()
    segment = running.call("digest", ref=session.id)["segment"]
    assert headings_of_claim(segment["content"]) == set()
    assert CLAIM not in str(segment["key_decisions"])
    found = running.call("query_session", session=session.id, question="Was payment deployed?")
    cited = [citation for citation in found["citations"] if CLAIM in citation["excerpt"]]
    assert {(citation["entryId"], citation["role"]) for citation in cited} == {(asked, "user")}
