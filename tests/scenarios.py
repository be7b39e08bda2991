"""What may go wrong, by the numbers that tests cite, and which tests cite them.

A test holds a scenario by naming it in its docstring: `F4`, `M17`, `S6` (with a dot behind it, as
in `S0.41`, it is another list's). So does a state machine, by its own docstring and its rules'.
Each number is written out: a range would hide those between its ends. What no test holds here, or
not all of it, is said beside its number with the reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent
GROUPS = {
    "F": "Files",
    "W": "Watching",
    "M": "Models and money",
    "A": "Writing",
    "S": "The socket",
    "V": "The service's life",
    "C": "Configuration",
    "X": "Hostile input and secrets",
}
SCENARIOS = {
    "F1": "A file is written byte by byte: each record counts once, as soon as its line ends",
    "F2": "Killed with half a line pending: it counts once, when whole; no position is inside it",
    "F3": "Carriage returns and Unicode line breaks stand inside lines: only byte 0x0A ends one",
    "F4": "Lines are damaged: they are skipped and counted, told once a minute, the rest is read",
    "F5": "A crash left NUL bytes where lines should be: what follows is found",
    "F6": "A byte order mark, blank lines: taken and passed over",
    "F7": "Half emojis, NaN, huge numbers, NUL in texts: nothing raises, what is stored is JSON",
    "F8": "A line of 100 MB: memory stays small, its place in the tree is kept, the next counts",
    "F9": "A file of 10 GB: it is read in turns, and other sessions are served in between",
    "F10": "A file is truncated and less is written: it is counted anew, not added to",
    "F11": "A file is truncated and outgrows its old size, or is rewritten: found out, read anew",
    "F12": "A file is deleted and made again, with the same inode: it is a new file",
    "F13": "A file is replaced by rename, again and again: always the new content, nothing leaks",
    "F14": "A file is moved while it grows: the same session, no second description",
    "F15": "Two files begin with the same bytes: each has a position of its own",
    "F16": "Two files claim one session: one is its owner, it does not flip, the other is reported",
    "F17": "An empty file, a header alone, no answer yet: no call, no meta file, no busy loop",
    "F18": "A file vanishes before or while it is read: no complaint, the session is gone",
    "F19": "A file may not be read: status says so, and it heals once it may",
    "F20": "Modification times lie: size and content decide",
    "F21": "Reading fails with an error of the disk: that file is put off, others are read",
    "W1": "The daemon is stopped for 20,000 changes: the lost hints are noticed, all is right soon",
    "W2": "The system allows no more watches: said once with its remedy, polled, healed later",
    "W3": "What a hint sets off raises: nothing dies, the hint is not lost",
    "W4": "A thread of the watcher dies: it is rebuilt; after five times the daemon starts anew",
    "W5": "A root is missing, comes later, is deleted or replaced: it is found at the next scan",
    "W6": "A root is a link and is pointed elsewhere: the new target is followed",
    "W7": "A tree is made and written to at once: no file in it is missed",
    "W8": "Trees are moved in and out: what they bring is found, what they take is dropped",
    "W9": "Directories come and go by the thousand: no warning, no leak",
    "W10": "A session grows without a pause: read in few steps, and described in the end",
    "W11": "We read and write our own files: nothing follows from it",
    "W12": "A provider of ours writes sessions itself: they would not be described",
    "W13": "There is no watcher but only scans: everything works the same",
    "W14": "File names hold any bytes: read as they are, shown escaped",
    "M1": "A connection is refused or reset, TLS fails: one error, one request for one attempt",
    "M2": "A server is silent, or drips: the call ends at its total deadline, its place is free",
    "M3": "A provider says when to ask again: nobody asks before, and no attempt is used up",
    "M4": "A provider fails: pauses grow, five failures close it, then one call tries it",
    "M5": "A key is refused, a model unknown: not tried again before a reload, told once",
    "M6": "An answer is short, of a wrong length or no JSON: one kind of error",
    "M7": "An answer of 200 MB: it is left at the limit, memory hardly grows",
    "M8": "An answer redirects: key and transcript go nowhere else",
    "M9": "A model asks to be continued for ever: one request is made",
    "M10": "An answer was cut by its length limit: it is invalid, and never salvaged",
    "M11": "Content is declined: no retry; another model if configured, else after new messages",
    "M12": "An answer has an odd form: each form is taken or refused, always alike",
    "M13": "Three answers are of no use: three requests, the old meta file stays, a pause follows",
    "M14": "A spending limit is told as prose with status 200: a failure, not an answer",
    "M15": "Caps on calls and dollars: booked before, settled after, through crashes and clocks",
    "M16": "A thousand old sessions, a provider down for a day: newest first, at most 30 calls",
    "M17": "The daemon is ended during a call: no meta file, the call is made after the next start",
    "M18": "A session grows during its call: what was sent is described, the rest counts next time",
    "M19": "An answer comes later than a newer one: it is dropped",
    "M20": "The use of tokens is not told, or a model unknown: it costs the upper bound, never 0",
    "M21": "There is no key: nothing is connected to, sessions are named all the same",
    "M22": "Thousands of calls: descriptors, tasks and memory stay level",
    "M23": "The environment names proxies, addresses and keys: none of them is used",
    "A1": "Killed at any system call of a write: the old file or the new one, and no litter",
    "A2": "A power cut: what was said to be written is there, whole",
    "A3": "The disk is full: old files stay, it is said, what was paid for or owed is stored later",
    "A4": "Read-only, denied, too large, no descriptors, short writes: as with a full disk",
    "A5": "An fsync fails: no rename, and the next write begins from nothing",
    "A6": "A link, directory, hard link or pipe is in a file's place: replaced or refused",
    "A7": "A hundred writes at once while one reads: always whole, the last one wins",
    "A8": "The umask is 000: our files are private all the same",
    "A9": "The temporary file: beside its target, exclusive, no link followed, ignored by readers",
    "A10": "A meta file is torn, zeroed, vast or of a newer version: no loop, nothing worse",
    "A11": "A second daemon is started: it names the first and ends; a kill frees the place",
    "S1": "The socket's directory is another's, or open to others: the daemon refuses to start",
    "S2": "The umask is 000: directory and socket are private from their first moment",
    "S3": "Another user connects: closed without an answer",
    "S4": "Something is in the socket's place: a dead socket is replaced, all else left alone",
    "S5": "The socket's path is too long: an error that says what to do",
    "S6": "The socket's file is removed under a running daemon: noticed and made again",
    "S7": "Junk, endless lines, deep JSON: one error or the end of the connection, level memory",
    "S8": "Hundreds of slow clients, no descriptors: others are served, the processor rests",
    "S9": "A client never reads, or vanishes: bounded buffers, nothing is left behind",
    "S10": "References are hostile: typed errors, and no file outside the index is touched",
    "S11": "Questions during a huge reading, an outage, a write: answered, old or new",
    "S12": "Unknown methods, wrong versions, pipelined requests: typed errors, answers in order",
    "V1": "A signal to end: 0 within seconds, the second one at once; SIGHUP reads settings anew",
    "V2": "Killed, stopped or wedged under systemd: started again, and no ping hides a hang",
    "V3": "The configuration is bad: lookups go on, nothing is indexed, no storm of restarts",
    "V4": "The unit: systemd has nothing to say, and each line of protection takes effect",
    "V5": "Ready is said: by then the socket answers",
    "V6": "Caches are missing, damaged, older or newer: rebuilt without a call",
    "V7": "One file ends the daemon three times: it is left alone, said, and tried when changed",
    "V8": "The clock is set back an hour or on a day: no burst of calls, nobody waits for ever",
    "V9": "Standard output is closed, the journal is gone: the daemon goes on",
    "V10": "The runtime directory is gone: a clean error, a fallback, never a socket in /tmp",
    "V11": "launchd: the service file says what it should",
    "V12": "An hour of work in a short time: memory, descriptors, threads, logs stay level",
    "C1": "There is no configuration: sound defaults, nothing leaves the machine",
    "C2": "Bad syntax, unknown keys, wrong types and ranges: each is named with file, key, hint",
    "C3": "A bad file at a reload: the old values go on to hold",
    "C4": "Others can read a key's file: refused; no key is in arguments, service files or logs",
    "C5": "A provider's address is neither https nor this machine: refused",
    "C6": "Roots are nested, double, linked or `/`, our output lies in one: each file counts once",
    "X1": "Ids in files are hostile: none leads out of its directory",
    "X2": "Files and directories are links: not followed",
    "X3": "Pipes, sockets, devices, directories named like sessions: passed over at once",
    "X4": "A file becomes a link between scan and open: refused",
    "X5": "Secrets of twenty kinds are in sessions: in no request, meta file, log or cache",
    "X6": "Texts are made to slow redaction down: it stays linear, and hashes stay readable",
    "X7": "A model repeats a secret: redacted in what it said, too",
    "X8": "A session gives orders, forges marks and roles: it stays material inside its frame",
    "X9": "Escapes, direction marks, invisible characters: removed when stored and when shown",
    "X10": "What is put into a prompt is poisoned: quoted, bounded, never anybody's order",
    "X11": "Everything is logged, every fault is hit: no key, no text of a session in any log",
    "X12": "Meta files are edited by any hand: no reader raises, no path in one is believed",
}
# Held by no test here, or not wholly: what is not, and why.
NOT_HELD: dict[str, str] = {
    "F5": (
        "A hole of more than 8 MiB that no newline follows: the line that is glued to it is lost."
    ),
    "F8": (
        "Views, copies and digests of a line up to 64 MiB that is asked for: they read it whole."
    ),
    "F17": (
        "That a whole daemon is at rest beside such files: it is tested of the reading of one file."
    ),
    "W13": (
        "Each scenario of files without a watcher: three stand for them, as a scan is the same "
        "code with one and without."
    ),
    "M22": (
        "Thousands of calls of a remote model: 200 are made; thousands of the built-in one, "
        "with memory, in the soak."
    ),
    "A2": (
        "Of ledger and catalog only that they are whole after a power cut: they may be older, "
        "and are caught up with."
    ),
    "S3": "macOS, where the system is asked for the peer by another name.",
    "V4": (
        "Memory and task limits under a user manager: no controllers were delegated where it "
        "was tried; a control group stands in for them."
    ),
    "V8": "A system clock that is moved: the clock is an argument.",
    "V10": (
        "While the state directory is gone and cannot be made, lookups that need the catalog "
        "fail with a typed error; `status` answers."
    ),
    "V11": "launchd itself, which needs macOS.",
    "X4": "A database: SQLite opens it by its path, which is looked at before and after.",
    "X5": (
        "Kinds of the user's own (`[redact] extra_patterns`) in what only the daemon reads: of a "
        "session's first message, its title and its newest commands, which it keeps in the ledger "
        "and the catalog, only the built-in ones are replaced. Rows and what is searched are "
        "without them; what meta files, labels, digests and events say is shown as it was written."
    ),
    "X11": (
        "Each fault of a provider: five kinds, and two bad answers, meet a daemon; the others "
        "are tested in parts. The service manager's journal: stderr stands for it."
    ),
}
_CITED = re.compile(r"\b([FWMASVCX][1-9]\d?)\b(?!\.\d)")
_RANGE = re.compile(r"\b[FWMASVCX]\d+ ?(?:to|-|\u2013) ?[FWMASVCX]?\d+\b(?!\.\d)")
_MACHINE = "RuleBasedStateMachine"


@cache
def documented() -> dict[str, str]:
    """Every test's own words: `file::test` and its docstring; of a machine, all its rules' too."""
    return {
        f"{path.relative_to(TESTS)}::{name}": words
        for path in sorted(TESTS.rglob("test_*.py"))
        for name, words in _tests(ast.parse(path.read_bytes()))
    }


def _tests(module: ast.Module) -> Iterator[tuple[str, str]]:
    machines: dict[str, str] = {}
    for node in module.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node.name.startswith("test_"):
                yield node.name, ast.get_docstring(node) or ""
            case ast.ClassDef(bases=[ast.Name(id=base)]) if base == _MACHINE:
                rules = [one for one in node.body if isinstance(one, ast.FunctionDef)]
                words = [ast.get_docstring(one) or "" for one in rules]
                machines[node.name] = "\n".join([ast.get_docstring(node) or "", *words])
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Attribute(value=ast.Name(id=machine), attr="TestCase"),
            ):
                yield name, machines.get(machine, "")


@cache
def cited() -> dict[str, list[str]]:
    """The tests that name each scenario, as `file::test`, in order; of unknown numbers, too."""
    found: dict[str, list[str]] = {key: [] for key in SCENARIOS}
    for test, words in documented().items():
        for key in dict.fromkeys(_CITED.findall(words)):
            found.setdefault(key, []).append(test)
    return found


def ranges() -> list[str]:
    """The tests whose words have a range of numbers in them."""
    return [test for test, words in documented().items() if _RANGE.search(words)]


def table(group: str) -> str:
    """A group as a table: number, what must hold, what holds it, and what of it is not held."""
    held = cited()
    rows = ["| | what happens, and what must then be so | held by |", "|---|---|---|"]
    for key, text in SCENARIOS.items():
        if key[0] == group:
            cells = [f"`{one}`" for one in held[key]]
            cells += [f"**Not held:** {NOT_HELD[key]}"] if key in NOT_HELD else []
            rows.append(f"| {key} | {text} | {'<br>'.join(cells)} |")
    return "\n".join(rows) + "\n"
