"""What pi's extension puts after a prompt, at every edge; pi and the daemon are acted."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.acted_pi import BLOCK, KEY, SAID, Pi, greeting, needed
from tests.integrations.acting import Raw, Refusal, acting

pytestmark = needed


def test_a_prompt_without_a_reference_asks_nothing(pi: Pi, socket: Path) -> None:
    """S0.51: a single `@` or none opens no connection."""
    with acting(socket) as daemon:
        pi.start()
        before = daemon.connections
        assert pi.prompt("Look at @file and mail me@example.com.") == []
        assert daemon.connections == before
        pi.ends()


def test_messages_keep_their_order_and_nothing_else_of_them(pi: Pi, socket: Path) -> None:
    """S0.53, S1.38: each message as one, hidden, of our type; what is none is passed over."""
    odd: list[Any] = [None, "text", {"content": 5}, {"content": ""}, {"content": "late"}]
    shown = {"content": "q", "display": True, "customType": "evil", "details": {"question": "?"}}
    with acting(socket, expand={"messages": [BLOCK, shown, *odd]}) as daemon:
        pi.start()
        messages = pi.prompt("See @@abc.")
        (asked,) = daemon.params("expand")
        pi.ends()
    assert [one["content"] for one in messages] == ["B", "q", "late"]
    assert {(one["customType"], one["display"]) for one in messages} == {
        ("session-reference", False)
    }
    assert messages[1]["details"] == {"question": "?"}
    assert asked == {"text": "See @@abc.", "cwd": "/w", "sessionId": "s-1"}


def test_more_messages_than_handlers_lose_nothing(pi: Pi, socket: Path) -> None:
    """S1.38: pi takes one message a handler; what is left over comes with the last."""
    many = [BLOCK | {"content": f"<{n}>"} for n in range(30)]
    with acting(socket, expand={"messages": many}):
        pi.start()
        messages = pi.prompt("@@a")
        again = pi.prompt("no reference")
        pi.ends()
    assert (
        "".join(one["content"] for one in messages).split()
        == "".join(f"<{n}>" if n < 8 else f" <{n}>" for n in range(30)).split()
    )
    assert again == []


ODD: list[Any] = [
    Raw(b"\n"),
    Raw(b"[]\n"),
    Raw(b"{}\n"),
    Raw(b"\xff\xfe{\n"),
    Raw(b'{"jsonrpc":"2.0","id":1,"result":null}\n'),
    Raw(b'{"jsonrpc":"2.0","id":1,"error":7}\n'),
    Raw(b"x" * 6_000_000),
    {"messages": "no list", "statusText": {"no": "text"}},
    {"messages": [{"content": "x" * 3_000_000}]},
    {},
]


def test_an_odd_answer_is_no_answer(pi: Pi, socket: Path) -> None:
    """S0.51: whatever the daemon says, the prompt goes on, and pi hears no complaint."""
    with acting(socket) as daemon:
        for answer in ODD:
            daemon.answers |= dict.fromkeys(("hello", "expand", "resume_context"), answer)
            daemon.answers["subscribe"] = answer
            pi.start("resume", entries=[SAID])
            assert pi.prompt("See @@abc.") == []
        pi.ends()
    assert pi.statuses == []


@pytest.mark.parametrize("there", [False, True], ids=["absent", "silent"])
def test_without_a_daemon_prompts_go_on(pi: Pi, socket: Path, there: bool) -> None:
    """S0.51: no daemon, or one that never answers: bounded, silent, nothing injected."""
    quiet = dict.fromkeys(("hello", "expand", "resume_context", "subscribe"), Raw(b""))
    with acting(socket if there else socket.with_name("other"), **quiet):
        pi.start("resume", entries=[SAID])
        assert pi.prompt("See @@abc.") == []
        pi.ends()
    assert pi.statuses == []


def test_a_refusal_is_silent(pi: Pi, socket: Path) -> None:
    """S0.51: the daemon's error is not the prompt's."""

    def refuse(_params: dict[str, Any]) -> Any:
        raise Refusal("internal", "defect")

    with acting(socket, hello=refuse, expand=refuse, resume_context=refuse, subscribe=refuse):
        pi.start("resume", entries=[SAID])
        assert pi.prompt("See @@abc.") == []
        pi.ends()


def test_outcomes_are_shown_and_taken_back(pi: Pi, socket: Path) -> None:
    """S0.56, S0.30: the daemon's texts, in the slot it names, for as long as it says."""
    told = ["✅ resolved 1 reference(s)", "⚠️ failed to resolve 1 reference(s)"]
    hello = greeting(statusKey="slot", notificationAutoClearMs=50)
    with acting(socket, hello=hello, expand={"messages": [], "statusText": told}):
        pi.start()
        pi.prompt("@@a @@b")
        pi.shows(None)
        pi.ends()
    assert pi.statuses == [" · ".join(told), None]
    assert pi.keys == {"slot"}


def test_a_question_in_the_prompt_shows_that_it_is_asked(pi: Pi, socket: Path) -> None:
    """S0.65: an answer that takes a model is announced; without an outcome nothing stays."""
    with acting(socket, expand={"messages": [BLOCK]}):
        pi.start()
        assert len(pi.prompt('@@"some name"~2: why?')) == 1
        pi.ends()
    assert pi.statuses == ["⏳ asking...", None]


def test_a_huge_or_broken_prompt_is_sent_bounded(pi: Pi, socket: Path) -> None:
    """The socket takes 1 MiB a line: whole text is sent; what is lost is told."""
    head = "@@abc \ud83d "
    with acting(socket, expand={"messages": [BLOCK]}) as daemon:
        pi.start()
        assert len(pi.prompt(head + "word " * 150_000 + "@@late")) == 1
        assert len(pi.prompt(head + "\x01" * 3_000_000)) == 1
        assert pi.notices == []
        assert len(pi.prompt(head + "\x01" * 3_000_000 + "@@late")) == 1
        whole, *cut = [one["text"] for one in daemon.params("expand")]
        pi.ends()
    assert whole.endswith(" word @@late")
    for text in cut:
        assert text.startswith("@@abc \ufffd \x01")
        assert 990_000 < len(json.dumps(text)) <= 1_000_000
    (notice,) = pi.notices
    searched = f"only the first {len(cut[0])} characters of the prompt were searched"
    assert notice == f"{searched} for @@ references"


# -- resuming ------------------------------------------------------------------------------------


def test_a_resumed_session_is_told_once(pi: Pi, socket: Path) -> None:
    """S4.18: the block comes with the first prompt after a resume, after references, once."""
    block = {"text": "[SESSION RESUMED]\n", "missingFiles": 2}
    with acting(socket, resume_context=block, expand={"messages": [BLOCK]}) as daemon:
        pi.start("resume", entries=[SAID])
        first, second = pi.prompt("@@a"), pi.prompt("more")
        (asked,) = daemon.params("resume_context")
        pi.start("startup", entries=[{"type": "model_change"}, SAID])
        third = pi.prompt("more")
        pi.ends()
    assert asked["session"] == "s-1"
    assert str(uuid.UUID(asked["resumeId"])) == asked["resumeId"]
    told = {
        "customType": "session-resume-context",
        "content": block["text"],
        "display": False,
        "details": {"sessionIds": ["s-1"], "missingFiles": 2},
    }
    assert (first, second, third) == ([BLOCK, told], [], [told])


def test_only_a_resumed_session_is_told(pi: Pi, socket: Path) -> None:
    """S4.18: not a new one, nor a fork in the same process, nor after a reload of extensions."""
    others: list[tuple[str, list[Any]]] = [
        ("startup", []),
        ("startup", [{"type": "model_change"}]),
        ("reload", [SAID]),
        ("fork", [SAID]),
        ("new", []),
    ]
    with acting(socket, resume_context={"text": "told"}) as daemon:
        for reason, entries in others:
            pi.start(reason, entries=entries)
            assert pi.prompt("hello") == []
        assert daemon.params("resume_context") == []
        pi.ends()


def test_each_resume_has_an_id_of_its_own(pi: Pi, socket: Path) -> None:
    """S4.18: the next resume is another one; nothing to say is no message."""
    with acting(socket, resume_context={"text": None, "missingFiles": 0}) as daemon:
        for _ in range(2):
            pi.start("resume", entries=[SAID])
            assert pi.prompt("go on") == []
        asked = daemon.params("resume_context")
        pi.ends()
    assert len({one["resumeId"] for one in asked}) == 2


def test_a_session_without_a_file_is_left_alone(pi: Pi, socket: Path) -> None:
    """S0.5: nothing is asked about it, nobody listens; it may refer to others."""
    ctx: dict[str, Any] = {"file": None, "entries": [SAID]}
    with acting(socket, expand={"messages": [BLOCK]}) as daemon:
        pi.start("resume", **ctx)
        assert len(pi.prompt("@@a", **ctx)) == 1
        pi.do(command=KEY, ctx=ctx)
        asked = {name for name, _ in daemon.asked}
        (expanded,) = daemon.params("expand")
        pi.ends()
    assert asked == {"hello", "expand"}
    assert "sessionId" not in expanded
    assert pi.statuses == []
