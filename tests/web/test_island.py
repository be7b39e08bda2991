"""A document's text: quick for what is usual, and the same for what is not (X9)."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from indexerd.privacy.sanitize import scrub
from indexerd.web.export_html import island
from indexerd.web.export_json import harmless

TEXTS = st.text(
    alphabet='ab<>&"\\\\/\\n\\t\\x00\\x1b\\x7f\\xa0\\xe4\\u200b\\u2028\\ue000\\ud800\\udc00\\U0001f600]^-',
    max_size=20,
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(TEXTS, inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=12,
)


def obvious(text: str) -> str:
    """Character by character."""
    return "".join(
        char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1]
        for char in scrub(text)
    )


@given(TEXTS)
def test_a_text_is_made_harmless(text: str) -> None:
    """What does not show is written in full, and nothing else is touched."""
    assert harmless(text) == obvious(text)


@given(VALUES)
@example(2**70)
@example({"a": "\ud800", "b": 1e-5})
@example([math.nan, math.inf])
def test_a_value_is_what_the_usual_way_makes_of_it(value: Any) -> None:
    """Whatever is encoded reads back as it would have; a number that is none is null."""
    usual = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    told = island(value)
    assert not set(told) & set("<>&\u2028\u2029")
    assert told.isprintable()
    found = [json.loads(one, parse_constant=lambda _: None) for one in (told, obvious(usual))]
    assert found[0] == found[1]
