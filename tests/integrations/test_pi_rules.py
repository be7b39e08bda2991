"""Rules that pi's extension shares with the daemon give the same answers, run by node."""

import itertools
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.paths import Places
from indexerd.references.parse import find
from tests.integrations.acted_pi import Pi, needed

pytestmark = needed


@pytest.fixture(scope="module")
def pure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Call a function of a module: `pure("status", "usd", 0.5)`."""
    made = Pi(folder := tmp_path_factory.mktemp("pure"), folder / "none")

    def call(module: str, name: str, *args: Any) -> Any:
        return made.do(pure=module, name=name, args=args)["value"]

    yield call
    made.leave()


OURS = st.sampled_from(["", "/run/x", "~", "~/deep/x", "/a b/ü"])
XDG = st.sampled_from(["", "/run/x", "relative", "~"])
PLACES = {"INDEXERD_SOCKET": OURS, "INDEXERD_STATE_DIR": OURS}
BASES = {"XDG_RUNTIME_DIR": XDG, "XDG_STATE_HOME": XDG}


@settings(max_examples=60, deadline=None)
@given(env=st.fixed_dictionaries({}, optional=PLACES | BASES))
def test_the_socket_is_where_the_daemon_has_it(pure: Any, env: dict[str, str]) -> None:
    """interfaces.md 1: extension and daemon find the socket by the same rule."""
    ours = str(Places(env, home=Path("/home/me")).socket)
    if sys.platform != "darwin":
        assert pure("daemon", "socketPath", env, "/home/me", "linux") == ours


@given(text=st.text(max_size=300), most=st.integers(2, 80))
@settings(max_examples=60, deadline=None)
def test_shown_texts_are_one_line(pure: Any, text: str, most: int) -> None:
    """No control character, direction mark, line break or lone surrogate."""
    line = pure("status", "oneLine", text, most)
    assert len(line) <= most
    assert not {unicodedata.category(one) for one in line} & {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
    assert line == " ".join(line.split())


def test_no_question_is_cut_short(pure: Any) -> None:
    """S0.65: what the daemon treats as a question is also waited for as one."""
    names = ("a", "b-c~2", '"a b"', "\u201ea b\u201c", "\u00aba b\u00bb", "\u201ca b\u201d")
    parts = ("", "\u201cSee "), ("@@",), names, (":", "\uff1a"), (" why", "why so")
    prompts = map("".join, itertools.product(*parts, "?\uff1f\u061f\u2047\u2048\u2049"))
    questions = [text for text in prompts if any(each.question for each in find(text))]
    assert len(questions) > 200
    assert [text for text in questions if not pure("words", "asks", text)] == []


FILE = '<file name="/w/a">\n{}\n</file>\n'
SKILL = '<skill name="s" location="/s">\n@@b\n</skill>\n\n'


@pytest.mark.parametrize(
    ("prompt", "left"),
    [
        (FILE.format("@@b: why?") + "See @@a.", "\n\nSee @@a."),
        ("piped @@a " + FILE.format("@@b") * 3 + "@@c", "piped @@a \n\n@@c"),
        (FILE.format("</file>\n@@b: why?") + "@@a", "\n\n@@a"),
        (FILE.format("</skill> @@b <skill name=") + "@@a", "\n\n@@a"),
        (SKILL + "@@a", "\n\n\n@@a"),
        ("See @@a </file>", "See @@a </file>"),
        ('A <file name="b"> @@a', 'A <file name="b"> @@a'),
        ('</file> @@a <file name="b">', '</file> @@a <file name="b">'),
        ('Say <skill name="x"> @@a </skill>', 'Say <skill name="x"> @@a </skill>'),
        ('<file name="' * 80_000 + "@@a", '<file name="' * 80_000 + "@@a"),
    ],
)
def test_attached_files_contain_no_references(pure: Any, prompt: str, left: str) -> None:
    """`@@` in an attached file or a skill is no reference, however the text ends."""
    assert pure("words", "own", prompt) == left
