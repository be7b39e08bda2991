"""What is promised of relevant-context sets: limits, texts, records, and what a resume tells."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from indexerd.errors import ContextTooLargeError, UsageError
from tests.e2e.world import World, until

KNOWN = ("files", "applet", "endpoints", "ports")
TEN = [f"/w/{number}" for number in range(10)]
FULL = {f"s{number}": TEN for number in range(5)}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A daemon beside pi."""
    world = World(tmp_path_factory.mktemp("contexts"))
    world.install_pi()
    with world.daemon():
        yield world


@pytest.fixture
def session(running: World) -> str:
    """A session that the daemon knows, without sets."""
    made = running.session(turns=1, cwd=str(running.root))
    until(lambda: running.row(made.id), "the session")
    return made.id


def put(world: World, session: str, name: str, items: list[str], **more: Any) -> dict[str, Any]:
    """What the tool answers."""
    asked = {"session": session, "setName": name, "items": items}
    answer: dict[str, Any] = world.call("set_relevant_context", **asked, **more)
    return answer


def held(world: World, session: str, **named: str) -> Any:
    """All sets of a session, or the one named."""
    return world.call("get_relevant_context", session=session, **named)["context"]


def sidecar(world: World, session: str) -> bytes:
    """What is stored of a session's user; nothing where there is no file."""
    path = world.metas / f"{session}.user.json"
    return path.read_bytes() if path.exists() else b""


def records(world: World, session: str) -> list[dict[str, Any]]:
    """The telemetry of a session's sets."""
    rows = [one for one in world.telemetry() if one["sessionId"] == session]
    return [one for one in rows if one["customType"] == "relevant-context:set"]


def block(world: World, session: str, resume: str) -> str:
    """What a resume tells of the sets: all behind the directory's line."""
    text = world.call("resume_context", session=session, resumeId=resume)["text"]
    return str(text.split("\n", 4)[4].removesuffix("---\n\n").strip())


def test_any_set_is_taken_and_an_unknown_one_is_warned_of(running: World, session: str) -> None:
    """Files, applet, endpoints and ports are known; another set is stored with a warning (S4.2)."""
    for name in KNOWN:
        assert put(running, session, name, ["1"])["warnings"] == []
    (warning,) = put(running, session, "fles", ["/w/a"])["warnings"]
    assert warning == "unknown set 'fles'; the known ones are files, applet, endpoints, ports"
    assert held(running, session) == {name: ["1"] for name in KNOWN} | {"fles": ["/w/a"]}


def test_a_set_is_replaced_or_merged_and_nothing_else(running: World, session: str) -> None:
    """Replacing is the default, merging is an ordered union, other modes are errors (S4.3)."""
    put(running, session, "files", ["/w/old"])
    put(running, session, "files", ["/w/b", "/w/a"])
    assert held(running, session) == {"files": ["/w/b", "/w/a"]}
    put(running, session, "files", ["/w/c", "/w/a", "/w/c"], mode="merge")
    assert held(running, session) == {"files": ["/w/b", "/w/a", "/w/c"]}
    for mode in ("append", "", 1):
        with pytest.raises(UsageError, match="replace or merge"):
            put(running, session, "files", ["/w/d"], mode=mode)
    put(running, session, "files", ["/w/d"], mode="replace")
    assert held(running, session) == {"files": ["/w/d"]}


def test_an_eleventh_item_is_refused_or_named(running: World, session: str) -> None:
    """Eleven items in a call are an error; a merge names what found no room in ten (S4.4)."""
    for mode in ("replace", "merge"):
        with pytest.raises(UsageError, match="at most 10"):
            put(running, session, "files", [*TEN, "x"], mode=mode)
    assert held(running, session) == {}
    put(running, session, "files", TEN[:8])
    found = put(running, session, "files", [*TEN[:2], "x", "y", "z", "q"], mode="merge")
    assert found["text"] == "Merged files: 10 items"
    assert found["warnings"] == ["not stored, as a set holds at most 10 items: z, q"]
    assert held(running, session) == {"files": [*TEN[:8], "x", "y"]}


def test_fifty_items_are_all_a_session_has(running: World, session: str) -> None:
    """A fifty-first item is refused in the original's words, and nothing is saved (S4.5)."""
    for name, items in FULL.items():
        put(running, session, name, items)
    before = sidecar(running, session)
    with pytest.raises(ContextTooLargeError) as caught:
        put(running, session, "files", ["/w/a"])
    assert str(caught.value) == "Context too large (51 items, max 50). Remove some items first."
    assert (sidecar(running, session), held(running, session)) == (before, FULL)
    assert len(records(running, session)) == len(FULL)


def test_an_empty_list_clears_or_does_nothing(running: World, session: str) -> None:
    """Replaced by nothing a set is gone; merged with nothing it stays, and both say so (S4.6)."""
    put(running, session, "files", ["/w/a"])
    put(running, session, "ports", ["80"])
    before = sidecar(running, session)
    merged = put(running, session, "files", [], mode="merge")
    assert merged["text"] == "Nothing to merge into files: 1 items"
    assert (merged["contextChanged"], sidecar(running, session)) == (False, before)
    cleared = put(running, session, "files", [])
    assert (cleared["text"], cleared["contextChanged"]) == ("Cleared files", True)
    assert held(running, session) == {"ports": ["80"]}


def test_what_was_set_is_said_and_on_record(running: World, session: str) -> None:
    """The original's texts, and a row of telemetry that says whether anything changed (S4.7)."""
    said = [
        put(running, session, "files", ["/w/a", "/w/b"]),
        put(running, session, "files", ["/w/c"], mode="merge"),
        put(running, session, "files", ["/w/c"], mode="merge"),
        put(running, session, "files", []),
    ]
    assert [(one["text"], one["contextChanged"], one["setName"]) for one in said] == [
        ("Set files: 2 items", True, "files"),
        ("Merged files: 3 items", True, "files"),
        ("Merged files: 3 items", False, "files"),
        ("Cleared files", True, "files"),
    ]
    rows = records(running, session)
    assert [(one["contextChanged"], one["setName"]) for one in rows] == [(True, "files")] * 3
    assert "/w/" not in json.dumps(rows)


def test_one_set_or_all_or_none_are_told(running: World, session: str) -> None:
    """All sets as JSON, one of them, an empty list for one that is not there, or none (S4.8)."""
    nothing = running.call("get_relevant_context", session=session)
    assert (nothing["text"], nothing["context"]) == ("No context stored for this session", {})
    put(running, session, "files", ["/w/é"])
    put(running, session, "ports", ["80"])
    found = running.call("get_relevant_context", session=session)
    assert found["text"] == '{\n  "files": [\n    "/w/é"\n  ],\n  "ports": [\n    "80"\n  ]\n}'
    assert json.loads(found["text"]) == found["context"] == held(running, session)
    assert held(running, session, setName="ports") == {"ports": ["80"]}
    assert held(running, session, setName="applet") == {"applet": []}


def test_a_resume_tells_files_that_are_there_and_counts_the_rest(
    running: World, session: str
) -> None:
    """Files that are gone are counted, even where all of them are (S4.16)."""
    (running.root / "here.py").touch()
    put(running, session, "files", ["/nowhere/a", "here.py", "/nowhere/b"])
    told = "Relevant files:\n- here.py\n(2 file(s) no longer exist)"
    assert block(running, session, "some") == told
    put(running, session, "files", ["/nowhere/a", "/nowhere/b", "/nowhere/c"])
    assert block(running, session, "none") == "Relevant files:\n(3 file(s) no longer exist)"


def test_a_resume_tells_applet_and_other_sets_but_no_empty_ones(
    running: World, session: str
) -> None:
    """An applet has its parameters in brackets, others follow by name, empty ones not (S4.17)."""
    sets = {"ports": ["8080", "5173"], "empty": [], "applet": ["git-diff", "path=/w", "file=a b"]}
    path = running.metas / f"{session}.user.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"labels": {}, "context": sets | {"mine": ["x"]}}))
    told = "Last applet: git-diff (path=/w, file=a b)\n\nports: 8080, 5173\n\nmine: x"
    assert block(running, session, "all") == told
    put(running, session, "applet", ["calculator"])
    assert block(running, session, "bare").startswith("Last applet: calculator\n\nports: ")


def test_the_original_programs_tests_of_its_resume_block(running: World, session: str) -> None:
    """Its cases hold, and telling and merging change nothing but what was asked for (S4.19)."""
    texts = []
    for hint in (None, "source .venv/bin/activate"):
        running.call("update", ref=session, envHint=hint)
        before = sidecar(running, session)
        asked = {"session": session, "resumeId": f"{hint} 1"}
        texts.append(running.call("resume_context", **asked)["text"])
        again = running.call("resume_context", **asked | {"resumeId": f"{hint} 2"})["text"]
        assert (again, sidecar(running, session)) == (texts[-1], before)
    plain, hinted = texts
    for text in texts:
        assert text.startswith("[SESSION RESUMED]\n")
        assert "Shell state was reset." in text
        assert "Re-run environment setup before continuing." in text
        assert f"Session directory: {running.root}\n" in text
        assert text.endswith("---\n\n")
    assert "Environment hint: source .venv/bin/activate\n" in hinted
    assert "Environment hint" not in plain
    put(running, session, "files", ["later.py"])
    assert "(1 file(s) no longer exist)" in block(running, session, "before")
    (running.root / "later.py").touch()
    assert block(running, session, "after").endswith("\n\nRelevant files:\n- later.py")
    for _ in range(2):
        put(running, session, "ports", ["80", "81"], mode="merge")
        assert held(running, session) == {"files": ["later.py"], "ports": ["80", "81"]}


def test_a_footer_has_five_files_and_the_applet(running: World, session: str) -> None:
    """Five files by basename, whichever way slashes lean, how many more, the applet (S4.22)."""
    paths = ["/w/a.py", "C:\\w\\b.py", "/w/c d.md", "/w/e.py", "/w/f.py", "/w/g.py", "/w/h.py"]
    put(running, session, "files", paths)
    put(running, session, "applet", ["git-diff", "path=/w"])
    found = running.call("footer", ref=session)
    names = ["a.py", "b.py", "c d.md", "e.py", "f.py"]
    assert [one["basename"] for one in found["files"]] == names
    assert [one["path"] for one in found["files"]] == paths[:5]
    assert found["more"] == 2
    assert found["applet"] == {"slug": "git-diff", "params": ["path=/w"]}
    line = " · ".join([*names, "+2 more", "[git-diff]"])
    assert found["text"] == line
    assert running.run("footer", session) == f"{line}\n"
