"""The context of a tool call: the daemon, the project, and the session that is meant."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from indexerd.client import call_once, socket_path
from indexerd.errors import AmbiguousError, NotFoundError, UsageError
from indexerd.mcp.rendering import DATA, Answer, Renderer
from indexerd.paths import Places, directory_of, within
from indexerd.privacy.redact import redactor
from indexerd.settings import read_config
from indexerd.times import iso

SECONDS = 600.0  # for an answer, which may need model calls; the daemon has shorter limits
_HINT = "pass `session`: list_sessions shows the newest first"


@dataclass(slots=True)
class DaemonAccess:
    """Where the daemon is, for one server."""

    where: Places
    env: Mapping[str, str]
    cwd: str | None = None  # the server's own directory: hosts start it in the project
    started: float = field(default_factory=time.time)


class Conversation:
    """The requests of one tool call; each has its own connection to the daemon."""

    def __init__(self, access: DaemonAccess, cwd: str, host: str) -> None:
        """`host` is the name that the calling program gives itself, such as `codex-mcp-client`."""
        self._access = access
        self.renderer = Renderer(redactor(read_config(access.where, access.env).settings))
        agents = ("claude", "codex", "opencode")
        self._agent = next((agent for agent in agents if host.lower().startswith(agent)), None)
        self.cwd = access.cwd  # the project; None: all projects
        if cwd:
            self.cwd = os.path.abspath(Path(access.cwd or "/", os.path.expanduser(cwd)))  # noqa: PTH100, PTH111 - drops `..`, and never fails

    def ask(self, method: str, **params: Any) -> Any:
        """Return the daemon's answer; params that are None, "" or False are left out."""
        fields = {k: v for k, v in params.items() if v not in (None, "") and v is not False}
        return call_once(socket_path(self._access.env), method, fields, SECONDS)

    def resolve(self, ref: str, *, scope: str = "project", certain: bool = False) -> Answer:
        """Resolve a reference to a session other than the caller's; "" is the caller's own.

        With `certain`, for changes, a name that is only similar is an AmbiguousError.
        """
        if not ref:
            return self.running()
        own = self.own_id()
        match: Answer = self.ask("resolve", ref=ref, cwd=self.cwd, scope=scope, exclude=own)
        if certain and match.get("how") in ("fuzzy", "search"):
            raise AmbiguousError("this is only similar to a session's name", [match])
        return match

    def id_of(self, ref: str, *, certain: bool = False) -> str:
        return str(self.resolve(ref, certain=certain)["sessionId"])

    def own_id(self) -> str | None:
        """Return the id of the caller's session, if it is known."""
        with suppress(AmbiguousError, NotFoundError, UsageError):
            return str(self.running()["sessionId"])
        return None

    def running(self) -> Answer:
        """Return the only session of this host's agent that was used here since the server started.

        UsageError, NotFoundError or AmbiguousError if there is none, or more than one.
        """
        if self._agent is None or self.cwd is None:
            raise UsageError("it is not known which session is yours", hint=_HINT)
        where = {"agent": self._agent, "cwd": self.cwd, "since": iso(self._access.started)}
        live = self.ask("list", **where, hidden=True, limit=20)["sessions"]
        live = [row for row in live if within(directory_of(row), self.cwd)]
        if len(live) > 1:
            raise AmbiguousError("several sessions are in use in this project", live)
        if not live:
            raise NotFoundError("no session in this project is known to be in use", hint=_HINT)
        return dict(live[0])

    def about(
        self, answer: Answer, by: str = "", *, row: Answer | None = None, model: str | None = None
    ) -> Answer:
        """Render an answer about one session, with a line that says who wrote it."""
        row = row or self.ask("get", ref=answer["sessionId"])["session"]
        model = model or (answer.get("usage") or {}).get("model")
        by = f"; {by} by {model}" if by and model else ""
        whose = f"From session {row['sessionId']}, written by agent {row['agent']}{by}: {DATA}."
        head = {"sessionId": row["sessionId"], "name": row["name"]}
        rendered: Answer = self.renderer.render(head | answer)
        return {"provenance": self.renderer.line(whose)} | rendered
