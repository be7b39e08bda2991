"""Edits, paths and pictures in the calls and lines of all agents."""

import base64
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from indexerd.agents import ADAPTERS
from indexerd.sessions import edits
from indexerd.sessions.clipped import arguments
from indexerd.sessions.edits import FileEdit, edits_of
from indexerd.sessions.facts import absolute
from indexerd.sessions.pictures import pictures_in
from tests.agents import claude_files as claude
from tests.agents import codex_files as codex

PATCH = """*** Begin Patch
*** Update File: a.py
*** Move to: b.py
@@ def f():
-    old
+    new
*** Add File: n.txt
+one
+two
*** Delete File: gone.txt
*** End Patch"""
PATCHED = [
    ("a.py", "rename", "b.py", "@@ def f():\n-    old\n+    new", 1, 1),
    ("n.txt", "create", "", "+one\n+two", 2, 0),
    ("gone.txt", "delete", "", "", 0, 0),
]
CHANGED = [("a.py", "edit", "", " a\n-b\n+c", 1, 1)]
WRITTEN = [("a.py", "write", "", "+a\n+b", 2, 0)]
RECORDED = {  # by Codex's events
    "/w/n.txt": {"type": "add", "content": "one\ntwo\n"},
    "/w/gone.txt": {"type": "delete", "content": "one\n"},
    "/w/a.py": {
        "type": "update",
        "unified_diff": "@@ -1 +1 @@\n-a\n+b\n@@ -9 +9 @@\n c\n",
        "move_path": "/w/b.py",
    },
    "/w/x": 3,
}
OLD, NEW = "a\nb", "a\nc\n"


@pytest.mark.parametrize(("name", "given_", "found"), [
    ("Edit", {"file_path": "a.py", "old_string": OLD, "new_string": NEW}, CHANGED),
    ("MultiEdit",
     {"file_path": "a.py", "edits": [{"old_string": OLD, "new_string": NEW}]}, CHANGED),
    ("NotebookEdit",
     {"notebook_path": "a.py", "new_source": "a"}, [("a.py", "edit", "", "+a", 1, 0)]),
    ("Write", {"file_path": "a.py", "content": "a\nb\n"}, WRITTEN),
    ("edit", {"path": "a.py", "oldText": OLD, "newText": NEW}, CHANGED),
    ("edit", {"path": "a.py", "edits": [{"oldText": OLD, "newText": NEW}] * 2},
     [("a.py", "edit", "", " a\n-b\n+c\n@@\n a\n-b\n+c", 2, 2)]),
    ("write", {"path": "a.py", "content": "a\r\nb"}, WRITTEN),
    ("edit", {"filePath": "a.py", "oldString": OLD, "newString": NEW}, CHANGED),
    ("write", {"filePath": "a.py", "content": "a\nb"}, WRITTEN),
    ("apply_patch", {"patchText": PATCH}, PATCHED),
    ("apply_patch", {"input": PATCH}, PATCHED),
    ("apply_patch", PATCH, PATCHED),
    ("shell", {"command": ["bash", "-lc", f"apply_patch <<'EOF'\n{PATCH}\nEOF\n"]}, PATCHED),
    ("exec_command", {"cmd": f"cd x && apply_patch <<'EOF'\n{PATCH}\nEOF"}, PATCHED),
    ("shell", {"command": f"echo '{PATCH}'"}, []),
    ("Read", {"file_path": "a.py"}, []),
    ("edit", {"path": 7, "edits": "x"}, []),
    ("edit", None, []),
    ("", {"call": "c1", "changes": RECORDED}, [
        ("/w/n.txt", "create", "", "+one\n+two", 2, 0),
        ("/w/gone.txt", "delete", "", "-one", 0, 1),
        ("/w/a.py", "rename", "/w/b.py", "-a\n+b\n@@\n c", 1, 1),
        ("/w/x", "edit", "", "", 0, 0),
    ]),
])  # fmt: skip
def test_edits_of_every_agent(name: str, given_: Any, found: list[Any]) -> None:
    assert [
        (edit.path, edit.kind, edit.moved_to, edit.diff, edit.added, edit.removed)
        for edit in edits_of(name, given_)
    ] == found


LINES = st.lists(st.sampled_from(["a", "b", "", "-c", "+d", "@@", " e"]), max_size=40)


@given(LINES, LINES)
@example([str(at) for at in range(600)], [str(-at) for at in range(1, 601)])
def test_a_diff_has_the_old_lines_and_the_new(old: list[str], new: list[str]) -> None:
    """In order, apart from common lines far from any change; long texts are compared, too."""
    texts = {"old_string": "".join(f"{one}\n" for one in old)}
    texts |= {"new_string": "".join(f"{one}\n" for one in new)}
    (edit,) = edits_of("edit", {"path": "a", **texts})
    assert bool(edit.diff) == (old != new)
    lines = edit.diff.split("\n") if edit.diff else []
    for mark, whole in (("-", old), ("+", new)):
        mine = [line[1:] for line in lines if line[0] in (mark, " ")]
        rest = iter(whole)
        assert all(line in rest for line in mine)
    assert edit.added - edit.removed == len(new) - len(old)
    assert edit.added == sum(line[0] == "+" for line in lines)


def test_a_huge_edit_is_cut() -> None:
    text = "x" * 9000 + "\n" + "y\n" * 50_000
    (edit,) = edits_of("write", {"path": "a", "content": text})
    assert (edit.added, edit.cut) == (50_001, 50_001 - edits.LINES_MAX)
    assert len(edit.diff) < edits.LINE_MAX + 3 * edits.LINES_MAX


def test_calls_keep_what_an_edit_needs() -> None:
    """From a line of Codex, whose arguments are JSON in a string."""
    line = codex.call("1", "shell", command=["apply_patch", PATCH])
    (found,) = ADAPTERS["codex"].read(line, "").tools
    (first, *_) = edits_of(found.name, arguments(found))
    assert isinstance(first, FileEdit)
    assert first.path == "a.py"


PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 30).decode()
SVG = base64.b64encode(b"<svg xmlns='http://www.w3.org/2000/svg' onload='x'/>").decode()
LINK = f"data:image/png;base64,{PNG}"


@pytest.mark.parametrize("block", [
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
    {"type": "image", "data": PNG, "mimeType": "image/png"},
    {"type": "input_image", "image_url": LINK},
    {"type": "file", "mime": "image/png", "url": LINK},
    {"type": "image", "data": PNG, "mimeType": "image/svg+xml"},  # its data says what it is
])  # fmt: skip
def test_pictures_of_every_agent(block: dict[str, Any]) -> None:
    line = {"message": {"content": [block, {"type": "tool_result", "content": [block]}]}}
    (picture,) = pictures_in(json.dumps(line).encode())
    assert picture.media_type == "image/png"
    assert picture.decode().startswith(b"\x89PNG")


@pytest.mark.parametrize("data", [SVG, "", "%%%", PNG[:4], base64.b64encode(b"<html>").decode()])
def test_other_data_is_no_picture(data: str) -> None:
    """Whatever its declared type is; nor is an address."""
    blocks = [
        {"type": "image", "data": data, "mimeType": "image/png"},
        {"type": "input_image", "image_url": f"data:image/svg+xml;base64,{data}"},
        {"type": "input_image", "image_url": "https://example.com/x.png"},
    ]
    assert pictures_in(json.dumps({"content": blocks}).encode()) == []


def test_a_file_that_is_written_again_is_compared_with_what_it_had() -> None:
    """With the diff that Claude Code stores."""

    def patch(**stored: Any) -> tuple[str, ...]:
        block = {"type": "tool_result", "tool_use_id": "t", "content": "ok"}
        line = claude.user("u", None, [block], toolUseResult=stored)
        (found,) = ADAPTERS["claude"].read(line, "").results
        return found.patch

    parts = [{"oldStart": 1, "lines": [" a", "-b", "+c"]}, {"oldStart": 9, "lines": ["+d"]}]
    (write,) = edits_of("Write", {"file_path": "f", "content": "a\nc\n"})
    shown = edits.with_patch(write, patch(structuredPatch=parts))
    assert (shown.diff, shown.added, shown.removed) == (" a\n-b\n+c\n@@\n+d", 2, 1)
    again = patch(type="create", content="a\nc\n", structuredPatch=[])
    assert again == ("+a", "+c")  # though it had these lines before it was deleted


@pytest.mark.parametrize(("patch", "diff"), [
    ("*** Begin Patch\n*** Update File: u\n+x *** End Patch y\n+*** Begin Patch\n-w\n*** End Patch",
     "+x *** End Patch y\n+*** Begin Patch\n-w"),
    ("*** Begin Patch\n*** Update File: u\n a\n\n-b\n*** End Patch", " a\n \n-b"),
    ("*** Begin Patch\n*** Update File: u\n@@ f\n a\n-b\n-c\n+x\n+c\n+y\n@@\n-d\n*** End Patch",
     "@@ f\n a\n-b\n+x\n c\n+y\n@@\n-d"),
])  # fmt: skip
def test_a_patch_may_hold_marks_empty_lines_and_what_it_adds_again(patch: str, diff: str) -> None:
    assert [edit.diff for edit in edits_of("apply_patch", patch)] == [diff]


WORK = "d:\\Work"


@pytest.mark.parametrize(
    ("path", "cwd", "expected"),
    [
        ("src/a.py", "/w", "/w/src/a.py"),
        ("@../a.py", "/w/b", "/w/a.py"),
        ("/etc/hosts", "/w", "/etc/hosts"),
        ("a.py", "", "/a.py"),
        ("C:\\x\\a.py", "/mnt/c/w", "C:\\x\\a.py"),
        ("C:/x/a.py", WORK, "C:\\x\\a.py"),
        ("src/a.py", WORK, "d:\\Work\\src\\a.py"),
        ("\\\\nas\\x", "/w", "\\\\nas\\x"),
        ("/c/Users/a.py", WORK, "/c/Users/a.py"),
    ],
)
def test_paths_are_absolute_by_the_rules_of_their_system(
    path: str, cwd: str, expected: str
) -> None:
    """Relative paths start at the session's directory, on Windows as elsewhere."""
    assert absolute(path, cwd) == expected
