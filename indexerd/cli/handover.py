"""`continue`: go on with a session's work in another agent."""

from __future__ import annotations

import os
import signal
import time
import uuid
from pathlib import Path
from typing import Any

from indexerd.cli import main as cli
from indexerd.cli.backend import aside, json_text, project, safe
from indexerd.cli.sessions import check_place
from indexerd.disk import create_file, make_directory
from indexerd.paths import directory_of
from indexerd.sources.roots import pi_dir, pi_folder
from indexerd.times import iso

_FIRST_PROMPT = {"claude": ["claude"], "codex": ["codex"], "opencode": ["opencode", "--prompt"]}
IN = cli.option("--in", "agent", "The agent to start.", type=cli.AGENTS, required=True)


@cli.command(cli.REF, IN, cli.FOCUS)
def continue_(ref: str, agent: str, instructions: str | None) -> int:
    """Start another agent with a session's hand-off, in its directory.

    The hand-off is what `compact --handoff` prints: the first prompt of a new session; in pi it is
    the history of a new session, which waits for your prompt.
    """
    call = cli.current().call
    params = {"ref": ref, "cwd": project(), "handoff": True, "instructions": instructions}
    answer = call("compact", params)
    row: dict[str, Any] = call("get", {"ref": answer["sessionId"]})["session"]
    check_place(row | {"agent": agent})
    text, cwd = answer["handoff"], directory_of(row) or str(Path.home())
    if agent == "pi":
        words = ["pi", "--session", str(_history(row, cwd, text))]
    else:
        words = [*_FIRST_PROMPT[agent], text]
    aside(f"indexerd: {agent} continues {safe(row['name'])}")
    os.chdir(cwd)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as for `resume --exec`
    os.execvp(words[0], words)  # noqa: S606 - no shell is wanted


def _history(row: dict[str, Any], cwd: str, text: str) -> Path:
    """Write a session of pi whose history is the hand-off, as the summary of another branch."""
    now, own = iso(time.time()), str(uuid.uuid4())
    folder = Path(pi_dir(os.environ, str(Path.home()))) / "sessions" / pi_folder(cwd)
    header = {"type": "session", "version": 3, "id": own, "timestamp": now, "cwd": cwd}
    header |= {"parentSession": row["sessionFile"]} if row["agent"] == "pi" else {}
    entry = {"type": "branch_summary", "id": uuid.uuid4().hex[:8], "parentId": None}
    entry |= {"timestamp": now, "fromId": "root", "summary": text}
    file = folder / f"{now.replace(':', '-').replace('.', '-')}_{own}.jsonl"
    make_directory(folder)
    create_file(file, (f"{json_text(line)}\n".encode() for line in (header, entry)))
    return file
