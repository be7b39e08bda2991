"""The MCP server's way to the daemon, and which session is meant.

Each question has a connection of its own, so that a daemon that was down is simply there again at
the next call. What surprised us: hosts start their servers with hardly any environment (Codex
passes on HOME and PATH, but no XDG_RUNTIME_DIR), so the socket is looked for where a login session
has it, too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from indexerd.client import Client
from indexerd.errors import AmbiguousError, ConfigError, DaemonDownError, NotFoundError, UsageError
from indexerd.mcp.rendering import DATA, Answer, Renderer
from indexerd.paths import Places, socket_places
from indexerd.privacy.patterns import compile_patterns
from indexerd.settings import read_config
from indexerd.times import iso_ms

SECONDS = 20.0  # for one answer; the daemon itself may wait 5 s for its first scan
MODEL_SECONDS = 600.0  # for one that a model makes: the daemon has the shorter limits
_HINT = "give `session`: list_sessions shows the newest first"


@dataclass(slots=True)
class DaemonAccess:
    """Where the daemon is, for one server."""

    where: Places
    env: Mapping[str, str]
    cwd: str | None = None  # the server's own directory: hosts start it in the project
    started: float = field(default_factory=time.time)

    def connect(self, seconds: float) -> Client:
        """A connection. DaemonDownError names the place where the socket should be."""
        missing: DaemonDownError | None = None
        for path in socket_places(self.where, self.env):
            try:
                return Client(path, seconds)
            except DaemonDownError as bad:
                missing = missing or bad
        raise missing or DaemonDownError("no daemon answers")

    def converse(self, cwd: str = "", host: str = "", *, verbatim: bool = True) -> Conversation:
        """What one call of a tool needs. `host` is what the program that calls names itself.

        UsageError where `cwd` can be no directory; ConfigError where a session's own words are
        asked for (`verbatim`) and the user's patterns of secrets cannot be read.
        """
        loaded = read_config(self.where, self.env)
        if loaded.problems and verbatim:
            raise ConfigError(loaded.problems)
        redact = loaded.settings.redact
        renderer = Renderer(compile_patterns(redact.extra_patterns), redacting=redact.enabled)
        agents = ("claude", "codex", "opencode")  # as in `claude-code`, `codex-mcp-client`
        agent = next((one for one in agents if host.lower().startswith(one)), None)
        return Conversation(self, renderer, _directory(cwd, self.cwd), agent)


@dataclass(frozen=True, slots=True)
class Conversation:
    """The questions of one call of a tool."""

    daemon: DaemonAccess
    renderer: Renderer
    cwd: str | None  # the project; None where all are meant
    agent: str | None  # whose host calls, where that is known

    def ask(self, method: str, *, model: bool = False, **params: Any) -> Any:
        """The daemon's answer; params that are None, "" or False are left out."""
        given = {
            key: one for key, one in params.items() if one not in (None, "") and one is not False
        }
        with self.daemon.connect(MODEL_SECONDS if model else SECONDS) as client:
            return client.call(method, given)

    def resolve(self, ref: str, *, scope: str = "project", certain: bool = False) -> Answer:
        """The session that a reference means, never the one that asks; "" means that one.

        `certain`: something is to be changed, so a name that is only close means nothing.
        """
        if not ref:
            return self.running()
        own = self.own_id()
        found: Answer = self.ask("resolve", ref=ref, cwd=self.cwd, scope=scope, exclude=own)
        if certain and found.get("how") == "fuzzy":
            raise AmbiguousError("that is only close to a session's name", [found])
        return found

    def id_of(self, ref: str, *, certain: bool = False) -> str:
        """The id of the session that a reference means."""
        return str(self.resolve(ref, certain=certain)["sessionId"])

    def own_id(self) -> str | None:
        """The id of the session that asks, where it is known."""
        with suppress(AmbiguousError, NotFoundError, UsageError):
            return str(self.running()["sessionId"])
        return None

    def running(self) -> Answer:
        """The row of the one session of this host's agent in use here since the server began.

        Raises UsageError, NotFoundError or AmbiguousError where that cannot be told for certain.
        """
        if self.agent is None or self.cwd is None:
            raise UsageError("which session is yours cannot be told from here", hint=_HINT)
        rows = self.ask("list", agent=self.agent, cwd=self.cwd, limit=20)["sessions"]
        began = self.daemon.started * 1000
        live = [one for one in rows if iso_ms(str(one["modifiedAt"])) >= began]
        if len(live) > 1:
            raise AmbiguousError("several sessions are in use in this project", live)
        if not live:
            raise NotFoundError("no session of this project is known to be in use", hint=_HINT)
        return dict(live[0])

    def about(self, found: Answer, by: str = "") -> Answer:
        """The daemon's answer about one session, rendered, behind whose words these are."""
        row = self.ask("get", ref=found["sessionId"])["session"]
        model = (found.get("usage") or {}).get("model")
        whose = self.provenance(row, f"{by} by {model}" if by and model else "")
        head = {"sessionId": row["sessionId"], "name": row["name"]}
        return whose | dict(self.renderer.render(head | found))

    def provenance(self, row: Mapping[str, Any], by: str) -> Answer:
        """The field that says whose words an answer about one session holds."""
        by = f"; {by}" if by else ""
        whose = f"From session {row['sessionId']}, written by agent {row['agent']}{by}: {DATA}."
        return {"provenance": self.renderer.line(whose)}


def _directory(named: str, own: str | None) -> str | None:
    """The directory that is named, from the server's `own`; that one, if none is named."""
    try:
        return os.path.abspath(Path(own or "", Path(named).expanduser())) if named else own  # noqa: PTH100 - drops `..`
    except (RuntimeError, FileNotFoundError):
        hint = "give an absolute path, or leave `cwd` out"
        raise UsageError("cwd leads to no known directory", hint=hint) from None
