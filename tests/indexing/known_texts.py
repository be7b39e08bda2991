"""Everything that the core says of texts without a session file, as values to be written down.

The texts: the written-out corpus of tests/fixtures/retrieval with its questions, and what the fuzz
targets start from. See `known_answers.py` for what is done with the values.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from indexerd.errors import IndexerdError
from indexerd.events import Facts, Question, Stretch
from indexerd.indexing.check import Rejected, judge
from indexerd.models import passages, phrases
from indexerd.models.decisions import decisions
from indexerd.models.earlier import parts_of
from indexerd.models.extract import extract
from indexerd.models.gist import gist
from indexerd.models.question_words import terms_of
from indexerd.privacy import sanitize as clean
from indexerd.privacy.redact import redact
from indexerd.protocol import wire
from indexerd.references import parse as references
from indexerd.search import query
from indexerd.search.names import Names
from indexerd.search.names_known import Known
from indexerd.times import iso
from indexerd.web import home_address
from indexerd.web.home_view import View
from tests.indexing.known_answers import FIXTURES, KNOWN, plain
from tests.indexing.known_pages import pages
from tests.indexing.known_tables import tables

CORPUS = FIXTURES / "retrieval"
FUZZ = FIXTURES.parent / "fuzz/corpus"
NOW = 1_795_176_000  # seconds since the epoch: 2026-11-20 12:00
DAY = 86_400
LONG = 50  # messages
SHOWN = 32  # sessions
AWAY = 3600  # seconds east of Greenwich


@dataclass
class Told:
    """One session of the corpus."""

    key: str
    agent: str
    cwd: str
    days: int
    said: list[tuple[str, str]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    named: tuple[str, ...] = ()
    summary: str = ""

    @property
    def id(self) -> str:
        """Its id, the same in every run."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, self.key))

    @property
    def name(self) -> str:
        """What it is called: by a model, or by its first words."""
        return self.named[0] if self.named else self.said[0][1][:80]


def corpus() -> list[Told]:
    """The sessions."""
    told: list[Told] = []
    for line in (CORPUS / "corpus.txt").read_text().splitlines():
        mark, _, text = line.partition(" ")
        parts = tuple(one.strip() for one in text.split("|"))
        match mark:
            case "=":
                told.append(Told(parts[0], parts[1], parts[2], int(parts[3])))
            case "m:":
                told[-1].named = parts
            case "s:":
                told[-1].summary = text
            case "u:" | "a:":
                told[-1].said.append(("user" if mark == "u:" else "assistant", text))
            case "e:" | "w:":
                told[-1].files.append(text)
    return told


def questions() -> list[dict[str, Any]]:
    """What is looked for: every sixth question."""
    lines = (CORPUS / "questions.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines[::6]]


# -- without a model -----------------------------------------------------------------------------


def summaries() -> Iterator[tuple[str, Any]]:
    """What is said of every fourth session of the corpus, and of the corpus as one long session."""
    all_said = tuple(one for told in corpus() for one in told.said)
    long = Told("all of it", "pi", "/home/ana", 1, list(all_said), ["/home/ana/a.py", "b.md"])
    for told in (*corpus()[::4], long):
        said, files = tuple(told.said), tuple(told.files)
        facts = Facts(said, ("README.md",), files, {"edit": len(files) + 1}, told.cwd)
        before = Facts(said[2:], (), files, {}, told.cwd, told.summary or "Goal: a cache.")
        words = [text for _, text in said]
        yield (
            told.key,
            {
                "extract": extract(facts).model_dump(),
                "extract again": extract(before).model_dump(),
                "gist": [gist(one, lambda: None) for one in _stretches(told)],
                "decisions": decisions(words),
                "earlier": parts_of(told.summary),
                "sentences": [phrases.sentences(text) for text in words[:4]],
                "headlines": [phrases.headline(text) for text in words[:6]],
                "runs": [phrases.topic_runs(text) for text in words[:2]],
                "phrases": phrases.key_phrases(
                    [(phrases.topic_runs(text), 1 + at % 3) for at, text in enumerate(words)], 8
                ),
                "tickets": phrases.tickets(words, 5),
                "errors": [phrases.error_line(text) for text in words[:4]],
            },
        )


def _stretches(told: Told) -> Iterator[Stretch]:
    said, files = tuple(told.said), tuple(told.files)
    kinds = ("segment", "checkpoint", "turn", "branch")
    for kind in kinds if told.summary or len(said) > LONG else kinds[:1]:
        yield Stretch(
            kind,
            said,
            ("a.py",),
            files,
            {"read": 3, "bash": 1},
            told.cwd,
            previous=told.summary if kind == "checkpoint" else "",
            instructions="the cache" if kind == "branch" else "",
            max_tokens=60 if kind == "turn" else 1000,
        )


# -- asked for -----------------------------------------------------------------------------------


def found() -> Iterator[tuple[str, Any]]:
    """What each question of the corpus finds."""
    sessions = corpus()
    names = Names.load(
        Known(
            told.id,
            told.name,
            (told.name, told.key),
            told.cwd,
            (NOW - told.days * DAY) * 1000,
            named=bool(told.named),
            live=True,
        )
        for told in sessions
    )
    said = tuple(
        (f"{told.key}-{at}", role, text)
        for told in sessions
        for at, (role, text) in enumerate(told.said)
    )
    text = "\n".join(words for _, _, words in said[:60])
    for one in questions():
        asked = query.parse(one["q"])
        yield (
            one["q"],
            {
                "name": _tried(lambda one=one: names.resolve(one["q"], scope="all")._asdict()),
                "here": _tried(
                    lambda one=one: names.resolve(one["q"], cwd="/home/ana/shop")._asdict()
                ),
                "nearest": names.nearest(one["q"], 3),
                "complete": names.complete(one["q"][:3], now=float(NOW), limit=4),
                "terms": [list(term) for term in terms_of(one["q"])],
                "passages": passages.answer(Question(one["q"], said)),
                "query": _asked(asked, text),
            },
        )


def _asked(asked: query.Asked, text: str) -> dict[str, Any]:
    if asked.problem or asked.pattern:
        return {"problem": asked.problem}
    found: dict[str, Any] = {"words": asked.terms}
    for widen, inflect in ((False, False), (True, False), (True, True)):
        finder = asked.finder(widen=widen, inflect=inflect)
        found[f"{widen} {inflect}"] = [
            asked.matches(widen=widen, inflect=inflect),
            finder.counts(text),
            finder.snippet(text),
        ]
    return found


def _tried(ask: Callable[[], Any]) -> Any:
    """What comes out; of an error its kind and what it says."""
    try:
        return ask()
    except IndexerdError as error:
        return [error.kind, str(error), error.data()]
    except ValueError as error:
        return ["ValueError", str(error)]


# -- what comes in -------------------------------------------------------------------------------


def inputs() -> Iterator[tuple[str, Any]]:
    """What is made of the texts from which fuzzing begins."""
    takers: dict[str, Callable[[str], Any]] = {
        "redact": lambda text: [redact(text).text, redact(text).counts],
        "references": lambda text: [one._asdict() for one in references.find(text)],
        "check": _judged,
        "clean": _cleaned,
        "query": lambda text: _asked(query.parse(text.partition("\0")[0]), text),
        "home": _addressed,
        "wire": lambda text: _tried(lambda: wire.parse(text.encode("utf-8", "surrogateescape"))),
    }
    for name, take in takers.items():
        for path in sorted((FUZZ / name).glob("*")):
            text = path.read_bytes().decode("utf-8", "surrogateescape")
            yield f"{name}/{path.name}", take(text)


def _judged(text: str) -> Any:
    said = judge(text, cut=False, redact=str)
    return said.error if isinstance(said, Rejected) else said.model_dump()


def _cleaned(text: str) -> list[Any]:
    return [
        [clean.clean_line(text, limit), clean.clean_text(text, limit)] for limit in (7, 40, 400)
    ] + [clean.bare(text)[:400], clean.escape_path(text)[:400]]


def _addressed(text: str) -> Any:
    filters = home_address.filters_of(home_address.asked(text))
    said = home_address.spoken(filters, ("pi", "claude"), "/home/ana", ("/home/ana/shop",))
    return [said, said.address(before="x"), home_address.choices(said, ("pi", "claude"))]


# -- shown ---------------------------------------------------------------------------------------


def home() -> Iterator[tuple[str, Any]]:
    """Half the corpus as the home page shows it, and what is said of a hit."""
    filters = home_address.Filters(q="cache")
    view = View(filters, float(NOW), lambda _: AWAY, "/home/ana")
    rows = [_row(at, told) for at, told in enumerate(corpus()[:SHOWN])]
    yield "stretches", view.stretches(rows)
    yield "zone", view.zone()
    hits = [
        {
            "sessionId": told.id,
            "field": ("message", "name", "summary", "path")[at % 4],
            "entryId": f"e{at}",
            "role": told.said[0][0],
            "snippet": f"…the «{told.said[0][1][:9]}» and more",
        }
        for at, told in enumerate(corpus()[:SHOWN])
    ]
    yield "hits", view.hits(hits, {row["sessionId"]: row for row in rows[:-5]})


def _row(at: int, told: Told) -> dict[str, Any]:
    days = (0, 0.01, 0.2, 1, 2, 5, 9, 40, 400)[at % 9]
    seconds = NOW - days * DAY
    return {
        "sessionId": told.id,
        "name": told.name,
        "agent": told.agent,
        "cwd": told.cwd,
        "modifiedAt": iso(seconds),
        "state": ("idle", "active", "failed", "new")[at % 4],
        "description": told.named[1] if told.named else "",
        "summary": told.summary,
        "indexed": at % 2 == 0,
        "newUserMessages": at % 3,
        "gone": at % 7 == 1,
        "subagent": at % 5 == 1,
        "filesModified": told.files if at % 2 else [],
        "filesRead": told.files,
        "resume": f"cd {told.cwd} && {told.agent}",
    }


MADE: dict[str, Callable[[], Iterator[tuple[str, Any]]]] = {
    "summaries": summaries,
    "found": found,
    "inputs": inputs,
    "home": home,
    "pages": pages,
    "tables": tables,
}


def made(name: str) -> dict[str, Any]:
    """One of them, as it is written down."""
    held = {key: plain(one) for key, one in MADE[name]()}
    return dict(json.loads(written(held)))


def written(held: dict[str, Any]) -> str:
    """As text; half a character is a question mark."""
    text = json.dumps(held, indent=1, ensure_ascii=False, sort_keys=True)
    return text.encode("utf-8", "replace").decode() + "\n"


def main() -> None:
    """Write all of it down."""
    for name in MADE:
        (KNOWN / f"texts-{name}.json").write_text(written(made(name)))


if __name__ == "__main__":
    main()
