"""One module or package per agent: how its session files are skimmed and read. Pure.

What an agent keeps in a database reaches its adapter as lines of JSON all the same, made by
`io`: the first says what the session is, and each further one is a message.
"""

from __future__ import annotations

from typing import Protocol

from indexerd.agents import claude, codex, opencode, pi
from indexerd.events import Base, Entry
from indexerd.sessions.state import SessionState
from indexerd.sources.lines import Oversize


class Adapter(Protocol):
    """What a module for an agent offers."""

    NAME: str

    def skim(self, state: SessionState, data: bytes, base: int) -> None:
        """Take in whole lines that stand at file offset `base`. Nothing they hold raises."""
        ...

    def skim_oversize(self, state: SessionState, line: Oversize) -> None:
        """Take in a line too long to hold, from its two ends."""
        ...

    def read(self, line: bytes, entry_id: str) -> Entry:
        """Parse one entry's line in full; ValueError when it holds no JSON object."""
        ...

    def told(self, line: bytes, entry_id: str) -> Entry:
        """The same, as far as search and facts need it, and sooner.

        Without thoughts, pictures, results, details and what calls were given.
        """
        ...

    def base(self, line: bytes) -> Base | None:
        """The history in another file that a file's first line says comes before its own."""
        ...

    def preview(self, text: str) -> str:
        """A user message as one line of at most 200 characters, without what was put around it."""
        ...

    def resume_command(
        self, session_id: str, cwd: str, session_file: str, variables: str = "", /
    ) -> str:
        """The shell command with which the agent opens this session again.

        `variables` are the shell's assignments that tell it where its sessions are, if any.
        """
        ...


ADAPTERS: dict[str, Adapter] = {one.NAME: one for one in (pi, claude, codex, opencode)}
