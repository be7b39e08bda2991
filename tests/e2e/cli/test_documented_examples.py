"""The examples of the documents, run as they are printed, in a home with a session of pi's."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.e2e.references.expanding import add
from tests.e2e.world import ROOT, World, until

DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCES = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
TYPED = re.compile(r"^\$ indexerd ((?:expand|complete|ask|history) .*)$", re.MULTILINE)
NAME = "Confirm button refactor"
SOCKET = "/run/user/1000/indexerd/indexerd.sock"


def examples(kind: str) -> list[str]:
    return [
        text for path in DOCS for lang, text in FENCES.findall(path.read_text()) if lang == kind
    ]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, str]]:
    world = World(tmp_path_factory.mktemp("documents"))
    world.install_pi()
    add(world, "Parser", turns=2)
    name = add(world, NAME, turns=2, tags=["ticket:ABC-123", "a", "b"])
    with world.daemon():
        until(lambda: world.row(name).get("name") == NAME, "the session")
        yield world, name


def run(world: World, *argv: str, stdin: str = "") -> str:
    done = subprocess.run(
        argv,
        env=world.env,
        cwd=world.metas,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, (argv, done.stderr)
    return done.stdout


def test_the_client_of_the_protocols_document_runs(running: tuple[World, str]) -> None:
    """A program that resolves a name and asks for the session, in Python (S1.46)."""
    world, _ = running
    programs = [one for one in examples("python") if "indexerd.client" in one]
    assert programs
    for program in programs:
        assert SOCKET in program
        said = run(world, sys.executable, "-c", program.replace(SOCKET, str(world.socket)))
        assert "pi --session " in said


def test_commands_around_a_prompt_run(running: tuple[World, str]) -> None:
    """Injecting messages, completing, asking, and reading what was compacted (S1.46)."""
    world, _ = running
    typed = TYPED.findall("\n".join(examples("console")))
    assert {one.split()[0] for one in typed} >= {"expand", "complete", "ask", "history"}
    for line in typed:
        words = shlex.split(line.partition("  #")[0].partition(" < ")[0])
        if not re.search("conf|@@", line):
            continue  # about a session that only the document knows
        said = run(world, sys.executable, "-m", "indexerd", *words, stdin="as in @@confirm-button")
        assert said.strip(), line
        if words[0] == "expand":
            assert NAME in said


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_the_readers_of_meta_files_run(running: tuple[World, str]) -> None:
    """Each jq program of the documents reads the files of the older extension's format (S1.46)."""
    world, name = running
    (world.metas / f"{name}.user.json").write_text(
        json.dumps({"title": "Mine", "labels": {}, "context": {}})
    )
    programs = [one for one in examples("sh") if one.startswith("jq ") and "meta.json" in one]
    assert len(programs) >= 3
    said = "".join(run(world, "sh", "-c", one) for one in programs)
    assert f"# {NAME}" in said
    assert "2026-11-01T11:00:00.000Z" in said
