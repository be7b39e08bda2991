"""Costs of calls, from the installed price library."""

import socket

import pytest

from indexerd.models import prices
from indexerd.models.base import TokenCounts
from indexerd.settings import OpenAIProvider, Price

MILLION = TokenCounts(1_000_000, 1_000_000)
NONE = OpenAIProvider()


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a price was asked for over the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.parametrize(
    ("provider", "model", "usd"),
    [
        ("google", "gemini-3.5-flash-lite", 2.80),
        ("google", "gemini-2.5-flash-lite", 0.50),  # its successor costs more
        ("scripted", "gemini-3.5-flash-lite", 2.80),
        ("google", "gemini-99-nova", None),
        ("openai", "gpt-4o", None),  # an unknown provider has no price
        ("local", "extractive", 0.0),
    ],
)
def test_list_prices(provider: str, model: str, usd: float | None) -> None:
    """Dollars for a million tokens in and a million tokens out."""
    assert prices.cost_usd(provider, model, MILLION, NONE) == usd


def test_the_ceiling_is_above_every_listed_text_model() -> None:
    """A new release of the price library may break this."""
    from genai_prices.data import providers

    (google,) = [provider for provider in providers if provider.id == "google"]
    listed = [model.id for model in google.models if model.id.startswith(("gemini-", "gemma-"))]
    costs = [prices.cost_usd("google", row, MILLION, NONE) or 0.0 for row in listed]
    bound = prices.upper_bound_usd("google/gemini-99-nova", 1_000_000, 1_000_000, NONE)
    assert len(listed) > 20
    assert max(costs) <= 30.0 == bound
    assert prices.upper_bound_usd("openai/gpt-4o", 1000, 1000, NONE) is None


def test_configured_prices_win_and_cover_dated_names() -> None:
    """[providers.openai] prices: USD per million tokens, by the name that answered."""
    held = {"m": Price(input=1, output=2), "gemini-3.5-flash-lite": Price(input=0, output=0)}
    own = OpenAIProvider(prices=held, base_url="https://llm.example.org/v1")
    for name in ("m", "m-2026-08-07", "m:latest"):
        assert prices.cost_usd("openai", name, MILLION, own) == 3.0
    assert prices.cost_usd("openai", "m-mini", MILLION, own) is None
    assert prices.cost_usd("openai", "gemini-3.5-flash-lite", MILLION, own) == 0
    assert prices.cost_usd("google", "gemini-3.5-flash-lite", MILLION, own) != 0  # not its server


@pytest.mark.parametrize(("provider", "model", "used", "window"), [
    (None, "claude-sonnet-4-6", 9, 200_000),  # Claude Code names no provider
    (None, "claude-sonnet-4-6", 200_001, 1_000_000),
    ("anthropic", "claude-sonnet-4-6", 9, 1_000_000),
    ("", "claude-haiku-4-5-20251001", 9, 200_000),
    (None, "claude-haiku-4-5-20251001", 200_001, None),  # the list is wrong
    (None, "nobody-knows", 9, None),
])  # fmt: skip
def test_windows(provider: str | None, model: str, used: int, window: int | None) -> None:
    assert prices.window_of(provider, model, used) == window
