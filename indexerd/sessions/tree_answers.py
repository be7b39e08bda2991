"""Answer the socket's questions about one session: its tree, its branches, a path, its context.

Texts are the session's own, in full and not redacted: they go only to the user who asks.

A tree's nodes are depth first, children oldest first, roots in the file's order.

Pitfalls, all of them pi's own: children are sorted by date, stably; a missing date equals every
other. An id that repeats names its last line, and is in the tree once per line.

The parent of a branch summary is where the new branch begins. `fromId` is the old leaf in pi 0.87,
but in older files the place where the user went, or "root". So it counts only if it is off the
summary's own path; else the abandoned branch is that of the entry written just before the summary,
if that is off the path.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cmp_to_key
from itertools import islice, takewhile
from typing import Any, NamedTuple

from indexerd.agents.claude.human import as_seen
from indexerd.agents.json_lines import own_words
from indexerd.entries import JS_SPACE, Compaction, Entry, Kind, Turn
from indexerd.errors import UsageError
from indexerd.privacy.sanitize import clean_line, clean_text, replace_surrogates
from indexerd.protocol import params
from indexerd.protocol.limits import FIRST_MESSAGE_MAX, READ_MAX
from indexerd.protocol.params import Prune, Rule, Summary, Truncate
from indexerd.sessions.clipped import SUMMED, clipped
from indexerd.sessions.context import (
    CLEARED,
    ContextMessage,
    ReadRow,
    context_entries,
    context_of,
    serialize,
)
from indexerd.sessions.info import SessionInfo
from indexerd.sessions.state import BOOKKEEPING, NOWHERE, ROOT, SessionState, name_at
from indexerd.times import iso_ms, iso_of_ms

GIST_MAX = 1000  # characters
TEXT_MAX = 65_536  # characters of one text of a path, if the answer has space for it
_LIMITS = (TEXT_MAX, 2000, 200)
PROMPTS_READ = 8  # prompts of a branch that are read to find one with text
TEXTS_MAX = 10_000_000  # characters of all texts of a path, before they are cut further

BRANCH_PREAMBLE = (  # pi puts this before the summary of a branch
    "The user explored a different conversation branch before returning here.\n"
    "Summary of that exploration:\n\n"
)
NODE_TEXT_MAX = 200  # characters of a node's text
WORD_MAX = 64  # characters of a type, a role, a time
NODES_MAX = 20_000  # in one answer
LOOKED_AT = 800  # characters of a text that are cleaned: more are never shown
SEARCHED = 65_536  # characters of a text that are searched

_WENT_WELL = ("", "stop", "toolUse", "tool-calls")
_BOOKKEEPING = frozenset({Kind.LABEL, Kind.NAME, Kind.SETTING})
_BOOKKEEPING_TYPES = frozenset({"custom", "context_edit", "attachment"})
_NOTE = "\n[{} characters left out]\n"
_HEADINGS = re.compile(r"(?m)^(?:#{1,6} .*|\(none\))$\n?")
_FILES = re.compile(r"\n<(?:read|modified)-files>\n")


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session as it was when it was opened, seen from the requested leaf."""

    info: SessionInfo
    state: SessionState  # a copy of its own
    labels: dict[str, str]  # by entry id: the user's and the session's own


def text_limit(
    state: SessionState, rows: Sequence[int], total: int, limits: Sequence[int] = _LIMITS
) -> int:
    """Choose the maximum length of each text so that their sum stays within `total`."""
    sums = ((limit, sum(min(state.lengths[row], limit) for row in rows)) for limit in limits)
    return next((limit for limit, size in sums if size <= total), limits[-1])


def unread(state: SessionState, rows: Iterable[int]) -> dict[str, Any]:
    """Warn if lines of these rows were too long to be read: their length is stored as 0."""
    count = sum(not state.lengths[row] for row in rows)
    if not count:
        return {}
    entries = "1 entry is" if count == 1 else f"{count} entries are"
    return {"warnings": [f"{entries} too long to be read"]}


def tree(session: SessionView, read: ReadRow, query: params.Tree) -> dict[str, Any]:
    state = session.state
    matching = nodes(state, read, session.labels, query.filter or "all", query.search)
    listed = list(islice(matching, NODES_MAX))
    answer = _head(session) | {"nodes": listed} | unread(state, range(len(state)))
    if next(matching, None) is not None:
        answer["truncated"] = True
    if looped := state.cycles:
        answer["cycles"] = looped
        warning = f"the parents of {len(looped)} entries form a cycle"
        answer["warnings"] = [warning, *answer.get("warnings", ())]
    return answer


def is_quiet(entry: Entry, turn: Turn, plain: str) -> bool:
    """Return whether an entry only calls tools, or nobody wrote it; `plain` is its text."""
    if entry.kind is Kind.OTHER:
        return entry.role in ("user", "assistant", "toolResult")
    if entry.kind in (Kind.CUSTOM, Kind.SYSTEM) and not plain:
        return not entry.images and entry.prompt is None
    if entry.kind is not Kind.CALL and (plain or entry.kind is not Kind.ASSISTANT):
        return False
    return turn is not Turn.FAILED and entry.stop_reason in _WENT_WELL


def shown_word(text: str) -> str:
    word = text[:WORD_MAX]
    return word if word.isascii() and word.isprintable() else clean_line(word, WORD_MAX)


def _without_words(entry: Entry) -> str:
    """Describe an entry without text by its error or its calls."""
    calls = (f"{call.name[:WORD_MAX]}: {call.detail[:NODE_TEXT_MAX]}" for call in entry.tools[:10])
    return entry.error or " ".join(f"[{call.removesuffix(': ')}]" for call in calls)


def outline(state: SessionState, date: Callable[[int], int]) -> Iterator[tuple[int, int, int]]:
    """Yield every entry's row, its parent's row (or ROOT) and its depth, depth first.

    `date` returns a row's time in ms, or 0; it is called for entries that have siblings.
    """
    below = _children(state)
    stack = [(row, ROOT, 0) for row in reversed(below(ROOT))]
    while stack:
        row, above, depth = stack.pop()
        yield row, above, depth
        children = below(row)
        if len(children) > 1:
            _sort_by_date(children, date)
        stack.extend((child, row, depth + 1) for child in reversed(children))


def _children(state: SessionState) -> Callable[[int], list[int]]:
    """Return a function that lists a row's children in file order; ROOT's are the roots."""
    first, after = array("i", [ROOT]) * (len(state) + 1), array("i", [ROOT]) * len(state)
    for row, above in zip(reversed(range(len(state))), reversed(state.parents), strict=True):
        first[above], after[row] = row, first[above]

    def below(row: int) -> list[int]:
        rows, child = list[int](), first[row]
        while child != ROOT:
            rows.append(child)
            child = after[child]
        return rows

    return below


def _sort_by_date(rows: list[int], date: Callable[[int], int]) -> None:
    dates = {row: date(row) for row in rows}

    def compare(row: int, other: int) -> int:
        return dates[row] - dates[other] if dates[row] and dates[other] else 0

    rows.sort(key=cmp_to_key(compare))


def _takes(mode: str, kind: Kind, entry: Entry, label: str | None, *, quiet: bool) -> bool:
    """Return whether a filter shows an entry; the leaf is never `quiet`."""
    if mode == "all":
        return True
    if entry.type == "usage" or quiet:
        return False
    if mode == "user-only":
        return kind is Kind.USER or replies(entry)
    if mode == "labeled-only":
        return label is not None
    if mode == "no-tools" and kind in (Kind.TOOL, Kind.CALL):
        return replies(entry)
    return kind not in _BOOKKEEPING and entry.type not in _BOOKKEEPING_TYPES


def nodes(
    state: SessionState,
    read: ReadRow,
    labels: Mapping[str, str],
    mode: str = "all",
    search: str | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the nodes of the answer, as seen from the state's leaf.

    A node must contain all words of `search`. `depth` counts the shown ancestors; `parentId` is
    the real parent, shown or not.
    """
    active, tokens = set(state.up(state.leaf)), (search or "").lower().split()
    depths = array("i")  # by real depth: shown rows from the root to the current one
    for row, above, depth in outline(state, lambda row: iso_ms(read(row).timestamp)):
        row = state.index.get(state.ids[row], row)  # noqa: PLW2901 - an id's last line counts
        entry, label = as_seen(read(row)), labels.get(state.ids[row])
        plain = entry.reply if replies(entry) else "".join(entry.texts).strip(JS_SPACE)
        plain = own_words(plain) if entry.kind is Kind.USER else plain
        text = clean_line((plain or _without_words(entry))[:LOOKED_AT], NODE_TEXT_MAX)
        quiet = row != state.leaf and is_quiet(entry, state.turn_of(row), plain)
        shown = _takes(mode, state.kind(row), entry, label, quiet=quiet)
        if tokens and shown:
            head = f"{label or ''} {entry.role or entry.type} {entry.custom_type or ''}"
            whole = f"{head} {plain[:SEARCHED] or text}".lower()
            shown = all(token in whole for token in tokens)
        del depths[depth:]
        before = depths[-1] if depths else 0
        depths.append(before + shown)
        if not shown:
            continue
        node = {
            "ordinal": state.ordinals[row],
            "depth": before,
            "kind": kind_of(state, row, entry),
            "type": shown_word(entry.type),
            "role": shown_word(entry.role) if entry.role else None,
            "label": label,
            "text": text,
            "timestamp": shown_word(entry.timestamp),
            "active": row in active,
            "display": False if entry.display is False else None,
        }
        places = {"id": state.ids[row], "parentId": None if above == ROOT else state.ids[above]}
        yield places | {key: value for key, value in node.items() if value is not None}


def branches(session: SessionView, read: ReadRow, stored: Mapping[str, str]) -> dict[str, Any]:
    """Answer `branches`: every tip; only its last message and the text for its summary are read.

    `stored` maps the names of leaves to our own summaries of their branches.
    """
    state, labels = session.state, session.labels
    rows = (row for row in range(len(state)) if state.kind(row) is Kind.BRANCH_SUMMARY)
    summaries = {row: read(row) for row in rows}
    listed = []
    for tip in tips(state, summaries):
        moment = iso_ms(read(tip.row if tip.last == ROOT else tip.last).timestamp)
        gist, source = _gist(state, tip, summaries, stored, read)
        branch = {
            "leafId": state.ids[tip.row],
            "branchPointId": None if tip.parting == ROOT else state.ids[tip.parting],
            "entries": tip.entries,
            "userMessages": tip.users,
            "lastActivity": iso_of_ms(moment) if moment else "",
            "active": tip.row == state.leaf,
        }
        optional = {
            "label": labels.get(state.ids[tip.row]),
            "gist": gist,
            "gistSource": gist and source,
            "reason": None if tip.summary == ROOT else labels.get(state.ids[tip.summary]),
        }
        listed.append(branch | {key: value for key, value in optional.items() if value})
    return _head(session) | {"tips": listed}


class Tip(NamedTuple):
    """A branch's last entry. Fields are rows, or ROOT for none, and counts from the root."""

    row: int
    entries: int = 0
    users: int = 0
    parting: int = ROOT  # the nearest ancestor with several children
    last: int = ROOT  # the newest user or assistant message
    summary: int = ROOT  # the branch summary of this branch


def tips(state: SessionState, summaries: Mapping[int, Entry]) -> list[Tip]:
    """List every branch's tip in file order; the leaf is the tip of its branch."""
    rows, summarized = _ends(state), dict(_summarized(state, summaries))
    ordered = dict[int, None]()  # the rows of all branches, parents first
    for end in rows:
        new = [*takewhile(lambda row: row not in ordered, state.up(end))]
        ordered.update(dict.fromkeys(reversed(new)))
    children = Counter(state.parents[row] for row in ordered)
    tip_at = dict.fromkeys(rows, Tip(ROOT))
    before = entries = users = parting = last = summary = ROOT
    for row in ordered:
        parent, kind = state.parents[row], state.kind(row)
        if parent == ROOT or parent != before:
            _, entries, users, parting, last, summary = tip_at.get(parent, Tip(ROOT))
        if parent != ROOT and children[parent] > 1:
            parting = parent
        entries, users = entries + 1, users + (kind is Kind.USER)
        last = row if kind in (Kind.USER, Kind.ASSISTANT) else last
        summary = summarized.get(row, summary)
        if row in tip_at or children[row] > 1:
            tip_at[row] = Tip(row, entries, users, parting, last, summary)
        before = row
    return [tip_at[row] for row in rows]


def _ends(state: SessionState) -> list[int]:
    """List the branches' last rows; where nobody says anything, there is no branch."""
    skipped = {*BOOKKEEPING, Kind.CUSTOM}

    def said(row: int) -> int:
        return next((at for at in state.up(row) if state.kind(at) not in skipped), ROOT)

    ends, continued = {said(row): row for row in state.tips()}, set[int]()
    for row in ends:
        above = state.up(state.parents[row]) if row != ROOT else ()
        continued.update([*takewhile(lambda row: row not in continued, above)])
    ends = {row: end for row, end in ends.items() if row not in continued}
    if len(ends) > 1:
        ends.pop(ROOT, None)
    if state.leaf not in (NOWHERE, *ends.values()):
        ends.pop(said(state.leaf), None)
        ends[said(state.leaf)] = state.leaf
    return [*ends.values()]


def _names(state: SessionState, tip: Tip) -> set[str]:
    """Collect the ids by which a stored summary may name this branch."""
    names = set[str]()
    for row in state.up(tip.row):
        names.add(state.ids[row])
        if row == tip.last or state.parents[row] == tip.parting:
            break
    durable = name_at(state, tip.row)
    named = state.row(durable)
    if named is None or named not in set(state.up(tip.parting)):  # not shared with other branches
        names.add(durable)
    return names


def _summarized(state: SessionState, summaries: Mapping[int, Entry]) -> Iterator[tuple[int, int]]:
    """Pair the abandoned rows with the rows of their summaries; for one row the last counts."""
    for row, entry in summaries.items():
        from_row = state.row(entry.from_id) if entry.from_id is not None else None
        for leaf in (from_row, row - 1 if row else None) if any(entry.texts) else ():
            if leaf is not None and not state.leads_to(leaf, row):
                yield leaf, row
                break


def _gist(
    state: SessionState,
    tip: Tip,
    summaries: Mapping[int, Entry],
    stored: Mapping[str, str],
    read: ReadRow,
) -> tuple[str, str]:
    """Return a branch's summary and its source: digest, agent, or ask (a prompt in it)."""
    named = _names(state, tip) if stored else ()
    ours = next((text for leaf, text in stored.items() if leaf in named), "")
    if told := _HEADINGS.sub("", ours).strip():  # first, because the user requested it
        return _begin_of(told), "digest"
    if tip.summary != ROOT:
        text = "".join(summaries[tip.summary].texts).removeprefix(BRANCH_PREAMBLE)
        return _begin_of(text), "agent"
    own = takewhile(lambda row: row != tip.parting, state.up(tip.row))
    prompts = [row for row in own if state.kind(row) is Kind.USER][::-1]
    for row in prompts[:PROMPTS_READ] if tip.row != state.leaf else ():
        prompt = clean_line(own_words(read(row).text)[:READ_MAX], FIRST_MESSAGE_MAX)
        if prompt:
            return prompt, "ask"
    return "", ""


def _begin_of(summary: str) -> str:
    """Cut a summary, and leave out the lists of files that pi adds."""
    return clean_text(_FILES.split(summary[: 2 * GIST_MAX], 1)[0], GIST_MAX)


def path(session: SessionView, read: ReadRow, query: params.Path) -> dict[str, Any]:
    """Answer `path`: the entries to the leaf, or with `customType` only an extension's records."""
    state, custom = session.state, query.custom_type
    every = state.path()
    rows = every[-NODES_MAX:]
    limit = text_limit(state, rows, TEXTS_MAX)
    listed = [
        _step(session, row, entry, limit, data=custom is not None)
        for row, entry in zip(rows, map(read, rows), strict=True)
        if custom is None or (entry.type == "custom" and entry.custom_type == custom)
    ]
    cut: dict[str, Any] = {} if limit == TEXT_MAX else {"textMax": limit}
    cut |= {"truncated": True} if len(rows) < len(every) else {}
    return _head(session) | {"entries": listed} | cut | unread(state, rows)


def context(session: SessionView, read: ReadRow, query: params.Context) -> dict[str, Any]:
    """Answer `context`: the messages for the model, and the path's compactions, newest first.

    `transforms` are rules for this one answer. `serialize` adds all messages as one text.
    """
    rules, state = query.transforms or [], session.state
    shown: set[int] = set()

    def noted(row: int) -> Entry:
        shown.add(row)
        return read(row)

    level = "off" if session.info.agent == "pi" else None  # pi's default
    current = context_of(state, noted, level=level)
    rows = [row for row in reversed(state.path()) if state.kind(row) is Kind.COMPACTION]
    past = [_compaction(read(row)) for row in rows]
    answer = {
        "messages": [
            {"role": message.role, "text": message.text, "entryId": message.entry.id}
            for message in transformed(current.messages, rules)
        ],
        "model": current.model,
        "thinkingLevel": current.thinking_level,
        "compactions": past,
        "previousSummary": past[0]["summary"] if past else None,
    }
    if rules:
        answer["transformed"] = True
    if query.serialize:  # it has only the beginnings of results; rules see them whole
        brief = noted if rules else lambda row: clipped(noted(row), SUMMED)
        speeches = [message for step in context_entries(state, brief) for message in step.speeches]
        answer["serialized"] = serialize(transformed(speeches, rules))
    return _head(session) | answer | unread(state, shown)


def transformed(messages: Iterable[ContextMessage], rules: Iterable[Rule]) -> list[ContextMessage]:
    """Apply all rules; UsageError if a rule names an entry that no message comes from."""
    result = list(messages)
    for rule in rules:
        match rule:
            case Prune():
                result = _pruned(result, rule)
            case Summary():
                result = _summed_up(result, rule)
            case Truncate():
                result = [_shortened(message, rule) for message in result]
    return result


def _pruned(messages: list[ContextMessage], rule: Prune) -> list[ContextMessage]:
    tokens, pruned = 0, []
    for message in reversed(messages):
        result = message.role == "toolResult"
        tokens += -(-len(message.text) // 4) if result else 0
        clears = result and tokens > rule.protect_tokens and len(message.text) > len(CLEARED)
        pruned.append(replace(message, texts=(CLEARED,)) if clears else message)
    return pruned[::-1]


def _summed_up(messages: list[ContextMessage], rule: Summary) -> list[ContextMessage]:
    ids = [message.entry.id for message in messages]
    for own in (rule.first, rule.last):
        if own is not None and own not in ids:
            raise UsageError(f"no message of this context comes from entry {clean_line(own, 200)}")
    start = 0 if rule.first is None else ids.index(rule.first)
    end = len(ids) if rule.last is None else len(ids) - ids[::-1].index(rule.last)
    if not ids:
        return messages
    if end <= start:
        raise UsageError("a summary rule's `to` comes before its `from`")
    text = replace_surrogates(rule.text)
    summary = ContextMessage("compactionSummary", messages[start].entry, (text,))
    return [*messages[:start], summary, *messages[end:]]


def _shortened(message: ContextMessage, rule: Truncate) -> ContextMessage:
    text = message.text
    if len(text) <= rule.chars or (rule.roles and message.role not in rule.roles):
        return message
    room = rule.chars - len(_NOTE.format(len(text)))
    note = _NOTE.format(len(text) - room)
    cut = text[:room] + note if rule.keep == "head" else note + text[len(text) - room :]
    return replace(message, texts=(cut,))


def _head(session: SessionView) -> dict[str, Any]:
    leaf = session.state.leaf
    return {
        "sessionId": session.info.session_id,
        "leafId": None if leaf == NOWHERE else session.state.ids[leaf],
        "idLength": session.state.id_length,
    }


def _step(
    session: SessionView, row: int, entry: Entry, limit: int, *, data: bool
) -> dict[str, Any]:
    above = session.state.parents[row]
    step = {
        "ordinal": session.state.ordinals[row],
        "kind": kind_of(session.state, row, entry),
        "type": entry.type[:WORD_MAX],
        "role": entry.role and entry.role[:WORD_MAX],
        "label": session.labels.get(entry.id),
        "timestamp": entry.timestamp[:WORD_MAX],
        "text": (entry.reply if replies(entry) else "".join(as_seen(entry).texts))[:limit],
        "customType": entry.custom_type,
        "display": entry.display,
        "fromId": entry.from_id,
        "data": entry.data if data else None,
    }
    places = {"id": entry.id, "parentId": None if above == ROOT else session.state.ids[above]}
    return places | {key: value for key, value in step.items() if value is not None}


def kind_of(state: SessionState, row: int, entry: Entry) -> str:
    """Name an entry's kind; a sub-agent's first prompt, its parent's, is a `task`."""
    if row in state.openings and state.header and state.header.subagent:
        return "task"
    if entry.kind is Kind.TOOL and entry.sent_as == "user":
        return "inserted"
    return "reply" if replies(entry) else entry.kind.name.lower()


def replies(entry: Entry) -> bool:
    """Return whether an entry is a tool's result in which the user says something."""
    return entry.kind is Kind.TOOL and bool(entry.reply)


def _compaction(entry: Entry) -> dict[str, Any]:
    compaction = entry.compaction or Compaction()
    fields = {
        "entryId": entry.id,
        "timestamp": entry.timestamp[:WORD_MAX],
        "summary": "".join(entry.texts),
        "firstKeptEntryId": compaction.kept,
        "tokensBefore": compaction.tokens_before,
        "fromHook": entry.from_hook,
        "details": entry.stored,
    }
    return {key: value for key, value in fields.items() if value is not None}
