"""What digests contain: ranges, figures, facts, the prompts for them and the folded context."""

import json
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from tests.e2e.clients import ClaudeSession, CodexThread
from tests.e2e.world import Session, World, chat, opencode_rows, wait
from tests.fakes.openai_server import OpenAIServer, reply
from tests.fakes.wire import Answer, Request

HOOK = """
import json, pathlib, sys
request = json.load(sys.stdin)
place = pathlib.Path(sys.argv[1])
(place / f"{request['sessionId']}.request").write_text(json.dumps(request))
wish = place / f"{request['sessionId']}.wish"
print(wish.read_text() if wish.exists() else "{}")
"""
BULLETS = "technical bullet points"


class Desk:
    def __init__(self, world: World, server: OpenAIServer) -> None:
        self.world, self.server = world, server
        self.answers: dict[str, str] = {}  # keyed by a word of the prompt
        server.default = self._answer

    def _answer(self, request: Request) -> Answer:
        prompt = words(request)
        facts = "; ".join(dict.fromkeys(re.findall(r"FACT \d+", prompt)))
        text = next((answer for word, answer in self.answers.items() if word in prompt), facts)
        if "response_format" in request.json:
            texts = {"name": "Facts", "description": "Facts.", "summary": f"## Goal\n- {text}"}
            return reply(json.dumps(texts | {"tags": ["a", "b", "c"]}))
        return reply(text or "- Summed up.")

    def requests(self, word: str) -> list[Request]:
        return [request for request in self.server.requests if word in words(request)]

    def digest(self, session: Session) -> Any:
        self.world.seen(session)
        return self.world.call("digest", ref=session.id)


def words(request: Request) -> str:
    return str(request.json["messages"][-1]["content"])


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    world = World(tmp_path_factory.mktemp("digests"))
    world.install_pi()
    (world.root / "hook.py").write_text(HOOK)
    hook = [sys.executable, "-IS", str(world.root / "hook.py"), str(world.root)]
    with OpenAIServer() as server:
        world.openai(server)
        world.env |= {
            "INDEXERD_BUDGET__REQUESTS_PER_MINUTE": "10000",
            "INDEXERD_MIN_NEW_USER_MESSAGES": "10000",
            "INDEXERD_DIGEST__TRIGGER_THRESHOLD": "10000",
            "INDEXERD_DIGEST__HOOK": json.dumps(hook),
            "INDEXERD_DIGEST__HOOK_SECONDS": "30",
        }
        with world.daemon():
            yield Desk(world, server)


def test_folded_context_has_system_summaries_and_recent_messages(desk: Desk) -> None:
    """System messages and the newest ten are kept, with summaries between (S2.7, S2.14, S2.15)."""
    session = desk.world.session()
    session.say("system", "Always answer in verse.")
    segments = [desk.digest(session)["segment"]]
    assert segments == [None]
    for number, turns in enumerate((7, 5, 6)):
        session.turn(f"FACT {number}")
        session.tool("write", path=f"/w/{number}.py", content="x")
        session.talk(turns)
        segments.append(desk.digest(session)["segment"])
    ranges = [segment["covering_messages"] for segment in segments[1:]]
    assert ranges[0][0] == 0
    assert all(earlier[1] + 1 == later[0] for earlier, later in pairwise(ranges))
    found = desk.world.call("history", ref=session.id, full=True)
    system, earlier, *recent = found["context"]
    assert (system["role"], system["text"]) == ("system", "Always answer in verse.")
    said = [json.loads(line).get("message") for line in session.path.read_text().splitlines()[-10:]]
    assert [(message["role"], message["text"]) for message in recent] == [
        (message["role"], message["content"][0]["text"]) for message in said
    ]
    head, *blocks = earlier["text"].split("--- Earlier in conversation ---")
    assert head.strip() == "Previous conversation context:"
    for number, (block, (first, last)) in enumerate(zip(blocks, ranges, strict=True)):
        count, summary = block.strip().split("\n\n")[:2]
        assert count == f"[Previous conversation summarized - {last - first + 1} messages]"
        assert summary.startswith(f"FACT {number}")
        assert f"Files modified: /w/{number}.py" in block


def test_a_report_compares_the_compression_with_the_target(desk: Desk) -> None:
    """The report states the achieved and the target compression, met or missed (S2.10)."""
    for length, met in ((40, True), (4000, False)):
        session = desk.world.session(turns=10)
        desk.answers[session.id] = "x" * length
        found = desk.digest(session)
        lines = map(json.loads, session.path.read_text().splitlines()[1:11])
        said = [line["message"]["content"][0]["text"] for line in lines]
        covered = sum(-(-len(text) // 4) for text in said)
        assert found["compression"] == round(length / 4 / covered, 4)
        assert (found["targetCompression"], found["targetMet"]) == (0.3, met)


def test_modified_files_are_listed_once_for_every_agent(desk: Desk) -> None:
    """Each path that pi, Claude Code, Codex or opencode wrote or edited appears once (S2.11)."""
    world, home = desk.world, desk.world.root / "home"
    pi = desk.world.session()
    pi.say("user", "Edit /w/a.py.")
    for tool, path in (("write", "/w/a.py"), ("edit", "/w/a.py"), ("read", "/w/b.py")):
        pi.tool(tool, path=path)
    claude, codex = ClaudeSession(home), CodexThread(home)
    rows = opencode_rows(world)
    rows.session("ses_files", directory="/w")
    for number in range(2):
        claude.edit("/w/a.py")
        codex.turn("Please adjust a widget.", "/w/a.py")
        rows.said("ses_files", f"msg_{number}a", "user", "Edit /w/a.py.")
        rows.said("ses_files", f"msg_{number}b", "assistant", "Edited.")
        state = {"status": "completed", "input": {"filePath": "/w/a.py"}, "output": "ok"}
        part = {"type": "tool", "tool": ("write", "edit")[number], "callID": "c", "state": state}
        rows.part("ses_files", f"msg_{number}b", f"prt_{number}", **part)
    pi.talk(6)
    for _ in range(6):
        claude.turn()
        codex.turn()
        chat(rows, "ses_files", "Go on.")
    for session_id, users in ((pi.id, 7), (claude.id, 8), (codex.id, 8), ("ses_files", 8)):
        wait(world, session_id, userMessageCount=users)
        segment = world.call("digest", ref=session_id)["segment"]
        assert segment["files_modified"] == ["/w/a.py"], session_id


def test_uses_of_tools_are_counted_and_decisions_found(desk: Desk) -> None:
    """S2.12, S2.13: three examples of a tool; five sentences with one of four phrases."""
    decisions = [
        "We decided to keep amounts as cents.",
        "I chose to read feeds as streams.",
        "The server will use port 4173.",
        "We are going with Ed25519.",
        "We decided to retry twice.",
        "We decided to stop there.",
    ]
    session = desk.world.session()
    session.say("user", "How shall we do it?")
    for number in range(5):
        session.tool("bash", command=f"make step{number}")
    session.tool("read", path="/w/a.py")
    for number, sentence in enumerate(decisions):
        text = f"It was looked at. {sentence} That is fine."
        content = text if number % 2 else [{"type": "text", "text": text}]
        said = {"role": "assistant", "content": content, "stopReason": "stop"}
        session.entry("message", message=said)
    session.talk(5)
    segment = desk.digest(session)["segment"]
    assert segment["key_decisions"] == decisions[:5]
    used = {use["tool"]: use for use in segment["tools_used"]}
    assert {tool: use["count"] for tool, use in used.items()} == {"bash": 5, "read": 1}
    examples = used["bash"]["notable_uses"]
    assert len(examples) == 3
    assert set(examples) < {f"make step{number}" for number in range(5)}


def test_planted_facts_are_recalled_after_ten_rounds_of_folding(desk: Desk) -> None:
    """The folded context keeps the facts of each round; no message is sent twice (S2.27, S3.15)."""
    session = desk.world.session()
    for number in range(10):
        session.turn(f"Mind FACT {number} of {session.id}.")
        session.talk(9)
        desk.digest(session)
        folded = desk.world.call("history", ref=session.id, full=True)["context"][0]["text"]
        assert set(re.findall(r"FACT \d", folded)) == {f"FACT {n}" for n in range(number + 1)}
    for number, request in enumerate(desk.requests(session.id)):
        talk, _, rest = words(request).partition("</conversation>")
        assert re.findall(r"Mind FACT (\d)", talk) == [str(number)]
        assert ("<previous-summary>" in rest) == (number > 0)


def test_a_hook_extends_or_replaces_the_prompt(desk: Desk) -> None:
    """A hook adds context or replaces the prompt; if it fails the default is sent (S2.9, S3.29)."""
    prompts = {}
    for wish in ('{"context": ["Ticket 7 is it."]}', '{"prompt": "Write a poem."}', "no json", ""):
        session = desk.world.session(turns=8)
        if wish:
            (desk.world.root / f"{session.id}.wish").write_text(wish)
        assert desk.digest(session)["segment"]
        (request,) = desk.requests(session.id)
        prompts[wish] = words(request).partition("</conversation>")[2]
        hook_input = (desk.world.root / f"{session.id}.request").read_text()
        assert json.loads(hook_input)["covering"] == [0, 5]
        assert "widget" not in hook_input, "a hook must not receive the session's text"
    added, poem, failed, default = prompts.values()
    for word in (BULLETS, "**Goal**", "**Actions**", "**Decisions and discoveries**"):
        assert word in default
    assert "**End state**" in default
    assert [value for key, value in request.json.items() if "max" in key] == [1000]
    assert "Additional context: Ticket 7 is it." in added
    assert BULLETS in added
    assert poem.strip() == "Write a poem."
    assert failed == default
    assert "digest.hook_failed" in (desk.world.state / "log.jsonl").read_text()


def test_old_tool_output_is_pruned_before_summarizing(desk: Desk) -> None:
    """Output older than the newest 40,000 tokens is cleared if that saves 20,000 (S3.22)."""
    note = "[Old tool result content cleared]"
    for size, pruned in ((30_000, True), (18_000, False)):
        session = desk.world.session()
        tools = ("skill", "bash", "bash", "bash", "bash", "bash")
        for number, tool in enumerate(tools):
            session.say("user", f"More of {session.id}.")
            output = f"output{number} " + "z" * (4 * (55_000 if number == 5 else size))
            session.tool(tool, output, command="seq")
            session.answer("Seen.")
        desk.world.seen(session)
        before = len(desk.server.requests)
        desk.world.call("compact", ref=session.id, strategy="opencode")
        sent = "".join(words(request) for request in desk.server.requests[before:])
        left = {number for number in range(6) if f"output{number} " in sent}
        assert left == ({0, 3, 4, 5} if pruned else set(range(6))), size
        assert (note in sent) is pruned
