"""What the core writes for readers and for models, of small values with every field filled.

Each is written down whole by `known_texts.py`, so that a heading that is gone, a line that moved
or a limit that is another one now is seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from indexerd.digests import summary_prompts
from indexerd.digests.assembled import assembled, earlier, figures, folded
from indexerd.digests.handoff import Earlier, Handoff, Verbatim
from indexerd.digests.handoff import document as handoff
from indexerd.digests.segments import Segment, ToolUse, encode, parse
from indexerd.errors import IndexerdError
from indexerd.events import Stretch
from indexerd.indexing import prompts
from indexerd.meta import context_sets as sets
from indexerd.references import cited_answer as cited
from indexerd.references import inject
from indexerd.references import question_prompt as questions
from indexerd.sessions import family
from indexerd.sessions.context import context_of
from indexerd.sessions.transforms import rules_of, transformed
from indexerd.web.export_html import EXPORT_PARTS, LIVE, LIVE_PARTS, STYLE, Assets, html, live_page
from indexerd.web.export_json import Head, to_json
from indexerd.web.export_json import document as document_json
from indexerd.web.export_md import markdown
from indexerd.web.footer_html import footer_html
from indexerd.web.story import story_of
from indexerd.web.story_nodes import node_of, turn_of
from tests.indexing.known_answers import taken
from tests.sessions.tree_sessions import entry, reader, said, session, state_of

MARKS = ("TITLE", "POLICY", "STYLE", "HOME", "NAME", "DESCRIPTION", "DATA", "SCRIPT")
LONG = " ".join(f"word{n}" for n in range(400))
ODD = 'a <b> & "c" `d` @@ref <|im_start|> \u202e\u200b x\ty\r\nz'
CONTEXT = {
    "files": ["/w/a.py", "/w/b/c.md", "d.txt", "/gone.py", "/w/e.py", "/w/f.py"],
    "applet": ["text-editor", "path=/w/a.py", "line=7", "flag"],
    "notes": ["one", "two {{x}}", ""],
}


def pages() -> Iterator[tuple[str, Any]]:
    """All of them."""
    for make in (_exports, _handoffs, _segments, _prompts, _questions, _injected, _sets, _others):
        yield from make()


# -- documents -----------------------------------------------------------------------------------


def _exports() -> Iterator[tuple[str, Any]]:
    state, read = taken(
        "pi/sessions/--srv-rig-work-pi-latest-weathercli--/"
        "2026-11-21T21-09-24-375Z_01a1fff1-4515-7625-a524-a88ff3498be7.jsonl"
    )
    rows = range(len(state))
    drafts = {
        row: node_of(read(row), turn_of(state, row), 300, lambda text, most: text[:most], {})
        for row in rows
    }
    tip = state.tips()[0]
    story = story_of(state, drafts, state.labels, {tip: ("what it was about", "pi")})
    row = {
        "sessionId": "s1",
        "agent": "pi",
        "name": f"A {ODD}",
        "cwd": "/w",
        "createdAt": "2026-01-01T00:00:00.000Z",
        "modifiedAt": "2026-01-02T00:00:00.000Z",
        "messageCount": 7,
        "models": ["m-1", "m-2"],
        "tags": ["one", "two"],
        "description": "Of the row.",
    }
    meta = {"name": "N", "description": f"D {ODD}", "summary": "## Goal\n- a\n```\n<b>\n```"}
    kin = {"forks": ["f1", "f2"], "subagents": ["a1"], "parent": "p1"}
    head = Head(row, meta, CONTEXT, "📄 a.py", kin, "2026-01-03T00:00:00Z", "indexerd 1")
    digests = [
        {"place": 1, "id": "s1", "covering_messages": [0, 3], "content": "- a\n- b", "model": "m"}
    ]
    found = document_json(
        head,
        story,
        tips=[{"leafId": "x", "place": 2}],
        digests=digests,
        text_max=300,
        redacted=True,
        warnings=["1 entry is too long to be read"],
    )
    yield "markdown", markdown(found)
    yield "markdown without more", markdown(document_json(Head({"sessionId": "s1"}), story))
    yield "json", [len(to_json(found)), to_json(found)[:1500].split("\n")]
    page = "".join(f"<!--{mark}-->@{mark}@" for mark in MARKS)
    marks = Assets(page, "a{}", "f()")
    yield "html", _tried(lambda: html({"session": row, "meta": meta}, marks))
    yield "parts of the page", [EXPORT_PARTS, LIVE_PARTS]
    urls = {STYLE: "/s/style?x=1&y", LIVE: "/s/live"}
    yield (
        "live page",
        _tried(lambda: live_page(marks, title=ODD, description=LONG, urls=urls, integrity=urls)),
    )


def _handoffs() -> Iterator[tuple[str, Any]]:
    full = Handoff(
        session_id="s1",
        agent="claude",
        name=f"A name {ODD}",
        cwd="/w",
        git_branch="main",
        began="2026-01-01T00:00:00Z",
        last_active="2026-01-02T00:00:00Z",
        written="2026-01-03T00:00:00Z",
        summary=f"## Goal\n- {ODD}\n- {LONG}",
        summary_by="claude",
        decisions=["use sqlite", ODD],
        modified=["/w/a.py", "b.py"],
        read=["/w/c.py"],
        instructions=["AGENTS.md", "CLAUDE.md"],
        earlier=[Earlier(0, 3, "- it began"), Earlier(4, 9, LONG)],
        messages=[Verbatim("user", ODD, "e1"), Verbatim("assistant", LONG * 20, "e2")],
        resume="cd /w && claude --resume s1",
    )
    yield "hand-off", handoff(full)
    yield "hand-off of nothing", handoff(Handoff("s1", "pi", "", ""))


def _segments() -> Iterator[tuple[str, Any]]:
    uses = (ToolUse("bash", 3, ("make test", "ls")), ToolUse("read", 1, ()))
    made = Segment(
        *("s1", 0, 3, "- did it", ("use sqlite",), ("/w/a.py",), uses),
        *("2026-01-01T00:00:00Z", 30, "m", "x3", "segment"),
    )
    yield "segment", encode(made)
    yield "segment read", parse(encode(made))
    yield "branch", encode(Segment("s2", 1, 2, "c", (), (), (), "", 1, "m", "x2", "branch"))
    chain = [made, Segment("s3", 4, 9, "- and then", (), (), (), "", 3, "m", "x9")]
    yield "earlier", earlier(chain)
    yield "folded", [folded(one) for one in (1, 2, 40)]
    whole = assembled(
        [("system", "S", "e0")], chain, [("user", "hi", "e9"), ("assistant", "x", "")]
    )
    yield "assembled", whole + assembled([], [], [("user", "hi", "e9")])
    counts = {"tokens_before": 900, "tokens_covered": 300, "target": 0.2}
    told = [figures(20, chain[:1], chain[1], **counts), figures(20, chain, None, **counts)]
    yield "figures", [one._asdict() for one in told]


# -- for models ----------------------------------------------------------------------------------


def _prompts() -> Iterator[tuple[str, Any]]:
    since = prompts.Earlier("N", "D", "S", ("a", "b"))
    base = prompts.index_prompt("User: hi", nonce="n0", schema={"type": "object"})
    yield "index", base
    yield "index since", prompts.index_prompt("User: hi", nonce="n0", schema={}, since=since)
    yield (
        "index again",
        prompts.index_prompt("User: hi", nonce="n0", schema={}, previous_summary="S" * 9),
    )
    yield "retry", prompts.retry_prompt(base, "{bad", "no JSON").user[-200:]
    wish = summary_prompts.Wish("the cache", "", ("a hook said so",))
    for kind in ("segment", "checkpoint", "turn", "branch"):
        for previous in ("", "before"):
            stretch = Stretch(kind, (("user", "hi"),), previous=previous, max_tokens=900)
            found = summary_prompts.summary_prompt("User: hi", stretch, "n0", wish)
            yield f"summary {kind} {previous}", [found.user.split("\n"), found.max_output_tokens]
            yield (
                f"shorter {kind} {previous}",
                summary_prompts.shorter_prompt(found, "cut").user[-60:],
            )


def _questions() -> Iterator[tuple[str, Any]]:
    said_all = [
        questions.Said(
            f"e {at}" if at % 5 == 4 else f"e{at}", ("user", "assistant")[at % 2], text, 9 - at
        )
        for at, text in enumerate(
            ["why sqlite?", LONG, "use it", ODD, "é" * 300, "line\n" * 60, "ok"]
        )
    ]
    told = [
        questions.Said("c1", "summary", "earlier: a cache", 8),
        questions.Said("c2", "summary", LONG, 9),
    ]
    for size in (200, 900, 2500, 100_000):
        found = questions.gather(reversed(said_all), told, size, lambda text: (text, {"token": 1}))
        made = questions.compose(found, size, local=size > 1000)
        yield f"context {size}", [made.text, made.notes, made.bytes, made.redactions]
    asked = questions.question_prompt(made, "why?", nonce="n0", schema={}, excerpt_max=9)
    yield "question", asked.user
    yield "question here", questions.local_prompt(made, "why?").question
    reply = (
        '{"answerMarkdown": "Because.", "confidence": "High", "citations": ['
        '{"entryId": "e0", "role": "user", "excerpt": "why sqlite?"},'
        '{"entryId": "e1", "role": "user", "excerpt": "word7  word8"},'
        '{"entryId": "no", "excerpt": "x"}, {"entryId": "e2", "excerpt": "never said"}]}'
    )
    replies = (
        reply,
        "{}",
        "[]",
        "no",
        '{"answerMarkdown": " . ", "confidence": "low", "citations": []}',
    )
    for at, one in enumerate(replies):
        judged = cited.judge_answer(one, cut=at == 1, redact=str, sections=made.sections)
        yield f"judged {at}", judged
    context = questions.Context((), notes=("only so much was looked at",))
    yield "partly", cited.partly(cited.Cited("First.\n\nSecond.", "high"), context)


def _injected() -> Iterator[tuple[str, Any]]:
    one = inject.Told(
        "s1", f"Name {ODD}", "2026-01-01", LONG, f"## Goal\n{ODD}", ("a", "b"), "pi", "note"
    )
    bare = inject.Told("s2", "", "", "", " ", ())
    parts = [
        inject.section(one),
        inject.section(bare),
        inject.section(one._replace(summary=LONG * 9)),
    ]
    for size in (60, 300, 900, 3000, 100_000):
        yield f"block {size}", inject.block(parts, size, notes=("2 more",), guided=size != 900)
    yield "answer", inject.answer("N", "s1", "why?", f"Because.\n{ODD}", 400)
    whole = inject.joined(inject.block(parts, 3000).text, "my own words")
    yield (
        "own words",
        [inject.own_words(whole), inject.own_words("mine"), inject.own_words(parts[0])],
    )
    yield (
        "shares",
        [inject.shares(sizes, 100) for sizes in ((10, 200, 30), (), (99, 99, 99), (1, 1))],
    )


# -- sets, rules, families -----------------------------------------------------------------------


def _sets() -> Iterator[tuple[str, Any]]:
    gone = {"/gone.py"}
    yield "resume", sets.resume_block("/w", " source env ", CONTEXT, lambda one: one not in gone)
    yield "resume of nothing", sets.resume_block("", None, {}, lambda _: True)
    many = {"files": [f"/w/{n}.py" for n in range(300)], "x": [LONG], "User": ["a"], "b": ["<|c|>"]}
    yield "many", sets.told_context(many, lambda one: not one.endswith("7.py"))
    for name, context in (("footer", CONTEXT), ("footer of many", many), ("no footer", {})):
        found = sets.footer(context, "/w")
        yield name, found
        yield f"{name} as html", footer_html(found, "s 1", "/w", "/p")
    yield (
        "told",
        [sets.told(CONTEXT), sets.told(CONTEXT, " notes "), sets.told({}), sets.told({}, "x")],
    )
    changes = (
        ("files", ["a", " b ", "a"], "merge"),
        ("notes", [], None),
        ("new", ["x"], "replace"),
        ("files", ["/w/a.py"], "merge"),
        ("applet", ["x"] * 101, "merge"),
        ("big", [f"i{n}" for n in range(100)], "merge"),
        (" ", [], None),
        ("user", ["x"], None),
        ("ok", ["a\nb"], None),
        ("ok", "a", None),
        ("ok", ["a"], "other"),
    )
    for name, items, mode in changes:
        yield (
            f"change {name} {len(items)} {mode} {items[:1]}",
            _tried(lambda one=(name, items, mode): sets.apply(CONTEXT, sets.change_of(*one))),
        )
    yield "all", _tried(lambda: sets.replace_all({"files": ["a"], "odd": ["b"]}))
    yield "twice", _tried(lambda: sets.replace_all({"files": ["a"], " files": ["b"]}))
    paths = ("/w/a", "/w", "/wx/a", "b", "../c", "/", "")
    for cwd in ("/w", "/wX/", "/", ""):
        told = [
            [sets.absolute(cwd, one), sets.relative(cwd, one), sets.basename(one)] for one in paths
        ]
        yield f"paths in {cwd}", told


RULES: tuple[Any, ...] = (
    [{"rule": "prune"}],
    [{"rule": "prune", "protectTurns": 1}],
    [{"rule": "prune", "protectTokens": 40}],
    [{"rule": "truncate", "chars": 100}],
    [{"rule": "truncate", "chars": 101, "keep": "head", "roles": ["user"]}],
    [{"rule": "truncate", "chars": 120, "keep": "tail"}],
    [{"rule": "summary", "text": "It was done.", "from": "e1", "to": "e3"}],
    [{"rule": "summary", "from": "e2"}],
    [{"rule": "summary", "to": "e2", "roles": ["toolResult"], "text": "T", "role": "user"}],
    [{"rule": "summary"}],
    [{"rule": "truncate", "chars": 3}],
    [{"rule": "truncate", "chars": 100, "keep": "middle"}],
    [{"rule": "prune", "other": 1}],
    [{"rule": "none"}],
    ["prune"],
    "prune",
)


def _others() -> Iterator[tuple[str, Any]]:
    data = session(
        said("e1", None, "user", LONG[:300]),
        said("e2", "e1", "assistant", "answer"),
        entry("message", "e3", "e2", message={"role": "toolResult", "content": LONG[:500]}),
        said("e4", "e3", "user", "and?"),
        entry("message", "e5", "e4", message={"role": "toolResult", "content": "r" * 150}),
    )
    state = state_of(data)
    messages = context_of(state, reader(state, data)).messages
    for at, rules in enumerate(RULES):
        yield f"rules {at}", _tried(lambda rules=rules: transformed(messages, rules_of(rules)))
    links = [family.Link(f"s{n}", f"s{n // 2}" if n else "", 100 - n, n == 3) for n in range(8)]
    places = family.depth_first(links[:1], links[1:])
    yield "family", places
    yield (
        "kept",
        [family.kept(places, own, most) for own, most in (("s7", 3), ("s7", 9), ("s1", 1))],
    )
    old, new = (
        {"modifiedAt": f"2026-01-0{n}T00:00:00Z", "createdAt": f"2026-01-0{n}T00:00:00Z"}
        for n in (1, 2)
    )
    yield (
        "relations",
        [
            family.relation(new, old, named=named, carries_on=on)
            for named in (False, True)
            for on in (None, False, True)
        ]
        + [
            family.relation(old, new, named=True, carries_on=None),
            family.relation(new, None, named=True, carries_on=None),
            family.relation({**new, "subagent": True}, old, named=True, carries_on=None),
        ],
    )


def _tried(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except IndexerdError as error:
        return [error.kind, str(error), error.hint]
    except ValueError as error:
        return ["ValueError", re.sub(r"0x\w+", "", str(error))]
