"""What a human asked for with a slash command (formats.md 2.3).

In: the text of a line that records a command, in `<command-message>`, `<command-name>` and
`<command-args>`. Out: the request, or "" where the command carries none.

The rule: words after a command's name are a request, unless the client itself carries the command
out. `/goal make the tests pass` is one; `/model opus` is a setting, and `/compact keep the
decisions` tells the client how to sum up. Of `/goal` the words are the whole request. Of a skill or
a custom command the name says what is to be done with them, so it stays: `/review 167`.

What surprised us: which tag comes first tells how a command works. `<command-message>`: it expands
to a prompt, which follows in a line of its own, and `<command-args>` is there only where words
were typed. `<command-name>`: it is the client's own; but `/goal` and `/plan`, whose words the
model gets, look just like `/model`. So the client's other commands are listed, and one that is
not listed counts: a request that is lost is worse than a setting that is counted.
"""

from __future__ import annotations

COMMAND = ("<command-name>", "<command-message>", "<command-args>")

_EXPANDS = "<command-message>"
# The client's own commands that take words which the model is not asked.
_OWN = frozenset(
    {
        *("add-dir", "advisor", "agents", "autocompact", "branch", "btw", "bug", "cd", "chrome"),
        *("clear", "color", "compact", "config", "context", "continue", "copy", "cost", "effort"),
        *("exit", "export", "fast", "feedback", "focus", "fork", "hooks", "ide", "login", "logout"),
        *("marketplace", "mcp", "memory", "model", "name", "new", "output-style", "permissions"),
        *("plugin", "plugins", "privacy-settings", "quit", "rc", "recap", "release-notes"),
        *("reload-plugins", "remote-control", "remote-env", "rename", "reset", "resume", "rewind"),
        *("sandbox", "scroll-speed", "settings", "share", "skills", "stats", "status", "stop"),
        *("tag", "tasks", "teleport", "theme", "tui", "usage", "vim", "voice"),
    }
)
_SWITCHES = frozenset(
    {"cancel", "clear", "none", "off", "on", "open", "reset", "share", "status", "stop"}
)


def request(text: str) -> str:
    """The request of a command; "" for one without, and for any other text."""
    if not text.startswith(COMMAND):
        return ""
    name, words = _held(text, "name"), _held(text, "args")
    if not words or not name.startswith("/"):
        return ""
    if text.startswith(_EXPANDS):
        return f"{name} {words}"
    return "" if name[1:] in _OWN or words.lower() in _SWITCHES else words


def _held(text: str, tag: str) -> str:
    """What stands in a tag; up to the text's end where the tag is not closed."""
    inner = text.partition(f"<command-{tag}>")[2]
    closed, mark, rest = inner.rpartition(f"</command-{tag}>")
    return (closed if mark else rest).strip()
