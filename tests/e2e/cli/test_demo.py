"""`make demo`, as somebody runs it who has just fetched the project."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.e2e.world import ROOT


def test_the_demo_says_where_the_meta_file_is() -> None:
    """By its whole path, so that it can be looked for at home."""
    done = subprocess.run(
        [sys.executable, "-m", "indexerd.demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    (home,) = re.findall(r"^A home with three pi sessions, in (/.+)$", done.stdout, re.MULTILINE)
    (found,) = re.findall(r"(/\S+/sessions-meta/\S+\.meta\.json)", done.stdout)
    session = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    meta = re.escape(f"{home}/.pi/agent/sessions-meta/")
    assert re.fullmatch(meta + session + re.escape(".meta.json"), found)
