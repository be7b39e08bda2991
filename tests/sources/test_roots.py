"""Where pi keeps its sessions, which meta directory belongs to which, and the scan of them."""

from pathlib import Path

import pytest

from indexerd.settings import Agent, Agents, Settings
from indexerd.sources.roots import SessionRoot
from indexerd.sources.roots import session_roots as every_store
from indexerd.sources.scan import scan


def settings(*roots: str, meta_dir: str = "") -> Settings:
    return Settings(agents=Agents(pi=Agent(roots=list(roots), meta_dir=meta_dir)))


def session_roots(settings: Settings, env: dict[str, str], home: Path) -> list[SessionRoot]:
    return [root for root in every_store(settings, env, home) if root.agent == "pi"]


def pairs(found: list[SessionRoot]) -> set[tuple[str, str]]:
    assert {root.agent for root in found} <= {"pi"}
    return {(root.sessions, root.meta) for root in found}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home, by its real path."""
    return tmp_path.resolve()


def test_roots_replace_the_default(home: Path) -> None:
    """interfaces.md 1: each root has its own meta directory; the variables are ignored."""
    env = {"PI_CODING_AGENT_DIR": "/env", "PI_CODING_AGENT_SESSION_DIR": "/flat"}
    found = session_roots(settings("~/one", f"{home}/two"), env, home)

    assert pairs(found) == {
        (f"{home}/one/sessions", f"{home}/one/sessions-meta"),
        (f"{home}/two/sessions", f"{home}/two/sessions-meta"),
    }


def test_roots_are_resolved_to_real_paths(home: Path) -> None:
    """The agent directory, or `sessions` in it, may be a symlink."""
    (home / "real/agent").mkdir(parents=True)
    (home / "link").symlink_to(home / "real/agent")
    (home / "big/sessions").mkdir(parents=True)
    (home / "other").mkdir()
    (home / "other/sessions").symlink_to(home / "big/sessions")

    assert pairs(session_roots(settings("~/link", "~/other"), {}, home)) == {
        (f"{home}/real/agent/sessions", f"{home}/real/agent/sessions-meta"),
        (f"{home}/big/sessions", f"{home}/other/sessions-meta"),
    }


@pytest.mark.parametrize(
    "roots",
    [
        ["~/a", "~/a"],
        ["~/a", "~/a/"],
        ["~/a", "~/link"],
        ["~/link", "~/a"],
        ["~/a", "~/a/sessions/--home-u--/agent"],
        ["~/a/sessions/deep", "~/a"],
    ],
)
def test_nested_and_repeated_roots_are_merged(home: Path, roots: list[str]) -> None:
    """No session file is below two roots, even if a root links to another."""
    (home / "a").mkdir()
    (home / "link").symlink_to(home / "a")

    found = session_roots(settings(*roots), {}, home)

    assert pairs(found) == {(f"{home}/a/sessions", f"{home}/a/sessions-meta")}


@pytest.mark.parametrize(
    "words",
    [
        "--w--/../../../../outside/s.jsonl",
        "../sessions-old/s.jsonl",
        "--w--/../--secret--/s.jsonl",
        "--w--/./s.jsonl",
        "--w--//s.jsonl",
        "--w--/..",
    ],
)
def test_a_path_with_dots_is_in_no_store(home: Path, words: str) -> None:
    """Any program may have written the path in a meta file."""
    [first] = [
        root for root in session_roots(Settings(), {}, home) if root.sessions.endswith("/sessions")
    ]
    path = f"{first.sessions}/{words}"

    assert not first.contains(path)
    assert not first.accepts(path)


def test_missing_or_unreadable_directories_are_no_deletion(tmp_path):
    """S3.27: files below them do not count as deleted."""
    result = scan(dict.fromkeys([str(tmp_path), f"{tmp_path}/no"], (".jsonl",)))
    assert result.missing == [f"{tmp_path}/no"]
    assert result.unseen(f"{tmp_path}/no/s.jsonl")
    assert not result.unseen(f"{tmp_path}/s.jsonl")
