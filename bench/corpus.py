"""Made-up sessions of all four agents, as their clients write them; the same for the same seed.

Sizes of sessions are log-normal, as with real users: a few have most of the bytes. Sizes of texts
follow the quantiles of pi's own public sessions; 1 to 2 % of the characters are not ASCII, in
clusters, as in real texts. Texts are already escaped for JSON, and cut at spaces from pools that
are made once: 100 MB take some seconds. Words, sizes at some quantiles and the lines themselves are
in lines.txt, opencode's tables in opencode.sql.

Every session's last answer has a unique word (`Session.word`), with which searches are checked.
"""

from __future__ import annotations

import base64
import math
import re
import sqlite3
from bisect import bisect
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from random import Random

PLACES = {  # where each agent keeps its sessions, below a home directory
    "pi": ".pi/agent/sessions",
    "claude": ".claude/projects",
    "codex": ".codex/sessions",
    "opencode": ".local/share/opencode",
}
SPREAD = 1.3  # standard deviation of the logarithm of a session's size
LEAST = 1500  # bytes of a session
NOW = 1_767_225_600_000  # ms since the epoch; sessions begin within the 150 days before it
DAY = 86_400_000
PICTURED = 400_000  # bytes; a larger session may have pictures
FRAME = 220  # bytes that a row of opencode's database takes in addition to its data
QUANTILES = (0.0, 0.1, 0.5, 0.9, 0.99, 1.0)  # of sizes
TOOLS, OFTEN = ("bash", "edit", "read", "write"), (49, 78, 97, 100)

HERE = Path(__file__).parent


def _lines() -> dict[tuple[str, str], list[bytes]]:
    """Return the lines of lines.txt by their first two words, with fragments filled in."""
    found: dict[tuple[str, str], list[bytes]] = {}
    for row in (HERE / "lines.txt").read_text().splitlines():
        agent, event, line = row.split(" ", 2)
        if agent != "#":
            for name in re.findall("@([a-z]+)@", line):
                line = line.replace(f"@{name}@", found[agent, name][0].decode())
            found.setdefault((agent, event), []).append(line.encode())
    return found


LINES = _lines()
SIZES = {kind: [*map(int, row[0].split())] for (of, kind), row in LINES.items() if of == "size"}
FRESH = {"id", "at", "ms", "count", "uuid", "parent"}  # values that differ in each line


@dataclass(frozen=True)
class Session:
    """A session that was made."""

    agent: str
    id: str
    path: str  # in the index: for opencode, the database's path, "/" and the session's id
    word: str  # only this session has it
    name: str  # given by its user, or ""
    leaf: str  # id of its last entry (pi, Claude Code)
    users: int  # human messages, on all branches
    cwd: str


def letters(number: int, mark: str) -> str:
    """Make a word of a number; no vowels follow the mark, so that no stemmer shortens it."""
    return mark + "".join("bcfhkptvwxz"[number // 11**place % 11] for place in range(6))


def iso(ms: float) -> str:
    """Format a time as all four agents do."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")[:23] + "Z"


class Draw:
    """Sizes, ids, texts and pictures from one seed."""

    def __init__(self, seed: int, pool: int = 2 << 20) -> None:
        """`pool` is the number of bytes from which each kind of text is cut."""
        self.rng = Random(seed)
        self.random = self.rng.random
        self.common, syllables, foreign = (
            LINES["text", kind][0].decode().split() for kind in ("common", "syllables", "foreign")
        )
        code = [line.decode() for line in LINES["text", "code"]]
        found = dict.fromkeys(self.common)
        while len(found) < 12_000:
            found["".join(self.rng.choices(syllables, k=self.rng.randint(2, 4)))] = None
        self.words = list(found)
        weights = list(accumulate(1 / (rank + 2.7) for rank in range(len(found))))
        picked = self.rng.choices(self.words, cum_weights=weights, k=max(3000, pool // 6))
        lines = (
            "\\t" * int(self.random() * 3.6) + self.rng.choice(code).format(*picked[at : at + 3])
            for at in range(0, len(picked) - 3, 5)
        )
        self._code = "\\n ".join(lines).encode()
        for at in range(5, len(picked), 9):
            picked[at] += self.rng.choice((".", ".", ",", ",", ".\\n\\n", ":"))
        for start in range(0, len(picked) - 500, 1500):
            for at in self.rng.sample(range(start, start + 500), 80):
                picked[at] = self.rng.choice(foreign)
        self._prose = " ".join(picked).encode()
        self._base64 = base64.b64encode(self.rng.randbytes(max(3000, pool * 3 // 4)))

    def size(self, kind: str) -> int:
        """Draw the size of a text: logarithmic interpolation between the quantiles."""
        share, at = self.random(), SIZES[kind]
        low = bisect(QUANTILES, share) - 1
        part = (share - QUANTILES[low]) / (QUANTILES[low + 1] - QUANTILES[low])
        return int(at[low] * (at[low + 1] / at[low]) ** part)

    def hex(self, digits: int) -> str:
        return f"{self.rng.getrandbits(4 * digits):0{digits}x}"

    def uuid(self) -> str:
        digits = self.hex(32)
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"

    def prose(self, size: int) -> bytes:
        """Make the text of a message."""
        return self._cut(self._prose, size)

    def code(self, size: int) -> bytes:
        """Make a tool's arguments or result."""
        return self._cut(self._code, size)

    def base64(self, size: int) -> bytes:
        return (self._base64 * (1 + size // len(self._base64)))[: size & ~3]

    def name(self) -> str:
        return " ".join(self.rng.choices(self.words[:4000], k=self.rng.randint(2, 5)))

    def _cut(self, pool: bytes, size: int) -> bytes:
        pool *= 1 + 2 * size // len(pool)
        start = pool.find(b" ", int(self.random() * (len(pool) - size - 200))) + 1
        stop = pool.rfind(b" ", start, start + size)
        return pool[start:stop] if stop > start else pool[start : pool.find(b" ", start)]


class Writer(dict[bytes, bytes]):
    """A session being written; as a mapping, the values for its lines."""

    def __init__(self, agent: str, draw: Draw, ms: int, word: str) -> None:
        super().__init__()
        self.agent, self.draw, self.ms, self.word = agent, draw, ms, word
        self.began, self.own = iso(ms), draw.uuid()
        self.cwd = f"/home/dev/project-{int(200 * draw.random() ** 2):03d}"
        self.lines: list[bytes] = []
        self.above = self.before = self.turn = self.last_id = self.name = ""
        self.size = self.target = self.users = 0

    def __missing__(self, key: bytes) -> bytes:
        name = key.decode()
        found = self.value(name)
        value = found if isinstance(found, bytes) else str(found).encode()
        if name not in FRESH:
            self[key] = value  # the same in all lines of one event
        return value

    def value(self, name: str) -> bytes | str | int:  # noqa: PLR0911 - a table, as it were
        draw = self.draw
        match name:
            case "at":
                self.ms += 10 + int(draw.random() * 4000)
                return iso(self.ms)
            case "id":
                self.last_id = draw.hex(8) if self.agent == "pi" else draw.uuid()
                return self.last_id
            case "parent":
                return f'"{self.above}"' if self.above else "null"
            case "?block" | "?picture":  # an optional part of a line
                share = 0.45 if name == "?block" else 0.2 * (self.target > PICTURED)
                return LINES[self.agent, name[1:]][0] % self if draw.random() < share else b""
            case "output" | "argument":
                return draw.code(draw.size(self[b"tool"].decode() if name == "output" else name))
            case "said" | "thought":
                return draw.prose(draw.size(name))
            case "filler" | "reminder":
                return draw.prose(min(100_000, self.target // 4) if name == "filler" else 60)
            case "base64" | "cipher":
                return draw.base64(draw.size("picture" if name == "base64" else "thought"))
            case "uuid":
                return draw.uuid()
            case "count":
                return len(self.lines)
        return draw.hex(int(name[3:])) if name.startswith("hex") else getattr(self, name)

    def event(self, name: str) -> None:
        """Write the lines of an event, if the agent has any for it."""
        for line in LINES.get((self.agent, name), ()):
            self.add(line % self)
            if b"%(id)b" in line:
                self.above = self.last_id

    def add(self, line: bytes) -> None:
        self.lines.append(line + b"\n")
        self.size += len(line) + 1

    def say(self, event: str, text: bytes, *, last: bool = False) -> None:
        """Write a message; the last one begins with the session's unique word."""
        self.clear()
        self[b"text"] = self.word.encode() + b" " + text if last else text
        self.event(event)

    def fill(self, target: int, *, begun: bool = False) -> None:
        """Write turns until the session is large enough."""
        draw, self.target, last = self.draw, target, False
        if not begun:
            self.event("begin")
        while not last:
            self.ask(draw.prose(draw.size("prompt")))
            for _ in range(min(60, int(draw.rng.expovariate(1 / 6)))):
                self.call(TOOLS[bisect(OFTEN, draw.random() * 100)])
                if self.size >= target:
                    break
            last = self.size >= target
            self.say("answer", draw.prose(3 * draw.size("said")), last=last)

    def ask(self, text: bytes) -> None:
        """Write a human message, now and then on a new branch from an earlier entry."""
        self.users += 1
        self.turn = self.draw.uuid()
        if self.users > 5 and self.draw.random() < 0.05:
            self.above = self.before
        self.before = self.above
        self.say("ask", text)

    def call(self, tool: str) -> None:
        """Write a tool call, often after a thought or a text of the model."""
        self.clear()
        self[b"tool"], self[b"Tool"] = tool.encode(), tool.title().encode()
        self.event("step")
        for kind, share in (("thought", 0.15), ("said", 0.45)):
            if self.draw.random() < share:
                self.event(kind)
        if self.agent == "codex":  # which has two sorts of calls only
            self.event({"read": "bash", "write": "edit"}.get(tool, tool))
        else:
            self[b"given"] = LINES[self.agent, tool][0] % self
            self.event("call")
        self.event("result")

    def save(self, home: Path) -> Session:
        """Write the session's file."""
        stamp, folder = self.began[:19].replace(":", "-"), self.cwd.replace("/", "-")
        name = {
            "pi": f"-{folder}--/{stamp}-{self.began[20:]}_{self.own}.jsonl",
            "claude": f"{folder}/{self.own}.jsonl",
            "codex": f"{self.began[:10].replace('-', '/')}/rollout-{stamp}-{self.own}.jsonl",
        }[self.agent]
        path = home / PLACES[self.agent] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(self.lines))
        return self.session(str(path))

    def session(self, path: str) -> Session:
        rest = self.own, path, self.word, self.name, self.above, self.users, self.cwd
        return Session(self.agent, *rest)


class RowWriter(Writer):
    """A session of opencode: rows of a database, each repeated in a log of events."""

    def __init__(self, agent: str, draw: Draw, ms: int, word: str) -> None:
        super().__init__(agent, draw, ms, word)
        self.message = ""
        self.rows: dict[str, list[tuple[object, ...]]] = {"message": [], "part": [], "event": []}
        self.own = f"ses_{(1 << 48) - 1 - ms * 4096 % (1 << 48):012x}{draw.hex(14)}"

    def row_id(self, kind: str) -> str:
        count = sum(map(len, self.rows.values()))
        return f"{kind}_{(self.ms * 4096 + count) % (1 << 48):012x}{self.draw.hex(14)}"

    def add(self, line: bytes) -> None:
        table, data = line.decode().split(" ", 1)
        if not data:
            return  # no picture
        self.ms += 1 + int(self.draw.random() * 900)
        name = self.row_id("msg" if table == "message" else "prt")
        above = (self.message,) if table == "part" else ()
        if table == "message":
            self.message = name
            self.before = name if '"role":"user"' in data else self.before
        self.rows[table].append((name, *above, self.own, self.ms, self.ms, f"{{{data}}}"))
        kind, field = ("", "info") if table == "message" else ("part.", "part")
        body = f'{{"sessionID":"{self.own}","{field}":{{"id":"{name}",{data}}}}}'
        events, kind = self.rows["event"], f"message.{kind}updated.1"
        events.append((self.row_id("evt"), self.own, len(events), kind, body))
        self.size += 2 * (len(data) + FRAME)

    def store(self, db: sqlite3.Connection, path: Path) -> Session:
        """Put the session's rows into the database."""
        own, began, project = self.own, self.rows["message"][0][2], f"{int(self.cwd[-3:]):040x}"
        columns = "id, project_id, slug, directory, title, version, time_created, time_updated"
        session = (own, project, own, self.cwd, self.draw.name(), "1.18.33", began, self.ms)
        rows: dict[str, list[tuple[object, ...]]] = {
            "project": [(project, self.cwd, "git", None, began, began, "[]")],
            f"session ({columns})": [session],
            "event_sequence": [(own, len(self.rows["event"]), None)],
        }
        for table, values in (rows | self.rows).items():
            places = ", ".join("?" * len(values[0]))
            db.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({places})", values)
        return self.session(f"{path}/{own}")


def make(home: Path, agent: str, count: int, size: int, seed: int) -> list[Session]:
    """Make sessions of one agent in a home directory, `size` bytes in total."""
    draw = Draw(seed, min(2 << 20, max(1 << 17, size // 4)))
    shares = [math.exp(draw.rng.gauss(0, SPREAD)) for _ in range(count)]
    kind, writers = RowWriter if agent == "opencode" else Writer, []
    for number, share in enumerate(shares):
        began = NOW - int(draw.random() * 150 * DAY)
        writers.append(kind(agent, draw, began, letters(number, f"quokka{agent[:2]}")))
        writers[-1].fill(max(LEAST, int(share * size / sum(shares))))
    if agent != "opencode":
        return [one.save(home) for one in writers]
    path = home / PLACES[agent] / "opencode.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as db:
        db.executescript((HERE / "opencode.sql").read_text())
        made = [one.store(db, path) for one in writers if isinstance(one, RowWriter)]
        db.commit()
        db.execute("PRAGMA journal_mode = WAL")
    return made


def talks(home: Path, count: int, messages: int, draw: Draw) -> list[Session]:
    """Make `count` short sessions of pi, with `messages` in total, a name each, and no tools.

    30 share a directory. Messages have 60 bytes if a session has two, else log-normal sizes.
    """
    found = []
    for number in range(count):
        writer = Writer("pi", draw, NOW - 400 * DAY + 60_000 * number, letters(number, "wombat"))
        writer.cwd, writer.name = f"/w/p{number // 30}", draw.name()
        writer.event("begin")
        own = messages * (number + 1) // count - messages * number // count
        for turn in range(own):
            text = draw.prose(int(draw.rng.lognormvariate(5.6, 1.1)) if own > 2 else 60)
            asks = turn % 2 == 0 and turn < own - 1
            writer.say("ask" if asks else "answer", text, last=turn == own - 1)
        writer.event("named")
        found.append(writer.save(home))
    return found
