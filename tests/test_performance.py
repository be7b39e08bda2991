"""What docs/PERFORMANCE.md says is what was measured, and benchmarks tell it in one way."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
BENCH = ROOT / "bench"


def loaded(name: str) -> ModuleType:
    """A module of the benchmarks, which are no package."""
    spec = importlib.util.spec_from_file_location(f"bench_{name}", BENCH / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that makes the document, and what it imports."""
    monkeypatch.syspath_prepend(BENCH)
    return loaded("report")


@pytest.fixture
def measure() -> Iterator[ModuleType]:
    """The module that all benchmarks share."""
    path = list(sys.path)
    yield loaded("measure")
    sys.path[:] = path


def test_the_document_is_made_of_the_stored_figures(report: ModuleType) -> None:
    """docs/PERFORMANCE.md: no figure in it was written by hand; `make bench-write` makes it."""
    held = (ROOT / "docs/PERFORMANCE.md").read_text()
    results = json.loads((BENCH / "results.json").read_text())
    assert report.document(results, held) == held


def test_what_is_missed_has_a_reason(report: ModuleType) -> None:
    """Issue 9: a promise that is missed stands in the document with what is known of it."""
    results = json.loads((BENCH / "results.json").read_text())
    told = "\n".join(report.missed(results))
    assert "| not looked into |" not in told
    one = {"name": "a look-up", "value": 9, "target": "≤ 5 ms", "met": False}
    odd = {"benches": [{"name": "none", "figures": [one, one | {"met": True}]}]}
    rows = list(report.missed(odd))[3:]
    assert rows == ["| a look-up | 9 |  | ≤ 5 ms | not looked into |"]


def test_what_is_stored_was_whole() -> None:
    """Issue 9: every stored figure is of a script that is there, and that ended well."""
    results = json.loads((BENCH / "results.json").read_text())
    scripts = {one.stem.removeprefix("bench_") for one in BENCH.glob("bench_*.py")}
    assert {one["name"] for one in results["benches"]} <= scripts
    assert [one["name"] for one in results["benches"] if one.get("broken")] == []


def test_every_stored_figure_stands_beside_something() -> None:
    """Issue 9: a limit or a peer of the same run, as a ratio; what has none says why."""
    results = json.loads((BENCH / "results.json").read_text())
    figures = [one for bench in results["benches"] for one in bench["figures"]]
    assert [one["name"] for one in figures if "ratio" not in one and not one.get("alone")] == []
    alone = [one for one in figures if one.get("alone")]
    assert len(alone) < len(figures) / 4


def test_a_figure_beside_nothing_is_refused(measure: ModuleType) -> None:
    """Issue 9: no benchmark can add one; a ratio that is not given is that of the two values."""
    bench = measure.Bench("none", "None", [])
    with pytest.raises(ValueError, match="a look-up: beside what"):
        bench.add("a look-up", 3.0, "ms")
    assert bench.figures == []
    assert bench.add("a look-up", 3.0, "ms", limit="an echo", floor=2.0).ratio == 1.5
    assert bench.add("a look-up", 3.0, "ms", limit="an echo", floor=2.0, ratio=1.4).ratio == 1.4
    assert bench.add("an exponent", 1.0, "", alone="an exponent").ratio is None


@pytest.mark.parametrize("safe", ["", "1"])
def test_benchmarks_run_wherever_python_looks_for_modules(safe: str) -> None:
    """Issue 9: with PYTHONSAFEPATH, too, where a script's own directory is not looked into."""
    env = {**os.environ, "PYTHONSAFEPATH": safe}
    argv = [sys.executable, str(BENCH / "run.py"), "--smoke", "--only", "write"]
    told = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert (told.returncode, "BROKEN" in told.stderr) == (0, False), told.stderr
    assert "meta writes, durable" in told.stdout


def test_a_promise_is_kept_or_missed(measure: ModuleType) -> None:
    """Targets are of the value or of its ratio to the limit, and at most or at least."""
    promise, figure = measure.Target, measure.Figure
    fast: dict[str, Any] = {"name": "x", "value": 4.0, "unit": "ms"}
    assert promise(5).met(figure(**fast))
    assert not promise(3).met(figure(**fast))
    assert promise(0.8, most=False, of="ratio").met(figure(**fast, ratio=0.9))
    assert not promise(0.8, most=False, of="ratio").met(figure(**fast))


def test_only_what_is_wrong_breaks_a_benchmark(measure: ModuleType, tmp_path: Path) -> None:
    """Issue 9: a slow machine is no error; a result that differs from the obvious way is one."""
    into = tmp_path / "figures.json"
    slow = measure.Bench("slow", "Slow", ["--json", str(into)])
    slow.add("a look-up", 70.0, "ms", limit="an echo", floor=2.0, target=measure.Target(5))
    slow.check("the answer is right", ok=True)
    assert slow.end() == 0
    told = json.loads(into.read_text())
    assert [one["met"] for one in told["figures"]] == [False]

    wrong = measure.Bench("wrong", "Wrong", ["--json", str(into)])
    wrong.check("the answer is right", ok=False)
    assert wrong.end() == 1
    assert json.loads(into.read_text())["broken"] == ["the answer is right"]


@pytest.mark.parametrize("whole", [True, False])
def test_what_did_not_run_keeps_its_figures(
    report: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, whole: bool
) -> None:
    """Issue 9: a script that broke, or had nothing to compare with, takes no figure away."""
    assert report is not None
    run = loaded("run")

    def bench(name: str, value: float, **more: Any) -> dict[str, Any]:
        figure = {"name": "a cost", "value": value, "unit": "ms"}
        return {"name": name, "title": name, "figures": [figure], "broken": [], "seconds": 1} | more

    machine = json.loads((BENCH / "results.json").read_text())["machine"]
    places = {"RESULTS": tmp_path / "results.json", "DOCUMENT": tmp_path / "doc.md"}
    for name, place in places.items():
        monkeypatch.setattr(run, name, place)
    places["DOCUMENT"].write_text((ROOT / "docs/PERFORMANCE.md").read_text())
    names = ("bad", "left", "none", "well")
    old = {"machine": machine, "benches": [bench(name, 1) for name in names]}
    places["RESULTS"].write_text(json.dumps(old))
    new = [bench("bad", 2, broken=["odd"]), bench("none", 2, figures=[]), bench("well", 2)]
    run.store({"machine": machine, "benches": new}, whole=whole)
    stored = json.loads(places["RESULTS"].read_text())["benches"]
    values = {one["name"]: one["figures"][0]["value"] for one in stored}
    assert values == {"bad": 1, "none": 1, "well": 2} | ({} if whole else {"left": 1})
