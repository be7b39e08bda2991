"""What a run has found out so far, so that one that was stopped goes on where it was.

One line for each mutant, below the digest of the tree: what was found on another tree is forgotten.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

from tests.mutants.recording import SAMPLE, Judged

PLACES = ("indexerd", "tests")


class Notes:
    """The fates of mutants on one tree."""

    def __init__(self, path: Path, of: str) -> None:
        self._path = path
        lines = path.read_text().split("\n") if path.exists() else []
        whole = [one for one in lines[1:] if one.endswith("}")] if lines[:1] == [of] else []
        path.write_text("\n".join([of, *whole, ""]))
        self.held = {one.name: one for one in (Judged(**json.loads(line)) for line in whole)}

    def add(self, one: Judged) -> None:
        """Note a fate."""
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(one)) + "\n")


def tree(root: Path) -> str:
    """A digest of the sources, the tests and what they read; a record of mutants is none of it."""
    digest = hashlib.sha256()
    for place in PLACES:
        for path in sorted((root / place).rglob("*")):
            if path.is_file() and path.suffix != ".pyc" and path != SAMPLE:
                digest.update(f"{path.relative_to(root)}\0".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]
