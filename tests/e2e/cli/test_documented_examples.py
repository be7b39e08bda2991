"""The examples in the documents run as printed, in a home with two pi sessions; the demo."""

import json
import re
import shlex
import shutil
import sys

import pytest

from tests.e2e.forked import ran
from tests.e2e.references.expanding import add
from tests.e2e.world import ROOT, World, listed

DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCES = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
TYPED = re.compile(r"^\$ indexerd ((?:expand|complete|ask|history) .*)$", re.MULTILINE)
NAME = "Confirm button refactor"
SOCKET = "/run/user/1000/indexerd/indexerd.sock"


def examples(kind: str) -> list[str]:
    return [
        text for path in DOCS for lang, text in FENCES.findall(path.read_text()) if lang == kind
    ]


def furnish(world: World) -> None:
    add(world, "Parser", turns=2)
    add(world, NAME, turns=2, tags=["ticket:ABC-123", "a", "b"])


def ready(world: World) -> bool:
    return len(listed(world)) == 2 and not world.call("status")["textPending"]


def run(world: World, *argv: str, stdin: str = "") -> str:
    done = ran(argv, stdin, env=world.env, cwd=world.metas)
    assert done.returncode == 0, (argv, done.stderr)
    return done.stdout


def test_the_documented_python_client_runs(running: World) -> None:
    """The Python program resolves a name and asks for its session (S1.46)."""
    programs = [example for example in examples("python") if "indexerd.client" in example]
    assert programs
    for program in programs:
        assert SOCKET in program
        output = run(running, sys.executable, "-c", program.replace(SOCKET, str(running.socket)))
        assert "pi --session " in output


def test_the_documented_commands_run(running: World) -> None:
    """expand, complete, ask and history run as documented (S1.46)."""
    typed = TYPED.findall("\n".join(examples("console")))
    assert {line.split()[0] for line in typed} >= {"expand", "complete", "ask", "history"}
    for line in typed:
        words = shlex.split(line.partition("  #")[0].partition(" < ")[0])
        if not re.search("conf|@@", line):
            continue  # names a session that only the document has
        output = run(
            running, sys.executable, "-m", "indexerd", *words, stdin="as in @@confirm-button"
        )
        assert output.strip(), line
        if words[0] == "expand":
            assert NAME in output


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_the_documented_jq_programs_run(running: World) -> None:
    """Each jq program of the documents reads meta files of the older extension's format (S1.46)."""
    named = running.call("resolve", ref=NAME)["sessionId"]
    sidecar = {"title": "Mine", "labels": {}, "context": {}}
    (running.metas / f"{named}.user.json").write_text(json.dumps(sidecar))
    programs = [text for text in examples("sh") if text.startswith("jq ") and "meta.json" in text]
    assert len(programs) >= 3
    output = "".join(run(running, "sh", "-c", program) for program in programs)
    assert f"# {NAME}" in output
    assert "2026-11-01T11:00:00.000Z" in output


def test_the_demo_prints_the_path_of_the_meta_file() -> None:
    """`make demo` prints the whole path, so that a reader can open the file."""
    done = ran([sys.executable, "tests/demo.py"], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    home = done.stdout.split("\n")[0].partition(" three pi sessions: ")[2]
    metas = re.escape(f"{home}/.pi/agent/sessions-meta/")
    assert re.search(rf"\n{metas}[0-9a-f-]{{36}}\.meta\.json:\n", done.stdout)
