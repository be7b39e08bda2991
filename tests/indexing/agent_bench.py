"""A session of Claude Code, Codex or opencode, and the services that sum it up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from indexerd.daemon.pipeline import Reader
from indexerd.daemon.trees import read_alone
from tests.e2e.clients import ClaudeSession, CodexThread
from tests.models.digest_bench import Bench, Services
from tests.sessions.opencode_rows import Rows

USAGE = {"input": 900, "output": 100, "reasoning": 0, "cache": {"read": 0, "write": 0}}


class Stored(Protocol):
    """What a bench needs of a session."""

    id: str


class Opencode:
    """A session of opencode, message by message."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.id = "ses_one"
        self.rows = Rows(root / "opencode.db")
        self.file = self.rows.session(self.id)
        self.count = 0

    def say(self, role: str, text: str, **data: Any) -> str:
        """A message of one text; its id."""
        self.count += 1
        name = f"msg_{self.count:03}"
        more = {"tokens": USAGE} if role == "assistant" else {}
        self.rows.said(self.id, name, role, text, **more | data)
        return name

    def beside(self, name: str, text: str, **data: Any) -> None:
        """A text that a machine put beside a message's own."""
        self.part(name, type="text", text=text, synthetic=True, **data)

    def part(self, name: str, **data: Any) -> None:
        """One more part of a message."""
        self.count += 1
        self.rows.part(self.id, name, f"prt_z{self.count:03}", **data)

    def note(self, text: str) -> str:
        """A message that a machine put under the user's role."""
        self.count += 1
        name = f"msg_{self.count:03}"
        self.rows.message(self.id, name, "user")
        self.beside(name, text)
        return name

    def write(self, path: str) -> str:
        """An answer that writes a file."""
        name = self.say("assistant", "Writing.")
        state = {"status": "completed", "input": {"filePath": path}, "output": "ok"}
        self.part(name, type="tool", tool="write", callID=f"c{self.count}", state=state)
        return name

    def compact(self, summary: str) -> str:
        """A compaction, as opencode stores it; the id of its summary."""
        self.count += 1
        asked = f"msg_{self.count:03}"
        self.rows.message(self.id, asked, "user")
        self.part(asked, type="compaction", auto=True)
        return self.say("assistant", summary, summary=True, parentID=asked)


class AgentBench(Bench):
    """A bench for a session of another agent than pi."""

    def __init__(self, root: Path, agent: str, session: Stored, file: str) -> None:
        super().__init__(root)
        self.agent, self.file = agent, file
        self.session: Any = session

    @contextmanager
    def _services(self) -> Iterator[Services]:
        home = self.root / "home"
        env = {
            "CLAUDE_CONFIG_DIR": str(home / ".claude"),
            "CODEX_HOME": str(home / ".codex"),
            "OPENCODE_DB": str(home / "opencode/opencode.db"),
        }
        row = {"agent": self.agent, "sessionFile": self.file, "sessionId": self.session.id}
        reader = Reader()
        try:
            with read_alone(row, self.settings, env, self.root) as library:
                yield self._made_of(library, reader)
        finally:
            reader.close()


def claude(root: Path) -> tuple[AgentBench, ClaudeSession]:
    """A session of Claude Code."""
    session = ClaudeSession(root / "home", cwd=str(root))
    return AgentBench(root, "claude", session, str(session.path)), session


def codex(root: Path) -> tuple[AgentBench, CodexThread]:
    """A thread of Codex."""
    thread = CodexThread(root / "home")
    return AgentBench(root, "codex", thread, str(thread.path)), thread


def opencode(root: Path) -> tuple[AgentBench, Opencode]:
    """A session of opencode."""
    session = Opencode(root / "home/opencode")
    return AgentBench(root, "opencode", session, session.file), session
