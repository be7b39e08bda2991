"""Every fuzz target by its name: a function of bytes that lets only promised errors pass.

Whatever else comes out of one is a finding. The corpora have the names of the targets.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.fuzz import doors, files, sessions, texts

CORPUS = Path(__file__).parent / "corpus"
FILE_MAX = 4096  # bytes of a corpus file
FILES_MAX = 40  # of one target
TARGETS: dict[str, Callable[[bytes], None]] = {
    **sessions.TARGETS,
    **texts.TARGETS,
    **files.TARGETS,
    **doors.TARGETS,
}


def corpus(name: str) -> list[Path]:
    """The files of a target's corpus, always in the same order."""
    return sorted(path for path in (CORPUS / name).glob("*") if path.is_file())
