"""Context windows, by the list that is installed."""

from __future__ import annotations

import socket

import pytest

from indexerd.models import windows
from indexerd.models.windows import window_of


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a window was asked for over the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.parametrize(
    ("provider", "model", "tokens"),
    [
        ("anthropic", "claude-opus-4-5", 200_000),
        ("anthropic", "claude-sonnet-4-5-20250929", 200_000),
        ("openai", "gpt-5", 400_000),
        (None, "claude-opus-4-5", 200_000),
    ],
)
def test_windows_that_are_listed(provider: str | None, model: str, tokens: int) -> None:
    """S2.26: whatever date a model's name ends with."""
    assert window_of(provider, model) == tokens


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("anthropic", "claude-that-nobody-knows"),
        ("ollama-at-home", "claude-opus-4-5"),  # whoever serves it may give it a smaller one
        ("openrouter", "nobody/nothing"),
        (None, "nothing"),
        ("anthropic", ""),
        ("anthropic", "claude-opus-4-5" + "x" * windows.NAME_MAX),
        ("x" * 1000, "claude-opus-4-5"),
    ],
)
def test_an_unknown_window_is_none(provider: str | None, model: str) -> None:
    """S2.26: nothing is guessed, and nobody warns about what is not known."""
    assert window_of(provider, model) is None
