"""Whatever happens to three machines and their connections: in the end each shows the same."""

from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from indexerd.fleet import outbox, server
from tests.fleet.machines import Peer, peers
from tests.fleet.postgres import Postgres

MACHINES = st.integers(0, 2)
NUMBERS = st.integers(0, 2)
CUTS = st.sampled_from(["", "", "before", "after", "pull", "index"])


class Machines(RuleBasedStateMachine):
    """`Peer.own` and `hidden` are the model: what each machine's files and settings say."""

    url = ""

    def __init__(self) -> None:
        super().__init__()
        self._open = ExitStack()
        self.peers = self._open.enter_context(peers(self.url, 3))
        self.purged: set[str] = set()
        self.count = 0
        for machine in range(3):
            for number in range(3):
                self.write(machine, number, 2, replace=False)
            self.peers[machine].sync()

    def _key(self, machine: int, number: int) -> str:
        """Each machine has three sessions; the last one is also on the others."""
        return f"s{number}-{machine if number < 2 else 'all'}"

    def _texts(self, count: int) -> list[str]:
        self.count += 1
        return [f"word{self.count}x{n}" for n in range(count)]

    @rule(machine=MACHINES, number=NUMBERS, more=st.integers(0, 3), replace=st.booleans())
    def write(self, machine: int, number: int, more: int, replace: bool) -> None:
        peer, key = self.peers[machine], self._key(machine, number)
        if key in peer.purged:
            return
        old = [] if replace else peer.own.get(key, ({}, list[str]()))[1]
        texts = [*old, *self._texts(more)]
        peer.put(key, f"Name {self.count}", texts, replace=replace)

    @rule(machine=MACHINES, of=MACHINES, number=NUMBERS)
    def exclude(self, machine: int, of: int, number: int) -> None:
        self.peers[machine].hide(self._key(of, number))

    @rule(machine=MACHINES, of=MACHINES, number=NUMBERS)
    def include(self, machine: int, of: int, number: int) -> None:
        self.peers[machine].show(self._key(of, number))

    @rule(machine=MACHINES, of=MACHINES, number=NUMBERS)
    def purge(self, machine: int, of: int, number: int) -> None:
        peer, key = self.peers[machine], self._key(of, number)
        if peer.store.get(key):
            peer.purge(key)
            self.purged.add(key)

    @rule(machine=MACHINES, on=st.booleans())
    def switch_text(self, machine: int, on: bool) -> None:
        self.peers[machine].text = on

    @rule(order=st.lists(st.tuples(MACHINES, CUTS), min_size=1, max_size=3))
    def sync(self, order: list[tuple[int, str]]) -> None:
        for machine, cut in order:
            self.peers[machine].sync(cut)

    @rule(machine=MACHINES)
    def lose_store(self, machine: int) -> None:
        self.peers[machine].lose_store()

    @rule(machine=MACHINES, during=st.lists(st.integers(0, 2), max_size=2))
    def restore(self, machine: int, during: list[int]) -> None:
        """Restore a backup of the store; others remove the name that is left behind."""
        peer, old = self.peers[machine], self.peers[machine].identity
        saved = peer.save()
        for number in during:
            self.write(machine, number, 1, replace=False)
        peer.sync()
        peer.lose_store(saved)
        peer.sync()
        if peer.identity.machine != old.machine:
            other = self.peers[(machine + 1) % 3]
            other.sync()
            other.do(other.machine.remove(old.machine))

    def teardown(self) -> None:
        try:
            self._check()
        finally:
            self._open.close()

    def _check(self) -> None:
        for _ in range(3):  # what one tells about another's purge needs a second round
            for peer in self.peers:
                peer.sync()
        order = {member.machine: member.number for member in self.peers[0].machine.members}
        latest = sorted(self.peers, key=lambda peer: -order[peer.identity.machine])
        for peer in self.peers:
            assert peer.shows() == self._wanted(peer, latest)

    def _wanted(self, peer: Peer, latest: list[Peer]) -> dict[str, Any]:
        wanted: dict[str, Any] = {}
        for other in (peer, *latest):
            for key, (row, texts) in other.own.items():
                if key in self.purged or key in other.hidden or key in peer.hidden:
                    continue
                name, own = other.identity.name, other is peer
                seen = texts if own or other.text else []
                wanted.setdefault(key, ("" if own else name, row["name"], seen))
        return wanted


@pytest.mark.faults
@pytest.mark.timeout(240)
def test_three_machines_converge_whatever_is_interrupted(
    pg: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "PAGE_RECORDS", 3)  # many pages and batches
    monkeypatch.setattr(outbox, "BATCH_RECORDS", 4)
    Machines.url = pg.url
    run_state_machine_as_test(
        Machines,
        settings=settings(
            max_examples=10,
            stateful_step_count=30,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=[*HealthCheck],
            phases=[Phase.generate],
        ),
    )
