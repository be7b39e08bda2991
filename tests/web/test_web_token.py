"""Tokens, cookies and proofs: what was made for a purpose is good for it, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from indexerd.web import token as web_token
from indexerd.web.token import (
    COOKIE_SECONDS,
    NONCE_BYTES,
    TOKEN_SECONDS,
    good_cookie,
    good_proof,
    make_cookie,
    make_proof,
    make_token,
    nonce_of,
)

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))
HERE, THERE = "http://127.0.0.1:7117", "http://127.0.0.1:7118"
NONCE = b"n" * NONCE_BYTES
NOW = 1_800_000_000.0
CHALLENGE = "c" * 22

keys = st.binary(min_size=32, max_size=64)
nonces = st.binary(min_size=NONCE_BYTES, max_size=NONCE_BYTES)
odd = st.text(st.characters(), max_size=200)  # any character, half ones too
times = st.floats(min_value=1e9, max_value=1e11)


@given(keys, nonces, times, st.floats(min_value=0, max_value=TOKEN_SECONDS - 2))
def test_a_token_is_good_where_it_was_made_for(
    key: bytes, nonce: bytes, now: float, later: float
) -> None:
    """Until its time is over, and its nonce says which one it was."""
    found = nonce_of(make_token(key, nonce, HERE, now), key, HERE, now + later)
    assert found is not None
    assert found[0] == nonce.hex()
    assert now + later < found[1] <= now + TOKEN_SECONDS


def test_a_token_is_good_nowhere_else_and_at_no_other_time() -> None:
    """Another key, another server, later, or made by a clock far ahead."""
    token = make_token(KEY, NONCE, HERE, NOW)
    assert nonce_of(token, OTHER, HERE, NOW) is None
    assert nonce_of(token, KEY, THERE, NOW) is None
    assert nonce_of(token, KEY, HERE, NOW + TOKEN_SECONDS) is None
    assert nonce_of(token, KEY, HERE, NOW - 3600) is None
    assert TOKEN_SECONDS <= 300


@given(st.data())
def test_no_character_of_a_token_or_cookie_can_be_another(data: st.DataObject) -> None:
    """Whatever is put in the place of whichever character, it is good no more."""
    token, cookie = make_token(KEY, NONCE, HERE, NOW), make_cookie(KEY, 7117, NOW)
    for text in (token, cookie):
        at = data.draw(st.integers(0, len(text) - 1))
        new = data.draw(st.text(max_size=2))
        bad = text[:at] + new + text[at + 1 :]
        assume(bad != text)
        assert nonce_of(bad, KEY, HERE, NOW) is None
        assert not good_cookie(bad, KEY, 7117, NOW)


@given(odd, odd)
@example("\ud800" * 64, "\udc80")
@example("\u0660" * 64, "\u0661" * 22)  # digits, but no ASCII
def test_any_other_text_is_simply_not_good(text: str, other: str) -> None:
    """No error, whatever comes: not for what is no ASCII, nor for half a character."""
    assert nonce_of(text, KEY, HERE, NOW) is None
    assert not good_cookie(text, KEY, 7117, NOW)
    assert not good_proof(text, KEY, CHALLENGE, HERE)
    assert not good_proof("0" * 64, KEY, text, other)
    assert not good_proof(text, KEY, CHALLENGE, other)


@given(odd, odd)
def test_no_address_is_too_odd_and_none_is_another(here: str, there: str) -> None:
    """What was made for an address is good for that one, whatever it is written with."""
    token, proof = make_token(KEY, NONCE, here, NOW), make_proof(KEY, CHALLENGE, here)
    assert proof is not None
    assert token.isascii()
    assert nonce_of(token, KEY, here, NOW) is not None
    assert good_proof(proof, KEY, CHALLENGE, here)
    assert (nonce_of(token, KEY, there, NOW) is not None) == (here == there)
    assert good_proof(proof, KEY, CHALLENGE, there) == (here == there)


def test_a_number_is_written_in_one_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with zeros before it, even under a good MAC."""
    monkeypatch.setattr(web_token, "str", lambda number: f"0{number}", raising=False)
    token, cookie = make_token(KEY, NONCE, HERE, NOW), make_cookie(KEY, 7117, NOW)
    monkeypatch.undo()
    assert nonce_of(token, KEY, HERE, NOW) is None
    assert not good_cookie(cookie, KEY, 7117, NOW)


def test_a_cookie_lasts_thirty_days_with_its_server() -> None:
    """Not longer, not on another port, not under another key, and not before it was made."""
    cookie = make_cookie(KEY, 7117, NOW)
    assert COOKIE_SECONDS == 30 * 24 * 3600
    assert good_cookie(cookie, KEY, 7117, NOW + COOKIE_SECONDS - 2)
    assert not good_cookie(cookie, KEY, 7117, NOW + COOKIE_SECONDS + 1)
    assert not good_cookie(cookie, KEY, 7118, NOW)
    assert not good_cookie(cookie, OTHER, 7117, NOW)
    assert not good_cookie(cookie, KEY, 7117, NOW - 3600)


def test_a_proof_is_of_one_server_and_one_challenge() -> None:
    """A stranger who passes the challenge on gets the proof of another address."""
    proof = make_proof(KEY, CHALLENGE, HERE)
    assert proof is not None
    assert good_proof(proof, KEY, CHALLENGE, HERE)
    assert not good_proof(proof, KEY, CHALLENGE, THERE)
    assert not good_proof(proof, KEY, "d" * 22, HERE)
    assert not good_proof(proof, OTHER, CHALLENGE, HERE)


@pytest.mark.parametrize("text", ["", "short", "c" * 129, "with\nline ends....", "ü" * 20])
def test_not_everything_is_a_challenge(text: str) -> None:
    """Above all nothing that could be the fields of another text."""
    assert make_proof(KEY, text, HERE) is None
    assert not good_proof("0" * 64, KEY, text, HERE)


def test_what_was_made_for_one_purpose_is_good_for_no_other() -> None:
    """Even with one key for all of them, and fields that look alike."""
    seven = web_token._mac(KEY, "cookie", "1", "17")
    assert seven != web_token._mac(KEY, "cookie", "11", "7")
    macs = {web_token._mac(KEY, one, "a", "b") for one in ("token", "cookie", "proof")}
    assert len(macs) == 3


def test_a_key_or_nonce_that_is_too_short_makes_nothing() -> None:
    """An empty key would let everybody in."""
    with pytest.raises(ValueError, match="key"):
        make_cookie(b"short", 1, NOW)
    with pytest.raises(ValueError, match="nonce"):
        make_token(KEY, b"n", HERE, NOW)
