"""A real process that keeps our books, caches and files step by step, to be ended at any of them.

It serves the jobs below as `writer_driver` does; crash_journeys.py has what is done in them.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from indexerd.sources import memory
from tests.meta.writer_driver import main
from tests.models.crash_journeys import JOURNEYS, Journey, note


def _of(job: dict[str, Any]) -> tuple[Journey, Path, Path]:
    return JOURNEYS[job["journey"]], Path(job["dir"]), Path(job["beside"])


def prepare(job: dict[str, Any]) -> None:
    """Make a directory as it is before."""
    journey, directory, beside = _of(job)
    directory.mkdir(parents=True, exist_ok=True)
    journey.prepare(directory, beside)


def travel(job: dict[str, Any]) -> None:
    """Do what is to be done, and note each promise."""
    journey, directory, beside = _of(job)
    for _ in journey.steps(directory, beside):
        note(beside / "promised", "+")


def look(job: dict[str, Any]) -> dict[str, Any]:
    """Say what is there; what is torn is said, too."""
    journey, directory, beside = _of(job)
    try:
        found: dict[str, Any] = journey.look(directory, beside)
    except Exception as bad:  # noqa: BLE001 - it is the finding
        return {"torn": f"{type(bad).__name__}: {bad}"}
    return found


def copied(job: dict[str, Any]) -> None:
    """Copy a directory to where it is to be damaged, and have it on the disk."""
    shutil.copytree(job["from"], job["dir"])
    subprocess.run(["sync", "-f", job["dir"]], check=True)


def mounted(job: dict[str, Any]) -> bool:
    """Mount an image for the driver and its children alone; says whether that can be done here."""
    command = ["mount", "-o", f"loop,{job['options']}", job["image"], job["dir"]]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def unmounted(job: dict[str, Any]) -> None:
    """Take it away again."""
    subprocess.run(["umount", job["dir"]], check=True)


async def inline(work: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Instead of `asyncio.to_thread`: calls of one thread can be numbered."""
    return work(*args, **named)


def _warm() -> None:
    """Import what is imported late, so that no child has to."""
    for name in JOURNEYS:
        with tempfile.TemporaryDirectory() as place:
            job = {"journey": name, "dir": f"{place}/dir", "beside": place}
            prepare(job)
            travel(job)
            found = look(job)
            assert "torn" not in found, found


if __name__ == "__main__":
    asyncio.to_thread = inline  # type: ignore[assignment]  # see there
    memory.STATES_KEPT = 1  # states go to sleep in the middle of a scan
    memory.SOME_MORE = 0
    _warm()
    main(globals())
