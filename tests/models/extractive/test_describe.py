"""The offline model's words: names, summaries and tags that somebody would want to see in a list.

The conversations below are written for these tests, one for each way in which people work.
Expectations are on substance: the topic is in the name, the decision is found, the file listed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.events import Facts
from indexerd.models.extractive import sentences as phrases
from indexerd.models.extractive.describe import describe


def facts(*said: str, previous: str | None = None, **known: Any) -> Facts:
    """Facts of a conversation in which user and assistant take turns, the user first."""
    roles = ("user", "assistant")
    messages = tuple((roles[n % 2], text) for n, text in enumerate(said))
    return Facts(messages, previous_summary=previous, **known)


def section(summary: str, title: str) -> list[str]:
    """The bullets of one section of a summary."""
    body = summary.partition(f"## {title}\n")[2].partition("\n\n## ")[0]
    return [line.removeprefix("- ") for line in body.split("\n") if line]


@dataclass(frozen=True)
class Case:
    """A conversation, and what must be seen of it."""

    facts: Facts
    name: str
    decided: tuple[str, ...] = ()
    outcome: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


CASES = {
    "debugging": Case(
        facts(
            "hey! the nightly export job has been failing since tuesday, can you find out why?\n\n"
            '```\nTraceback (most recent call last):\n  File "export.py", line 88, in run\n'
            "TimeoutError: read timed out\n```",
            "I'll start with the job's logs.\n\nThe index on `created_at` was dropped by migration "
            "0042 on Monday. Every fetch now takes longer than the 30 s timeout.",
            "makes sense. so do we raise the timeout?",
            "No, that would only hide it. The fix is to restore the index, and to batch the "
            "export by hour.",
            "ok do both. ticket is OPS-481",
            "Done. I added migration 0043, and `export.py` now fetches one hour at a time. "
            "A dry run took 14 s; all 23 tests pass.",
            "great, thanks!",
            cwd="/home/ana/billing",
            files_modified=("/home/ana/billing/src/export.py", "/home/ana/billing/m/0043.sql"),
        ),
        name="Nightly export job has been failing since tuesday",
        decided=("The fix is to restore the index",),
        outcome=("I added migration 0043", "all 23 tests pass"),
        files=("`src/export.py`", "`m/0043.sql`"),
        tags=("ticket:OPS-481", "nightly export", "export.py", "billing"),
        absent=("Traceback", "line 88", "I'll start"),
    ),
    "design": Case(
        facts(
            "Let us design a cache for the forecast results.",
            "Use a dict keyed by (city, day) with a time-to-live of fifteen minutes.",
            "What about eviction?",
            "Least-recently-used with a cap of 512 entries: simple, and bounded memory.",
            "Should we persist it to SQLite?",
            "Yes: one table, `journal_mode=WAL`.",
            "Summarise the design in one line.",
            "A 512-entry LRU with a 15-minute TTL, SQLite behind it, and an injected clock.",
        ),
        name="Design a cache for the forecast results",
        decided=("Use a dict keyed by", "Least-recently-used", "Yes: one table"),
        outcome=("A 512-entry LRU",),
    ),
    "refactoring": Case(
        facts(
            '<file name="/repo/src/session.py">\nclass Session:\n    def load(self): ...\n</file>\n'
            "Please move the line parser out of session.py into its own module, because "
            "nothing in it may touch the file system.",
            "I would move `parse_line` into `parser.py`.",
            "good. keep the old import path working for one release",
            "Agreed: `session.py` re-exports the names until 2.0.\n\nMoved 340 lines into "
            "`parser.py`. mypy is green. Still to do: the docs mention the old path. "
            "Shall I update them too?",
            files_modified=("src/parser.py", "src/session.py"),
        ),
        name="Move the line parser out of session.py",
        decided=("keep the old import path working", "re-exports the names until 2.0"),
        outcome=("Moved 340 lines",),
        steps=("Awaiting an answer: Shall I update them too?", "Still to do: the docs"),
        files=("`src/parser.py`",),
        absent=("class Session",),
    ),
    "incident": Case(
        facts(
            "Prod is down: checkout returns 502 for about 20% of requests since the 14:05 deploy.",
            "All the 502s come from node-7, which still has the old security group.",
            "2026-03-01T14:22:10Z ERROR upstream connect error\n\nroll back or drain? see #4821",
            "Drain node-7 rather than roll back: the release itself is fine.",
            "drained. error rate is back to 0.",
            "Confirmed, no 502 in five minutes. The root cause was the stale security group. "
            "Remaining: add node-7 to the Terraform module.",
        ),
        name="Prod is down: checkout returns 502",
        decided=("Drain node-7 rather than roll back", "The root cause was"),
        outcome=("Confirmed, no 502",),
        steps=("Remaining: add node-7",),
        tags=("ticket:#4821", "security group"),
        absent=("upstream connect error",),
    ),
    "a problem, and an order": Case(
        facts(
            "There is an off-by-one in the moving average. Please fix it and note the change.",
            "Fixed: the loop stopped one window early.",
        ),
        name="Fix the off-by-one in the moving average",
        outcome=("Fixed: the loop stopped",),
        tags=("off-by-one", "moving average"),
    ),
    "after greetings and commands": Case(
        facts(
            "hi",
            "Hello! How can I help?",
            "/model gpt-5",
            "The model is set.",
            "continue",
            "With what?",
            "Could you please add retry with backoff to the uploader in src/upload.ts? Thanks!",
            "Added: `upload()` retries five times with full jitter.",
            cwd="/home/x/sync",
        ),
        name="Add retry with backoff to the uploader",
        outcome=("Added: `upload()` retries",),
        tags=("retry", "sync"),
    ),
    "German": Case(
        facts(
            "Hallo! Kannst du bitte den Zeitzonenfehler beim Export der Rechnungen beheben? Die "
            "Beträge landen im falschen Monat.",
            "Die Ursache ist die Umrechnung nach UTC vor dem Gruppieren.",
            "Wir nehmen die Zeitzone des Mandanten, nicht die des Servers.",
            "Behoben: Die Gruppierung läuft jetzt in der Zeitzone des Mandanten.",
        ),
        name="Zeitzonenfehler beim Export der Rechnungen beheben",
        decided=("Die Ursache ist", "Wir nehmen die Zeitzone des Mandanten"),
        outcome=("Behoben: Die Gruppierung",),
        tags=("zeitzone",),
    ),
    "French": Case(
        facts(
            "Bonjour, peux-tu corriger le bug d'affichage dans la page d'accueil, s'il te plaît ?",
            "Nous avons décidé d'utiliser une grille au lieu de flex.\n\nCorrigé : le bouton reste "
            "visible.",
        ),
        name="Corriger le bug d'affichage dans la page d'accueil",
        decided=("une grille au lieu de flex",),
        outcome=("Corrigé : le bouton reste visible.",),
    ),
    "Spanish": Case(
        facts(
            "¿Puedes arreglar el error de sincronización en el módulo de pagos, por favor?",
            "Corregido: usamos una cola en lugar de un bucle.",
        ),
        name="Arreglar el error de sincronización en el módulo",
        decided=("una cola en lugar de un bucle",),
    ),
    "Japanese": Case(
        facts(
            "ログイン画面でセッションが切れるバグを修正してください。リロードすると必ず再現します。",
            "サーバー側の時刻を使うことにしました。\n\nテストを三件追加しました。",
        ),
        name="ログイン画面でセッションが切れるバグを修正",
        decided=("サーバー側の時刻を使うことにしました。",),
        outcome=("テストを三件追加しました。",),
        tags=("セッション",),
    ),
    "Chinese": Case(
        facts(
            "你好，请帮我优化数据库查询的性能，现在列表页加载太慢了。",  # noqa: RUF001 - its own comma
            "建议改用批量查询而不是逐行查询。",
            "好的，采用批量查询。",  # noqa: RUF001 - as above
            "已完成，加载时间降到三百毫秒。",  # noqa: RUF001 - as above
        ),
        name="优化数据库查询的性能",
        decided=("改用批量查询而不是逐行查询",),
        outcome=("已完成",),
    ),
    "only a trace": Case(
        facts(
            'Traceback (most recent call last):\n  File "/app/main.py", line 3, in <module>\n'
            "    import foo\nModuleNotFoundError: No module named 'foo'",
            "The package is missing from `requirements.txt`. I added `foo==1.2`.",
        ),
        name="ModuleNotFoundError: No module named 'foo'",
        outcome=("I added `foo==1.2`.",),
    ),
    "moved on": Case(
        facts(
            "What time zone does cron use on this machine?",
            "Cron uses Europe/Berlin.",
            "now something else: the search index returns stale documents after a delete",
            "Deletes are buffered in the index writer.",
            "can we make the index commit on delete?",
            "I suggest a tombstone filter on index reads instead.",
            "ok, and how do we test the index against races?",
            "With a stress test for the index.",
            "add that index test",
            "Added the stress test for the index; 10,000 rounds pass.",
        ),
        name="Search index returns stale documents after a delete",
        decided=("I suggest a tombstone filter",),
        outcome=("Added the stress test",),
        tags=("index",),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_conversation_becomes_what_one_wants_to_see_in_a_list(case: Case) -> None:
    """S0 Generate: name, decisions, outcome, open work, files and tags of real ways to work."""
    said = describe(case.facts)
    assert said.name == case.name
    for title, parts in (
        ("Key Decisions", case.decided),
        ("Outcome", case.outcome),
        ("Next Steps", case.steps),
        ("Files", case.files),
    ):
        found = "\n".join(section(said.summary, title))
        assert all(part in found for part in parts), (title, found)
    assert set(case.tags) <= set(said.tags)
    assert not [part for part in case.absent if part in said.model_dump_json()]
    assert f"{sum(role == 'user' for role, _ in case.facts.messages)} request" in said.description


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_names_are_short_and_whole(case: Case) -> None:
    """S0 Generate: at most 8 words, no trailing punctuation, nothing hanging at the end."""
    name = describe(case.facts).name
    assert len(name.split()) <= phrases.NAME_WORDS
    assert name[-1].isalnum() or name[-1] in "')"
    assert name.rsplit(" ", 1)[-1].lower() not in {"the", "in", "of", "and", "der", "de", "to"}
    assert not name[0].islower()


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("FIX THE BUILD NOW!!! IT IS BROKEN", "Fix the build now"),
        ("Rotate the key [redacted:aws_key] in deploy.yml", "Rotate the key in deploy.yml"),
        ("see @@other-session and fix the login test", "See other-session and fix the login test"),
        ("User: fix the login test", "Fix the login test"),
        ("<b>Fix</b> the **login** `test`", "Fix the login test"),
        ("Next.js app crashes on startup", "Next.js app crashes on startup"),
        ("The issue is the linter, not the build", "The issue is the linter, not the build"),
        (
            "add a retry with backoff to the client so that uploads survive a flaky network",
            "Add a retry with backoff to the client",
        ),
        ("read /srv/app/docs/refactor.md and implement it", "Read refactor.md and implement it"),
    ],
)
def test_a_request_becomes_a_name(asked: str, name: str) -> None:
    """S0 Generate: sentence case, cut at a clause's border, no marks, no paths, no shouting."""
    assert describe(facts(asked, "Done.")).name == name


def test_a_word_of_greeting_is_described_honestly() -> None:
    """S0 Generate: where nothing was said, name and tags are generic, and at least three tags."""
    said = describe(facts("hi", "Hello!", cwd="/home/x/thing", tools_used={"bash": 1}))
    assert said.name == "Conversation in thing"
    assert said.tags == ["thing", "bash", "conversation"]
    assert describe(Facts(())).name == "Conversation without a topic"


def test_an_unanswered_message_is_the_next_step() -> None:
    """S0 Generate: a session that ends with the user's words has Next Steps."""
    said = describe(facts("Add a cache.", "Added it to the reader.", "Now measure the reader too"))
    assert section(said.summary, "Next Steps") == ["Unanswered: Now measure the reader too"]
    plan = describe(facts("Measure the reader.", "Let me write a benchmark for the reader first:"))
    assert section(plan.summary, "Next Steps") == ["Let me write a benchmark for the reader first"]


def test_tickets_are_tagged_and_never_invented() -> None:
    """S0.20: ids that stand in the text, and nothing that only looks like one."""
    said = describe(facts("Fix ABC-123 and #4821: UTF-8, SHA-256, #ff0000, item #1, RFC-2119."))
    assert [tag for tag in said.tags if tag.startswith("ticket:")] == [
        "ticket:ABC-123",
        "ticket:#4821",
    ]


def test_early_decisions_and_the_goal_survive_ten_rounds() -> None:
    """S3.15: history is cut again and again, and what was decided first is still there."""
    summary = ""
    for n in range(10):
        said = describe(
            facts(
                f"Build the importer for supplier{n}." if n else "Migrate billing to PostgreSQL.",
                f"We decided to read supplier{n} as a stream."
                if n
                else "Agreed: MySQL stays the source of truth until the cut-over.",
                f"And for retries of supplier{n}?",
                f"Added importer{n}. For retries let's use backoff{n} instead of a queue{n}.",
                previous=summary or None,
                files_modified=(f"src/importer{n}.py",),
            )
        )
        summary = said.summary
        assert said.name == "Migrate billing to PostgreSQL"
        assert len(section(summary, "Goal")) <= 4
        assert len(section(summary, "Key Decisions")) <= 12
        assert len(section(summary, "Outcome")) <= 6
    assert section(summary, "Goal")[0].startswith("Migrate billing to PostgreSQL.")
    decided = section(summary, "Key Decisions")
    assert decided[0] == "Agreed: MySQL stays the source of truth until the cut-over."
    assert "We decided to read supplier9 as a stream." in decided


def test_a_summary_by_another_model_is_continued() -> None:
    """S3.15: the sections of any model's summary are merged, in Markdown and without."""
    before = "## Goal\nThe user wanted to **speed up** the importer.\n\n## Key Decisions\n"
    before += "1. `mmap` instead of reads\n\n## Outcome\n- Twice as fast.\n"
    said = describe(facts("Now the exporter as well.", "Done: exporter uses it.", previous=before))
    assert said.name == "Speed up the importer"
    assert section(said.summary, "Key Decisions")[0] == "`mmap` instead of reads"
    assert section(said.summary, "Outcome") == [
        "Earlier: Twice as fast.",
        "Done: exporter uses it.",
    ]
    free = describe(facts("ok", "ok", previous="Port the tool to Rust."))
    assert free.name == "Port the tool to Rust"


OURS = """asked outcome open request requests changed changes read and more goal key decisions
nothing explicit was found awaiting an answer unanswered earlier next steps files conversation in to
without a topic agent session untagged ticket the"""
WORDS = (
    "we use fix the cache index of src/io.py API-7 why? done. ok, Bitte @@x [redacted:key] **bold**"
)
spoken = st.lists(st.sampled_from(WORDS.split()), max_size=12).map(" ".join)


@settings(deadline=None)
@given(st.lists(spoken, max_size=6), st.none() | spoken, st.lists(st.sampled_from(["a/b.py", "c"])))
def test_nothing_is_invented(said: list[str], previous: str | None, files: list[str]) -> None:
    """S0.20: every word of the answer is in the facts, or is a label of ours."""
    known = facts(*said, previous=previous, cwd="/home/me/proj", files_read=tuple(files))
    found = describe(known)
    answer = " ".join([found.name, found.description, found.summary, *found.tags])
    text = " ".join([OURS, *said, previous or "", "proj", *files])
    letters = re.compile("[a-z]+")
    assert set(letters.findall(answer.lower())) <= set(letters.findall(text.lower()))
