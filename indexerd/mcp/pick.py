"""Which session a tool of the MCP server is about: the one that is named, or the one that runs.

In: a conversation with the daemon, and a reference. Out: `{sessionId, name, …}`. The session in
which a question is asked is never what a name or a half-remembered word means: the words that the
user just wrote are in it. Which one that is, is known only where the host says by what agent it
is (Claude Code, Codex, opencode) and that agent has used a single session of this project since
the server was started. Nothing is guessed beyond that.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from indexerd.errors import AmbiguousError, NotFoundError, UsageError
from indexerd.mcp.daemon import Talk
from indexerd.times import iso_ms

PATIENCE, PAUSE = 2.0, 0.1  # seconds for a session that has only just begun; between two looks
LOOKED_AT = 20  # sessions that are looked at for the running one
_AGENTS = {"claude": "claude", "codex": "codex", "opencode": "opencode"}
_HINT = "give `session`: list_sessions shows the newest first"

Found = Mapping[str, Any]


def agent_of(client: str | None) -> str | None:
    """The agent whose host calls itself so: `claude-code`, `codex-mcp-client`, `opencode`."""
    words = (client or "").lower()
    return next((name for start, name in _AGENTS.items() if words.startswith(start)), None)


def named(talk: Talk, ref: str, *, everywhere: bool = False) -> Found:
    """What `resolve` says of a reference; errors are the daemon's."""
    scope = "all" if everywhere else "project"
    found: Found = talk.ask("resolve", ref=ref, cwd=talk.cwd, scope=scope, exclude=own_id(talk))
    return found


def own_id(talk: Talk) -> str | None:
    """The running session, where it is known."""
    try:
        return str(running(talk, patience=0.0)["sessionId"])
    except (AmbiguousError, NotFoundError, UsageError):
        return None


def running(talk: Talk, *, patience: float = PATIENCE) -> Found:
    """The running session's row. AmbiguousError names several; else an error says why none.

    A session whose first words are only just being written is waited for, `patience` seconds.
    """
    if talk.agent is None or talk.cwd is None:
        raise UsageError("which session is yours cannot be told from here", hint=_HINT)
    until = time.monotonic() + patience
    while not (live := _live(talk)) and time.monotonic() < until:
        time.sleep(PAUSE)
    if len(live) > 1:
        raise AmbiguousError("several sessions are in use in this project", live)
    if not live:
        raise NotFoundError("no session in use is known in this project yet", hint=_HINT)
    found: Found = live[0]
    return found


def _live(talk: Talk) -> list[Any]:
    """Sessions of this host's agent, in this project, that were used since the server began."""
    rows = talk.ask("list", agent=talk.agent, cwd=talk.cwd, limit=LOOKED_AT)["sessions"]
    return [row for row in rows if iso_ms(str(row["modifiedAt"])) >= talk.since * 1000]
