"""What a compaction would sum up and keep, by the rules of pi, Codex or opencode; and a branch.

In: a session of any agent, as it was taken. Out: texts, redacted, with the facts that stand beside
the summary. Runs in threads, never in the event loop. ValueError: a line is no JSON, the session
must be reread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from indexerd.core import compact_codex, compact_opencode, compact_pi
from indexerd.core.branch_pi import WINDOW, branch_rows, prepare_branch
from indexerd.core.clean import clean_text
from indexerd.core.context import Message, Read
from indexerd.core.decisions import decisions
from indexerd.core.history import FileLists, file_lists
from indexerd.core.inject import own_words
from indexerd.core.segments import Segment, message_rows
from indexerd.core.serialize import serialize
from indexerd.core.speech import Speech, Step, raw_steps, steps_of
from indexerd.core.talk import NO_TALK, Talk, said_in, talk_of
from indexerd.core.transcript import Redactor
from indexerd.errors import SessionEmptyError, UsageError
from indexerd.events import Entry, Kind
from indexerd.llm.threads import Check
from indexerd.service.calls import redactor
from indexerd.service.stored_digest import chain_of
from indexerd.service.views import Taken, reader, row_of
from indexerd.settings import Settings

STRATEGIES = ("pi", "codex", "opencode")
KEPT_LOOKED = 400  # newest speeches among which they are looked for
KEPT_MAX = 20  # newest messages that stay, as they are shown
KEPT_TEXT_MAX = 20_000  # characters of one of them
PATHS_MAX = 500  # of each list of files
PREAMBLE = (  # what pi puts before the summary of a branch, for its model
    "The user explored a different conversation branch before returning here.\n"
    "Summary of that exploration:\n\n"
)
TURN_HEADING = "\n\n---\n\n**Turn Context (split turn):**\n\n"  # pi's
NO_HISTORY = "No prior history."  # pi's
NOTHING = "No content to summarize"  # pi's
NO_FILES = FileLists((), ())


@dataclass(frozen=True, slots=True)
class Compaction:
    """What is summed up, what stays, and what is known besides."""

    strategy: str
    history: Talk
    prefix: Talk = NO_TALK  # the beginning of a turn whose end stays
    split: bool = False
    first_kept: str | None = None
    tokens_before: int = 0
    previous: str = ""
    files: FileLists = NO_FILES
    users: tuple[Message, ...] = ()  # what humans said that stays (Codex)
    kept: tuple[dict[str, Any], ...] = ()  # the newest messages that stay
    summarized: int = 0  # messages
    decisions: tuple[str, ...] = ()
    earlier: tuple[Segment, ...] = ()  # digests of the path
    done: str | None = None  # the summary there is already, where nothing came after it


@dataclass(frozen=True, slots=True)
class Branch:
    """What was said on a branch that was left."""

    talk: Talk
    files: FileLists
    leaf_id: str
    first: int  # positions of its messages on its path
    last: int
    home: Path | None
    decisions: tuple[str, ...] = ()


def default_strategy(agent: str) -> str:
    """The rules of the session's own agent, where they are known."""
    return agent if agent in STRATEGIES else "pi"


def compaction(
    taken: Taken, check: Check, settings: Settings, *, strategy: str | None, keep: int
) -> Compaction:
    """What the strategy would do with the context at the leaf.

    SessionEmptyError where there is nothing to sum up. A strategy that was not asked for by name
    sums up all there is where its own rule would wait for more.
    """
    found = _compaction(taken, check, redactor(settings), strategy=strategy, keep=keep)
    return replace(found, earlier=tuple(chain_of(taken)))


def _compaction(
    taken: Taken, check: Check, clean: Redactor, *, strategy: str | None, keep: int
) -> Compaction:
    name = strategy or default_strategy(taken.card.agent)
    with taken.lines as lines:
        read = _checked(reader(taken, lines), check)
        steps = steps_of(taken.state, read)
        if not any(step.speeches for step in steps):
            raise SessionEmptyError("there is no conversation to sum up")
        if name == "pi":
            return _by_pi(taken, steps, clean, keep, asked=strategy is not None)
        return _whole(taken, steps, clean, name)


def _by_pi(
    taken: Taken, steps: list[Step], clean: Redactor, keep: int, *, asked: bool
) -> Compaction:
    found = compact_pi.prepare(steps, keep)
    if found is None:
        newest = max(steps, key=lambda step: step.place)
        if newest.entry.kind is Kind.COMPACTION:
            return _already(newest, clean)
        if asked:
            raise SessionEmptyError(
                f"there is nothing to compact: all of it is within the newest {keep} tokens",
                hint="keep less (--keep-recent TOKENS), or leave out --strategy",
            )
        return _whole(taken, steps, clean, "pi")
    at = next((n for n, step in enumerate(steps) if step.entry.id == found.first_kept_id), 0)
    talk = talk_of(serialize(found.history), clean)
    return Compaction(
        strategy="pi",
        history=talk,
        prefix=talk_of(serialize(found.turn_prefix), clean),
        split=found.split,
        first_kept=found.first_kept_id,
        tokens_before=found.tokens_before,
        previous=clean(found.previous_summary or "")[0],
        files=_clean_lists(found.files, clean),
        kept=_shown(_speeches(steps[at:]), clean),
        decisions=_decisions(talk),
        summarized=len(found.history) + len(found.turn_prefix),
    )


def _already(step: Step, clean: Redactor) -> Compaction:
    """The session ends with a compaction: its own summary is all there is to say."""
    entry = step.entry
    kept, before = entry.details.get("kept"), entry.details.get("tokensBefore")
    return Compaction(
        strategy="pi",
        history=Talk(),
        first_kept=kept if isinstance(kept, str) else None,
        tokens_before=int(before) if isinstance(before, int | float) else 0,
        files=_clean_lists(file_lists([entry]), clean),
        done=clean("".join(entry.texts))[0],
    )


def _whole(taken: Taken, steps: list[Step], clean: Redactor, name: str) -> Compaction:
    """All of the conversation; what humans said last stays in Codex."""
    previous, rest = _earlier(steps)
    speeches, users = _speeches(rest), tuple[Message, ...]()
    if name == "opencode":
        made = compact_opencode.prepare(rest)
        speeches = list(made.history) if made else []
        tokens = compact_opencode.tokens_of(steps)
    elif name == "codex":
        tokens, users = compact_codex.tokens_of(taken.state, steps), compact_codex.users_of(steps)
    else:
        tokens = compact_pi.context_tokens(steps).tokens
    talk = talk_of(serialize(one for one in speeches if one.role != "system"), clean)
    users = tuple(replace(one, text=clean(one.text)[0]) for one in users)
    if not talk.parts:
        if previous:
            return replace(_already(steps[0], clean), strategy=name, users=users)
        raise SessionEmptyError("there is nothing in words to sum up")
    return Compaction(
        strategy=name,
        history=talk,
        tokens_before=tokens,
        previous=clean(previous)[0],
        files=_clean_lists(file_lists(step.entry for step in steps), clean),
        users=users,
        kept=_shown(speeches[-KEPT_LOOKED:], clean),
        decisions=_decisions(talk),
        summarized=len(speeches),
    )


def _earlier(steps: list[Step]) -> tuple[str, list[Step]]:
    """The summary that the context begins with, which is to be merged, and what came after it.

    What such a compaction keeps of the messages before it stands among the rest.
    """
    at = max(range(len(steps)), key=lambda at: (_sums_up(steps[at]), steps[at].place))
    step = steps[at]
    if not _sums_up(step):
        return "", steps
    summary = "".join(step.entry.texts)
    brought = tuple(one for one in step.speeches if not "".join(one.texts).endswith(summary))
    return summary, [*steps[:at], replace(step, speeches=brought), *steps[at + 1 :]]


def _sums_up(step: Step) -> bool:
    """Whether a step is a compaction that the model is told of."""
    entry = step.entry
    return entry.kind is Kind.COMPACTION and bool(step.speeches and "".join(entry.texts))


def branch(
    taken: Taken, check: Check, settings: Settings, *, leaf: str, window: int | None
) -> Branch | None:
    """What was said from an old leaf back to where its path meets the current one.

    None where nothing was said there. NotFoundError for an entry that is not there.
    """
    state, clean = taken.state, redactor(settings)
    rows = branch_rows(state, row_of(state, leaf), state.leaf)
    budget = max(1, (window or WINDOW) - settings.digest.reserve_tokens)
    with taken.lines as lines:
        read = _checked(reader(taken, lines), check)
        found = prepare_branch(raw_steps(state, read, rows, edits=False), budget)
    talk = talk_of(serialize(found.speeches), clean)
    if not talk.parts:
        return None
    own = set(rows)
    within = [at for at, row in enumerate(message_rows(state, rows[-1])) if row in own]
    return Branch(
        talk=talk,
        files=_clean_lists(found.files, clean),
        leaf_id=leaf,
        first=within[0] if within else 0,
        last=within[-1] if within else 0,
        home=taken.home,
        decisions=_decisions(talk),
    )


def _decisions(talk: Talk) -> tuple[str, ...]:
    return decisions(own_words(text) for _, text in said_in(talk.parts))


def _speeches(steps: Iterable[Step]) -> list[Speech]:
    return [speech for step in steps for speech in step.speeches]


def _shown(speeches: Sequence[Speech], clean: Redactor) -> tuple[dict[str, Any], ...]:
    """The newest messages of human and agent, redacted, as a hand-off quotes them."""
    found = []
    for one in reversed(speeches):
        text = "".join(one.texts).strip()
        if one.role in ("user", "assistant") and text:
            shown = clean_text(clean(text)[0], KEPT_TEXT_MAX)
            found.append({"role": one.role, "text": shown, "entryId": one.entry.id})
        if len(found) >= KEPT_MAX:
            break
    return tuple(reversed(found))


def _clean_lists(files: FileLists, clean: Redactor) -> FileLists:
    """Paths without secrets in them; as many as anybody reads."""
    return FileLists(
        tuple(clean(path)[0] for path in files.read[:PATHS_MAX]),
        tuple(clean(path)[0] for path in files.modified[:PATHS_MAX]),
    )


def _checked(read: Read, check: Check) -> Read:
    def checked(row: int) -> Entry:
        check()
        return read(row)

    return checked


def strategy_of(value: str | None) -> str | None:
    """A strategy that there is; UsageError for another."""
    if value is not None and value not in STRATEGIES:
        raise UsageError(f"strategy is one of {', '.join(STRATEGIES)}")
    return value
