"""Judging a model's answer: what is taken, what is not and why, and what is cleaned away."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.indexing.check import validate
from indexerd.meta.model import Metadata
from indexerd.models.attempts import Rejected
from indexerd.privacy import redact as redact_module
from indexerd.protocol.limits import DESCRIPTION_MAX, NAME_MAX, SUMMARY_MAX

GOOD: dict[str, Any] = {
    "name": "Mend the tail reader of session files",
    "description": "A race in the tail reader was found. It was mended and tested.",
    "summary": "## Goal\n- mend it\n\n## Key Decisions\n- read once\n\n## Outcome\n- mended",
    "tags": ["tail", "race", "ticket:ABC-123"],
}
GOOD_JSON = json.dumps(GOOD)


def real(text: str) -> str:
    """The redaction that ships."""
    return redact_module.redact(text).text


def verdict(reply: str, *, cut: bool = False) -> Metadata | Rejected:
    """Judge with the real redactor."""
    return validate(reply, cut=cut, redact=real)


def altered(**fields: Any) -> str:
    """The good answer with other fields; Ellipsis takes one out."""
    held = {key: one for key, one in (GOOD | fields).items() if one is not ...}
    return json.dumps(held)


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(GOOD_JSON, id="bare"),
        pytest.param(f"\n\t {GOOD_JSON} \n", id="blank around"),
        pytest.param(f"```json\n{GOOD_JSON}\n```", id="fence"),
        pytest.param(f"```\n{GOOD_JSON}\n```\n", id="fence without a language"),
        pytest.param(f"```json {GOOD_JSON}```", id="fence on one line"),
        pytest.param(f"```json\n{GOOD_JSON}", id="fence that never closes"),
        pytest.param(f"Here you are:\n{GOOD_JSON}\nAnything else?", id="prose around"),
        pytest.param(f"Sure!\n```json\n{GOOD_JSON}\n```\nDone.", id="prose around a fence"),
        pytest.param(altered(extra={"a": [1, None]}, confidence=0.5), id="extra fields"),
        pytest.param('{"name": "old", ' + GOOD_JSON[1:], id="duplicate key, the last counts"),
        pytest.param(json.dumps(GOOD, indent=4, ensure_ascii=False), id="indented"),
        pytest.param(f"[{GOOD_JSON}]", id="a list of one"),
    ],
)
def test_what_is_taken(reply: str) -> None:
    """M12, S0.21: the same metadata, and nothing that was not asked for."""
    assert verdict(reply) == Metadata(**GOOD)


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        pytest.param("", "Empty model output", id="empty"),
        pytest.param(" \n\t", "Empty model output", id="blank"),
        pytest.param("null", "JSON", id="null"),
        pytest.param("[]", "must be a JSON object", id="list"),
        pytest.param('"name"', "must be a JSON object", id="string"),
        pytest.param("I cannot do that.", "Not a JSON object", id="prose"),
        pytest.param("You've hit your spend limit", "Not a JSON object", id="M14 prose"),
        pytest.param("{}", "name: Field required", id="nothing in it"),
        pytest.param(GOOD_JSON * 2, "Not a JSON object", id="two objects"),
        pytest.param(f"{GOOD_JSON}\n{GOOD_JSON}", "Not a JSON object", id="two lines"),
        pytest.param(f"[{GOOD_JSON}, {GOOD_JSON}]", "Not a JSON object", id="a list of two"),
        pytest.param(GOOD_JSON[:-1], "Not a JSON object", id="torn"),
        pytest.param(GOOD_JSON[:-9] + "}", "Not a JSON object", id="torn and closed"),
        pytest.param(GOOD_JSON.replace('"', "'"), "Not a JSON object", id="single quotes"),
        pytest.param(altered(tags=...), "tags: Field required", id="missing"),
        pytest.param(altered(name=None), "name: ", id="null field"),
        pytest.param(altered(name=5), "name: ", id="number"),
        pytest.param(altered(name=["a"]), "name: ", id="list for a string"),
        pytest.param(altered(tags="a, b, c"), "tags: ", id="string for a list"),
        pytest.param(altered(tags=["a", "b", 3]), "tags.2: ", id="number among tags"),
        pytest.param(altered(tags=["a", "b", ""]), "tags.2: ", id="empty tag"),
        pytest.param(altered(tags=["a", "b", "\u200b\u202e"]), "tags.2: ", id="invisible tag"),
        pytest.param(altered(name=""), "name: ", id="empty name"),
        pytest.param(altered(name=" \n\u200b\x1b[0m "), "name: ", id="name of nothing visible"),
        pytest.param(altered(x=float("nan")), "NaN is not JSON", id="NaN"),
        pytest.param(altered(x=float("-inf")), "-Infinity is not JSON", id="infinity"),
        pytest.param(
            altered(name="9").replace('"9"', "9" * 5000), "Not a JSON object", id="F4 5,000 digits"
        ),
        pytest.param(altered(name="1e999").replace('"1e999"', "1e999"), "name: ", id="F7 1e999"),
        pytest.param('{"name":' * 100_000, "deeply", id="deep and torn"),
        pytest.param(
            '{"x":' + "[" * 100_000 + "]" * 100_000 + "," + GOOD_JSON[1:], "deeply", id="deep"
        ),
        pytest.param(altered(name="x" * 1_000_001), "longer than", id="1 MB name"),
        pytest.param(altered(name="x" * 500_000), "at most 120", id="huge name"),
    ],
)
def test_what_is_not_taken_and_why(reply: str, why: str) -> None:
    """M12: the reason is written for the model, and is short."""
    said = verdict(reply)

    assert isinstance(said, Rejected)
    assert why in said.error
    assert len(said.error) < 1000


HOSTILE = "a\x1b]0;pwn\x07b\x1b[31mc\x9b2Jd\u202ee\u200bf\U000e0041g\nh\x1b]52;c;cHdu\x1b\\i\x00"


def test_escape_sequences_and_bidi_go_whole() -> None:
    """X9: CSI, OSC 0 and 52, 8-bit controls, bidi, zero width, tags, a newline in a name."""
    said = verdict(altered(name=HOSTILE, description=HOSTILE, summary=HOSTILE, tags=[HOSTILE] * 3))

    assert isinstance(said, Metadata)
    assert said.name == "abcdefg hi"
    assert said.description == said.summary == "abcdefg\nhi"
    assert said.tags == ["abcdefg hi"] * 3


@pytest.mark.parametrize("where", ["name", "description", "summary", "tags"])
@pytest.mark.parametrize("char", [chr(0xD800), chr(0xDFFF), chr(0xD800) + "a"])
def test_lone_surrogates_become_replacement_characters(where: str, char: str) -> None:
    """M12, F7: a reply may hold them as escapes or as they are; what is stored can be written."""
    value: Any = [f"t{char}", "b", "c"] if where == "tags" else f"text {char} text"
    for reply in (altered(**{where: value}), json.dumps(GOOD | {where: value}, ensure_ascii=False)):
        said = verdict(reply)
        assert isinstance(said, Metadata)
        assert said.model_dump_json().encode()
        assert "\ufffd" in str(said.model_dump())


SECRET = "ghp_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"


@pytest.mark.parametrize("where", ["name", "description", "summary", "tags"])
@pytest.mark.parametrize(
    "secret", [SECRET, SECRET[:9] + "\u200b" + SECRET[9:], SECRET[:20] + "\x1b[0m" + SECRET[20:]]
)
def test_an_echoed_secret_is_redacted(where: str, secret: str) -> None:
    """X7: also one that an invisible character hides until it is cleaned away."""
    value: Any = [secret, "b", "c"] if where == "tags" else f"The token is {secret} now"
    said = verdict(altered(**{where: value}))

    assert isinstance(said, Metadata)
    whole = said.model_dump_json()
    assert SECRET not in whole
    assert SECRET[20:] not in whole
    assert "[redacted:" in whole


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=10,
)
answers = st.fixed_dictionaries(
    {},
    optional={
        "name": values | st.text(max_size=130),
        "description": values | st.text(max_size=40),
        "summary": values | st.text(max_size=40),
        "tags": values | st.lists(st.text(max_size=85), max_size=14),
        "other": values,
    },
)
anything = st.text(alphabet=st.characters(exclude_categories=())) | st.text(
    alphabet='{}[]":,`\n\\u d8name'
)


@given(
    anything | answers.map(json.dumps), st.text(max_size=10), st.text(max_size=10), st.booleans()
)
def test_nothing_a_model_says_raises(middle: str, before: str, after: str, cut: bool) -> None:
    """M12, X8: every reply is taken, clean and within limits, or rejected with a reason."""
    said = verdict(before + middle + after, cut=cut)

    if isinstance(said, Rejected):
        assert said.error.encode()
        return
    assert not cut
    assert 1 <= len(said.name) <= NAME_MAX
    assert 1 <= len(said.description) <= DESCRIPTION_MAX
    assert 1 <= len(said.summary) <= SUMMARY_MAX
    assert 3 <= len(said.tags) <= 12
    whole = said.name + said.description + said.summary + "".join(said.tags)
    assert not {"Cs", "Co", "Zl", "Zp"} & {unicodedata.category(char) for char in whole}
    assert "\x1b" not in whole
    assert whole.encode()
