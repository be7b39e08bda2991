"""The opencode plugin, run by node in the host of opencode_host.py; skipped without node."""

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from indexerd.client import socket_path
from tests.fakes.daemon import FAILED, Acting, HangUp, Raw, Refusal, acting, slow
from tests.integrations.opencode_host import (
    ANSWERED,
    ANSWERS,
    MESSAGES,
    PLUGIN,
    STATUS,
    SUMMARY,
    TYPED,
    needs_node,
    parts,
    prompt,
    run,
)

pytestmark = needs_node


@pytest.fixture
def env(socket: Path, tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "INDEXERD_SOCKET": str(socket)}


@pytest.fixture
def daemon(socket: Path) -> Iterator[Acting]:
    """A daemon that answers well."""
    with acting(socket, **ANSWERS) as acted:
        yield acted


def added(env: dict[str, str], socket: Path, expand: Any) -> Any:
    """The parts added to a prompt and the toasts, for a given answer of `expand`."""
    with acting(socket, **ANSWERS | {"expand": expand}):
        found = run(env, prompt(TYPED))
    assert parts(found)[0]["text"] == TYPED
    return [part["text"] for part in parts(found)[1:]], found["toasts"]


def test_references_follow_the_prompt(env: dict[str, str], daemon: Acting) -> None:
    """S0.53, S1.38: hidden parts after the user's own, in order; the user sees a note."""
    found = run(env, prompt(TYPED, "And this."))
    own, more, summary, answer = parts(found)
    assert (own["text"], more["text"]) == (TYPED, "And this.")
    assert "synthetic" not in own
    assert [summary["text"], answer["text"]] == [SUMMARY, ANSWERED]
    for part, of in ((summary, MESSAGES[0]), (answer, MESSAGES[1])):
        assert (part["type"], part["synthetic"]) == ("text", True)
        assert (part["sessionID"], part["messageID"]) == ("ses_a", "msg_1")
        assert part["metadata"] == {"indexerd": {"customType": of["customType"], **of["details"]}}
    assert parts(found) == found["outputs"][0]["output"]["parts"], "the parts are not in order"
    assert daemon.methods == ["hello", "expand"]
    text = f"{TYPED}\n\nAnd this."
    asked = {"text": text, "sessionId": "ses_a", "cwd": "/w", "turnId": "msg_1"}
    assert daemon.params("expand") == [asked]
    (toast,) = found["toasts"]
    assert (toast["variant"], toast["duration"]) == ("warning", 1234)
    assert all(text in toast["message"] for text in STATUS)


def test_only_references_open_a_connection(env: dict[str, str], daemon: Acting) -> None:
    """S0.51: a prompt without `@@`, or one that a model wrote, asks nothing."""
    machine = prompt("Look.", "Called the Read tool: @@widget", synthetic=True)
    unseen = prompt("Look.", "@@widget", ignored=True)
    helper = prompt("See @@widget: what is it?", session="ses_b")
    calls = [prompt("No reference: a@b, @one."), machine, unseen, helper]
    found = run(env, *calls, parents={"ses_b": "ses_0"})
    assert [len(parts(found, nth)) for nth in range(4)] == [1, 2, 2, 1]
    assert daemon.asked == []


def test_a_resumed_session_gets_its_context_once(env: dict[str, str], daemon: Acting) -> None:
    """With the first prompt of an older session, once per process; never in a new one."""
    again = [prompt("Go on.", session=one) for one in ("old", "old", "new", "old", "other")]
    found = run(env, *again, begun={"old": [{}], "other": [{}]})
    texts = [[part["text"] for part in parts(found, nth)] for nth in range(5)]
    context = ["Go on.", "Relevant context: a.py"]
    assert texts == [context, ["Go on."], ["Go on."], ["Go on."], context]
    asked = daemon.params("resume_context")
    assert [request["session"] for request in asked] == ["old", "other"]
    assert len({request["resumeId"] for request in asked}) == 2


def test_an_existing_context_block_is_not_repeated(env: dict[str, str], daemon: Acting) -> None:
    """S0.55: with `opencode run --continue` it appears once, until it is compacted."""
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
    found = run(env, *[prompt("Go on.", session=session_id) for session_id in begun], begun=begun)
    put = {one: len(parts(found, nth)) - 1 for nth, one in enumerate(begun)}
    assert put == {"stands": 0, "compacted": 1, "again": 0, "typed": 1, "changed": 1}


def test_added_parts_sort_after_the_users(env: dict[str, str], daemon: Acting) -> None:
    """S0.55: whatever ids the user's parts have, the added parts follow them."""
    made = ("prt_0123456789abZZZZZZZZZZZZZZ", "prt_ffffffffffffzzzzzzzzzzzzzz", "prt_mine", "prt_")
    calls = [prompt(TYPED, id=session_id, session=session_id) for session_id in made]
    calls[0][2]["parts"].insert(0, {"id": "prt_00", "type": "file", "url": "data:,"})
    found = run(env, *calls)
    for nth, own in enumerate(made):
        ids = [part["id"] for part in parts(found, nth)]
        assert ids[-3] == own
        assert len({*ids}) == len(ids)
        assert all(session_id.startswith("prt") for session_id in ids)
        assert [part["text"] for part in parts(found, nth)[-2:]] == [SUMMARY, ANSWERED]


BROKEN: dict[str, Any] = {
    "hangs up": HangUp(),
    "says nonsense": Raw(b"nonsense\n"),
    "refuses": Refusal("internal", "no"),
    "answers at great length": {"messages": MESSAGES, "more": "x" * 5_000_000},
    "answers with odd messages": {"messages": [1, {"content": 2}, {}, {"content": " "}]},
    "answers with too much": {"messages": [{"content": "x" * 400_000}]},
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_daemon_does_not_disturb_a_prompt(
    how: str, env: dict[str, str], socket: Path
) -> None:
    """S0.51: whatever the daemon does, the prompt is unchanged and nothing is shown."""
    assert added(env, socket, BROKEN[how]) == ([], [])


def test_without_a_usable_socket_nothing_happens(env: dict[str, str], tmp_path: Path) -> None:
    """S0.51: no socket, a file in its place, too long a path, or a silent one."""
    (tmp_path / "file").write_text("")
    with acting(tmp_path / "silent", hello=Raw(b"")):
        for place in ("none.sock", "file", "x" * 300, "silent"):
            found = run(env | {"INDEXERD_SOCKET": str(tmp_path / place)}, prompt(TYPED))
            assert len(parts(found)) == 1
    with acting(tmp_path / "s.sock", **ANSWERS) as daemon:
        for trouble in ("broken", "absent"):
            found = run(env, prompt(TYPED), file=PLUGIN, **{trouble: True})
            assert len(parts(found)) == 3, "another daemon answered"
        assert daemon.methods == ["hello", "expand"] * 2


def test_only_a_question_is_waited_for(env: dict[str, str], socket: Path) -> None:
    """S0.65: a question's answer is waited for, that of a mere reference is not."""
    late = slow(2.3, ANSWERS["expand"])  # longer than a plain answer may take
    prompts = prompt("@@widget: which colour?"), prompt("What? As in @@widget.")
    with acting(socket, **ANSWERS | {"expand": late}), ThreadPoolExecutor() as pool:
        asked, plain = pool.map(partial(run, env), prompts)
    assert (len(parts(asked)), len(asked["toasts"])) == (3, 1)
    assert (len(parts(plain)), len(plain["toasts"])) == (1, 0)


@pytest.mark.parametrize(
    "named",
    [
        {"XDG_RUNTIME_DIR": "{}/run", "INDEXERD_STATE_DIR": "{}/other"},
        {"XDG_RUNTIME_DIR": "run", "INDEXERD_STATE_DIR": "~/mine", "XDG_STATE_HOME": "{}/x"},
        {"XDG_STATE_HOME": "{}/xdg"},
        {"XDG_STATE_HOME": "relative"},
        {"INDEXERD_SOCKET": "~/s", "XDG_RUNTIME_DIR": "{}/run"},
    ],
)
def test_the_socket_is_where_the_daemon_has_it(named: dict[str, str]) -> None:
    """The plugin finds the socket by the daemon's own rule."""
    with TemporaryDirectory(prefix="ix-") as home:  # socket paths are limited in length
        env = {key: value.format(home) for key, value in named.items()} | {"HOME": home}
        with acting(Path(socket_path(env)), **ANSWERS):
            assert len(parts(run(env, prompt(TYPED)))) == 3


def test_failures_are_shown_with_their_reason(env: dict[str, str], socket: Path) -> None:
    """S0.51, S0.64: each failed reference or question has a line, shown long enough to read."""
    expanded = {"messages": MESSAGES, "failures": FAILED, "statusText": ["✅ resolved"]}
    _, (toast,) = added(env, socket, expanded)
    assert toast["message"].splitlines() == ["✅ resolved", *FAILED]
    assert (toast["variant"], toast["duration"]) == ("warning", 8000)


def test_the_mcp_server_is_registered(env: dict[str, str], tmp_path: Path) -> None:
    """Once, with the command that `integrate` stored, and never over the user's own."""
    installed = tmp_path / "plugins/indexerd.js"
    installed.parent.mkdir()
    command = [sys.executable, "-m", 'odd "name"']
    installed.write_text(PLUGIN.read_text().replace("__INDEXERD_COMMAND__", json.dumps(command)))
    (tmp_path / "package.json").write_text('{"type": "module"}')
    theirs = {"indexerd": {"enabled": False}}
    other = {"other": {"type": "local", "command": ["x"]}}
    calls = [["config", {}], ["config", {"mcp": dict(theirs)}], ["config", {"mcp": dict(other)}]]
    found = run(env, *calls, file=installed)
    ours = {"indexerd": {"type": "local", "command": [*command, "mcp"]}}
    configs = [output["input"].get("mcp") for output in found["outputs"]]
    assert configs == [ours, theirs, other | ours]


def test_tools_get_the_current_session_and_turn(env: dict[str, str]) -> None:
    """S4.26, S0.64: tools use the current session unless the model names another."""

    def call(tool: str, **args: Any) -> list[Any]:
        tool = f"indexerd_{tool}" if tool != "bash" else tool
        return ["tool.execute.before", {"tool": tool, "sessionID": "ses_a"}, {"args": args}]

    calls = [
        call("set_relevant_context", setName="files", items=[]),
        call("get_relevant_context", session=""),
        call("get_relevant_context", session="other"),
        call("query_session"),
        call("bash"),
        ["tool.execute.before", {"tool": "bash"}, {}],
    ]
    found = run(env, *calls)["outputs"]
    given = [answer["output"].get("args", {}).get("session") for answer in found]
    assert given == ["ses_a", "ses_a", "other", None, None, None]
    second = prompt("And now?")
    second[2]["message"]["id"] = "msg_2"
    turns = [
        *(call("query_session", turnId="own"), prompt("Hello."), call("query_session")),
        *(call("expand_references"), call("get_session", turnId="own")),
        *(prompt("Hello.", session="ses_b"), second, call("query_session", turnId="own")),
    ]
    found = run(env, *turns)["outputs"]
    asked = [answer["output"]["args"]["turnId"] for answer in found if "args" in answer["output"]]
    assert asked == ["own", "msg_1-tools", "msg_1-tools", "own", "msg_2-tools"]


def test_the_file_exports_the_plugin_alone(env: dict[str, str]) -> None:
    """Older releases of opencode call everything that a plugin's file exports."""
    found = run(env)
    assert [kind for _, kind in found["exported"]] == ["function"]
    assert {*found["hooks"]} == {"config", "chat.message", "tool.execute.before"}
