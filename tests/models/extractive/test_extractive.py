"""The built-in model: what it answers, what it refuses, and that nothing can make it fail."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indexerd.errors import DeadlineError, ModelUnavailableError
from indexerd.events import Facts, Stretch
from indexerd.indexing.check import validate
from indexerd.meta.model import Metadata
from indexerd.models.base import Finish, Model, Prompt, Reply
from indexerd.models.extractive import Extractive
from indexerd.models.extractive.summarize import describe, summarize

FACTS = Facts(
    (
        ("user", "Please add retry with backoff to the uploader."),
        ("assistant", "We decided to use full jitter. Added `retry()`; all tests pass."),
    ),
    files_modified=("/srv/sync/upload.py",),
    cwd="/srv/sync",
)
LONG = Facts(
    tuple(("user", f"Fix the {n}th parser of the importer, it is slow.") for n in range(900))
)


def ask(known: Facts | None, seconds: float = 10.0) -> Reply:
    """Ask the model once, as the daemon would."""
    model: Model = Extractive()
    return asyncio.run(model.generate(Prompt("system", "user", facts=known), timeout=seconds))


def judged(text: str) -> object:
    """Judge an answer as every model's is judged."""
    return validate(text, cut=False, redact=str)


def test_the_answer_passes_the_check_of_every_model() -> None:
    """S0.19, M21: JSON of the metadata, by a model that says who it is and costs nothing."""
    reply = ask(FACTS)
    found = judged(reply.text)
    assert isinstance(found, Metadata)
    assert found == describe(FACTS)
    assert found.name == "Add retry with backoff to the uploader"
    assert (reply.model, reply.finish) == ("local/extractive", Finish.STOP)
    assert (reply.tokens.input, reply.tokens.output) == (0, 0)
    assert (Extractive().key, Extractive().remote) == ("local/extractive", False)


def test_it_answers_about_sessions_only() -> None:
    """S0.28: a prompt without facts is refused in words, not answered with something made up."""
    with pytest.raises(ModelUnavailableError, match="no facts"):
        ask(None)


def test_a_stretch_is_summed_up_in_plain_words() -> None:
    """S2.9, S2.19: Markdown as it is, by a model that costs nothing; past its time it stops."""
    stretch = Stretch("checkpoint", FACTS.messages)
    prompt = Prompt("system", "user", stretch=stretch)
    reply = asyncio.run(Extractive().generate(prompt, timeout=10))
    assert reply.text == summarize(stretch, lambda: None)
    assert "## Key Decisions\n- We decided to use full jitter." in reply.text
    assert (reply.model, reply.finish) == ("local/extractive", Finish.STOP)
    with pytest.raises(DeadlineError, match="within 0 s"):
        asyncio.run(Extractive().generate(prompt, timeout=0))


def test_the_deadline_holds() -> None:
    """M2: past its time it says so, and leaves the event loop in order."""
    with pytest.raises(DeadlineError, match="within 0 s"):
        ask(LONG, seconds=0)


OFFLINE = """
import asyncio, sys
def no_network(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        raise SystemExit("the network was touched")
sys.addaudithook(no_network)
from indexerd.models.extractive.summarize import summarize
from indexerd.events import Facts, Stretch
from indexerd.models.base import Prompt
from indexerd.models.extractive import Extractive
said = (("user", "Please move the cache and the index of the parser to SQLite, see ABC-1 and #12."),
        ("assistant", "We decided on WAL. Moved the cache; the parser and the index are green."))
known = Facts(said, ("a.py", "b.py"), ("c.py",), {"bash": 1, "edit": 2, "read": 3}, "/srv/x")
print(asyncio.run(Extractive().generate(Prompt("", "", facts=known), timeout=30)).text)
print(sorted({"httpx2", "google", "openai"} & set(sys.modules)))
"""


def test_it_says_the_same_in_every_process_and_needs_no_network() -> None:
    """M21: no socket is connected; hash seeds, and so set orders, do not show."""
    answers = set()
    for seed in ("0", "1", "7"):
        done = subprocess.run(
            [sys.executable, "-c", OFFLINE],
            env={"PATH": os.defpath, "PYTHONHASHSEED": seed, "PYTHONPATH": os.getcwd()},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answers.add(done.stdout)
    (answer,) = answers
    text, modules = answer.splitlines()
    assert isinstance(judged(text), Metadata)
    assert modules == "[]"


# --- for any input at all ---------------------------------------------------------------------

LINES = [
    "We decided to use Postgres instead of MySQL.",
    "Please fix the flaky test in tests/test_io.py!",
    "ok, go on",
    "# Heading of things",
    "- [x] a **done** item",
    "```python\nx = {'a': 1}\n```",
    "<skill name='x'>\nsecret text\n</skill>",
    "User: assistant: System: hi",
    "@@ref and [redacted:token] here",
    "キャッシュを追加してください。",
    "\ud800\x00\x1b[31m\u202e\u200b",
    "Shall I continue?",
    "2026-01-01T00:00:00Z ERROR boom",
    "!!! ??? ...",
    "text",
]
texts = st.one_of(
    st.text(alphabet=st.characters(exclude_categories=()), max_size=120),
    st.lists(st.sampled_from(LINES), max_size=8).map("\n".join),
)
anything = st.builds(
    Facts,
    messages=st.lists(st.tuples(st.sampled_from(["user", "assistant"]), texts), max_size=12).map(
        tuple
    ),
    files_read=st.lists(texts, max_size=3).map(tuple),
    files_modified=st.lists(texts, max_size=3).map(tuple),
    tools_used=st.dictionaries(texts, st.integers(0, 9), max_size=3),
    cwd=texts,
    previous_summary=st.none() | texts,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(anything)
def test_any_facts_give_an_answer_that_the_check_accepts(known: Facts) -> None:
    """S0.19: valid for any input, twice the same, free of role, reference and redaction marks."""
    said = describe(known)
    assert said == describe(known)
    assert isinstance(judged(said.model_dump_json()), Metadata)
    assert not re.search(r"@@|\b(User|Assistant|System):", said.model_dump_json())
    assert "redacted:" not in "".join([said.name, *said.tags]).lower()
    assert all(tag == tag.strip() for tag in said.tags)
    assert len(said.tags) == len(set(said.tags))


PIECES = [
    "<file a=b>",
    "[a](",
    "**a ",
    "...x",
    "```\n",
    "a\n",
    "\u2603\U0001f600",
    "修正",
    "||x",
    "User: ",
    "a/",
]


@pytest.mark.parametrize("piece", PIECES)
def test_a_megabyte_of_one_thing_is_survived(piece: str) -> None:
    """X8: unclosed tags, fences, links and marks, a megabyte of each, in every field."""
    text = piece * (1_000_000 // len(piece))
    known = Facts(
        (("user", text), ("assistant", text)),
        (text,),
        (text,),
        {text: 1},
        text,
        previous_summary=text,
    )
    assert isinstance(judged(describe(known).model_dump_json()), Metadata)
