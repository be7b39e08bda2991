"""The moment at which the home page is looked at, and a text that no page may take for its own."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import strategies as st

HOUR, DAY = 3600, 86_400
NOW = datetime(2026, 11, 19, 12, 0, tzinfo=UTC).timestamp()  # a Thursday
HOSTILE = st.text(st.characters(), max_size=60) | st.sampled_from(
    ["\x1b]0;pwn\x07", "\ud800", "a&b=c#d?e", "../..", "\u202egnp.exe", "<b>", "'\"", "\x00", "«"]
)


def utc(_seconds: float) -> int:
    """Local time is UTC."""
    return 0
