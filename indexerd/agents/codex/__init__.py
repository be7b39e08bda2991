"""Codex: one rollout a session, in `<CODEX_HOME>/sessions/<year>/<month>/<day>`.

Three dialects have been written: bare items, items in an envelope with events beside them, and
envelopes with ordinals, whose forks only point at the history that they share.
"""

from __future__ import annotations

import shlex

from indexerd.agents.base import Adapter
from indexerd.agents.codex.parse_entry import read
from indexerd.agents.codex.parse_tree import scan
from indexerd.agents.codex.session_meta import base
from indexerd.agents.json_lines import in_directory


def resume_command(session_id: str, cwd: str, session_file: str, variables: str = "") -> str:
    back = f"{variables}codex unarchive {shlex.quote(session_id)} && "  # none is resumed from there
    archived = "/archived_sessions/" in session_file
    command = f"{back if archived else ''}{variables}codex resume"
    return in_directory(cwd, command, session_id)


ADAPTER = Adapter(scan, read, resume_command, base=base)
