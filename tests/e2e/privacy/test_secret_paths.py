"""A secret in the name of a directory, a file or a branch: shown nowhere, and nothing is lost."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from indexerd.errors import InvalidMetaError
from tests.e2e.clients import ClaudeSession, CodexThread
from tests.e2e.web.view import announced, config, free_port
from tests.e2e.world import Session, World, until
from tests.sessions.canaries import CANARIES, WORD

pytestmark = pytest.mark.faults


TOKEN = CANARIES["gitlab-token"]
MARK = "[redacted:gitlab-token]"
WHOLE = {"cwd", "sessionFile", "parentSessionFile", "resume"}  # fields that programs go by


class Place:
    def __init__(self, root: Path) -> None:
        self.world = world = World(root)
        world.env["INDEXERD_LOG__LEVEL"] = '"debug"'
        self.cwd = str(root / TOKEN / "repo")
        Path(self.cwd).mkdir(parents=True)
        world.sessions = world.pi / f"sessions/--{TOKEN}-repo--"
        self.session = world.session(cwd=self.cwd)
        self.session.tool("edit", path=f"lib/{TOKEN}.py", oldText="a", newText="b")
        self.session.talk(6)
        self.fork = self.session.fork(cwd=self.cwd)
        self.fork.talk(5)
        self.silent = Session(world.sessions, cwd=self.cwd)
        self.silent.path = self.silent.path.rename(world.sessions / f"{TOKEN}.jsonl")
        folder = root / f"home/.claude/projects/-{TOKEN}-repo"
        self.claude = ClaudeSession(root / "home", self.cwd, folder)
        self.claude.edit(f"{self.cwd}/x.py")
        self.codex = CodexThread(root / "home", cwd=self.cwd, git={"branch": f"fix/{TOKEN}"})
        self.codex.turn("Please adjust a widget.", f"{self.cwd}/y.py")
        for other in (self.claude, self.codex):
            for _ in range(5):
                other.turn()
        self.ids = [
            one.id for one in (self.session, self.fork, self.silent, self.claude, self.codex)
        ]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    pytest.importorskip("starlette")
    place = Place(tmp_path_factory.mktemp("paths"))
    config(place.world, f"127.0.0.1:{free_port()}")
    with place.world.daemon():
        for session_id in set(place.ids) - {place.silent.id}:
            until(lambda one=session_id: place.world.row(one).get("indexed"), "the meta file")  # type: ignore[misc]  # a lambda with a default
        until(lambda: place.world.call("status")["textPending"] == 0, "the texts")
        yield place


def leaks(found: Any, where: str = "") -> list[str]:
    if isinstance(found, dict):
        inner = [(f"{where}.{key}", one) for key, one in found.items() if key not in WHOLE]
        shown = [(f"{where}.shown", found["shown"])] if "shown" in found else []
        in_shown = [f"{where}.shown" for _, one in shown if WORD in json.dumps(one)]
        return in_shown + [leak for name, one in inner for leak in leaks(one, name)]
    if isinstance(found, list):
        return [leak for one in found for leak in leaks(one, f"{where}[]")]
    return [where] if WORD in str(found) else []


def test_answers_of_the_daemon(place: Place) -> None:
    """S2.21: rows, meta files, names, figures and hits, each by the method that tells it."""
    call = place.world.call
    answers = {
        "list": call("list", archived=True),
        "status": call("status"),
        "complete": call("complete", prefix=""),
        **{f"get {one}": call("get", ref=one) for one in place.ids},
        **{f"family {one}": call("family", ref=one) for one in place.ids},
        **{f"resolve {one}": call("resolve", ref=one) for one in place.ids},
        **{f"stats {one}": call("stats", ref=one) for one in place.ids},
        **{f"search {one}": call("search", query=one) for one in ("repo", TOKEN, WORD, "re:r.po")},
        "resume_context": call("resume_context", session=place.session.id),
    }
    assert {name: found for name, one in answers.items() if (found := leaks(one))} == {}
    assert f"{MARK}/repo" in answers["resume_context"]["text"]
    row = place.world.row(place.session.id)
    assert f"{Path(place.cwd).parent.parent}/{MARK}/repo/lib/{MARK}" in row["filesModified"]
    assert place.world.row(place.silent.id)["name"] == MARK
    assert place.world.row(place.codex.id)["gitBranch"] == f"fix/{MARK}"


def test_what_is_used_stays_whole(place: Place) -> None:
    """S2.21: a program finds the file, the directory and the way back; people get another way."""
    row, meta = place.world.row(place.fork.id), place.world.meta(place.fork.id)
    assert meta
    for held in (row, meta):
        assert held["cwd"] == place.cwd
        assert held["sessionFile"] == str(place.fork.path)
        assert held["parentSessionFile"] == str(place.session.path)
    assert shlex.split(row["resume"])[:3] == ["cd", place.cwd, "&&"]
    assert place.world.run("resume", place.fork.id).strip() == row["resume"]
    assert row["shown"]["cwd"] == place.cwd.replace(TOKEN, MARK)
    assert row["shown"]["resume"] == f"indexerd resume {place.fork.id}"
    listed = place.world.call("list", cwd=place.cwd)["sessions"]
    assert {one["sessionId"] for one in listed} == set(place.ids)


def test_what_commands_print(place: Place) -> None:
    """S2.21: tables and facts for people, hand-offs, and pages that are made of a session."""
    said = {
        argv: place.world.run(*argv, code=None)
        for argv in [
            ("list", "--all"),
            ("search", "repo"),
            ("status",),
            ("logs",),
            *((name, place.session.id) for name in ("show", "stats", "family", "footer")),
            ("show", place.codex.id),
            ("show", place.silent.id),
            ("compact", place.session.id, "--handoff", "--strategy", "codex"),
            ("export", place.fork.id, "--format", "html"),
            ("export", place.fork.id, "--format", "md"),
            ("export", place.session.id, "--format", "json", "--redact"),
        ]
    }
    assert [argv for argv, text in said.items() if WORD in text] == []
    assert f"indexerd resume {place.session.id}" in said["show", place.session.id]


def test_pages_of_the_view(place: Place) -> None:
    """S2.21: the home page, a search, and a session's page with its data."""
    until(lambda: announced(place.world), "the view")
    link = place.world.run("web", "--json", place.fork.id)["link"]
    with httpx2.Client(follow_redirects=True) as browser:
        page = browser.get(link)
        base = str(page.url).partition("/s/")[0]
        pages = [page, browser.get(f"{base}/"), browser.get(f"{base}/?q=repo")]
        pages.append(browser.get(f"{base}/s/{place.fork.id}/document"))
    assert [one.status_code for one in pages] == [200] * len(pages)
    assert [str(one.url) for one in pages if WORD in one.text] == []


def test_errors_and_checks_of_places(tmp_path: Path) -> None:
    """S2.21: a secret above all files is in no error, warning or check, daemon or not."""
    world = World(tmp_path / TOKEN)
    world.socket = tmp_path / "s"
    world.env["INDEXERD_SOCKET"] = str(world.socket)
    world.install_pi()
    session = world.session(turns=1)
    world.metas.mkdir()
    (world.metas / f"{session.id}.user.json").write_text("[]")

    def asked() -> Iterator[str]:
        for argv in (("doctor",), ("footer", session.id), ("context-get", session.id)):
            yield world.run(*argv, code=None) + world.stderr
            yield json.dumps(world.run(*argv, "--json", code=None)) + world.stderr

    with world.daemon():
        world.seen(session)
        assert leaks([*asked(), world.call("get", ref=session.id)]) == []
        with pytest.raises(InvalidMetaError) as caught:
            world.call("footer", ref=session.id)
        assert f"/{MARK}/" in str(caught.value)
        assert WORD not in str(caught.value) + caught.value.hint
    assert leaks([*asked()]) == []


def test_files_of_our_own(place: Place) -> None:
    """S2.21: meta files, and the log and the audit, hold nothing of it but what is used."""
    metas = [*place.world.metas.glob("*.json"), *(place.world.root / "data").rglob("*.json")]
    assert len(metas) == len(place.ids) - 1
    assert {one.name: found for one in metas if (found := leaks(json.loads(one.read_text())))} == {}
    for path in (place.world.state / "log.jsonl", place.world.root / "stderr"):
        assert WORD not in path.read_text()
    assert WORD not in json.dumps(place.world.telemetry())


def test_a_token_that_an_agent_wrote_otherwise_in_its_folders_name(tmp_path: Path) -> None:
    """S2.21: Claude Code puts `-` for `_` and `.`; only fields for use stay whole."""
    world = World(tmp_path)
    tokens = [CANARIES[kind] for kind in ("github-token", "huggingface-token", "jwt")]
    ids = []
    for token in tokens:
        slug = re.sub(r"[^A-Za-z0-9-]", "-", f"/srv/{token}/repo")
        folder = tmp_path / "home/.claude/projects" / slug
        session = ClaudeSession(tmp_path / "home", f"/srv/{token}/repo", folder)
        session.turn("Sort the imports.")
        ids.append(session.id)
    world.run("run", "--once", "--json")
    listed = world.run("list", "--all", "--json")["sessions"]
    assert {row["sessionId"] for row in listed} == set(ids)
    assert leaks(listed) == []
    assert all(WORD in row["sessionFile"] for row in listed)
    assert [one for one in ids if WORD in world.run("show", one)] == []
