"""The last row of the books torn anywhere: more may be booked than was spent, and never less."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from indexerd.errors import ProviderError
from indexerd.events import Prompt
from indexerd.models.base import Reply, Tokens
from indexerd.models.budget import Purse
from indexerd.models.journal import Journal
from indexerd.models.scripted import Scripted
from indexerd.models.treasury import Treasury
from indexerd.settings import Settings

T0 = 1_700_000_000.0
FLASH = "gemini-3.5-flash-lite"
PROMPT = Prompt("", "Describe this.", {}, 100)


class Spender:
    """Books, and a provider that does its work and keeps a bill."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bill: list[tuple[int, float]] = []  # rows whole before a call, and its price
        self.treasury = Treasury(Journal(path), Settings, lambda: T0, lambda _event, _told: None)
        self.treasury.load()
        self.model = Scripted([], key=f"google/{FLASH}")

    async def spend(self) -> None:
        """A call that is answered, one that fails, and one that nobody hears of again."""
        ticket = await self.treasury.admit(self.model, PROMPT)
        self._called(0.000345)
        tokens = Tokens(input=400, output=90)
        await self.treasury.settle(ticket, self.model, Reply("{}", FLASH, tokens=tokens))
        ticket = await self.treasury.admit(self.model, PROMPT)
        self._called(0.0)
        bad = ProviderError("429", retry_after=60.0, throttled=True)
        await self.treasury.failed(ticket, self.model, bad)
        self.treasury.breakers.clear()
        ticket = await self.treasury.admit(self.model, PROMPT)
        assert ticket is not None
        self._called(ticket.usd or 0.0)

    def _called(self, price: float) -> None:
        self.bill.append((self.path.read_bytes().count(b"\n"), price))


def test_a_torn_last_row_is_never_a_dollar_less(tmp_path: Path) -> None:
    """M15, A2: wherever it is cut, with and without what a crash leaves there, all is booked.

    A call is made once its row is whole, and is booked as cheaper only once that row is whole, too.
    """
    spender = Spender(tmp_path / "whole")
    asyncio.run(spender.spend())
    data = spender.path.read_bytes()
    assert [rows for rows, _ in spender.bill] == [1, 3, 6]
    path = tmp_path / "torn"
    ends = [at for at in range(len(data) + 1) if data[at - 1 : at + 1].count(b"\n")]
    for length in sorted({*range(0, len(data), 11), *ends, len(data)}):
        whole = data[:length].count(b"\n")
        spent = [price for rows, price in spender.bill if rows <= whole]
        for left in (b"", b"\0" * 512, b"\n"):
            path.write_bytes(data[:length] + left)
            purse = Purse.of(Journal(path).rows())
            assert purse.calls >= len(spent), (length, left)
            assert purse.usd >= sum(spent) - 1e-12, (length, left)


def test_books_go_on_behind_a_torn_row(tmp_path: Path) -> None:
    """M15: the next daemon books what it spends on a line of its own, whatever it found."""
    path = tmp_path / "budget.jsonl"
    first = Spender(path)
    asyncio.run(first.spend())
    data = path.read_bytes()
    path.write_bytes(data[:-20])
    before = Purse.of(Journal(path).rows())
    second = Spender(path)
    second.treasury.breakers.clear()
    asyncio.run(second.spend())
    after = Purse.of(Journal(path).rows())
    assert after.calls == before.calls + 3
    assert after.usd == pytest.approx(before.usd + sum(price for _, price in second.bill))
