"""What agents' hooks call runs on the standard library, and says what the full command says."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.home import INDEXERD, Home

ROOT = Path(__file__).parents[2]
HEAVY = {
    "click", "google", "httpx2", "msgspec", "platformdirs", "pydantic", "rapidfuzz", "rich",
    "structlog", "watchdog",
}  # fmt: skip
OURS = {
    "indexerd", "indexerd.__main__", "indexerd.cli", "indexerd.cli.backend", "indexerd.cli.hook",
    "indexerd.client", "indexerd.errors",
}  # fmt: skip
FULL = ["--color", "never"]  # the same command, in a form that the fast path leaves alone

ASKED = {
    "found by its id": ["resolve", "c0ffee01-0000-4000-8000-000000000000"],
    "found by something like its name": ["resolve", "forecast"],
    "not found": ["resolve", "zebra"],
    "ambiguous": ["resolve", "deploy"],
    "no reference": ["resolve", ""],
    "too long a reference": ["resolve", "x" * 100_000],
    "candidates": ["complete"],
    "candidates of a prefix": ["complete", "tune"],
    "no candidates": ["complete", "zebra"],
    "references": ["expand", "as in @@forecast and @@deploy and @@zebra"],
    "references inline": ["expand", "--inline", "as in @@forecast", "--session", "asking"],
    "no references": ["expand", "nothing", "--cwd", "/"],
    "references of no directory": ["expand", "as in @@forecast", "--cwd", ""],
    "references of a directory": ["expand", "as in @@forecast", "--cwd", "work/../work/shop"],
}


def imports(home: Home, *argv: str) -> set[str]:
    def told(*words: str) -> set[str]:
        done = subprocess.run(
            [sys.executable, "-X", "importtime", *words],
            env=home.world.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=30,
            check=False,
        )
        lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
        return {line.rpartition("|")[2].strip() for line in lines[1:]}

    return told("-m", "indexerd", *argv) - told("-c", "pass")


@pytest.mark.parametrize(
    "name", ["found by its id", "not found", "ambiguous", "candidates", "references"]
)
@pytest.mark.parametrize("as_json", [False, True], ids=["plain", "json"])
def test_hooks_import_the_standard_library_only(home: Home, name: str, *, as_json: bool) -> None:
    """interfaces.md 4: nothing of anybody else's, and of ours only what the question needs."""
    loaded = imports(home, *ASKED[name], *(["--json"] if as_json else []))

    assert {one.partition(".")[0] for one in loaded} & HEAVY == set()
    foreign = {one.partition(".")[0] for one in loaded} - set(sys.stdlib_module_names)
    assert foreign - {"org"} == {"indexerd"}  # the standard `copy` looks for Jython's org.python
    assert {one for one in loaded if one.startswith("indexerd")} <= OURS


@pytest.mark.parametrize("name", ASKED)
def test_it_says_what_the_full_command_says(home: Home, name: str) -> None:
    for argv in (ASKED[name], [*ASKED[name], "--json"]):
        fast, full = home.ix(*argv), home.ix(*FULL, *argv)
        assert (fast.returncode, fast.stdout, fast.stderr) == (
            full.returncode,
            full.stdout,
            full.stderr,
        )


def test_a_directory_that_was_removed_holds_no_prompt_up(home: Home) -> None:
    """S0.51: where the named directory would be is not known; the prompt goes through."""
    for options in ("", "--color never"):
        gone = home.world.root / "removed"
        gone.mkdir()
        line = f'"$0" -m indexerd {options} expand --inline "as in @@zebra" --cwd below'
        done = subprocess.run(
            ["/bin/sh", "-c", f"rmdir ../removed; exec {line}", INDEXERD[0]],
            env=home.world.env, cwd=gone, capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, "as in @@zebra\n"), done.stderr


def test_a_daemon_that_hangs_does_not_hold_a_prompt_up(tmp_path: Path) -> None:
    """S0.51: the prompt goes through after a while, with a word on stderr, and exit code 0."""
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "s"))
        silent.listen()
        program = (
            "import sys; from indexerd.cli import backend, hook; backend.QUICK = 0.2;"
            "sys.exit(hook.attempt(sys.argv[1:]))"
        )
        for prompt in ("use @@this", "use @@this: why?"):
            done = subprocess.run(
                [sys.executable, "-c", program, "expand", "--inline", prompt],
                env={"HOME": str(tmp_path), "INDEXERD_SOCKET": str(tmp_path / "s")},
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=30,
                check=True,
            )
            assert done.stdout == f"{prompt}\n"
            assert "did not answer in time" in done.stderr


def test_other_forms_are_left_to_the_full_command(home: Home) -> None:
    assert home.ix("resolve", "tune", "loop").returncode == 2
    assert "Usage: indexerd resolve" in home.ix("resolve", "--help").stdout
