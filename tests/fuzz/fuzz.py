"""Long runs of one fuzz target, guided by the code that its inputs reach. By hand, with atheris.

    python tests/fuzz/fuzz.py NAME [--seconds 60] [--tile] [--keep]

A finding (an error that is not promised, or more than `SLOW` seconds of processor time) is put
into the target's corpus as `found-…`, where the suite fails on it until it is mended; the run goes
on. `--tile` repeats each input up to 64 KiB: what is not linear shows. `--keep` puts into the
corpus the inputs that reached code that nothing there had reached, the smallest that do.

The run itself is another process: libFuzzer ends its own as it likes.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

SLOW = 1.0  # seconds of processor time for one input
INSTRUMENTED = 3  # so many times slower it is while being watched
TILED = 64 * 1024  # bytes
KEPT_MAX = 30  # files that a run may leave in a corpus, with those of earlier runs
_Arc = tuple[str, int, int]


def main() -> int:
    """Run a target, say what was found, and keep what is worth it."""
    given = _arguments()
    if given.child:
        _fuzz(given)
        return 0
    from tests.fuzz.targets import CORPUS, TARGETS, corpus

    if given.name not in TARGETS:
        print(f"no such target; there are: {', '.join(TARGETS)}")
        return 2
    try:
        import atheris  # type: ignore[import-untyped]  # noqa: F401 - the child needs it
    except ImportError:
        print("atheris is not installed: `pip install atheris` (no requirement of indexerd's),")
        print("or run the suite's part: HYPOTHESIS_PROFILE=thorough pytest tests/fuzz")
        return 2
    before = {path.name for path in corpus(given.name)}
    with tempfile.TemporaryDirectory(prefix="indexerd-fuzz-") as work:
        command = [sys.executable, *sys.argv, "--child", work]
        ended = subprocess.run(command, check=False, cwd=ROOT).returncode
        if given.keep:
            _keep(TARGETS[given.name], CORPUS / given.name, Path(work))
    found = [path for path in corpus(given.name) if path.name not in before]
    for path in found:
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes")
    return 1 if ended or any(path.name.startswith("found-") for path in found) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("name")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--tile", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def _fuzz(given: argparse.Namespace) -> None:
    """The child: libFuzzer, the target, and a note of each new kind of finding."""
    import atheris

    with atheris.instrument_imports(include=["indexerd"]):
        from tests.fuzz.targets import CORPUS, FILE_MAX, TARGETS
    folder = CORPUS / given.name
    folder.mkdir(parents=True, exist_ok=True)
    target, known = TARGETS[given.name], set[Any]()

    def one(data: bytes) -> None:
        what = data * (TILED // len(data)) if given.tile and data else data
        begun = time.process_time()
        told: Any = None
        try:
            target(what)
        except Exception as error:  # noqa: BLE001 - whatever it is: it is a finding
            frame = traceback.extract_tb(error.__traceback__)[-1]
            told = (type(error).__name__, frame.filename, frame.lineno)
        if time.process_time() - begun > SLOW * INSTRUMENTED:
            told = ("slow", "", len(data).bit_length())
        if told and told not in known:
            known.add(told)
            name = f"found-{hashlib.sha256(data).hexdigest()[:8]}"
            print(f"{given.name}: {told}: {name}, {len(data)} bytes", flush=True)
            (folder / name).write_bytes(data)

    told = [f"-max_total_time={given.seconds}", f"-max_len={FILE_MAX}", "-timeout=60"]
    quiet = ["-verbosity=0", "-print_final_stats=1", f"-artifact_prefix={folder}/found-"]
    atheris.Setup([sys.argv[0], given.child, str(folder), *told, *quiet], one)
    atheris.Fuzz()


def _keep(target: Callable[[bytes], None], folder: Path, work: Path) -> None:
    """Copy the smallest inputs that reach what the corpus does not, best first, up to KEPT_MAX."""
    old = sorted(folder.glob("*"))
    reached = set[_Arc]().union(*(_arcs(target, path.read_bytes()) for path in old))
    fresh: list[tuple[bytes, set[_Arc]]] = []
    seen = set(reached)
    for path in sorted(work.glob("*"), key=lambda one: one.stat().st_size):
        arcs = _arcs(target, data := path.read_bytes())
        if arcs - seen:
            seen |= arcs
            fresh.append((data, arcs))
    room = KEPT_MAX - sum(path.name.startswith("kept-") for path in old)
    while fresh and room > 0:
        data, arcs = max(fresh, key=lambda one: len(one[1] - reached))
        if not arcs - reached:
            break
        reached |= arcs
        (folder / f"kept-{hashlib.sha256(data).hexdigest()[:8]}").write_bytes(data)
        room -= 1


def _arcs(target: Callable[[bytes], None], data: bytes) -> set[_Arc]:
    """The steps from line to line, in indexerd alone, that an input makes."""
    found: set[_Arc] = set()
    last: dict[int, int] = {}

    def step(frame: FrameType, event: str, _told: Any) -> Any:
        if event == "call":
            if "/indexerd/" not in frame.f_code.co_filename:
                return None
            last[id(frame)] = 0
        elif event == "line":
            was, now = last.get(id(frame), 0), frame.f_lineno
            found.add((frame.f_code.co_filename, was, now))
            last[id(frame)] = now
        return step

    sys.settrace(step)
    try:
        target(data)
    except Exception:  # noqa: BLE001 - a finding is told elsewhere
        return set()
    finally:
        sys.settrace(None)
    return found


if __name__ == "__main__":
    sys.exit(main())
