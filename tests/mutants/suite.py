"""Runs tests in forked children of one warm process, each with one source file changed.

The parent has loaded pytest, hypothesis, the libraries and indexerd's lowest floor, which nothing
here changes; a child loads the tests and the rest anew, with one file's source replaced in
memory. So what a module does when it is loaded is changed like everything else, no changed file
is ever on a disk, and no child knows of another. Hypothesis is derandomised, finds as many
examples as in the suite, and does not shrink. What a child may use of the processor is bounded,
not its time: on a busy machine a mutant is not killed by its neighbours.

Only tests in the same process can kill: the programs that a test starts are unchanged ones.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase

FLOOR = tuple(f"indexerd.{one}" for one in ("errors", "events", "meta", "settings", "paths"))
OPTIONS = (
    *("-q", "-x", "--no-header", "-p", "no:randomly", "-p", "no:xdist", "-o", "timeout=0"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # the warm libraries of `prepare`
)
PASSED, FAILED, NO_TESTS = 0, (1, 2, 3), 5  # pytest's codes; 2 and 3: a module cannot be loaded
MEMORY = 6 << 30  # bytes of a child
PROFILE = "mutants"


def prepare(root: Path) -> None:
    """Load what no mutant can change."""
    os.chdir(root)
    os.environ["HYPOTHESIS_PROFILE"] = PROFILE
    sys.path.insert(0, str(root))
    hypothesis.settings.register_profile(
        PROFILE,
        deadline=None,
        max_examples=50,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    for library in ("msgspec", "rapidfuzz.process", "hypothesis.stateful", *FLOOR):
        importlib.import_module(library)
    out = os.dup(1)  # pytest loads its plugins, and tells that there is nothing to do
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    pytest.main([*OPTIONS, "--collect-only", "--deselect", "tests", "tests/mutants"])
    sys.stdout.flush()
    os.dup2(out, 1)
    for number in (out, nothing):
        os.close(number)


def in_child(work: Callable[[int], None], *, seconds: float | None = None) -> tuple[int, int]:
    """Fork, and let the child work; its process id, and where its words can be read."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child:
        os.close(writer)
        return child, reader
    os.close(reader)
    code = 70
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nothing, number)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if seconds is not None:
            limit = int(seconds) + 1
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        work(writer)
        code = 0
    finally:
        os._exit(code)


@dataclass(frozen=True)
class Changed:
    """A module with another source than its file's."""

    module: str
    file: Path
    source: str


def start(change: Changed, tests: Sequence[str], *, seconds: float) -> tuple[int, int]:
    """Start a child that runs these tests, in this order up to the first that fails.

    Its process id, and a pipe's end with pytest's code and the test's name.
    """

    def work(writer: int) -> None:
        sys.meta_path.insert(0, _Finder(change))
        chosen = _Chosen(tests)
        try:
            code = int(pytest.main([*OPTIONS, *chosen.files()], plugins=[chosen]))
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - anything may come of a change
            code, chosen.failed = FAILED[0], type(error).__name__
        os.write(writer, json.dumps([code, chosen.failed]).encode())

    return in_child(work, seconds=seconds)


class _Chosen:
    """A pytest plugin: these tests only, in this order; which of them failed."""

    def __init__(self, tests: Sequence[str]) -> None:
        self._places = {test: place for place, test in enumerate(tests)}
        self.failed = ""

    def files(self) -> list[str]:
        """Where they are."""
        return list(dict.fromkeys(test.partition("::")[0] for test in self._places))

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self._places),
            key=lambda item: self._places[item.nodeid],
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed = f"{report.nodeid} (cannot be loaded)"


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module, with its other source."""

    def __init__(self, change: Changed) -> None:
        self._change = change

    def find_spec(self, fullname: str, path: object, target: object = None) -> Any:
        """The module's place, if it is that one."""
        if fullname != self._change.module:
            return None
        loader = _Loader(fullname, self._change)
        return importlib.util.spec_from_file_location(fullname, loader.path, loader=loader)


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, change: Changed) -> None:
        super().__init__(fullname, str(change.file))
        self._source = change.source

    def get_code(self, fullname: str) -> CodeType:
        """Of the other source."""
        return compile(self._source, self.path, "exec", dont_inherit=True)
