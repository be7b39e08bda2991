"""Where API keys come from, and where not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.errors import ConfigError
from indexerd.models import keys
from indexerd.settings import Provider

SECRET = "AIza-secret-canary"


def key_file(directory: Path, content: bytes = SECRET.encode(), mode: int = 0o600) -> Path:
    """Write a key file."""
    path = directory / "key"
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_a_key_that_merely_lies_there_is_never_used() -> None:
    """Sending transcripts out is the user's explicit choice."""
    env = {"GEMINI_API_KEY": SECRET, "GOOGLE_API_KEY": SECRET, "OPENAI_API_KEY": SECRET}

    assert keys.find("google", Provider(), env) is None
    assert keys.find("openai", Provider(), env) is None


def test_the_order_is_ours_then_named_then_file(tmp_path: Path) -> None:
    """Our own variable wins over the named one, and that over the file."""
    file = key_file(tmp_path, b"from-file\n")
    named = Provider(api_key_env="MY_KEY", api_key_file=str(file))
    ours = "INDEXERD_GOOGLE_API_KEY"

    found = [
        keys.find("google", named, env)
        for env in ({ours: "a", "MY_KEY": "b"}, {ours: " ", "MY_KEY": "b"}, {"MY_KEY": ""})
    ]

    assert found == ["a", "b", "from-file"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o660, 0o777])
def test_a_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    """C4: any right of group or others."""
    with pytest.raises(ConfigError, match="group or others"):
        keys.find("google", Provider(api_key_file=str(key_file(tmp_path, mode=mode))), {})


def test_what_is_no_plain_file_is_refused(tmp_path: Path) -> None:
    """C4: a symlink, a directory, a FIFO (which must not block), nothing at all."""
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(key_file(tmp_path))
    os.mkfifo(pipe, 0o600)
    wanted = {
        link: "symbolic link",
        tmp_path: "not a regular file",
        pipe: "not a regular file",
        tmp_path / "nothing": "No such file",
        Path("relative"): "absolute path",
    }

    for path, message in wanted.items():
        with pytest.raises(ConfigError, match=message) as caught:
            keys.find("google", Provider(api_key_file=str(path)), {})
        (problem,) = caught.value.problems
        assert problem["file"] == str(path)
        assert problem["key"] == "providers.google.api_key_file"
        assert problem["hint"]


@given(st.binary(max_size=5000))
def test_no_content_of_a_file_raises_anything_else(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    """C4: whatever the file holds is one word of ASCII, or a problem that does not quote it."""
    path = key_file(tmp_path_factory.getbasetemp(), content)

    try:
        key = keys.find("google", Provider(api_key_file=str(path)), {})
        said = ""
    except ConfigError as bad:
        key, said = None, bad.problems[0]["message"]

    if key is None:
        assert said.startswith(("does not hold a key", "is larger"))
    else:
        assert key.encode() == content.strip()


def test_a_variable_with_a_bad_value_is_a_problem_that_does_not_quote_it() -> None:
    """X11: an HTTP library would quote a header value that it cannot send."""
    bad = f"{SECRET}\r\nX-Injected: 1"

    with pytest.raises(ConfigError) as caught:
        keys.find("google", Provider(api_key_env="MY_KEY"), {"MY_KEY": bad})

    assert SECRET not in str(caught.value)
    assert "MY_KEY" in str(caught.value)
