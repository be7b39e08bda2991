"""Why a promise is missed: what was looked into, and what the rest of the way would take.

Figures differ from run to run, so more stands here than is missed in any one. A figure is found by
its script and the beginning of its name.
"""

from __future__ import annotations

UNKNOWN = "not looked into"

_NOISE = "at this percentile other work of the machine tells: see the limit beside it"
_SKIM = (
    "a line takes 3 to 6 us: most to find the row, a quarter to keep its id, parent, place and"
    " kind in the lists and arrays that the rest works with; no other loop in Python was a tenth"
    " quicker"
)
_SMALL = (
    "of 160 us a file 31 are for opening, reading and fingerprints, 50 for the four lines that are"
    " parsed (20 the preview of the first request, which is redacted); the rest is its lines, as"
    " above"
)
_TEXTS = "rows are found first, as above; what was said is then decoded line by line, by type"
_UNDER_LOAD = (
    "an append costs 0.3 to 0.45 ms of processor time (its row, its words, what is told of it),"
    " where 35 % of a core would leave 0.18; at this rate appends queue, and are taken in together"
)
_LIVE = (
    "the middle is far below; the last hundredth waits for a turn of words, for the ledger (every"
    " 5 s), or for the system"
)
_MEMORY = (
    "a daemon without sessions takes 50 MB, of which its imports are 35; a session takes 1.6 to"
    " 2.2 KB: its card (0.8), what is known of its file (0.7), and what allocators keep around them"
)
_WHOLE = (
    "they keep what was said; ours redacts it, and keeps words, deeds and rows for lookups, in"
    " Python: of its processor time SQLite takes a seventh"
)
_CAUGHT_UP = (
    "half of it loads a file's card and place, an eighth sees that its words are read; the rest"
    " compares these with its stat"
)
_READY = "it is as long without any session, see beside it: modules, and opening what is stored"
_LETTERS = (
    "names are found by words that share threes of letters; the best 100 are compared in full, and"
    " judged word by word"
)

_DOCTOR = (
    "nearly all of it loads modules: settings and their models, the agents' readers, a model's"
    " client"
)
_EXPORT = (
    "it reads the session itself, without the daemon: four fifths load settings, the agents'"
    " readers, the library and logging"
)

WHY: tuple[tuple[str, str, str], ...] = (
    ("busy", "hello", "one step of reading that holds the interpreter, of some thousand"),
    ("busy", "resolve while", "one step of reading that holds the interpreter, of some thousand"),
    ("busy", "", _NOISE),
    (
        "cli",
        "indexerd config show",
        "nearly all of it loads pydantic, the settings and their models",
    ),
    ("cli", "indexerd doctor", _DOCTOR),
    ("cli", "indexerd export", _EXPORT),
    ("cli", "indexerd", "click, which reads command lines that are not plain: half of it"),
    ("idle", "processor, idle, between", "a tick every 4 s looks after health and outages"),
    ("idle", "processor, idle, a sweep", "most of a sweep is scandir and stat: see above"),
    ("idle", "memory", _MEMORY),
    ("growth", "memory", _MEMORY),
    ("growth", "", "the middle of a hundred questions, of less than a millisecond each"),
    ("idle", "hello", "one step of reading that holds the interpreter, of some thousand"),
    ("idle", "resolve", "one step of reading that holds the interpreter, of some thousand"),
    ("list", "", _NOISE),
    ("live", "append to event, 2,000", _UNDER_LOAD),
    ("live", "processor", _UNDER_LOAD),
    ("live", "append", _LIVE),
    ("lookup", "nearest", _LETTERS),
    ("lookup", "resolve", _LETTERS),
    (
        "lookup",
        "search",
        "words are counted in the texts of up to 200 messages, and copies looked for",
    ),
    ("peers", "indexerd: whole index", _WHOLE),
    ("scan", "pi big: scan from disk", "disk and processor take turns; reading ahead gained 5 %"),
    ("scan", "pi big: scan with", _TEXTS),
    ("scan", "pi small: scan with", _TEXTS),
    ("scan", "pi big", _SKIM),
    ("scan", "pi small", _SMALL),
    ("socket", "", _NOISE),
    ("start", "restart, 10000 sessions: exec to READY", _READY),
    ("start", "restart, 10000 sessions: over", _CAUGHT_UP),
    ("start", "first start", _MEMORY + "; and a batch of texts"),
    (
        "transcript",
        "",
        "0.95 to 1.3 from run to run; nothing in the run itself grows with the session",
    ),
    (
        "view",
        "a session of",
        "an empty page takes a third to a half of it: there is no graphics card",
    ),
    ("write", "", _NOISE),
)


def why(bench: str, figure: str) -> str:
    """The reason for a figure that misses its promise."""
    return next(
        (told for name, start, told in WHY if name == bench and figure.startswith(start)), UNKNOWN
    )
