"""The wheel: what it contains and that it runs; and the locked requirements."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from indexerd import __version__
from tests.e2e.forked import ran

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = ("requirements.lock", "requirements-dev.lock", "requirements-semantic.lock")
SHIPPED = ("config/indexerd.toml", "systemd/indexerd.service", "systemd/io.indexerd.plist")


def run(installed: Path, *argv: str, code: int = 0) -> str:
    env = {"PATH": "", "HOME": str(installed / "home"), "PYTHONPATH": str(installed)}
    done = ran([sys.executable, "-P", *argv], env=env, cwd=installed)
    assert done.returncode == code, done.stderr
    return done.stdout


def test_the_wheel_holds_the_program_and_its_data_and_runs(tmp_path: Path, directory: Path) -> None:
    """Every module, the typing marker and the shipped files; script and module run from it."""
    argv = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(argv, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.iterdir()
    with zipfile.ZipFile(wheel) as held:
        names = {name for name in held.namelist() if ".dist-info/" not in name}
        shipped = {name: held.read(f"indexerd/_data/{name}") for name in SHIPPED}
    package = (ROOT / "indexerd").rglob("*")
    # Files for agents and pages of the view are data next to the modules.
    kinds = (".py", ".typed", ".ts", ".js", ".md", ".css", ".html", ".svg", ".txt")
    modules = {str(path.relative_to(ROOT)) for path in package if path.suffix in kinds}
    assert "indexerd/integrations/pi/index.ts" in modules
    assert "indexerd/py.typed" in modules
    assert modules | {f"indexerd/_data/{name}" for name in SHIPPED} == names
    assert shipped == {name: (ROOT / name).read_bytes() for name in SHIPPED}

    argv = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    argv += ["--no-compile", "--disable-pip-version-check", "--target", str(directory), str(wheel)]
    subprocess.run(argv, check=True, capture_output=True)
    where = run(directory, "-c", "import indexerd; print(indexerd.__file__)")
    assert Path(where.strip()).parent == directory / "indexerd"
    version = f"indexerd, version {__version__}\n"
    assert version == run(directory, "-m", "indexerd", "--version")
    assert version == run(directory, str(directory / "bin/indexerd"), "--version")
    shown = run(directory, "-m", "indexerd", "config", "show")
    assert 'log.level\t"info"\tdefault' in shown.splitlines()
    assert run(directory, "-m", "indexerd", "list", "--all") == ""


def locked(name: str) -> dict[str, tuple[str, list[str]]]:
    text = (ROOT / name).read_text().replace("\\\n", " ")
    found: dict[str, tuple[str, list[str]]] = {}
    for line in text.splitlines():
        pinned, *hashes = line.split()
        package, version = pinned.split("==")
        assert package not in found, f"{package} is locked twice"
        found[package] = version, hashes
    return found


def requirements(name: str) -> list[Requirement]:
    lines = (ROOT / name).read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def test_requirements_are_locked_within_their_range() -> None:
    """Runtime and build requirements in one lock, those for tests and linters in the other."""
    runtime, both = locked(LOCKS[0]), locked(LOCKS[1]) | locked(LOCKS[0])
    asked = [Requirement(dependency) for dependency in PROJECT["project"]["dependencies"]]
    asked += [Requirement(line) for line in PROJECT["build-system"]["requires"]]
    asked += requirements("requirements-build.in")
    for one in asked:
        assert one.specifier.contains(runtime[canonicalize_name(one.name)][0]), one
    for requirement in requirements("requirements-dev.in"):
        assert requirement.specifier.contains(both[canonicalize_name(requirement.name)][0]), (
            requirement
        )
    extra = [Requirement(line) for line in PROJECT["project"]["optional-dependencies"]["semantic"]]
    assert requirements("requirements-semantic.in") == extra
    for requirement in extra:
        assert requirement.specifier.contains(locked(LOCKS[2])[requirement.name][0]), requirement
    dev = locked(LOCKS[1])
    assert {key: dev[key] for key in dev.keys() & runtime.keys()}.items() <= runtime.items()
