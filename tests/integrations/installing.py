"""Short forms: put something into a configuration, take it out, do both."""

from __future__ import annotations

from pathlib import Path

from indexerd.integrations import edits as installs
from indexerd.integrations import jsonc
from indexerd.integrations.edits import Edit

LINES = ['command = "/x/indexerd"', 'args = ["mcp"]']


def add(text: str) -> str:
    """A change of a JSON file."""
    root = jsonc.parse(text)
    return text if root.member("ours") else jsonc.insert(text, root, {"x": 1}, "ours")


def take(text: str) -> str | None:
    """What undoes it."""
    root = jsonc.parse(text)
    at = [n for n, one in enumerate(root.children) if one.key == "ours"]
    return jsonc.remove(text, [(root, at[0])]) if at else text


def both(path: Path) -> tuple[Edit, Edit]:
    """The two edits of a path."""
    return (
        installs.json_edit(str(path), add),
        installs.json_edit(str(path), take, removing=True),
    )
