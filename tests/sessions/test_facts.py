"""Facts of a session's tool calls."""

import pytest

from indexerd.sessions.facts import absolute

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
