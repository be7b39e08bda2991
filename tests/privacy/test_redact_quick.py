"""What makes redaction quick finds all that a plain search would find (S2.21)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from indexerd.privacy import redact as module
from indexerd.privacy.redact import redact

_PIECES = (
    *("pass", "password", "_pass", "-pass", "passcode", "pwd", "secret", "secret_key", "token"),
    *("api_key", "apikey", "auth-key", "_auth", "_authtoken", "credentials", "account", "key"),
    *("=", ": ", " := ", "(", '"', "'", "\n", "\\n", " ", "is ", "x", "hunter2!", "tokens"),
)
_TOKENS = (
    "sk-ant-abcdef0123456789",
    "ghp_abcdefghij0123456789XYZ",
    "glpat-abcdefghij0123456789",
    "SG.abcdefghijklmnop12.abcdefghijklmnop34",
    "hvs.abcdefghijklmnop0123456789",
)


@given(st.lists(st.sampled_from(_PIECES), max_size=12).map("".join))
def test_names_are_tried_wherever_one_may_begin(text: str) -> None:
    """S2.21: what is found is what the pattern finds in the whole text."""
    tried = [(one.span(), one.groupdict()) for one in module._names(text)]
    assert tried == [(one.span(), one.groupdict()) for one in module._NAMED.finditer(text)]


@given(st.sampled_from(_TOKENS), st.sampled_from(("-", "_", ".", "a-b_c.d ")), st.booleans())
def test_signs_in_any_number_hide_no_keyword(token: str, sign: str, many: bool) -> None:
    """S2.21: what stands before each of many signs is not looked at, and all keywords are."""
    around = f" {sign * (1500 if many else 3)} "
    found = redact(around + token + around)
    assert (token in found.text, sum(found.counts.values())) == (False, 1)


def test_every_keyword_is_looked_for() -> None:
    """S2.21: a text that holds a keyword alone calls its rule."""
    for rules, shapes in (
        (module._RULES, module._STARTS + module._SHAPES),
        (module._FOLDED_RULES, module._FOLDED),
    ):
        for kind, keywords, _, _ in shapes:
            for word in keywords.split():
                called = rules.called(f"x {word}")
                assert kind in {named[1] for named, _, _ in called}, word
