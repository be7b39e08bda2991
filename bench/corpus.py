"""Made-up sessions of all four agents, as the real ones write them.

In: a folder, an agent, how many sessions of how many bytes together, a seed. Out: files laid out
as below the agent's own directory (`PI_CODING_AGENT_DIR`, `CLAUDE_CONFIG_DIR`, `CODEX_HOME`,
opencode's data directory), and what was made. The same arguments give the same bytes; 100 MB take
about a second. Sizes of sessions are log-normal, as those of people are: a few hold most bytes.

What the four have in common (who speaks when, and for how long) is drawn in corpus_text.py; how
each of them writes it stands in corpus_pi.py, corpus_claude.py, corpus_codex.py and
corpus_opencode.py.

    python bench/corpus.py FOLDER --agent pi --sessions 100 --size 100000000 --seed 1
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from random import Random

import corpus_claude
import corpus_codex
import corpus_opencode
import corpus_pi
from corpus_text import POOL, Draw

AGENTS = ("pi", "claude", "codex", "opencode")
SPREAD = 1.3  # of the sessions' sizes: the deviation of their logarithm
LEAST = 1500  # bytes of a session
BEGIN = 1_760_000_000_000  # ms since the epoch: no session is older
WITHIN = 150 * 86_400_000  # ms


@dataclass(frozen=True)
class Made:
    """What was made. Paths are those that the index knows sessions by."""

    files: list[str]  # of opencode: the database's path with the session's id below it
    bytes: int  # on disk
    lines: int  # of opencode: messages
    users: int  # human messages, on all branches


def make(  # noqa: PLR0917 - what a corpus is, in the order in which one says it
    folder: Path, agent: str, sessions: int, size_bytes: int, seed: int, image_share: float = 0.0
) -> Made:
    """Make sessions; `size_bytes` of them together, about `image_share` of it pictures."""
    rng = Random(seed)
    shares = [math.exp(rng.gauss(0, SPREAD)) for _ in range(sessions)]
    one = size_bytes / sum(shares)
    plans = [(max(LEAST, int(share * one)), BEGIN + int(rng.random() * WITHIN)) for share in shares]
    draw = Draw(seed, min(POOL, max(1 << 16, size_bytes // 4)))
    if agent == "opencode":
        return Made(*corpus_opencode.write(folder, draw, plans, image_share))
    write = {"pi": corpus_pi.write, "claude": corpus_claude.write, "codex": corpus_codex.write}
    files, size, lines, users, pictures = [], 0, 0, 0, 0
    for target, at in plans:
        due = max(0, int(image_share * (size + target)) - pictures) if target > 100_000 else 0
        made = write[agent](folder, draw, target, at, due)
        files.append(made.path)
        size += made.size
        lines += made.lines
        users += made.users
        pictures += made.pictures
    return Made(files, size, lines, users)


def main() -> int:
    """Make a corpus to look at."""
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    asked.add_argument("folder", type=Path)
    asked.add_argument("--agent", choices=AGENTS, default="pi")
    asked.add_argument("--sessions", type=int, default=100)
    asked.add_argument("--size", type=int, default=10_000_000, help="bytes")
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--image-share", type=float, default=0.0)
    given = asked.parse_args()
    made = make(
        given.folder, given.agent, given.sessions, given.size, given.seed, given.image_share
    )
    print(f"{len(made.files)} sessions, {made.bytes} bytes, {made.lines} lines, {made.users} asked")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
