"""A secret in the name of a directory, file or branch is shown nowhere, and paths still work."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from indexerd.errors import InvalidMetaError
from tests.e2e.clients import ClaudeSession, CodexThread
from tests.e2e.web.views import browsing
from tests.e2e.world import Session, World, until
from tests.sessions.canaries import CANARIES, WORD

pytestmark = pytest.mark.faults


TOKEN = CANARIES["gitlab-token"]
MARK = "[redacted:gitlab-token]"
WHOLE = {"cwd", "sessionFile", "parentSessionFile", "resume"}  # fields that programs use


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
            session.id
            for session in (self.session, self.fork, self.silent, self.claude, self.codex)
        ]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    pytest.importorskip("starlette")
    place = Place(tmp_path_factory.mktemp("paths"))
    place.world.listen()
    with place.world.daemon():
        for session_id in set(place.ids) - {place.silent.id}:
            until(lambda ref=session_id: place.world.row(ref).get("indexed"), "the meta file")  # type: ignore[misc]  # a lambda with a default
        until(lambda: place.world.call("status")["textPending"] == 0, "the texts")
        yield place


def leaks(found: Any, where: str = "") -> list[str]:
    if isinstance(found, dict):
        inner = [(f"{where}.{key}", value) for key, value in found.items() if key not in WHOLE]
        shown = [(f"{where}.shown", found["shown"])] if "shown" in found else []
        in_shown = [f"{where}.shown" for _, value in shown if WORD in json.dumps(value)]
        return in_shown + [leak for name, value in inner for leak in leaks(value, name)]
    if isinstance(found, list):
        return [leak for value in found for leak in leaks(value, f"{where}[]")]
    return [where] if WORD in str(found) else []


def test_methods_redact_paths(place: Place) -> None:
    """S2.21: rows, meta files, names, figures and hits of every method are redacted."""
    call = place.world.call
    answers = {
        "list": call("list", archived=True),
        "status": call("status"),
        "complete": call("complete", prefix=""),
        **{f"get {ref}": call("get", ref=ref) for ref in place.ids},
        **{f"family {ref}": call("family", ref=ref) for ref in place.ids},
        **{f"resolve {ref}": call("resolve", ref=ref) for ref in place.ids},
        **{f"stats {ref}": call("stats", ref=ref) for ref in place.ids},
        **{
            f"search {word}": call("search", query=word)
            for word in ("repo", TOKEN, WORD, "re:r.po")
        },
        "resume_context": call("resume_context", session=place.session.id),
    }
    assert {name: found for name, answer in answers.items() if (found := leaks(answer))} == {}
    assert f"{MARK}/repo" in answers["resume_context"]["text"]
    row = place.world.row(place.session.id)
    assert f"{Path(place.cwd).parent.parent}/{MARK}/repo/lib/{MARK}" in row["filesModified"]
    assert place.world.row(place.silent.id)["name"] == MARK
    assert place.world.row(place.codex.id)["gitBranch"] == f"fix/{MARK}"


def test_fields_for_programs_keep_paths_whole(place: Place) -> None:
    """S2.21: programs get the real path and command, people a redacted one."""
    row, meta = place.world.row(place.fork.id), place.world.meta(place.fork.id)
    assert meta
    for record in (row, meta):
        assert record["cwd"] == place.cwd
        assert record["sessionFile"] == str(place.fork.path)
        assert record["parentSessionFile"] == str(place.session.path)
    assert shlex.split(row["resume"])[:3] == ["cd", place.cwd, "&&"]
    assert place.world.run("resume", place.fork.id).strip() == row["resume"]
    assert row["shown"]["cwd"] == place.cwd.replace(TOKEN, MARK)
    assert row["shown"]["resume"] == f"indexerd resume {place.fork.id}"
    listed = place.world.call("list", cwd=place.cwd, archived=True)["sessions"]
    assert {row["sessionId"] for row in listed} == set(place.ids)


def test_commands_print_redacted_paths(place: Place) -> None:
    """S2.21: tables, facts, hand-offs and exported pages are redacted."""
    printed = {
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
    assert [argv for argv, text in printed.items() if WORD in text] == []
    assert f"indexerd resume {place.session.id}" in printed["show", place.session.id]


def test_pages_of_the_view_are_redacted(place: Place) -> None:
    """S2.21: the home page, a search, and a session's page with its data."""
    with browsing(place.world, place.fork.id) as (browser, page):
        paths = ("/", "/?q=repo", f"/s/{place.fork.id}/document")
        pages = [page, *(browser.get(path) for path in paths)]
    assert [page.status_code for page in pages] == [200] * len(pages)
    assert [str(page.url) for page in pages if WORD in page.text] == []


def test_errors_and_warnings_redact_paths(tmp_path: Path) -> None:
    """S2.21: a secret in a parent directory is in no error, warning or check."""
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


def test_files_of_indexerd_are_redacted(place: Place) -> None:
    """S2.21: meta files, log and audit contain the secret only in fields for programs."""
    metas = [*place.world.metas.glob("*.json"), *(place.world.root / "data").rglob("*.json")]
    assert len(metas) == len(place.ids) - 1
    assert {
        path.name: found for path in metas if (found := leaks(json.loads(path.read_text())))
    } == {}
    for path in (place.world.state / "log.jsonl", place.world.root / "stderr"):
        assert WORD not in path.read_text()
    assert WORD not in json.dumps(place.world.telemetry())


def test_a_token_in_an_encoded_folder_name(tmp_path: Path) -> None:
    """S2.21: Claude Code writes `-` for `_` and `.`; only fields for programs keep that path."""
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
    assert [ref for ref in ids if WORD in world.run("show", ref)] == []
