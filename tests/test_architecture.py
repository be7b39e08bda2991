"""The shape of the code: sizes, names, layers, file writes, imports and the error classes."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "indexerd"
FILES = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
TREES = {name: ast.parse(path.read_bytes()) for name, path in FILES.items()}
FUNCTION_MAX = 50

# Modules that may open a file for writing, and why. None of them writes a session file.
MAY_WRITE = {
    "meta/writer.py": "meta files and sidecars: the one writer",
    "integrations/changes.py": "an agent's configuration, where its user asked for it",
    "disk.py": "for those below; lock, log and telemetry",
    "fleet/identity.py": "the machine's identity in its fleet",
    "archive/copies.py": "the archive, and a restored session, where its user asked for it",
    "settings.py": "settings of the last good configuration",
    "daemon/open_session.py": "a branch as a new file, where its user asked for it",
    "cli/archive.py": "a session for opencode to import, where its user asked for it",
    "cli/handover.py": "a session of pi with a hand-off, where its user asked for it",
    "cli/tree.py": "an export, where its user asked for it",
    "models/budget.py": "the budget's journal",
    "store/store.py": "the store, made private before SQLite opens it",
    "web/auth.py": "one-time tokens of the web view",
    "web/server.py": "where the web view listens, and the page that opens it",
    "cli/backend.py": "/dev/null in the place of a stream that is gone",
}
WRITING = {"write_text", "write_bytes", "touch", "truncate", "ftruncate", "utime"}
WRITING |= {"write_atomically", "create_file"}  # of disk.py
READERS = ("agents/", "sessions/", "sources/tail.py", "sources/scan.py", "meta/model.py")


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                yield node.func.attr, node
            elif isinstance(node.func, ast.Name):
                yield node.func.id, node


def test_functions_are_small() -> None:
    """No function has more than 50 lines, including its docstring."""
    large = {
        f"{name}: {node.name}": node.end_lineno - node.lineno + 1
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > FUNCTION_MAX
    }
    assert large == {}


def writes(tree: ast.AST) -> bool:
    flags = {"O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND"}
    if any(isinstance(node, ast.Attribute) and node.attr in flags for node in ast.walk(tree)):
        return True
    for name, node in calls(tree):
        if name in WRITING:
            return True
        words = (*node.args, *(key.value for key in node.keywords))
        modes = [str(word.value) for word in words if isinstance(word, ast.Constant)]
        for mode in modes if name in ("open", "fdopen") else ():
            if re.fullmatch("[rwaxbt+]+", mode) and set(mode) & set("wax+"):
                return True
    return False


def test_few_may_open_a_file_for_writing() -> None:
    """S0.2: no module that reads session files can write one."""
    assert {name for name, tree in TREES.items() if writes(tree)} == MAY_WRITE.keys()
    assert [name for name in MAY_WRITE if name.startswith(READERS)] == []
    for bad in ("open(p, 'ab')", "p.open(mode='r+')", "p.write_text(x)", "os.open(p, os.O_RDWR)"):
        assert writes(ast.parse(bad))
    assert not writes(ast.parse("p.open('rb'); open(p); os.open(p, os.O_RDONLY)"))


def test_every_module_is_in_a_layer() -> None:
    """A new module must be given its place in the layers."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    first: dict[str, list[str]] = project["tool"]["importlinter"]["contracts"][0]
    layers = {word.strip() for line in first["layers"] for word in line.split(":")}
    tops = {name.split("/")[0].removesuffix(".py") for name in FILES} - {"__init__"}
    assert {f"indexerd.{name}" for name in tops} == layers


def test_pure_layers_have_no_side_effects() -> None:
    """agents/ and sessions/ use no clock, file, environment or randomness."""
    asked = {"now", "today", "utcnow", "open", "print", "input", "getenv", "random", "uuid4"}
    for name, tree in TREES.items():
        if name.startswith(("agents/", "sessions/")):
            assert {word for word, _ in calls(tree)} & asked == set(), name


def loaded(statement: str) -> set[str]:
    script = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in done.stdout.split()}


HEAVY = {"google", "httpx2", "msgspec", "pydantic", "rapidfuzz", "watchdog", "wcwidth"}


@pytest.mark.parametrize("module", ["main", "sessions", "serve"])
def test_the_command_line_starts_light(module: str) -> None:
    """Nothing heavy is imported before a command runs; tests/cli/test_hook.py has the hooks."""
    assert loaded(f"import indexerd.cli.{module}") & HEAVY == set()


def test_nothing_runs_at_import() -> None:
    """Every module can be imported, and none starts a thread or opens a socket."""
    names = [
        "indexerd." + name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in FILES
        if name not in ("__init__.py", "__main__.py")
    ]
    script = "\n".join(f"import {name}" for name in names)
    script += "\nimport threading, gc, socket\nassert threading.active_count() == 1"
    script += "\nassert not [one for one in gc.get_objects() if isinstance(one, socket.socket)]"
    assert "indexerd" in loaded(script)
