"""A conversation as a model reads it for a question, and the redaction of the tests."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from indexerd.references.cited_answer import (
    Cited,
    judge_answer,
)
from indexerd.references.question_context import (
    Context,
    Said,
    compose,
    gather,
)

SECRET = re.compile(r"KEY-[^!]{0,200}!")


def as_it_is(text: str) -> tuple[str, dict[str, int]]:
    """No redaction."""
    return text, {}


def toy(text: str) -> tuple[str, dict[str, int]]:
    """Takes out everything from `KEY-` to `!`, over several lines and messages."""
    found, count = SECRET.subn("[redacted:toy]", text)
    return found, {"toy": count} if count else {}


def talk(*texts: str, ids: Sequence[str] | None = None) -> list[Said]:
    """What was said, newest first; users and assistants take turns."""
    count = len(texts)
    said = [
        Said(ids[n] if ids else f"e{n}", ("user", "assistant")[n % 2], text, count - 1 - n)
        for n, text in enumerate(texts)
    ]
    return said[::-1]


def context(
    newest_first: Sequence[Said],
    max_bytes: int,
    summaries: Sequence[Said] = (),
    redactor: Any = as_it_is,
) -> Context:
    """Gather and compose in one."""
    return compose(gather(newest_first, summaries, max_bytes, redactor), max_bytes)


# -- the text ------------------------------------------------------------------------------------


texts = st.text(st.sampled_from("ab \n[e1]User:é語😀>KEY-!\ud800"), max_size=60)


# -- the reply -----------------------------------------------------------------------------------

TALK = context(
    talk(
        "Where do alerts go?",
        "We decided to write alerts to a file, as Redis is too big for\nthis host.",
        "And the tests?",
        "They pass.",
    ),
    10_000,
)


def answer(**fields: Any) -> str:
    """A model's reply."""
    base: dict[str, Any] = {"answerMarkdown": "To a file.", "confidence": "high", "citations": []}
    return json.dumps(base | fields)


def judged(reply: str, found: Context = TALK) -> Cited:
    """The judgement of a reply that does."""
    held = judge_answer(reply, cut=False, redact=lambda t: toy(t)[0], sections=found.sections)
    assert isinstance(held, Cited), held
    return held
