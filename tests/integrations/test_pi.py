"""pi's extension: prompts, status, command, tools and completion, with a fake pi and daemon."""

import re
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.world import until
from tests.fakes.daemon import FAILED, Acting, Raw, Refusal, acting, slow
from tests.integrations.acted_pi import BLOCK, KEY, SAID, Pi, greeting, needed

pytestmark = needed
KEY_ESCAPE = "\x1b[27u"
ASKING = "⏳ asking..."
QUEUED = "@@… is expanded only in a prompt of its own"
Served = Callable[..., Acting]


@pytest.fixture
def served(pi: Pi, socket: Path) -> Iterator[Served]:
    """Start a daemon with the given answers, and then a session of pi."""
    with ExitStack() as stack:

        def start(**answers: Any) -> Acting:
            daemon = stack.enter_context(acting(socket, **answers))
            pi.start()
            return daemon

        yield start


def test_a_prompt_without_a_reference_asks_nothing(pi: Pi, served: Served) -> None:
    """S0.51: a single `@`, or `@@` in a file, opens no connection; `@@` with a name does."""
    file = '<file name="/w/notes.txt">\nfar @@there: what was decided?\n</file>\n'
    daemon = served(expand={"messages": [BLOCK]})
    until(lambda: daemon.ears, "somebody to listen")
    before = daemon.connections
    assert pi.prompt("Look at @file and mail me@example.com.") == []
    assert pi.prompt(f"{file}Please read it.") == []
    assert daemon.connections == before
    assert pi.prompt(f"{file}As in @@here.") == [BLOCK]
    (asked,) = daemon.params("expand")
    assert asked["text"].strip() == "As in @@here."
    assert pi.statuses == []


def test_messages_are_added_in_order(pi: Pi, served: Served) -> None:
    """S0.53, S1.38: each is hidden and has the extension's type; malformed ones are dropped."""
    odd: list[Any] = [None, "text", {"content": 5}, {"content": ""}, {"content": "late"}]
    shown = {"content": "q", "display": True, "customType": "evil", "details": {"question": "?"}}
    daemon = served(expand={"messages": [BLOCK, shown, *odd]})
    messages = pi.prompt("See @@abc.")
    (asked,) = daemon.params("expand")
    assert [message["content"] for message in messages] == ["B", "q", "late"]
    kinds = {(message["customType"], message["display"]) for message in messages}
    assert kinds == {("session-reference", False)}
    assert messages[1]["details"] == {"question": "?"}
    assert asked == {"text": "See @@abc.", "cwd": "/w", "sessionId": "s-1"}


def test_only_typed_references_count(pi: Pi, served: Served) -> None:
    """`@@` in a template or skill is not the user's; in an argument it is."""
    daemon = served(expand={"messages": [BLOCK]})
    for typed, prompt, sent in (
        ("/tpl @@mine", "A template of @@theirs: why? And @@mine.", "/tpl @@mine"),
        ("/skill:s @@mine", '<skill name="s">\n@@theirs\n</skill>\n\n@@mine', "/skill:s @@m"),
        ("see @@mine", "see @@mine, which an extension wrote", "see @@mine, which an ext"),
    ):
        assert pi.prompt(prompt, typed) == [BLOCK]
        assert daemon.params("expand")[-1]["text"].startswith(sent)
    assert len(daemon.params("expand")) == 3


def test_a_queued_messages_references_are_refused(pi: Pi, served: Served) -> None:
    """S0.51: pi cannot add context to a queued message, so the user gets a notice."""
    daemon = served(expand={"messages": [BLOCK]})
    pi.input("no reference, a@b and a diff: @@ -1 +1 @@ x", queued="steer")
    pi.input('<file name="x">\n@@a\n</file>\n', queued="steer")
    assert pi.notices == []
    for queued in ("steer", "followUp"):
        pi.input('and see @@a, (@@"b c")', queued=queued)
    assert daemon.params("expand") == []
    assert [notice.startswith(QUEUED) for notice in pi.notices] == [True] * 2


ODD: list[Any] = [
    Raw(b""),  # no answer
    Raw(b"\xff\xfe{\n"),
    Raw(b"x" * 6_000_000),
    {"messages": "no list", "statusText": {"no": "text"}},
    {},
    Refusal("internal", "defect"),
]


def test_an_odd_answer_is_ignored(pi: Pi, socket: Path) -> None:
    """S0.51: whatever the daemon answers, the prompt goes on without an error."""
    methods = ("hello", "expand", "resume_context", "subscribe")
    with acting(socket) as daemon:
        for answer in ODD:
            daemon.answers |= dict.fromkeys(methods, answer)
            pi.start("resume", entries=[SAID])
            assert pi.prompt("See @@abc.") == []
    assert pi.statuses == []


def test_a_questions_timeout_comes_from_the_daemon(pi: Pi, served: Served) -> None:
    """S0.64, S0.65: the daemon names the timeout, and pi shows that it is waiting."""
    daemon = served(expand=slow(2.3, {"messages": [BLOCK]}))  # longer than for plain references
    daemon.answers["hello"] = greeting(queryTimeoutSeconds=2)
    asking = {"prompt": '@@"some name"~2: why?'}
    pi.begin(emit="before_agent_start", event=asking, meanwhile=True)
    plain = pi.do(emit="before_agent_start", event={"prompt": "Why as in @@a, then"})
    added = [[each["message"] for each in one["results"] if each] for one in (plain, pi.answer())]
    assert added == [[], [BLOCK]]
    assert pi.statuses == [ASKING, None]


def test_escape_ends_the_wait_for_an_answer(pi: Pi, served: Served) -> None:
    """S0.51: during a question, and only then, Escape lets the prompt go on without it."""
    over = threading.Event()
    daemon = served(expand=lambda _: over.wait(20) and {"messages": [BLOCK]})
    assert pi.do(press=KEY_ESCAPE) == {"taken": []}
    prompt = {"prompt": "@@a: why?"}
    pi.begin(emit="before_agent_start", event=prompt, meanwhile=True)
    until(lambda: daemon.params("expand"), "the question")
    assert pi.do(press="\x1b[A") == {"taken": [None]}
    pi.begin(press=KEY_ESCAPE)
    answers = [pi.answer(), pi.answer()]
    assert pi.do(press=KEY_ESCAPE) == {"taken": []}
    over.set()
    assert {"taken": [{"consume": True}]} in answers
    (results,) = [answer["results"] for answer in answers if "results" in answer]
    assert [result for result in results if result] == []
    assert pi.statuses == [ASKING, None]


def test_failures_are_shown_with_their_reason(pi: Pi, served: Served) -> None:
    """S0.51, S0.64: the daemon's lines, whatever else the answer contains."""
    answer = {"messages": [BLOCK], "failures": FAILED, "statusText": ["✅ resolved"]}
    daemon = served(expand=answer)
    assert pi.prompt("@@asked: b?") == [BLOCK]
    assert pi.statuses == [ASKING, "✅ resolved"]
    daemon.answers["expand"] = {"failures": "odd"}
    pi.prompt("@@a")
    pi.prompt("@@a" + "x" * 1_100_000)
    assert pi.notices == ["\n".join(FAILED), "this text is too long for indexerd"]


def test_outcomes_are_shown_and_cleared(pi: Pi, served: Served) -> None:
    """S0.56, S0.30: the daemon's text, in the slot and for the time that it names."""
    told = ["✅ resolved 1 reference(s)", "⚠️ failed to resolve 1 reference(s)"]
    hello = greeting(statusKey="slot", notificationAutoClearMs=50)
    served(hello=hello, expand={"messages": [], "statusText": told})
    pi.prompt("@@a @@b")
    pi.shows(None)
    assert pi.statuses == [" · ".join(told), None]
    assert pi.keys == {"slot"}


def test_the_daemons_own_runs_are_shown(pi: Pi, served: Served) -> None:
    """S0.42, S0.43, S0.30: automatic runs of this session, and of no other."""
    daemon = served(hello=greeting(notificationAutoClearMs=20))
    until(lambda: daemon.ears, "somebody to listen")
    mine = {"sessionId": "s-1"}
    daemon.tell(event="index.started", sessionId="s-2")
    daemon.tell(event="index.started", **mine)
    daemon.tell(event="index.retry", attempt=1, of=2, **mine)
    daemon.tell(event="session.updated", **mine)
    daemon.tell(event="index.succeeded", costUsd=0.0123456, **mine)
    pi.shows(None)
    daemon.tell(event="index.succeeded", costUsd=None, **mine)
    pi.shows(None)
    daemon.tell(event="index.failed", message="no\x1b[31m key\n" + "x" * 999, **mine)
    pi.shows(None)
    pi.ends()  # though the daemon goes on
    assert pi.statuses[:-2] == [
        "⏳ indexing...",
        "⏳ indexing... (retry 1/2)",
        "✅ session indexed ($0.0123)",
        None,
        "✅ session indexed (unknown cost)",
        None,
    ]
    assert re.fullmatch(r"❌ index failed: no \[31m key x+…", str(pi.statuses[-2]))
    assert len(str(pi.statuses[-2])) == 200


def test_a_lost_daemon_is_found_again_and_leaves_no_status(pi: Pi, served: Served) -> None:
    """S0.42: the status is cleared when the daemon ends, and a new daemon is followed."""
    daemon = served()
    for again in (True, False):
        until(lambda: daemon.ears, "somebody to listen")
        daemon.tell(event="index.started", sessionId="s-1")
        pi.shows("⏳ indexing...")
        if again:
            daemon.hang_up()
            pi.shows(None)
    pi.do(stale=True)
    for _ in range(2):
        assert "error" not in pi.do(emit="session_shutdown")


@pytest.mark.parametrize("ui", [True, False])
def test_the_command_forces_a_run(pi: Pi, served: Served, ui: bool) -> None:
    """S0.3, S0.30: under the daemon's name for it; with a user interface it returns at once."""
    hello = greeting(commandName="remember", notificationAutoClearMs=20)
    daemon = served(hello=hello, index={"status": "indexed", "costUsd": 0.00125})
    assert pi.do(list=True)["commands"] == ["remember"]
    pi.do(command="remember", ctx={"hasUI": ui})
    pi.shows(None)
    asked = daemon.params("index")
    assert asked == [{"ref": "s-1", "force": True, "wait": True}]
    assert pi.statuses == ["⏳ indexing...", "✅ session indexed ($0.001250)", None]


def test_a_new_sessions_file_is_waited_for(pi: Pi, served: Served) -> None:
    """S0.4: the daemon may see a new file later than pi; other errors end the wait."""
    answers = iter([Refusal("not_found", "unknown")] * 2)

    def index(_params: dict[str, Any]) -> Any:
        raise next(answers, Refusal("already_running", "Session indexing already in progress"))

    daemon = served(index=index)
    pi.do(command=KEY)
    pi.shows("❌ index failed: Session indexing already in progress")
    assert len(daemon.params("index")) == 3


def test_the_command_in_an_empty_session_says_so(pi: Pi, served: Served) -> None:
    """S0.17: without a message there is no file: it answers at once and asks nothing."""
    tool: dict[str, Any] = {"type": "message", "message": {"role": "toolResult"}}
    daemon = served(index={"status": "indexed"})
    for entries in ([], [{"type": "model_change"}], [tool]):
        pi.do(command=KEY, ctx={"entries": entries, "hasUI": False})
    assert pi.statuses == ["❌ index failed: no user/assistant conversation to index"]
    assert daemon.params("index") == []
    answer: dict[str, Any] = {"type": "message", "message": {"role": "assistant"}}
    for entries in ([tool, SAID], [answer]):
        pi.do(command=KEY, ctx={"entries": entries, "hasUI": False})
    assert len(daemon.params("index")) == 2


def test_a_resumed_session_gets_its_context_once(pi: Pi, socket: Path) -> None:
    """S4.18: with the first prompt after a resume, after references, once.

    Not a new session, a fork in the same process, or a reload of extensions.
    """
    new: list[Any] = [{"type": "model_change"}]
    others = [("startup", []), ("startup", new), ("reload", [SAID]), ("fork", [SAID]), ("new", [])]
    block = {"text": "[SESSION RESUMED]\n", "missingFiles": 2}
    with acting(socket, resume_context=block, expand={"messages": [BLOCK]}) as daemon:
        for reason, entries in others:
            pi.start(reason, entries=entries)
            assert pi.prompt("hello") == []
        pi.start("resume", entries=[SAID])
        first, second = pi.prompt("@@a"), pi.prompt("more")
        pi.start("startup", entries=[*new, SAID])
        third = pi.prompt("more")
        asked, again = daemon.params("resume_context")
    assert asked["session"] == "s-1"
    assert str(uuid.UUID(asked["resumeId"])) == asked["resumeId"] != again["resumeId"]
    told = {
        "customType": "session-resume-context",
        "content": block["text"],
        "display": False,
        "details": {"sessionIds": ["s-1"], "missingFiles": 2},
    }
    assert (first, second, third) == ([BLOCK, told], [], [told])


def test_a_session_without_a_file_is_left_alone(pi: Pi, socket: Path) -> None:
    """S0.5: nothing is asked about it and no events are read; references still work."""
    ctx: dict[str, Any] = {"file": None, "entries": [SAID]}
    with acting(socket, expand={"messages": [BLOCK]}) as daemon:
        pi.start("resume", **ctx)
        assert len(pi.prompt("@@a", **ctx)) == 1
        pi.do(command=KEY, ctx=ctx)
        (expanded,) = daemon.params("expand")
        assert {*daemon.methods} == {"hello", "expand"}
    assert "sessionId" not in expanded
    assert pi.statuses == []


ANSWER = {
    "sessionId": "abc",
    "name": "The\nname",
    "answerMarkdown": "Because.",
    "confidence": "high",
    "citations": [{"entryId": "e1", "role": "user", "excerpt": "x" * 500}, "odd"] * 9,
    "notes": ["cut", 5],
    "usage": {"inputTokens": 5, "outputTokens": 6, "costUsd": 0.5},
}


def test_an_answer_is_text_with_citations(pi: Pi, served: Served) -> None:
    """S0.60, S0.63, S0.66, S0.64: at most 8 citations of 280 characters; one turn id per run."""
    daemon = served(query_session=ANSWER, expand={})
    for _ in range(2):
        pi.prompt("@@a")
        for session in ("abc", "b"):
            found = pi.tool("query_session", session=session, question="why?")
    asked = daemon.params("query_session")
    (said,) = found["content"]
    cited = f"- `e1` (user): {'x' * 279}…"
    heading = ["### Session: The name (`abc`)", "Confidence: **high**", "", "Because."]
    told = [*heading, "", "Citations:", *[cited] * 8, "", "Notes:", "- cut", "- "]
    assert said["text"].splitlines() == told
    assert (asked[0]["session"], asked[0]["question"], asked[0]["cwd"]) == ("abc", "why?", "/w")
    assert found["usage"]["cost"]["total"] == 0.5
    assert (found["usage"]["input"], found["usage"]["output"]) == (5, 6)
    assert found["details"]["sessionId"] == "abc"
    turns = [request["turnId"] for request in asked]
    assert turns == [turns[0]] * 2 + [turns[2]] * 2
    assert turns[0] != turns[2]


FAILURES: list[tuple[str, dict[str, Any], str]] = [
    ("not_found", {"upstream": "SESSION_FILE_MISSING"}, "SESSION_FILE_MISSING"),
    ("ambiguous_reference", {"candidates": [{"sessionId": "x"}]}, "UNKNOWN_QUERY_SESSION_ERROR"),
    ("timeout", {}, "QUERY_TRANSPORT_FAILED"),
]


def test_a_failed_question_says_why(pi: Pi, served: Served) -> None:
    """S0.64: the error is JSON with code, message and details, including candidates."""

    def refuse(params: dict[str, Any]) -> Any:
        kind, more, _ = FAILURES[int(params["session"])]
        raise Refusal(kind, "that is why", hint="do this", **more)

    served(query_session=refuse)
    for number, (kind, more, code) in enumerate(FAILURES):
        found = pi.tool("query_session", session=str(number), question="why?")["error"]
        said = {key: value for key, value in more.items() if key != "upstream"}
        details = {"kind": kind, "hint": "do this", **said}
        assert found == {"code": code, "message": "that is why", "details": details}


def test_without_a_daemon_tools_and_command_return_errors(pi: Pi) -> None:
    """S0.51, S0.64, S0.3, S0.59: the model gets an error; prompts and completion still work."""
    pi.start(editor=False)
    pi.start("resume", entries=[SAID])
    assert pi.prompt("See @@abc.") == []
    assert pi.statuses == []
    calls: dict[str, dict[str, Any]] = {
        "query_session": {"session": "a", "question": "why?"},
        "set_relevant_context": {"setName": "files", "items": []},
        "get_relevant_context": {},
    }
    for name, params in calls.items():
        error = pi.tool(name, **params)["error"]
        assert error["code"] == "QUERY_TRANSPORT_FAILED"
        assert error["message"] == "indexerd is not running"
    assert pi.do(type="@@a")["found"]["items"][0]["value"] == "@file"
    assert pi.do(list=True)["commands"] == [KEY]
    pi.do(command=KEY)
    pi.shows("❌ index failed: indexerd is not running")


def test_context_tools_are_for_this_session(pi: Pi, served: Served) -> None:
    """S4.9: the sets of this session, whatever the model says, with the daemon's warnings."""
    done = {"text": "Set odd: 1 items", "contextChanged": True, "setName": "odd", "warnings": ["w"]}
    context = {"text": "{}", "context": {}}
    asked = {"setName": "odd", "items": ["a"], "mode": "merge"}
    daemon = served(set_relevant_context=done, get_relevant_context=context)
    kept = pi.tool("set_relevant_context", session="x", **asked)
    held = pi.tool("get_relevant_context", setName="odd")
    assert daemon.params("set_relevant_context") == [asked | {"session": "s-1"}]
    assert daemon.params("get_relevant_context") == [{"session": "s-1", "setName": "odd"}]
    assert kept["content"][0]["text"] == "Set odd: 1 items\nw"
    assert held["content"][0]["text"] == "{}"


ITEM = {
    "sessionId": "abc",
    "label": "a \x1b]0;name",
    "age": "5m",
    "named": True,
    "insert": "@@abc ",
}


def test_sessions_complete_after_two_ats(pi: Pi, served: Served) -> None:
    """S0.59: newest first without the current one; inserts the id and a blank; files still work."""
    bad = [ITEM | {"insert": insert} for insert in ("rm -rf", "@@a b ", "@@a\n", 5)]
    daemon = served(complete={"items": [*bad, "odd", ITEM]})
    for typed in ("@", "see @file", "me@@x", "@@a b", "@@@"):
        assert pi.do(type=typed)["found"]["items"][0]["value"] == "@file"
    begun = pi.do(type="see @@", after="")
    quoted = pi.do(type='(@@"two words', after='" now')
    asked = {"cwd": "/w", "exclude": "s-1"}
    assert daemon.params("complete") == [{"prefix": key} | asked for key in ("", "two words")]
    for answer, line in ((begun, "see @@abc "), (quoted, "(@@abc now")):
        shown = {"value": "@@abc ", "label": "a ]0;name", "description": "5m"}
        assert answer["found"]["items"] == [shown]
        at = line.index("@@abc ") + 6
        assert answer["applied"] == {"lines": ["first", line], "cursorLine": 1, "cursorCol": at}
