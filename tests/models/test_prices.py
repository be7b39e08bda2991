"""What calls cost, by the price library that is installed."""

from __future__ import annotations

import socket
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.models import prices
from indexerd.models.base import Tokens
from indexerd.settings import Price

MILLION = Tokens(1_000_000, 1_000_000)


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a price was asked for over the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.parametrize(
    ("model", "usd"),
    [
        ("gemini-3.5-flash-lite", "2.80"),
        ("gemini-3.1-flash-lite", "1.75"),
        ("gemini-2.5-flash", "2.80"),
        ("gemini-2.5-flash-lite", "0.50"),
    ],
)
def test_list_prices_of_google(model: str, usd: str) -> None:
    """Table 0c: dollars for a million tokens in and a million out."""
    assert prices.cost_usd("google", model, MILLION, {}) == Decimal(usd)


def test_the_model_that_answered_decides() -> None:
    """A retired name is served by its successor, at the successor's price."""
    asked = prices.cost_usd("google", "gemini-2.5-flash-lite", MILLION, {})
    answered = prices.cost_usd("google", "gemini-3.5-flash-lite", MILLION, {})

    assert asked != answered


def test_an_unknown_model_of_google_is_bounded_by_the_ceiling() -> None:
    """M20: its cost is unknown, and its upper bound is above every listed text model."""
    assert prices.cost_usd("google", "gemini-99-nova", MILLION, {}) is None
    bound = prices.upper_bound_usd("google", "gemini-99-nova", 1_000_000, 1_000_000, {})
    assert bound == Decimal(30)


def test_the_ceiling_is_above_every_listed_text_model() -> None:
    """M20: a new release of the price library that breaks this breaks this test."""
    from genai_prices.data import providers

    (google,) = [one for one in providers if one.id == "google"]
    listed = [one.id for one in google.models if one.id.startswith(("gemini-", "gemma-"))]
    costs = [prices.cost_usd("google", one, MILLION, {}) for one in listed]

    assert len(listed) > 20
    assert max(cost for cost in costs if cost is not None) <= Decimal(30)


def test_own_prices_win_and_stand_for_dated_names() -> None:
    """[providers.openai] prices: USD per million tokens, by the name that answered."""
    own = {"m": Price(input=1, output=2), "gemini-3.5-flash-lite": Price(input=0, output=0)}

    assert prices.cost_usd("openai", "m", MILLION, own) == Decimal(3)
    assert prices.cost_usd("openai", "m-2026-08-07", MILLION, own) == Decimal(3)
    assert prices.cost_usd("openai", "m:latest", MILLION, own) == Decimal(3)
    assert prices.cost_usd("openai", "m-mini", MILLION, own) is None
    assert prices.cost_usd("google", "gemini-3.5-flash-lite", MILLION, own) == 0


@pytest.mark.parametrize("url", ["", "http://localhost:11434/v1", "https://llm.example.org/v1"])
def test_a_name_alone_is_no_price(url: str) -> None:
    """`openai/gpt-4o` from a server that the library does not know has no price, and no bound."""
    assert prices.cost_usd("openai", "gpt-4o", MILLION, {}, base_url=url) is None
    assert prices.upper_bound_usd("openai", "gpt-4o", 1000, 1000, {}, base_url=url) is None


def test_scripted_models_cost_what_googles_do() -> None:
    """So that budgets in dollars can be tested without a provider."""
    name = "gemini-3.5-flash-lite"

    assert prices.cost_usd("scripted", name, MILLION, {}) == Decimal("2.80")
    assert prices.cost_usd("scripted", "m", MILLION, {}) is None
    assert prices.upper_bound_usd("scripted", "m", 1_000_000, 0, {}) == Decimal(5)


@given(st.text(max_size=60), st.integers(0, 10**9), st.integers(0, 10**9))
def test_no_name_raises(model: str, tokens_in: int, tokens_out: int) -> None:
    """Whatever a server calls itself, a cost is a number that is not negative, or unknown."""
    cost = prices.cost_usd("google", model, Tokens(tokens_in, tokens_out), {})

    assert cost is None or cost >= 0


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        (Decimal("0.01"), "$0.0100"),
        (Decimal("1.23456"), "$1.2346"),
        (Decimal("0.00315"), "$0.003150"),
        (0.0000004, "$0.000000"),
        (0, "$0.000000"),
        (None, "unknown cost"),
    ],
)
def test_costs_are_written(cost: Decimal | float | None, text: str) -> None:
    """S0.43: 4 decimals from one cent, 6 below, words for the unknown."""
    assert prices.format_usd(cost) == text
