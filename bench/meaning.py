"""`make meaning`: how well the built-in model, search and `@@` do, beside plain baselines.

By meaning: the same searches with the extra `semantic`.

Search and names half remembered: the questions of tests/fixtures/retrieval, beside one document per
session and BM25 over any word, with the same filters; its first hit stands for the name. Names and
facts: facts.jsonl, beside the first prompt as the name and the first sentences of the last answers
of all turns as the summary. Sessions of facts.jsonl that are absent or unnamed are counted.
opencode's sessions have titles of their own, which the scripted model of the recording gave most
of them alike: they lower the figures of names, but say nothing of the built-in model.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import tantivy

from indexerd.entries import Facts
from indexerd.errors import IndexerdError
from indexerd.models.extractive.describe import describe
from indexerd.search.query import fold, stem, stop_words
from tests.e2e.search.test_retrieval import PLACES, QUESTIONS, ask, fill
from tests.e2e.world import FIXTURES, REAL, ROOT, SEMANTIC, World, until

SHARED = ROOT.parent / "shared/fixtures"  # recordings that may not be copied into the repository
FACTS = [json.loads(line) for line in (FIXTURES / "retrieval/facts.jsonl").open()]
KINDS = {"search": "words of the session", "paraphrase": "other words", "resolve": "names"}
KINDS |= {"remembered": "names half remembered", "none": "names of nothing"}
AGENTS = {"pi": ".pi/agent/sessions/--w--", "codex": ".codex/sessions/2026/01/01"}
SEARCHES = ("search", "paraphrase")
NAMED = {"right": "right", "wrong": "wrong", "ambiguous, right first": "offered first"}
WORD = re.compile(r"\w+")


class Baseline:
    """One document a session, ranked by BM25 over any word of a query."""

    def __init__(self, texts: dict[str, str]) -> None:
        schema = tantivy.SchemaBuilder().add_text_field("id", stored=True).add_text_field("text")
        self._index = tantivy.Index(schema.build())
        writer = self._index.writer(15_000_000, 1)
        for session_id, text in texts.items():
            writer.add_document(tantivy.Document(id=session_id, text=text))
        writer.commit()
        self._index.reload()

    def order(self, query: str, among: set[str]) -> list[str]:
        parsed = self._index.parse_query(" ".join(WORD.findall(query.lower())), ["text"])
        searcher = self._index.searcher()
        hits = searcher.search(parsed, max(1, searcher.num_docs)).hits
        ids = (str(searcher.doc(at)["id"][0]) for _, at in hits)
        return [session_id for session_id in ids if session_id in among]


def allowed(question: dict[str, Any], row: dict[str, Any]) -> bool:
    """Whether a session passes the question's filters, as `search` applies them."""
    below = Path(row["cwd"]).is_relative_to(question.get("cwd", "/"))
    return below and row["agent"] == question.get("agent", row["agent"])


def messages(world: World, session_id: str) -> list[tuple[str, str]]:
    """Return roles and texts of what a person and the agent said."""
    entries = world.call("path", ref=session_id)["entries"]
    said = [(entry.get("role") or "", entry["text"]) for entry in entries]
    return [(role, text) for role, text in said if role in ("user", "assistant") and text.strip()]


def indexed(root: Path) -> World:
    world = World(root)
    world.install_pi()
    world.env["INDEXERD_MIN_NEW_USER_MESSAGES"] = "1"
    world.env["INDEXERD_INDEX__BACKFILL_DAYS"] = "36500"
    return world


def rows(world: World) -> dict[str, dict[str, Any]]:
    """Return all sessions by id, once their texts can be searched."""
    until(lambda: not world.call("status")["textPending"], "all texts")
    found = world.call("list", limit=500, archived=True, subagents=True)["sessions"]
    return {row["sessionId"]: row for row in found}


def searches(root: Path, *, by_meaning: bool = False) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield a line for each kind of question: ours, then the baseline's."""
    ours, plain, asked = Counter[tuple[str, Any]](), Counter[tuple[str, Any]](), Counter[str]()
    for place in PLACES:
        world = indexed(root / place)
        known = fill(world, place)
        world.env["PYTHONPATH"] += f":{SEMANTIC}" if by_meaning else ""
        world.run("run", "--once", code=None)
        with world.daemon():
            listed = rows(world)
            if by_meaning:
                until(partial(has_vectors, world), "vectors of all sessions", 120)
            known |= {row["sessionFile"]: key for key, row in listed.items()}
            texts = {k: "\n".join(t for _, t in messages(world, k)) for k in listed}
            baseline = Baseline(texts)
            for question in (one for one in QUESTIONS if one["in"] == place):
                kind, right = question["kind"], {known.get(k, k) for k in question.get("right", ())}
                among = {key for key, row in listed.items() if allowed(question, row)}
                outcome, order = ask(world, question, known), baseline.order(question["q"], among)
                asked[kind] += 1
                if kind in SEARCHES:
                    at = next((n for n, key in enumerate(order, 1) if key in right), 0)
                    for counts, place_of in ((ours, outcome.place), (plain, at)):
                        counts.update((kind, k) for k in (1, 3, 10) if 1 <= place_of <= k)
                else:
                    ours[kind, "right"] += outcome.place
                    ours[kind, "wrong"] += bool(outcome.first)
                    ours[kind, "ambiguous, right first"] += outcome.offered
                    plain[kind, "right" if order and order[0] in right else "wrong"] += bool(order)
    for kind, name in KINDS.items():
        said = {1: "first", 3: "in 3", 10: "in 10"} if kind in SEARCHES else NAMED
        cells = [", ".join(f"{c[kind, k]} {v}" for k, v in said.items()) for c in (ours, plain)]
        if not by_meaning:
            yield f"{name} ({asked[kind]})", cells
        elif kind in SEARCHES:
            yield f"{name.partition(' of')[0]}, by meaning", (cells[0], "")


def has_vectors(world: World) -> bool:
    found = world.call("status")["meaning"]
    return bool(found["sessions"]) and not found["pending"]


def store(world: World) -> Iterator[tuple[dict[str, Any], str]]:
    """Copy sessions of facts.jsonl to where agents keep them; yield each with its file or id."""
    shutil.copytree(REAL / "opencode", world.root / "data/opencode")
    for n, fact in enumerate(FACTS):
        if "session" in fact:
            yield fact, fact["session"]
            continue
        path = Path(fact["file"])
        source = next((p for p in (FIXTURES / path, SHARED / path) if p.is_file()), None)
        if source is None:
            continue
        agent = path.parts[1].partition("-")[0]
        folder = AGENTS.get(agent, f".claude/projects/-w{n}")
        target = world.root / "home" / folder / source.name
        target.parent.mkdir(parents=True, exist_ok=True)
        data = source.read_bytes()
        target.write_bytes(data if data.endswith(b"\n") else data + b"\n")
        os.utime(target, (1e9, 1e9))  # nobody is waiting for the end of its last turn
        yield fact, source.name


def first_sentences(said: Sequence[tuple[str, str]]) -> str:
    last = [text for at, (role, text) in enumerate(said) if role == "assistant" and ends(said, at)]
    return " ".join(re.split(r"(?<=[.!?])\s", text.strip())[0] for text in last)


def ends(said: Sequence[tuple[str, str]], at: int) -> bool:
    return at + 1 == len(said) or said[at + 1][0] == "user"


def told(text: str, facts: Iterable[Sequence[str]]) -> int:
    return sum(any(re.search(way, text, re.IGNORECASE) for way in fact) for fact in facts)


def good(name: str, words: Sequence[str]) -> bool:
    """Whether a name has at least two of the words that a good one has."""
    return sum(word.lower() in name.lower() for word in words) >= min(2, len(words))


def shared(name: str, gold: str) -> float:
    """Return the share of the gold name's words, stemmed and without stop words, in a name."""
    ours, wanted = (
        {stem(word) for word in WORD.findall(fold(text)) if word not in stop_words()}
        for text in (name, gold)
    )
    return len(ours & wanted) / max(1, len(wanted))


def names(root: Path) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield lines for names and facts, and the time of a description."""
    world, counts, took = indexed(root / "facts"), Counter[str](), list[float]()
    shares: list[tuple[float, float]] = []
    wanted = list(store(world))
    world.run("run", "--once", code=None)
    with world.daemon():
        ids = {Path(row["sessionFile"]).name: key for key, row in rows(world).items()}
        for fact, key in wanted:
            try:
                meta = world.call("get", ref=ids.get(key, key))["meta"]
            except IndexerdError:
                meta = None
            if meta is None:
                continue
            said = messages(world, meta["sessionId"])
            prompt = next((text for role, text in said if role == "user"), "")[:72]
            began = time.perf_counter()
            describe(Facts(tuple(said)))
            took.append(1000 * (time.perf_counter() - began))
            summary = f"{meta['description']}\n{meta['summary']}"
            shares.append((shared(meta["name"], fact["name"]), shared(prompt, fact["name"])))
            counts += Counter(facts=len(fact["facts"]))
            counts += Counter(named=good(meta["name"], fact["words"]))
            counts += Counter(prompted=good(prompt, fact["words"]))
            counts += Counter(told=told(summary, fact["facts"]))
            counts += Counter(answered=told(first_sentences(said), fact["facts"]))
    columns = list(zip(*shares, strict=True))
    yield f"good names ({len(shares)})", (counts["named"], counts["prompted"])
    yield "words of the gold name", [f"{statistics.mean(column):.0%}" for column in columns]
    yield "names with none of them", [column.count(0) for column in columns]
    yield f"facts ({counts['facts']})", (counts["told"], counts["answered"])
    times = f"{statistics.median(took):.1f} ms, at most {max(took):.0f} ms"
    yield "time of a description", (times, "")
    yield "sessions absent or unnamed", (len(FACTS) - len(shares), "")


def main() -> None:
    print(f"{'':32}{'indexerd':44}baseline")
    with tempfile.TemporaryDirectory(prefix="ixd-") as root:
        for part in (searches, partial(searches, by_meaning=True), names):
            for what, (ours, plain) in part(Path(tempfile.mkdtemp(dir=root))):
                print(f"{what:32}{ours!s:44}{plain}", flush=True)


if __name__ == "__main__":
    main()
