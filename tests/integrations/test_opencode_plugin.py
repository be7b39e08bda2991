"""The plugin for opencode, run by node, with an opencode around it that records what it is asked.

Skipped where there is no node. The host and the daemon are those of opencode_host.py.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from indexerd.agents.opencode.human import PROMPT, said
from indexerd.client import socket_path
from tests.integrations.opencode_host import (
    ANSWERED,
    ANSWERS,
    EXPANDED,
    MESSAGES,
    NODE,
    PLUGIN,
    STATUS,
    SUMMARY,
    TYPED,
    Script,
    daemon,
    needs_node,
    parts,
    prompt,
    run,
    scripted,
    well,
)


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    """Where the plugin looks for the daemon."""
    return tmp_path / "s.sock"


@pytest.fixture
def env(socket: Path, tmp_path: Path) -> dict[str, str]:
    """What the plugin's process is told."""
    return {"HOME": str(tmp_path), "INDEXERD_SOCKET": str(socket)}


@needs_node
def test_references_come_behind_the_prompt(env: dict[str, str], socket: Path) -> None:
    """S0.53, S1.38: parts behind the user's own, in order and hidden; the user sees a note."""
    with daemon(socket) as server:
        found = run(env, prompt(TYPED, "And this."))
    own, more, summary, answer = parts(found)
    assert (own["text"], more["text"]) == (TYPED, "And this.")
    assert "synthetic" not in own
    assert [summary["text"], answer["text"]] == [SUMMARY, ANSWERED]
    for part, of in ((summary, MESSAGES[0]), (answer, MESSAGES[1])):
        assert (part["type"], part["synthetic"]) == ("text", True)
        assert (part["sessionID"], part["messageID"]) == ("ses_a", "msg_1")
        assert part["metadata"] == {"indexerd": {"customType": of["customType"], **of["details"]}}
    assert parts(found) == found["outputs"][0]["output"]["parts"], "added in their order, too"
    assert server.methods() == ["hello", "expand"]
    text = f"{TYPED}\n\nAnd this."
    asked = {"text": text, "sessionId": "ses_a", "cwd": "/w", "turnId": "msg_1"}
    assert server.asked[1]["params"] == asked
    (toast,) = found["toasts"]
    assert toast["variant"] == "warning"
    assert toast["duration"] == 1234
    assert all(text in toast["message"] for text in STATUS)


@needs_node
def test_only_what_needs_an_answer_opens_a_connection(env: dict[str, str], socket: Path) -> None:
    """S0.51: no `@@` in what the user typed, no connection; nothing is added."""
    machine = prompt("Look.", "Called the Read tool: @@widget", synthetic=True)
    unseen = prompt("Look.", "@@widget", ignored=True)
    with daemon(socket) as server:
        found = run(env, prompt("No reference: a@b, @one."), machine, unseen)
    assert [len(parts(found, nth)) for nth in range(3)] == [1, 2, 2]
    assert server.asked == []


@needs_node
def test_a_helpers_prompt_asks_nothing(env: dict[str, str], socket: Path) -> None:
    """X10: what a model wrote into the prompt of a sub-agent is never expanded, nor paid for."""
    with daemon(socket) as server:
        found = run(env, prompt("See @@widget: what is it?"), parents={"ses_a": "ses_0"})
    assert len(parts(found)) == 1
    assert server.asked == []


@needs_node
def test_a_resumed_session_gets_its_context_once(env: dict[str, str], socket: Path) -> None:
    """Behind the first prompt of an older session, once in a process; never in a new one."""
    again = [prompt("Go on.", session=one) for one in ("old", "old", "new", "old", "other")]
    with daemon(socket) as server:
        found = run(env, *again, begun={"old": [{}], "other": [{}]})
    texts = [[part["text"] for part in parts(found, nth)] for nth in range(5)]
    context = ["Go on.", "Relevant context: a.py"]
    assert texts == [context, ["Go on."], ["Go on."], ["Go on."], context]
    asked = [one["params"] for one in server.asked if one["method"] == "resume_context"]
    assert [one["session"] for one in asked] == ["old", "other"]
    assert len({one["resumeId"] for one in asked}) == 2


@needs_node
def test_a_context_that_stands_there_is_not_repeated(env: dict[str, str], socket: Path) -> None:
    """S0.55: `opencode run --continue` again and again has it once, until it is compacted away."""
    ours = {"parts": [{"type": "text", "text": "Relevant context: a.py", "synthetic": True}]}
    typed = {"parts": [{"type": "text", "text": "Relevant context: a.py"}]}
    older = {"parts": [{"type": "text", "text": "Relevant context: b.py", "synthetic": True}]}
    compacted = {"parts": [{"type": "compaction"}]}
    begun = {
        "stands": [{}, ours, typed],
        "compacted": [ours, compacted, {}],
        "again": [ours, compacted, ours],
        "typed": [typed],
        "changed": [older],
    }
    with daemon(socket):
        found = run(env, *[prompt("Go on.", session=one) for one in begun], begun=begun)
    added = {one: len(parts(found, nth)) - 1 for nth, one in enumerate(begun)}
    assert added == {"stands": 0, "compacted": 1, "again": 0, "typed": 1, "changed": 1}


@needs_node
def test_context_and_references_together(env: dict[str, str], socket: Path) -> None:
    """S1.38: what one source cannot give hinders no other."""
    silent = scripted(ANSWERS | {"resume_context": {"text": None, "missingFiles": []}})
    for script, added in ((well, 3), (silent, 2)):
        with daemon(socket, script):
            found = run(env, prompt(TYPED), begun={"ses_a": [{}]})
        assert len(parts(found)) == 1 + added
        socket.unlink()


def _broken() -> dict[str, Script]:
    good = well({"method": "hello", "id": 1})
    error = {"jsonrpc": "2.0", "id": 2, "error": {"code": 1000, "message": "no"}}

    def after_hello(answer: bytes | None) -> Script:
        return lambda request: good if request["method"] == "hello" else answer

    def odd(result: Any) -> Script:
        return scripted(ANSWERS | {"expand": result})

    return {
        "hangs up": lambda _: None,
        "hangs up later": after_hello(None),
        "is silent": lambda _: b"",
        "is silent later": after_hello(b""),
        "stops in the middle": after_hello(b'{"jsonrpc":"2.0","id":2,"resu'),
        "says nonsense": lambda _: b"nonsense\n",
        "says null": lambda _: b"null\n",
        "refuses": after_hello(json.dumps(error).encode() + b"\n"),
        "answers at great length": odd(EXPANDED | {"more": "x" * 5_000_000}),
        "answers oddly": odd([1, 2]),
        "answers with odd messages": odd({"messages": [1, {"content": 2}, {}, {"content": " "}]}),
        "answers with an odd status": odd({"messages": {}, "statusText": [1, None]}),
        "answers with too much": odd({"messages": [{"content": "x" * 400_000}]}),
    }


@needs_node
@pytest.mark.parametrize("how", _broken())
def test_a_broken_daemon_is_not_noticed(how: str, env: dict[str, str], socket: Path) -> None:
    """S0.51: whatever the daemon does, the prompt goes through as it is, and nothing is said."""
    with daemon(socket, _broken()[how]):
        found = run(env, prompt(TYPED))
    assert [part["text"] for part in parts(found)] == [TYPED]
    assert found["toasts"] == []


@needs_node
def test_no_daemon_and_no_opencode_either(env: dict[str, str], tmp_path: Path) -> None:
    """S0.51: no socket, a file in its place, too long a path: nothing happens."""
    (tmp_path / "file").write_text("")
    places = ("none.sock", "file", "x" * 300)
    for place in places:
        found = run(env | {"INDEXERD_SOCKET": str(tmp_path / place)}, prompt(TYPED))
        assert len(parts(found)) == 1
    with daemon(tmp_path / "s.sock") as server:
        for trouble in ("broken", "absent"):
            found = run(env, prompt(TYPED), file=PLUGIN, **{trouble: True})
            assert len(parts(found)) == 3, "its own daemon answered all the same"
        assert server.methods() == ["hello", "expand"] * 2


@needs_node
def test_too_long_a_prompt_is_left_alone(tmp_path: Path, socket: Path, env: dict[str, str]) -> None:
    """Socket: no request line of more than 1 MiB is sent; the user hears why nothing came."""
    driver = tmp_path / "long.js"
    source = PLUGIN.read_text().replace("REQUEST_MAX = 1_000_000", "REQUEST_MAX = 400")
    driver.write_text(source)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    with daemon(socket) as server:
        found = run(env, prompt(TYPED + "x" * 400), prompt(TYPED), file=driver)
    assert [len(parts(found, nth)) for nth in (0, 1)] == [1, 3]
    assert server.methods() == ["hello", "expand"]
    assert found["toasts"][0]["message"].startswith("this prompt is too long: ")


@needs_node
def test_no_prompt_takes_long_to_look_through(env: dict[str, str], socket: Path) -> None:
    """Whether there is a question is seen in linear time, whatever was pasted."""
    with daemon(socket) as server:
        found = run(env, prompt("@@a:" * 12_000), prompt("@@a?:" * 10_000))
    assert [len(parts(found, nth)) for nth in (0, 1)] == [3, 3]
    assert server.methods() == ["hello", "expand"] * 2


@needs_node
def test_a_question_may_take_its_time(env: dict[str, str], socket: Path) -> None:
    """S0.65: an answer to a question is waited for; that to a mere reference is not."""
    for typed, added in (("@@widget: which colour?", 2), ("@@widget, which colour?", 0)):

        def slow(request: dict[str, Any]) -> bytes:
            if request["method"] == "expand":
                server.over.wait(2.6)  # longer than a plain answer may take
            return well(request) or b""

        with daemon(socket, slow) as server:
            assert len(parts(run(env, prompt(typed)))) == 1 + added
        socket.unlink()


@needs_node
@pytest.mark.parametrize(
    "named",
    [
        {"XDG_RUNTIME_DIR": "{}/run", "INDEXERD_STATE_DIR": "{}/other"},
        {"XDG_RUNTIME_DIR": "run", "INDEXERD_STATE_DIR": "~/mine", "XDG_STATE_HOME": "{}/x"},
        {"XDG_RUNTIME_DIR": "", "INDEXERD_STATE_DIR": "{}/state"},
        {"XDG_STATE_HOME": "{}/xdg"},
        {"XDG_STATE_HOME": "relative"},
        {},
        {"INDEXERD_SOCKET": "~/s", "XDG_RUNTIME_DIR": "{}/run"},
    ],
)
def test_the_socket_is_where_the_daemon_has_it(named: dict[str, str]) -> None:
    """Contract: the plugin's rule for the socket's place is the daemon's own."""
    with TemporaryDirectory(prefix="ix-") as home:  # a socket's path may not be long
        env = {key: value.format(home) for key, value in named.items()} | {"HOME": home}
        with daemon(Path(socket_path(env))) as server:
            assert len(parts(run(env, prompt(TYPED)))) == 3
    assert server.methods() == ["hello", "expand"]


@needs_node
def test_ids_come_after_all_others(env: dict[str, str], socket: Path) -> None:
    """S0.55: whatever ids the user's parts have, what is added is kept behind them."""
    made = ("prt_0123456789abZZZZZZZZZZZZZZ", "prt_ffffffffffffzzzzzzzzzzzzzz", "prt_mine", "prt_")
    calls = [prompt(TYPED, id=one, session=one) for one in made]
    calls[0][2]["parts"].insert(0, {"id": "prt_00", "type": "file", "url": "data:,"})
    with daemon(socket):
        found = run(env, *calls)
    for nth, own in enumerate(made):
        ids = [part["id"] for part in parts(found, nth)]
        assert ids[-3] == own
        assert len({*ids}) == len(ids)
        assert all(one.startswith("prt") for one in ids)
        assert [part["text"] for part in parts(found, nth)[-2:]] == [SUMMARY, ANSWERED]


@needs_node
def test_the_mcp_server_is_registered(env: dict[str, str], tmp_path: Path) -> None:
    """Item 5: once, by the command that `integrate` wrote in; never over the user's own."""
    installed = tmp_path / "plugins/indexerd.js"
    installed.parent.mkdir()
    command = [sys.executable, "-m", 'odd "name"']
    source = PLUGIN.read_text().replace("__INDEXERD_COMMAND__", json.dumps(command))
    installed.write_text(source)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    theirs = {"indexerd": {"enabled": False}}
    other = {"other": {"type": "local", "command": ["x"]}}
    calls = [["config", {}], ["config", {"mcp": dict(theirs)}], ["config", {"mcp": dict(other)}]]
    found = run(env, *calls, file=installed)
    ours = {"indexerd": {"type": "local", "command": [*command, "mcp"]}}
    configs = [one["input"].get("mcp") for one in found["outputs"]]
    assert configs == [ours, theirs, other | ours]


@needs_node
def test_a_program_that_is_not_there_is_not_registered(env: dict[str, str], tmp_path: Path) -> None:
    """As it is in the package, the plugin starts `indexerd` of the PATH, if there is one."""
    program = tmp_path / "indexerd"
    node = str(Path(str(NODE)).parent)
    configs = []
    for mode in (None, 0o755):
        if mode:
            program.write_text("#!/bin/sh\n")
            program.chmod(mode)
        found = run(env | {"PATH": f"{tmp_path}:{node}"}, ["config", {}])
        configs.append(found["outputs"][0]["input"])
    assert configs == [{}, {"mcp": {"indexerd": {"type": "local", "command": ["indexerd", "mcp"]}}}]


@needs_node
def test_tools_learn_which_session_is_theirs(env: dict[str, str]) -> None:
    """S4.26: a tool that is about the present session gets its id, unless it names another."""
    calls = [
        ["tool.execute.before", {"tool": tool, "sessionID": "ses_a", "callID": "c"}, {"args": args}]
        for tool, args in (
            ("indexerd_set_relevant_context", {"setName": "files", "items": []}),
            ("indexerd_get_relevant_context", {"session": ""}),
            ("indexerd_get_relevant_context", {"session": "other"}),
            ("indexerd_query_session", {}),
            ("bash", {}),
        )
    ]
    found = run(env, *calls, ["tool.execute.before", {"tool": "bash"}, {}])
    given = [one["output"].get("args", {}).get("session") for one in found["outputs"]]
    assert given == ["ses_a", "ses_a", "other", None, None, None]


@needs_node
def test_questions_of_tools_belong_to_a_turn(env: dict[str, str]) -> None:
    """S0.64: one id for each message of the user, whatever the model says."""
    tools = ("indexerd_query_session", "indexerd_expand_references", "indexerd_get_session")
    calls = [
        ["tool.execute.before", {"tool": tool, "sessionID": "ses_a"}, {"args": {"turnId": "own"}}]
        for tool in tools
    ]
    second = prompt("And now?")
    second[2]["message"]["id"] = "msg_2"
    asked = [
        calls[0],
        prompt("Hello."),
        *calls,
        prompt("Hello.", session="ses_b"),
        second,
        calls[0],
    ]
    found = run(env, *asked)["outputs"]
    turns = [one["output"]["args"]["turnId"] for one in found if "args" in one["output"]]
    assert turns == ["own", "msg_1-tools", "msg_1-tools", "own", "msg_2-tools"]


@needs_node
def test_the_file_exports_the_plugin_alone(env: dict[str, str]) -> None:
    """Older versions of opencode call everything that a plugin's file exports."""
    found = run(env)
    assert [kind for _, kind in found["exported"]] == ["function"]
    assert {*found["hooks"]} == {"config", "chat.message", "tool.execute.before"}
    assert PLUGIN.read_text().startswith("// indexerd integration ")


def test_what_was_added_is_nobodys_word() -> None:
    """S0.7: our reader of opencode's sessions takes only what the user typed for a prompt."""
    own = {"type": "text", "text": TYPED}
    added = {"type": "text", "text": SUMMARY, "synthetic": True, "metadata": {"indexerd": {}}}
    held = {"type": "message", "role": "user", "parts": [own, added]}
    assert said(held, child=False, shell=False) == (PROMPT, TYPED, True)
