"""Which tests reach which lines of the core and the agents, and how long each takes.

The tests are run once, file by file, and what was found out is noted below `build/mutants`. A
note holds as long as its file of tests, the helpers that it names and the sources that it
reached are what they were: after a change only the files of tests that it touches are run again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import coverage
import pytest

from tests.mutants import suite

TESTS = ("tests/core", "tests/agents", "tests/fuzz", "tests/test_meta.py")
PACKAGES = ("indexerd/core", "indexerd/agents")


@dataclass(frozen=True)
class Covered:
    """Which tests reach which lines, and how many seconds each takes."""

    seconds: Mapping[str, float]  # of each test
    lines: Mapping[str, Mapping[int, Sequence[str]]]  # file, line, tests

    def of_lines(self, path: str, first: int, last: int) -> set[str]:
        """The tests that reach one of these lines."""
        here = self.lines.get(path, {})
        return {test for line in range(first, last + 1) for test in here.get(line, ())}

    def of_file(self, path: str) -> set[str]:
        """The tests that call anything of the file."""
        return {test for tests in self.lines.get(path, {}).values() for test in tests}


def cover(root: Path, notes: Path) -> Covered:
    """What all tests reach; SystemExit if one of them fails."""
    tree = _Tree(root)
    lines: dict[str, dict[int, list[str]]] = {}
    seconds: dict[str, float] = {}
    for name in tree.tests:
        note = notes / f"{name.replace('/', '-')}.json"
        held = json.loads(note.read_text()) if note.exists() else {}
        if not tree.holds(name, held):
            held = tree.note(name, _run(root, name))
            note.write_text(json.dumps(held))
        tests = held["tests"]
        seconds |= dict(zip(tests, held["seconds"], strict=True))
        for path, found in held["lines"].items():
            there = lines.setdefault(path, {})
            for line, places in found.items():
                there.setdefault(int(line), []).extend(tests[one] for one in places)
    return Covered(seconds, lines)


@dataclass
class _Tree:
    """The files as they are now."""

    root: Path
    _digests: dict[str, str] = field(default_factory=dict)

    @cached_property
    def tests(self) -> list[str]:
        """The files of tests."""
        return sorted(one for one in self._files(TESTS) if "/test_" in one)

    @cached_property
    def helpers(self) -> list[str]:
        """What those may import from beside them."""
        return sorted(one for one in self._files(TESTS) if "/test_" not in one)

    def holds(self, name: str, note: Mapping[str, Any]) -> bool:
        """Whether what a note says of a file of tests is still so."""
        return bool(note) and all(
            self.digest(path) == digest for path, digest in note["digests"].items()
        )

    def note(self, name: str, found: Mapping[str, Any]) -> dict[str, Any]:
        """What was found, with what it rests on."""
        text = (self.root / name).read_text()
        helpers = [one for one in self.helpers if Path(one).stem in text]
        paths = (name, "tests/conftest.py", *helpers, *found["lines"])
        return {**found, "digests": {path: self.digest(path) for path in paths}}

    def digest(self, path: str) -> str:
        """A file's, or "" for none."""
        if path not in self._digests:
            file = self.root / path
            data = file.read_bytes() if file.exists() else b""
            self._digests[path] = hashlib.sha256(data).hexdigest()[:16]
        return self._digests[path]

    def _files(self, places: Iterable[str]) -> Iterator[str]:
        for place in places:
            found = self.root / place
            for path in found.rglob("*.py") if found.is_dir() else [found]:
                yield str(path.relative_to(self.root))


def _run(root: Path, name: str) -> dict[str, Any]:
    def work(writer: int) -> None:
        watch = _Watch(root)
        code = pytest.main([*suite.OPTIONS, "-m", "not browser and not faults", name], [watch])
        with os.fdopen(writer, "w") as out:
            json.dump({"code": int(code), "failed": watch.failed, **watch.found()}, out)

    child, reader = suite.in_child(work)
    with os.fdopen(reader) as words:
        told = words.read()
    os.waitpid(child, 0)
    found: dict[str, Any] = json.loads(told) if told else {"code": "no", "failed": name}
    if found.pop("code") not in {suite.PASSED, suite.NO_TESTS}:
        raise SystemExit(f"tests fail before anything is changed: {found['failed']}")
    return found


class _Watch:
    """A pytest plugin: coverage, by test."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.failed: list[str] = []
        self.seconds: dict[str, float] = {}
        self._coverage = coverage.Coverage(
            data_file=None, config_file=False, include=[f"{root}/{one}/*" for one in PACKAGES]
        )
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self._coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0) + report.duration
        if report.failed:
            self.failed.append(report.nodeid)

    def found(self) -> dict[str, Any]:
        """Tests with their seconds, and per file and line the places of tests in that list."""
        self._coverage.stop()
        data = self._coverage.get_data()
        places = {test: place for place, test in enumerate(self.seconds)}
        lines = {
            str(Path(path).relative_to(self.root)): {
                line: sorted(places[test] for test in tests if test)
                for line, tests in data.contexts_by_lineno(path).items()
            }
            for path in data.measured_files()
        }
        return {"tests": list(places), "seconds": list(self.seconds.values()), "lines": lines}
