"""Trees, paths, contexts, labels and branches through socket and command line."""

import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from indexerd.errors import (
    IndexerdError,
    NotFoundError,
    SessionEmptyError,
    SessionUnreadableError,
    UsageError,
)
from tests.e2e.clients import ClaudeSession
from tests.e2e.world import Session, World, hit_by, until


class Forked(Session):
    def __init__(self, world: World) -> None:
        super().__init__(world.sessions)
        self.first = self.say("user", "Where do alerts go?")
        self.fork = self.answer("Redis or a file.")
        self.label = self.entry("label", targetId=self.fork, label="storage")
        self.redis = self.say("user", "Take Redis.")
        self.left = self.say("assistant", "", stopReason="toolUse")
        self.last = self.fork
        self.summary = self.entry("branch_summary", fromId=self.left, summary="Redis is too big.")
        self.note = self.entry("custom_message", customType="x", content="psst", display=False)
        self.file = self.say("user", "Take \x1b[31ma file.\x1b[0m")
        self.leaf = self.answer("It is written.")
        self.turns = 2


@pytest.fixture
def forked(running: World) -> Iterator[tuple[World, Forked]]:
    session = Forked(running)
    until(lambda: running.row(session.id).get("leafId") == session.leaf, "the session")
    before = running.fingerprint()
    yield running, session
    after = running.fingerprint()
    assert all(after.get(path, mark) == mark for path, mark in before.items())


def error_of(world: World, kind: type[IndexerdError], method: str, **params: Any) -> str:
    with pytest.raises(kind) as failed:
        world.call(method, **params)
    return str(failed.value)


def test_commands_print_the_sockets_answers(forked: tuple[World, Forked]) -> None:
    """S1.14, S1.18, S1.34, S1.36: with and without a leaf, `--json` is the method's result."""
    world, session = forked
    found = {name: world.call(name, ref=session.id) for name in ("tree", "branches", "path")}
    found["context"] = world.call("context", ref=session.id)
    for name, answer in found.items():
        assert answer == world.run(name, session.id, "--json")
        assert answer["sessionId"] == session.id
        assert answer["leafId"] == session.leaf
    assert len(found["tree"]["nodes"]) == 9
    assert [tip["leafId"] for tip in found["branches"]["tips"]] == [session.left, session.leaf]
    abandoned, current = found["branches"]["tips"]
    assert (abandoned["branchPointId"], abandoned["gist"]) == (session.fork, "Redis is too big.")
    assert (abandoned["entries"], abandoned["userMessages"]) == (5, 2)
    assert (abandoned["active"], current["active"], "gist" in current) == (False, True, False)
    assert current["lastActivity"].endswith("Z")
    roles = ["user", "assistant", "branchSummary", "custom", "user", "assistant"]
    assert roles == [message["role"] for message in found["context"]["messages"]]
    for name in ("tree", "path", "context"):
        seen = world.call(name, ref=session.id, leaf=session.redis)
        assert seen["leafId"] == session.redis
    assert seen == world.run(name, session.id, "--leaf", session.redis, "--json")
    path = world.call("path", ref=session.id, leaf=session.redis)["entries"]
    wanted = [session.first, session.fork, session.label, session.redis]
    assert [entry["id"] for entry in path] == wanted
    assert [entry["parentId"] for entry in path] == [None, *(entry["id"] for entry in path[:-1])]
    assert [entry["ordinal"] for entry in path] == [0, 1, 2, 3]
    assert path[1]["label"] == "storage"


def test_the_tree_command_draws_a_tree(forked: tuple[World, Forked]) -> None:
    """S1.31, S1.32, S1.35: branches, labels and the current path, without hidden messages."""
    world, session = forked
    lines = world.run("tree", session.id).splitlines()
    shown = [session.first, session.fork, session.redis, session.summary, session.file]
    assert [line.split("\t")[0] for line in lines] == [*shown, session.leaf]
    shown = [line.split("\t")[2] for line in lines]
    assert shown == [
        "* You: Where do alerts go?",
        "* [storage] Answer: Redis or a file.",
        "    You: Take Redis.",
        "  * Abandoned branch: Redis is too big.",
        "  * You: Take a file.",
        "  > Answer: It is written.",
    ]
    assert "psst" not in world.run("tree", session.id, "--filter", "all")
    assert world.run("tree", session.id, "--search", "take redis").count("\n") == 1
    assert world.run("tree", session.id, "--filter", "labeled-only").count("\n") == 1
    assert "Redis is too big." in world.run("branches", session.id)
    assert "psst" not in world.run("path", session.id)
    printed = world.run("context", session.id)
    assert "psst" in printed
    assert "\\x1b[31m" in printed
    assert "\x1b" not in printed


@pytest.mark.parametrize("columns", [40, 80])
def test_ids_on_a_terminal_are_as_short_as_commands_accept(running: World, columns: int) -> None:
    """S0.27, S1.31: they tell the entries apart, leave room for the texts, and can be copied."""
    session = running.session()
    ids = [f"0a1b2c3d-{n}e5f-4a6b-8c7d-9e0f1a2b3c4d" for n in range(3)]
    for entry_id in ids:
        message = {"role": "user", "content": f"Prompt {entry_id[9]}, which is not short."}
        session.entry("message", id=entry_id, message=message)
        session.last = entry_id
    session.last = ids[0]
    session.answer("On another branch.")
    running.seen(session)
    for command in ("tree", "path", "branches"):
        got = running.on_terminal(command, session.id, columns=columns)
        lines = got.splitlines()
        assert (running.code, max(map(len, lines)) <= columns) == (0, True)
        shown = {line.split()[0] for line in lines if line.startswith("0a1b2c3d")}
        whole = {line.split()[0] for line in running.run(command, session.id).splitlines()}
        assert shown == {key[:12] for key in ids if key in whole}
        assert ("Prompt 0, which" in got) is (command != "branches")
    session.entry("thinking_level_change", thinkingLevel="high")
    running.seen(session)
    assert "[thinking_level_change]" in running.run("tree", session.id, "--filter", "all")
    assert "[thinking_level_change]" not in running.run("path", session.id)
    short = ids[1][:12]
    assert running.call("path", ref=session.id, leaf=short)["leafId"] == ids[1]
    assert running.call("branch", ref=session.id, leaf=short)["entries"] == 2
    for text in ("mine", None):
        running.call("label", ref=session.id, entryId=short, text=text)
        assert running.call("get", ref=session.id)["labels"] == ({ids[1]: text} if text else {})
    error_of(running, NotFoundError, "label", ref=session.id, entryId="nonsense", text=None)
    several = error_of(running, NotFoundError, "path", ref=session.id, leaf=ids[1][:9])
    assert several.startswith(f"3 entries begin or end with {ids[1][:9]}")


def test_ids_that_begin_alike_are_told_apart_by_their_ends(running: World) -> None:
    """S0.27: as many of Codex's and opencode's ids, which begin with a time."""
    session = running.session()
    ids = [f"msg_0c7616cebe0159{'0' * 8}-{n}1b2c3d4e" for n in range(3)]
    for entry_id in ids:
        session.entry("message", id=entry_id, message={"role": "user", "content": "Hello."})
        session.last = entry_id
    running.seen(session)
    assert running.call("path", ref=session.id)["idLength"] < 0
    for entry_id in ids[1:]:
        assert running.call("path", ref=session.id, leaf=entry_id[-9:])["leafId"] == entry_id


def test_a_users_label_overrides_the_agents(forked: tuple[World, Forked]) -> None:
    """S1.31: it is kept in the sidecar, shown everywhere and can be removed."""
    world, session = forked

    def label() -> str | None:
        nodes = world.call("tree", ref=session.id)["nodes"]
        found: str | None
        (found,) = (node.get("label") for node in nodes if node["id"] == session.fork)
        return found

    answer = world.run("label", session.id, session.fork, "my \x1b[1mchoice", "--json")
    assert answer == {"sessionId": session.id, "entryId": session.fork, "label": "my choice"}
    assert label() == "my choice"
    sidecar = json.loads((world.metas / f"{session.id}.user.json").read_bytes())
    assert sidecar["labels"] == {session.fork: "my choice"}
    path = world.call("path", ref=session.id)["entries"]
    assert [entry["label"] for entry in path if "label" in entry] == ["my choice"]
    assert path[-1]["id"] == session.leaf
    assert world.call("get", ref=session.id)["labels"] == {session.fork: "my choice"}
    assert world.run("label", session.id, session.leaf, "the end") == f"{session.leaf}\tthe end\n"
    tips = world.call("branches", ref=session.id)["tips"]
    assert [tip.get("label") for tip in tips] == [None, "the end"]
    world.run("label", session.id, session.fork)
    assert label() == "storage"
    message = error_of(world, NotFoundError, "label", ref=session.id, entryId="nobody", text="x")
    assert "nobody" in message
    error_of(world, UsageError, "label", ref=session.id, text="x")


def test_a_branch_becomes_a_session(forked: tuple[World, Forked]) -> None:
    """S1.16, S1.36: a new file with the old session as parent, never over an existing file."""
    world, session = forked
    branched = world.call("branch", ref=session.id, leaf=session.redis)
    file = Path(branched["sessionFile"])
    assert (file.parent, branched["entries"]) == (session.path.parent, 4)
    assert re.fullmatch(rf"\d{{4}}-.*Z_{branched['sessionId']}.jsonl", file.name)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    header, *entries = [json.loads(line) for line in file.read_bytes().splitlines()]
    assert (header["id"], header["parentSession"]) == (branched["sessionId"], str(session.path))
    assert [entry["id"] for entry in entries[:3]] == [session.first, session.fork, session.redis]
    until(lambda: world.row(branched["sessionId"]), "the new session")
    row = world.row(branched["sessionId"])
    assert (row["parentSessionFile"], row["userMessageCount"]) == (str(session.path), 2)
    new, old = (
        world.call("context", ref=ref, leaf=session.redis)["messages"]
        for ref in (branched["sessionId"], session.id)
    )
    assert new == old
    elsewhere = world.root / "out.jsonl"
    printed = world.run("branch", session.id, session.left, "-o", "out.jsonl")
    assert printed.split("\t")[1] == f"{elsewhere}\n"
    before = elsewhere.read_bytes()
    world.run("branch", session.id, session.leaf, "-o", "out.jsonl", code=2)
    assert "exists" in world.stderr
    link = world.root / "link"
    os.symlink(world.root / "nowhere", link)
    error_of(world, UsageError, "branch", ref=session.id, leaf=session.leaf, file=str(link))
    assert (before, link.exists()) == (elsewhere.read_bytes(), False)
    for bad in (world.root / "no/such/place.jsonl", world.root / ("n" * 300), "a\0b", "out.jsonl"):
        error_of(world, UsageError, "branch", ref=session.id, leaf=session.leaf, file=str(bad))
    world.run("branch", session.id, session.leaf, "-o", "", code=2)


def test_unknown_names_are_errors(forked: tuple[World, Forked]) -> None:
    """S1.5, S1.7: unknown sessions, leaves and filters, and deleted files, are errors."""
    world, session = forked
    for method in ("tree", "path", "context", "branch"):
        assert "n0b0dy" in error_of(world, NotFoundError, method, ref=session.id, leaf="n0b0dy")
    error_of(world, NotFoundError, "branches", ref="no such session at all")
    error_of(world, UsageError, "tree", ref=session.id, filter="some")
    error_of(world, UsageError, "tree", ref=session.id, search=5)
    for method in ("tree", "path", "context", "branch"):
        error_of(world, UsageError, method, ref=session.id, leaf="")
    for command in ("tree", "path", "context"):
        world.run(command, session.id, "--leaf=", code=2)
    other = world.session(turns=1)
    world.seen(other)
    other.path.unlink()
    until(lambda: world.row(other.id)["gone"], "its end")
    for method in ("tree", "branches", "path", "context"):
        assert "gone" in error_of(world, NotFoundError, method, ref=other.id)


def test_a_cycle_of_parents_is_reported(running: World) -> None:
    """S1.7: the cycle is reported, and every command ends."""
    session = running.session()
    session.last = "00000002"
    for entry_id in ("00000001", "00000002"):
        session.entry("message", id=entry_id, message={"role": "user", "content": entry_id})
        session.last = entry_id
    until(lambda: running.row(session.id).get("messageCount") == 2, "the session")
    found = running.call("tree", ref=session.id)
    assert (len(found["nodes"]), sorted(found["cycles"])) == (2, ["00000001", "00000002"])
    assert "cycle" in found["warnings"][0]
    running.run("tree", session.id)
    assert "cycle" in running.stderr
    assert len(running.call("path", ref=session.id)["entries"]) == 2
    assert len(running.call("branches", ref=session.id)["tips"]) == 1
    assert len(running.call("context", ref=session.id)["messages"]) == 2


def test_a_prompt_with_a_huge_image(running: World) -> None:
    """The text of a line below 16 MiB is shown, found and copied to a branch."""
    session = running.session()
    picture = {"type": "image", "data": "A" * (9 << 20), "mimeType": "image/png"}
    words = {"type": "text", "text": "Which quokka is this?"}
    asked = session.said("user", picture, words)
    session.answer("It is Kevin.")
    running.seen(session)
    tree = running.call("tree", ref=session.id)
    assert (tree["nodes"][0]["role"], tree["nodes"][0]["text"]) == ("user", words["text"])
    context = running.call("context", ref=session.id)
    assert [message["text"] for message in context["messages"]] == [words["text"], "It is Kevin."]
    assert "warnings" not in tree | context
    until(lambda: running.call("search", query="quokka")["hits"], "its words")
    branched = running.call("branch", ref=session.id, leaf=asked)
    line = session.path.read_bytes().splitlines()[1]
    assert Path(branched["sessionFile"]).read_bytes().splitlines()[1] == line


def test_what_is_too_long_is_left_out_or_cut(running: World) -> None:
    """An entry over 16 MiB has no text and is not copied; the texts of a long path are cut."""
    session = running.session()
    session.say("user", "x" * (17 << 20))
    session.answer("It is.")
    leaf = session.say("user", "Then?")
    running.seen(session)
    for method, key in (("tree", "nodes"), ("path", "entries"), ("context", "messages")):
        found = running.call(method, ref=session.id)
        assert [entry["text"] for entry in found[key]] == ["", "It is.", "Then?"]
        assert found["warnings"] == ["1 entry is too long to be read"]
    labelled, target = running.session(), str(running.root / "never.jsonl")
    label = labelled.entry("label", targetId=leaf, label="x")
    running.seen(labelled)
    error_of(running, SessionUnreadableError, "branch", ref=session.id, leaf=leaf, file=target)
    error_of(running, SessionEmptyError, "branch", ref=labelled.id, leaf=label, file=target)
    assert not Path(target).exists()
    long = running.session()
    (first, *_) = [long.say("user", "y" * 8000) for _ in range(1300)]
    running.seen(long)
    for leaf, most in ((first, 8000), (str(long.last), 2000)):
        found = running.call("path", ref=long.id, leaf=leaf)
        assert {len(entry["text"]) for entry in found["entries"]} == {most}
        assert found.get("textMax", 8000) == most


def test_a_hand_built_tree_is_read_as_built(running: World) -> None:
    """S1.1, S1.2, S1.4, S1.6, S1.33: roots, orphans, leaf, a broken line, kinds of entries."""
    session = running.session()
    root = session.say("user", "Root.")
    old = session.answer("Old.")
    with session.path.open("ab") as file:
        file.write(b'{"type":"message","id":"0000dead","message":{"role":"user","content":"TO\n')
    session.last = root
    young = session.answer("Young.")
    session.last = "n0b0dy00"
    orphan = session.say("user", "Orphan.")
    session.last = young
    for number in range(3000):
        session.entry("custom", customType="deep", data={"n": number})
    session.entry("custom", customType="other", data={})
    leaf = session.entry("hologram", shape="cube")
    running.seen(session)
    nodes = running.call("tree", ref=session.id)["nodes"]
    shown = {node["id"]: node for node in nodes}
    assert (len(nodes), "0000dead" in shown) == (3006, False)
    assert [node["id"] for node in nodes if node["depth"] == 0] == [root, orphan]
    assert [node["id"] for node in nodes if node["parentId"] == root] == [old, young]
    end = shown[leaf]
    assert (end["type"], end["depth"], end["active"]) == ("hologram", 3003, True)
    assert not shown[old]["active"]
    context = running.call("context", ref=session.id)["messages"]
    assert [message["text"] for message in context] == ["Root.", "Young."]
    deep = running.call("path", ref=session.id, customType="deep")["entries"]
    assert [entry["data"]["n"] for entry in deep] == [*range(3000)]


def test_labels_model_and_thinking_level_follow_the_path(running: World) -> None:
    """S1.20, S1.30: the last on the path counts; labels can be cleared and never reach context."""
    session = running.session()
    first = session.say("user", "One.")
    session.entry("model_change", provider="p", modelId="old")
    session.entry("thinking_level_change", thinkingLevel="high")
    for target, label in ((first, "a"), (first, "b"), ("n0b0dy", "c")):
        session.entry("label", targetId=target, label=label)
    fork = session.last
    session.entry("model_change", provider="p", modelId="new")
    left = session.say("assistant", "Two.", stopReason="stop", provider="p", model="new")
    session.entry("label", targetId=first)
    session.last = fork
    leaf = session.say("user", "Three.")
    running.seen(session)
    nodes = {node["id"]: node for node in running.call("tree", ref=session.id)["nodes"]}
    assert "label" not in nodes[first]
    for tip, model in ((leaf, "old"), (left, "new")):
        found = running.call("context", ref=session.id, leaf=tip)
        assert (found["model"]["modelId"], found["thinkingLevel"]) == (model, "high")
        assert {message["text"] for message in found["messages"]} <= {"One.", "Two.", "Three."}


def test_what_a_user_answers_is_found_and_shown_as_theirs(running: World) -> None:
    """The answer to an agent's question is the user's, in a search, the tree and the path."""
    asking = ClaudeSession(running.root / "home")
    asking.prompt("Which region?")
    asked = {"questions": [{"question": "In which country?", "header": "Country"}]}
    call = asking.call("AskUserQuestion", **asked)
    answers = {"In which country?": "Liechtenstein"}
    own = asking.result(call, "User has answered: …", toolUseResult=asked | {"answers": answers})
    until(lambda: asking.id in hit_by(running, "liechtenstein"), "the answer")
    hit = running.call("search", query="liechtenstein")["hits"][0]
    assert (hit["entryId"], hit["role"]) == (own, "user")
    for mode in ("user-only", "no-tools"):
        node = running.call("tree", ref=asking.id, filter=mode)["nodes"][-1]
        assert (node["kind"], node["text"]) == ("reply", "- Country: Liechtenstein")
    assert "You: - Country: Liechtenstein" in running.run("path", asking.id)
    assert running.row(asking.id)["userMessageCount"] == 1
    asking.prompt("Base directory for this skill: /s", isMeta=True)
    kinds = [node["kind"] for node in running.call("tree", ref=asking.id)["nodes"]]
    assert kinds == ["user", "assistant", "reply", "inserted"]
