"""Judges mutants: which tests are run for each, in what order, and what became of it.

A mutant's tests are those that reach its statement; for what is done when a module is loaded,
those that call anything of the module or of one that imports from it, and those in files that
import it. The likeliest to fail come first, in a child process of their own, so that few mutants
need the others. A mutant whose tests do not end has been noticed too: a suite that hangs is a
suite that fails.
"""

from __future__ import annotations

import difflib
import json
import os
import select
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants import suite
from tests.mutants.covering import Covered
from tests.mutants.making import Mutant, Mutants
from tests.mutants.recording import NOTICED, UNNOTICED, Judged

EVERYTHING = ("known_answers", "wrong_types")  # files of tests that reach nearly all, quickly
ALLOWANCE, FACTOR = 20.0, 5.0  # seconds of processor for a child, and per second it usually takes
PATIENCE = 900.0  # seconds by the clock, for one child on the busiest machine


@dataclass
class _Case:
    mutant: Mutant
    stages: list[list[str]]  # of tests, still to be run
    tried: bool = False


class Judge:
    """Tells the fate of mutants, with so many children at a time."""

    def __init__(
        self, root: Path, files: Mapping[str, Mutants], covered: Covered, jobs: int
    ) -> None:
        self._root, self._files, self._covered, self._jobs = root, files, covered, jobs
        self._texts = {path: (root / path).read_text() for path in covered.lines}
        self._tests: dict[str, list[str]] = {}  # by their file
        for test in covered.seconds:
            self._tests.setdefault(test.partition("::")[0], []).append(test)
        self._named = {path: (root / path).read_text() for path in self._tests}

    def fates(self, mutants: Sequence[Mutant]) -> Iterator[Judged]:
        """Each mutant's, as soon as it is known."""
        waiting = [_Case(one, self._stages(one)) for one in reversed(mutants)]
        running: dict[int, tuple[int, float, _Case]] = {}  # by the pipe's end: child, begin
        while waiting or running:
            while waiting and len(running) < self._jobs:
                case = waiting.pop()
                if case.stages:
                    child, reader = self._start(case)
                    running[reader] = (child, time.monotonic(), case)
                else:
                    yield self._judged(case.mutant, UNNOTICED[not case.tried])
            for reader in _ended(running):
                child, _, case = running.pop(reader)
                status, by = _fate(child, reader)
                if status in NOTICED:
                    yield self._judged(case.mutant, status, by)
                else:
                    waiting.append(_Case(case.mutant, case.stages[1:], tried=True))

    def _stages(self, mutant: Mutant) -> list[list[str]]:
        tests = self._covered.of_lines(mutant.path, *mutant.lines)
        if mutant.loading or not tests:  # or in a function that a module calls as it is loaded
            modules = [mutant.path, *_importing(self._texts, mutant.path)]
            tests = {test for path in modules for test in self._covered.of_file(path)}
            tests.update(*(self._tests[file] for file in _importing(self._named, mutant.path)))
        return stages(mutant.path, tests, self._covered.seconds)

    def _start(self, case: _Case) -> tuple[int, int]:
        tests, path = case.stages[0], case.mutant.path
        usual = sum(self._covered.seconds[test] for test in tests)
        source = self._files[path].source(case.mutant)
        change = suite.Changed(module_of(path), self._root / path, source)
        return suite.start(change, tests, seconds=ALLOWANCE + FACTOR * usual)

    def _judged(self, mutant: Mutant, status: str, by: str = "") -> Judged:
        diff = difference(self._files[mutant.path], mutant)
        return Judged(mutant.name, mutant.operator, status, by, diff)


def difference(file: Mutants, mutant: Mutant) -> str:
    """The lines that a mutant changes."""
    lines = difflib.unified_diff(
        file.original.splitlines(), file.source(mutant).splitlines(), n=0, lineterm=""
    )
    return "\n".join(line for line in lines if line[:3] not in {"---", "+++"})


def stages(path: str, tests: set[str], seconds: Mapping[str, float]) -> list[list[str]]:
    """The tests in three goes: in the file named like the source; in EVERYTHING; in others.

    In each the quick ones come first, and those of the same area.
    """
    stem = Path(path).stem
    area = path.split("/")[2].removesuffix(".py")
    goes: tuple[list[str], ...] = ([], [], [])
    for test in sorted(tests, key=lambda test: (seconds[test], test)):
        file = test.partition("::")[0]
        everything = any(one in file for one in EVERYTHING)
        goes[1 if everything else 0 if stem in file or area in file else 2].append(test)
    return [go for go in goes if go]


def _importing(texts: Mapping[str, str], path: str) -> Iterator[str]:
    """The files, of these with their texts, that import another."""
    module = module_of(path)
    parent, _, name = module.rpartition(".")
    words = (f"from {module} import", f"from {parent} import {name}", f"import {module}")
    for other, text in texts.items():
        if other != path and any(word in text for word in words):
            yield other


def module_of(path: str) -> str:
    """The name under which a file is imported."""
    return path.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")


def _ended(running: Mapping[int, tuple[int, float, _Case]]) -> list[int]:
    """The pipes of children that have ended; those that never will are ended."""
    ready, _, _ = select.select(list(running), [], [], 5.0) if running else ([], [], [])
    for child, begun, _ in running.values():
        if time.monotonic() - begun > PATIENCE:
            os.kill(child, signal.SIGKILL)
    return ready


def _fate(child: int, reader: int) -> tuple[str, str]:
    """What a child says, or how it ended."""
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in {signal.SIGXCPU, signal.SIGKILL}:
        return "timed out", ""
    if not told:
        return "killed", "the tests' process ended"
    code, by = json.loads(told)
    if code == suite.PASSED:
        return "survived", ""
    if code in suite.FAILED:
        return "killed", by
    raise SystemExit(f"pytest could not be run: {code} {by}")
