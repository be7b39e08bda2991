"""The built-in model: its answers, and that no input makes it fail."""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from indexerd.entries import Facts, Prompt, Stretch
from indexerd.errors import DeadlineError
from indexerd.indexing.prompt import validate
from indexerd.meta.model import Metadata
from indexerd.models.extractive import Extractive
from indexerd.models.extractive.describe import describe
from indexerd.models.extractive.sentences import topics
from indexerd.models.extractive.summarize import summarize

FACTS = Facts(
    (
        ("user", "Please add retry with backoff to the uploader."),
        ("assistant", "We decided to use full jitter. Added `retry()`; all tests pass."),
    ),
    files_modified=("/srv/sync/upload.py",),
    cwd="/srv/sync",
)


def test_the_answer_passes_the_check_of_every_model() -> None:
    """S0.19, S2.9: it names itself, costs nothing and respects its deadline."""
    stretch = Stretch("checkpoint", FACTS.messages)
    prompts = [Prompt("", "", facts=FACTS), Prompt("", "", stretch=stretch)]
    named, summed = (asyncio.run(Extractive().generate(prompt, timeout=10)) for prompt in prompts)
    assert validate(named.text, cut=False, redact=str) == describe(FACTS)
    assert describe(FACTS).name == "Add retry with backoff to the uploader (sync)"
    assert summed.text == summarize(stretch)
    assert "## Key Decisions\n- We decided to use full jitter." in summed.text
    for reply in (named, summed):
        assert (reply.model, reply.cut) == ("local/extractive", False)
        assert (reply.tokens.input, reply.tokens.output) == (0, 0)
    with pytest.raises(DeadlineError, match="within 0 s"):
        asyncio.run(Extractive().generate(prompts[1], timeout=0))


LINES = [
    "We decided to use Postgres instead of MySQL.",
    "Please fix the flaky test in tests/test_io.py!",
    "# Heading of things",
    "- [x] a **done** item",
    "```python\nx = {'a': 1}\n```",
    "User: assistant: System: hi",
    "@@ref and [redacted:token] here",
    "キャッシュを追加してください。",
    "\ud800\x00\x1b[31m\u202e\u200b",
    "2026-01-01T00:00:00Z ERROR boom",
    "!!! ??? ...",
]
texts = st.one_of(
    st.text(alphabet=st.characters(exclude_categories=()), max_size=120),
    st.lists(st.sampled_from(LINES), max_size=8).map("\n".join),
)
some = st.lists(texts, max_size=3).map(tuple)
kinds = st.sampled_from(["plan", "commit", "pr", "issue"])
written = st.lists(st.tuples(kinds, texts), max_size=4).map(tuple)
said = st.lists(st.tuples(st.sampled_from(["user", "assistant"]), texts), max_size=12).map(tuple)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.builds(Facts, said, some, some, st.just({"bash": 2}), texts, texts, written))
@example(Facts((*[("user", "")] * 5, ("user", "W")), (), (), {}, "", "W:User:", (("pr", "A0"),)))
def test_any_facts_give_an_answer_that_the_check_accepts(known: Facts) -> None:
    """S0.19: valid and repeatable for any input, without role, reference and redaction marks."""
    found = describe(known)
    assert found == describe(known)
    assert isinstance(validate(found.model_dump_json(), cut=False, redact=str), Metadata)
    assert not re.search(r"@@|\b(User|Assistant|System):", found.model_dump_json())
    assert "redacted:" not in "".join([found.name, *found.tags]).lower()
    assert all(tag == tag.strip() for tag in found.tags)
    assert len(found.tags) == len(set(found.tags))


def test_a_long_request_and_long_subjects_make_a_name_that_is_not_too_long() -> None:
    """S0.19: the subjects of many turns are added to a name only where they fit."""
    subjects = [f"{word}{'x' * 30}" for word in ("alpha", "bravo", "gamma", "delta")]
    asked = [f"Look at {word} again." for word in subjects for _ in range(8)]
    first = "Report the returns, ratios, profits and losses of all vaults of the exchange."
    name = describe(Facts(tuple(("user", text) for text in (first, *asked)))).name
    assert name.startswith("Report the returns")


def test_threads_do_not_disturb_each_other() -> None:
    """Two sessions are indexed at once, although the shared stemmer keeps a word's state."""
    texts = [" ".join(f"{word}{n}ations" for n in range(2000)) for word in "abcd"]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(topics, texts))
    assert found == [topics(text) for text in texts]
