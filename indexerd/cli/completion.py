"""Complete sessions in a shell, importing only the standard library, as click is slow to start.

Click completes everything else, and makes the scripts that ask for completions.
"""

from __future__ import annotations

import os

from indexerd.cli.backend import project, put
from indexerd.client import call_once, socket_path
from indexerd.errors import IndexerdError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SECONDS = 1.0
# Commands whose first argument is a session.
COMMANDS = frozenset(
    "ask branch branch-summary branches compact context context-get context-set continue digest"  # noqa: SIM905 - a table
    " export family footer hide history index label path pin purge rename resolve restore resume"
    " resume-context show stats tag tree web".split()
)
# How click writes a value and its help for a shell; no value has a colon.
_WRITTEN: dict[str, Callable[[str, str], str]] = {
    "bash_complete": lambda value, _help: f"plain,{value}",
    "zsh_complete": lambda value, about: f"plain\n{value}\n{about}",
    "fish_complete": lambda value, about: f"plain,{value}\t{about}",
}


def sessions(begun: str) -> list[tuple[str, str]]:
    """Complete a session's id, or its name with hyphens; return values and what they are.

    A name of several sessions is offered once: the command lists them. Only an id names one.
    """
    try:
        params = {"prefix": begun, "cwd": project()}
        items = call_once(socket_path(os.environ), "complete", params, SECONDS)["items"]
    except IndexerdError:
        return []
    found: dict[str, str] = {}
    for item in items:
        about = f"{item['label']} ({item['age']})"
        letters = (char if char.isalnum() or char == "_" else " " for char in item["name"].lower())
        name = "-".join("".join(letters).split())
        for word in (name, item["sessionId"]):
            if word and word.startswith(begun.lower()):
                found.setdefault(word, about)
    return [*found.items()]


def attempt(env: Mapping[str, str]) -> bool:
    """Complete a command's first argument if it is a session; False: click must do it."""
    task, line, at = map(env.get, ("_INDEXERD_COMPLETE", "COMP_WORDS", "COMP_CWORD"), ("", "", ""))
    written, words = _WRITTEN.get(task), line.split()
    begun = "".join(words[2:3])
    # fish gives the word, the others its number; only the program and the command come before it.
    is_first = at == (begun if task.startswith("fish") else "2") and not words[3:]
    plain = not begun.startswith("-") and not set(line) & set("'\"\\")
    if not (written and is_first and plain and COMMANDS.intersection(words[1:2])):
        return False
    put(written(value, about) for value, about in sessions(begun))
    return True
