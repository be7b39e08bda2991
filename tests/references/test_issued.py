"""Texts that stay as they were issued: kept in the ledger, bounded, no more than a cache."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from indexerd.references import issued
from indexerd.references.issued import TOPIC, Issued
from indexerd.store.ledger import Ledger


async def at_once(work: Callable[..., Any], *args: Any) -> Any:
    """Do the ledger's work here."""
    return work(*args)


def kept(path: Path) -> tuple[Ledger, Issued]:
    """A ledger, and what a new daemon knows of it."""
    times = iter(range(1, 10_000))
    ledger = Ledger(path / "ledger.sqlite")
    return ledger, Issued(ledger, at_once, lambda: float(next(times)))


def test_the_first_text_stays(tmp_path: Path) -> None:
    """S0.55: what was issued once is not replaced, and a restart does not forget it."""

    async def run() -> None:
        ledger, one = kept(tmp_path)
        await one.keep("asking", {"a": "first"})
        await one.keep("asking", {"a": "second", "b": "other"})
        assert await one.of("asking") == {"a": "first", "b": "other"}
        assert await one.of("another") == {}
        ledger.close()
        ledger, two = kept(tmp_path)
        assert await two.of("asking") == {"a": "first", "b": "other"}
        ledger.close()

    asyncio.run(run())


def test_what_cannot_be_read_counts_as_nothing(tmp_path: Path) -> None:
    """A note by another version, or by nobody, is no error."""

    async def run() -> None:
        ledger, one = kept(tmp_path)
        ledger.note(TOPIC, "asking", b"12345678\xff\xff")
        ledger.note(TOPIC, "short", b"1")
        assert await one.of("asking") == {}
        assert await one.of("short") == {}
        ledger.close()

    asyncio.run(run())


def test_it_is_bounded(tmp_path: Path, monkeypatch: Any) -> None:
    """The oldest sessions go, and of one session's texts the oldest."""
    monkeypatch.setattr(issued, "SESSIONS_MAX", 3)
    monkeypatch.setattr(issued, "EACH_MAX", 2)
    monkeypatch.setattr(issued, "_TRIM_EVERY", 1)

    async def run() -> None:
        ledger, one = kept(tmp_path)
        for name in "dbeac":
            await one.keep(name, {"x": "1"})
        assert set(ledger.notes(TOPIC)) == {"e", "a", "c"}
        await one.keep("c", {"y": "2", "z": "3"})
        assert await one.of("c") == {"y": "2", "z": "3"}
        ledger.close()

    asyncio.run(run())


def test_only_one_topic_is_trimmed(tmp_path: Path) -> None:
    """Other notes of the ledger are not concerned."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    for key in "abc":
        ledger.note("mine", key, key.encode())
        ledger.note("other", key, key.encode())
    ledger.trim("mine", 1)

    assert ledger.notes("mine") == {"c": b"c"}
    assert len(ledger.notes("other")) == 3
    assert ledger.noted("mine", "c") == b"c"
    assert ledger.noted("mine", "a") is None
    ledger.close()
