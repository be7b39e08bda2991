"""What of a conversation is sent where an earlier summary tells the old part of it."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from indexerd.indexing.transcript import Caps, Section, Transcript, assemble, render

CAPS = Caps(400, 40)
# A secret of the toy kind is found only where its first word is seen, too.
SECRET = re.compile(r"KEY(?:\s|(?:User|Assistant): )*\d*(?:\s|(?:User|Assistant): )*\d*")


def toy(text: str) -> tuple[str, dict[str, int]]:
    """Redact the toy's secrets."""
    text, count = SECRET.subn("[redacted:toy]", text)
    return text, {"toy": count} if count else {}


def made(old: list[str], new: list[str]) -> Transcript:
    """The transcript of messages of which the first ones are old."""
    both = [Section("user", text, old=True) for text in old]
    both += [Section("assistant", text) for text in new]
    return assemble(reversed(both), CAPS, toy)


def test_only_what_is_new_is_sent() -> None:
    """S3.15: the text begins at the border; local models get the sections before it, too."""
    found = made(["one KEY 1 2.", "two"], ["three KEY 3 4", "four"])
    assert found.text == "Assistant: three [redacted:toy]\n\nAssistant: four"
    assert (found.since, found.truncated, found.cut) == (True, False, False)
    assert found.redactions == {"toy": 1}  # of what is sent
    assert [one.text for one in found.sections][:2] == ["one [redacted:toy].", "two"]


def test_nothing_new_is_everything() -> None:
    """A forced run with nothing new describes it all."""
    found = made(["one", "two"], [])
    assert (found.text, found.since) == ("User: one\n\nUser: two", False)


def test_a_secret_across_the_border_sends_all_of_it_redacted() -> None:
    """S2.21: alone, its second half would not be known for what it is."""
    found = made(["a KEY"], ["12345 b"])
    assert "12345" not in found.text
    assert not found.since


def test_whether_history_is_cut_is_said_of_all_of_it() -> None:
    """The new part fits, the old one does not: what is sent is whole, the history is not."""
    found = made(["x" * 4096, "y" * 4096], ["new"])
    assert (found.text, found.since, found.truncated, found.cut) == (
        "Assistant: new",
        True,
        False,
        True,
    )
    long = made(["old"], ["x" * 300, "y" * 300])
    assert (long.since, long.truncated, long.cut) == (True, True, True)
    assert "old" not in long.text


words = st.lists(
    st.sampled_from(["KEY", "123", "User:", "Assistant:", "text", "\n\n", "\n", "x" * 90, "é"]),
    max_size=8,
).map(" ".join)


@given(st.lists(words, max_size=4), st.lists(words, max_size=4))
@example(["KEY"], ["1 KEY", "2"])
def test_what_is_sent_is_an_end_of_the_redacted_whole(old: list[str], new: list[str]) -> None:
    """S2.21: whatever the border cuts, nothing is sent that redaction of the whole took out."""
    sections = [Section("user", text, old=True) for text in old]
    sections += [Section("assistant", text) for text in new]
    found = assemble(reversed(sections), Caps(10_000, 10_000), toy)
    whole, _ = toy(render(sections))
    assert whole.endswith(found.text)
    if found.since:
        assert found.text == toy(render(one for one in sections if not one.old))[0]
    else:
        assert found.text == whole
