"""Secrets that are known by their name, or by what stands around them."""

from __future__ import annotations

import pytest

from indexerd.privacy.redact import redact


@pytest.mark.parametrize(
    "word", ["access", "account", "api", "auth", "encryption", "master", "private", "signing"]
)
def test_a_key_is_a_secret_whatever_it_is_the_key_of(word: str) -> None:
    """In a name of any spelling, and with a quoted value of any kind."""
    for name in (f"{word}_key", f"{word.upper()}_KEY", f"{word}Key", f"MY_{word.upper()}_KEY"):
        for quote in ('"', "'", 'b"', "r'", 'f"', "u'"):
            told = redact(f"{name} = {quote}Zm9vYmFyYmF6cXV4MTIzNDU2{quote[-1]}").text
            assert "Zm9v" not in told, told


@pytest.mark.parametrize("end", ["", ".", ",", ":", ".,:"])
def test_code_at_the_end_of_a_sentence_is_no_secret(end: str) -> None:
    """What ends the sentence is no part of a value."""
    for before in ("password: ", "it sends the bearer ", "run it with --password "):
        text = f"{before}first.second.third.part1{end}"
        assert redact(text).text == text


@pytest.mark.parametrize(
    ("before", "secret", "after"),
    [
        ("the proxy wants Basic ", "dXNlcjpwYXNzd29yZDEyMw==", " from us"),
        ("it sends bearer ", "abcDEF1234567890ghiJKL", " along"),
        ("machine example.org login ana password ", "hunter2x", "\n"),
        ("run --password ", "hunter2x9", " now"),
        ("<db:password>", "hunter2x", "</db:password>"),
        ("GET /blob?se=1&sig=", "abcdEFGH1234%2Bijkl5678", "&x=1"),
        ("Cookie: ", "sid=abcDEF1234567890ghiJKL", ""),
    ],
)
def test_a_secret_is_known_by_what_stands_around_it(before: str, secret: str, after: str) -> None:
    """Without a name that it is assigned to; and nothing else goes."""
    told = redact(before + secret + after).text
    assert secret not in told
    assert told.endswith(after)
    assert told.startswith(before)
