"""Connects the daemon and its fleet. Without a fleet, nothing of it is imported."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexerd.daemon.pipeline import Pipeline
from indexerd.daemon.purge import Purge
from indexerd.errors import IndexerdError, UsageError
from indexerd.protocol import params
from indexerd.settings import Settings

if TYPE_CHECKING:
    from indexerd.fleet.member import Machine

Row = dict[str, Any]


@dataclass(eq=False)
class FleetPart:
    """The fleet, for one daemon."""

    pipeline: Pipeline
    purge: Purge
    path: Path  # of fleet.json
    machine: Machine | None = None
    _missing: str = ""  # why the fleet cannot be loaded
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Take part in a fleet, as soon as there is one."""
        try:
            if self.path.exists():
                self._machine()
        except IndexerdError as bad:
            self._missing = f"{bad}; {bad.hint}" if bad.hint else str(bad)
            self.pipeline.bus.log("fleet.unreachable", {"reason": self._missing})
        await self._wanted.wait()
        await self.pipeline.scanned.wait()  # what is not found yet would be told to be gone
        await self._machine().run()

    async def command(self, args: params.Fleet) -> Row:
        """Do what `indexerd fleet` asks for, and return the fleet's status."""
        if args.do == "status" and not self.path.exists():
            return {"fleet": None, "machines": []}
        machine, target, answer = self._machine(), args.target or "", dict[str, Any]()
        await self.pipeline.scanned.wait()
        if args.do in ("init", "join", "remove") and not target:
            raise UsageError("target is required")
        match args.do:
            case "init":
                answer["code"] = await machine.init(target)
            case "join":
                await machine.join(target)
            case "rotate-key":
                answer["code"] = await machine.rotate_key()
            case "remove":
                await machine.remove(target)
            case "leave":
                answer["problem"] = await machine.leave() or None
        return await machine.status() | answer

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """Find why the fleet does not work: code, cause and cure."""
        trouble = self.machine.trouble if self.machine else self._missing
        if trouble:
            cure = "see `indexerd fleet status`; it is tried again, and nothing is lost"
            yield "fleet_unreachable", trouble, cure

    def reload(self, old: Settings) -> None:
        """Apply new settings: others' records are read again if they may change them."""
        if self.machine is not None:
            new = self.pipeline.settings
            applied = new.privacy.exclude, new.fleet.hosts
            self.machine.reloaded |= applied != (old.privacy.exclude, old.fleet.hosts)
            self.machine.wake.set()

    def _machine(self) -> Machine:
        if self.machine is None:
            try:
                from indexerd.fleet.identity import load  # noqa: PLC0415 - see above
                from indexerd.fleet.inbox import Inbox  # noqa: PLC0415 - see above
                from indexerd.fleet.member import DaemonSide, Machine  # noqa: PLC0415 - see above
                from indexerd.fleet.outbox import Outbox  # noqa: PLC0415 - see above
            except ImportError as bad:
                hint = "docs/FLEET.md says how to install it"
                raise UsageError(f"the fleet needs the package {bad.name}", hint=hint) from None
            pipeline, library = self.pipeline, self.pipeline.library
            parts = library.index, library.shared, self.purge.forgotten.agents
            text = lambda: pipeline.settings.fleet.text  # noqa: E731 - one line
            hides, hosts = library.files.exclusions.match, lambda: pipeline.settings.fleet.hosts
            self.machine = Machine(
                DaemonSide(
                    self.path,
                    settings=lambda: pipeline.settings.fleet,
                    run=pipeline.read,
                    outbox=Outbox(*parts, text),
                    inbox=Inbox(library.index, hides, hosts),
                    changed=pipeline.on_rows,
                    purge=self.purge.learn,
                    log=pipeline.bus.log,
                    defect=lambda bug: pipeline.bus.defect("fleet.unreachable", "", bug),
                ),
                load(self.path),
            )
            pipeline.bus.subscribe(self._on_event)
            pipeline.on_change = self.machine.wake.set
            self._wanted.set()
        return self.machine

    def _on_event(self, event: Row) -> None:
        """Wake the fleet when something happens here."""
        if self.machine is None:
            return
        wake = self.machine.wake.set
        if event["event"] == "digest.created" and self.machine.identity is not None:
            mark = self.machine.daemon.outbox.mark
            task = asyncio.ensure_future(self.pipeline.read(mark, event["sessionId"]))
            task.add_done_callback(lambda _: wake())
        wake()
