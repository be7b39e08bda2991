"""Sanitising: which characters are removed, and which must be kept."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.privacy.sanitize import clean_line, clean_text, escape_path, replace_surrogates

FORBIDDEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
JOINERS = "\u200c\u200d"
# Characters that have broken cleaners before, mixed so that they are often adjacent.
AWKWARD = (
    "ab 1;[]\\?m\n\t\r"
    "\x1b\x07\x9b\x9d\x90\x9c\x00\x7f\x85\x0b\xa0"
    "\u200b\u200c\u200d\u202e\u2066\ufeff\u2028\u2029\u00ad"
    "\U000e0041\ue000\ud800\udc80\udfff\ufe0f\u0301\U0001f3fd"
    "\U0001f468\U0001f469\u0995\u09cd\u0645\u3000\u4e2d"
)
texts = st.text(alphabet=AWKWARD, max_size=60) | st.text(
    alphabet=st.characters(exclude_categories=()), max_size=60
)
limits = st.integers(min_value=-1, max_value=70)


def is_clean(text: str, kept: str = "") -> bool:
    for at, char in enumerate(text):
        if unicodedata.category(char) not in FORBIDDEN or char in kept:
            continue
        if char not in JOINERS or not 0 < at < len(text) - 1:
            return False
        for beside in (text[at - 1], text[at + 1]):
            if beside.isascii() or unicodedata.category(beside)[0] not in "LMS":
                return False
    return True


@given(texts, limits)
def test_cleaned_texts_are_clean_short_and_settled(text: str, limit: int) -> None:
    """No forbidden category is left but line feeds, tabs and spaces of a text of several lines.

    The limit holds, and cleaning twice changes nothing.
    """
    line, whole = clean_line(text, limit), clean_text(text, limit)
    assert is_clean(line)
    assert is_clean(whole, "\n\t")
    assert max(len(line), len(whole)) <= max(limit, 0)
    assert (line, whole) == (clean_line(line, limit), clean_text(whole, limit))
    assert line == " ".join(line.split())
    assert whole == whole.strip()
    assert "\n\n\n\n" not in whole


@pytest.mark.parametrize(
    ("dirty", "expected"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("a\x1b]0;pwn\x07b", "ab"),
        ("a\x1b]0;pwn\x1b\\b", "ab"),
        ("a\x9d0;pwn\x9cb", "ab"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;cm0gLXJm\x07ok", "ok"),
        ("a\x1b]0;never closed", "a"),
        ("a\x1bP1$r0m\x1b\\b", "ab"),
        ("a\x9b31mb", "ab"),
        ("a\x1b(Bb\x1bcd", "abd"),
        ("ev\u202eil\u2066x", "evilx"),
        ("in\u200bvis\ufeffible\u00ad", "invisible"),
        ("flag\U000e0067\U000e0062\U000e007f", "flag"),
        ("one\r\ntwo\u2028three\u00a0 four", "one two three four"),
        ("a \u200b b", "a b"),
        ("lone\ud800 half", "lone half"),
        ("priv\ue000ate", "private"),
    ],
)
def test_escape_sequences_are_removed_whole(dirty: str, expected: str) -> None:
    """CSI, OSC, DCS, 8-bit, bidi, zero-width and tag characters leave no remains."""
    assert expected == clean_line(dirty, 100)


@pytest.mark.parametrize(
    "text",
    [
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",  # family
        "\u2764\ufe0f\u200d\U0001f525",  # heart on fire
        "\U0001f469\U0001f3fd\u200d\U0001f4bb",  # technologist with a skin tone
        "\u0995\u09cd\u200d\u09b7",  # Bengali, after a virama
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian, with ZWNJ
    ],
)
def test_joiners_stay_where_scripts_need_them(text: str) -> None:
    """Emoji families, Indic conjuncts and Persian words are kept whole."""
    assert text == clean_line(text, 100)
    assert text == clean_text(text, 100)


@given(texts)
def test_scrubbed_text_is_utf8(text: str) -> None:
    """Scrubbed text can be encoded; text without surrogates is unchanged."""
    whole = replace_surrogates(text)
    whole.encode()
    escape_path(text).encode()
    if not any("\ud800" <= char <= "\udfff" for char in text):
        assert whole == text


def test_an_escaped_path_shows_its_characters() -> None:
    """Newline, ESC, undecodable bytes and invisible characters look different."""
    name = b"a\nb\x1b[0m\xff.jsonl".decode("utf-8", "surrogateescape")
    assert escape_path(name) == "a\\nb\\x1b[0m\\xff.jsonl"
    assert escape_path("x\u202ey\U000e0041") == "x\\u202ey\\U000e0041"
    assert escape_path("/home/zoë/日本 1.jsonl") == "/home/zoë/日本 1.jsonl"
