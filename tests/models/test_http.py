"""What an HTTP answer means, whatever its headers and body hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.errors import (
    ContextTooLargeError,
    ModelError,
    ProviderDeniedError,
    ProviderError,
    RefusedError,
)
from indexerd.models import http

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=10,
)
ERRORS = st.fixed_dictionaries(
    {},
    optional={
        "error": JSON
        | st.fixed_dictionaries(
            {}, optional={"code": JSON, "message": JSON, "details": JSON, "metadata": JSON}
        ),
        "message": JSON,
    },
)


@settings(max_examples=80)
@given(st.integers(100, 599), st.text(max_size=40), st.text(max_size=40), JSON | ERRORS)
def test_any_error_answer_becomes_one_of_ours(status: int, wish: str, date: str, body: Any) -> None:
    """M3, M6: no header or body can raise, and a wish is within 0 and one hour."""
    found = http.failure("who", status, {"retry-after": wish, "date": date}, body)

    assert isinstance(found, ModelError)
    if isinstance(found, ProviderError):
        assert found.retry_after is None or 0 <= found.retry_after <= http.RETRY_AFTER_MAX
        assert found.throttled == (status == 429)


@settings(max_examples=60)
@given(st.text(min_size=12, max_size=80), st.sampled_from([400, 401, 403, 404, 429, 500]))
def test_an_error_says_nothing_that_the_body_said(words: str, status: int) -> None:
    """X11: messages are composed, never quoted."""
    body = {"error": {"message": words, "status": words, "code": words}}

    found = http.failure("who", status, {"retry-after": words}, body)

    assert words not in str(found)


@pytest.mark.parametrize(
    ("wish", "date", "seconds"),
    [
        ("0", "", 0.0),
        ("37", "", 37.0),
        ("3601", "", 3600.0),
        ("999999999999999", "", 3600.0),
        ("9" * 400, "", None),
        ("-5", "", None),
        ("1e9", "", None),
        ("inf", "", None),
        ("nan", "", None),
        ("٣٧", "", None),
        ("Sat, 21 Nov 2026 10:01:00 GMT", "Sat, 21 Nov 2026 10:00:00 GMT", 60.0),
        ("Sat, 21 Nov 2026 09:00:00 GMT", "Sat, 21 Nov 2026 10:00:00 GMT", 0.0),
        ("Sat, 21 Nov 2099 09:00:00 GMT", "Sat, 21 Nov 2026 10:00:00 GMT", 3600.0),
        ("Sat, 21 Nov 2099 09:00:00 GMT", "garbage", 3600.0),
        ("Sat, 99 Nov 99999 99:99:99 GMT", "", None),
    ],
)
def test_retry_after(wish: str, date: str, seconds: float | None) -> None:
    """M3: seconds, dates against the server's own clock, garbage, and huge values."""
    assert http.retry_after({"retry-after": wish, "date": date}, None) == seconds


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (400, "the request exceeds the available context size", ContextTooLargeError),
        (400, "This model's maximum context length is 4096 tokens.", ContextTooLargeError),
        (400, "prompt is too long: 210000 tokens > 200000 maximum", ContextTooLargeError),
        (500, "Context size has been exceeded.", ContextTooLargeError),
        (429, "quota for input token count exceeded", ProviderError),
        (400, "unknown field", RefusedError),
        (408, "timed out", ProviderError),
        (402, "no credit", ProviderDeniedError),
        (500, "internal", ProviderError),
    ],
)
def test_errors_about_size_are_told_apart(
    status: int, message: str, kind: type[ModelError]
) -> None:
    """A request that is too large is neither a bad key nor a busy server."""
    assert type(http.failure("who", status, {}, {"error": {"message": message}})) is kind


def test_a_content_filter_is_a_refusal() -> None:
    """M11: a filter's 400 must not close the provider for every other session."""
    assert isinstance(
        http.failure("who", 400, {}, {"error": {"code": "content_filter"}}), RefusedError
    )


@pytest.mark.parametrize(
    "text",
    [
        "You've hit your spend limit",
        "Usage limit reached. Try again at 5 pm.",
        "You have exceeded your current quota, please check your plan and billing details.",
        "Rate limit exceeded",
        "Error: insufficient credits",
        "Too many requests",
    ],
)
def test_prose_about_limits_is_noticed(text: str) -> None:
    """M14: a gateway's apology with status 200."""
    assert http.is_provider_prose(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I could not find anything to summarise.",
        '{"name": "Rate limit handling", "summary": "Added a rate limit."}',
        "```json\n{}\n``` the rate limit",
        "The session is about a rate limit of the gateway. " * 20,
        "The limits of the parser were documented.",
    ],
)
def test_other_prose_is_left_to_the_check(text: str) -> None:
    """M14: sessions about limits, JSON and long texts are not taken for failures."""
    assert not http.is_provider_prose(text)


@given(JSON, st.lists(st.text(max_size=3) | st.integers(0, 3), max_size=4))
def test_digging_in_any_json_is_safe(held: Any, path: list[str | int]) -> None:
    """M6: a path that is not there is None."""
    http.dig(held, *path)


@pytest.mark.parametrize("odd", [None, True, -1, 1.5, "7", [], 10**12])
def test_odd_counts_are_unknown(odd: Any) -> None:
    """M20: what is not a sensible whole number is not known, rather than 0."""
    assert http.count({"n": odd}, "n") is None
    assert http.count({"n": 7}, "n") == 7


@given(st.text())
def test_any_text_can_be_written_after_scrubbing(text: str) -> None:
    """F7: lone surrogates become U+FFFD, all else stays."""
    assert http.scrub(text) == text
    http.scrub(text + "\ud83d").encode("utf-8")
