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

from indexerd.daemon.views import Taken, reader, row_of
from indexerd.digests import compact_opencode, compact_pi
from indexerd.digests.branch_pi import WINDOW, branch_rows, prepare_branch
from indexerd.digests.compact_past import (
    Look,
    earlier_files,
    earlier_talk,
    humans,
    tokens_before,
    tokens_of,
)
from indexerd.digests.segments import Segment, message_rows
from indexerd.digests.spoken import whose
from indexerd.digests.stored_digest import chain_of
from indexerd.digests.summary_prompts import PREVIOUS_MAX
from indexerd.digests.talk import NO_TALK, Talk, said_in
from indexerd.errors import SessionEmptyError, UsageError
from indexerd.events import Kind
from indexerd.models.candidates import decisions
from indexerd.models.threads import Check
from indexerd.privacy.redactor import Redactor, redactor
from indexerd.privacy.sanitize import clean_text
from indexerd.references.inject import own_words
from indexerd.sessions.clipped_entries import SUMMED
from indexerd.sessions.context import (
    ContextEntry,
    ContextMessage,
    Message,
    context_entries,
    entries_of,
)
from indexerd.sessions.history import FileLists, file_lists, merged
from indexerd.settings import Settings

STRATEGIES = ("pi", "codex", "opencode")
KEPT_LOOKED = 400  # newest speeches among which they are looked for
KEPT_MAX = 20  # newest messages that a hand-off quotes
KEPT_TEXT_MAX = 20_000  # characters of one of them
PATHS_MAX = 10_000  # of each list of files
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
    kept: tuple[dict[str, Any], ...] = ()  # the newest messages, for a hand-off
    summarized: int = 0  # messages
    decisions: tuple[str, ...] = ()  # of the whole path, for a hand-off
    earlier: tuple[Segment, ...] = ()  # digests of the path
    notes: tuple[str, ...] = ()  # what was left out
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
    taken: Taken,
    check: Check,
    settings: Settings,
    *,
    strategy: str | None,
    keep: int,
    handoff: bool = False,
) -> Compaction:
    """What the strategy would do with the context at the leaf.

    SessionEmptyError where there is nothing to sum up. A strategy that was not asked for by name
    sums up all there is where its own rule would wait for more. A session that ends with a
    compaction has that one, whatever is asked for: what its agent stored is never made anew.

    A `handoff` has to do without the session, so that is summed up as a whole, by any strategy:
    only `first_kept` and `split` are what the strategy would make of them. Its decisions and its
    files are those of the whole path.
    """
    with taken.lines as lines:
        read = reader(taken, lines, check, SUMMED)
        steps = context_entries(taken.state, read)
        look = Look(taken, read, steps, redactor(settings), whole=handoff)
        if not any(step.speeches for step in look.steps):
            raise SessionEmptyError("there is no conversation to sum up")
        found = _by_rules(look, strategy, keep, asked=strategy is not None and not handoff)
        found = _handed_over(look, found) if handoff else found
    clean = redactor(settings)
    held = (replace(one, content=clean(one.content)[0]) for one in chain_of(taken))  # any hand's
    return replace(found, earlier=tuple(held))


def _by_rules(look: Look, strategy: str | None, keep: int, *, asked: bool) -> Compaction:
    """What a strategy does; `asked`: it was asked for, and is to say where it does nothing."""
    name = strategy or default_strategy(look.agent)
    done = _last_word(look)
    if name == "pi" and (done is None or look.agent == "pi"):
        found = compact_pi.prepare(look.steps, keep)
        if found is not None:
            return _by_pi(look, found)
    if done is not None:
        return _already(look, done)
    if name == "pi" and asked:
        raise SessionEmptyError(
            _why_not(look.steps, keep),
            hint="keep less (--keep-recent TOKENS), or leave out --strategy",
        )
    return _whole(look, name)


def _why_not(steps: list[ContextEntry], keep: int) -> str:
    """Why pi's rules find nothing to sum up."""
    if compact_pi.reach(steps) < keep:
        return f"there is nothing to compact: all of it is within the newest {keep} tokens"
    return (
        f"there is nothing to compact: there is no place for a cut before the newest {keep} tokens"
    )


def _by_pi(look: Look, found: compact_pi.Prepared) -> Compaction:
    history = look.summed(found.history)
    prefix = look.summed(found.turn_prefix)
    talk = look.talk(history)
    previous = look.summary(found.previous_summary or "")
    files, notes = _listed(look, merged(found.files, earlier_files(look)))
    return Compaction(
        strategy="pi",
        history=talk,
        prefix=look.talk(prefix),
        split=found.split,
        first_kept=found.first_kept_id,
        tokens_before=found.tokens_before,
        previous=previous,
        files=files,
        summarized=len(history) + len(prefix),
        notes=(*notes, *_cut(previous, talk)),
    )


def _last_word(look: Look) -> ContextEntry | None:
    """The compaction that a session ends with: nobody said anything since."""
    newest = max((one for one in look.steps if _sums_up(one)), key=_place, default=None)
    if newest is None:
        return None
    since = [one for one in look.steps if one.place > newest.place]
    return None if _goes_on(look, since) else newest


def _goes_on(look: Look, steps: Iterable[ContextEntry]) -> bool:
    """Whether anything is said in these steps. Claude Code notes `/compact` behind its summary."""
    left = look.summed(_speeches(steps))
    return any(one.role != "custom" or look.agent != "claude" for one in left)


def _place(step: ContextEntry) -> int:
    return step.place


def _already(look: Look, step: ContextEntry) -> Compaction:
    """The session ends with a compaction: its own summary is all there is to say."""
    kept = step.entry.details.get("kept")
    row = look.state.row(kept) if isinstance(kept, str) else None
    own = default_strategy(look.agent)
    files, notes = _listed(look, merged(file_lists([step.entry]), earlier_files(look)))
    return Compaction(
        strategy=own,
        history=NO_TALK,
        first_kept=kept if row is not None and look.state.on_path(row) else None,
        tokens_before=tokens_before(look, step),
        files=files,
        users=humans(look) if own == "codex" else (),
        notes=notes,
        done=look.summary("".join(step.entry.texts)),
    )


def _whole(look: Look, name: str) -> Compaction:
    """All of the conversation; what humans said last stays in Codex."""
    told, rest = _earlier(look.steps)
    speeches = _speeches(rest)
    if name == "opencode":
        made = compact_opencode.prepare(rest)
        speeches = list(made.history) if made else []
    speeches = look.summed(speeches)
    talk, previous = look.talk(speeches), look.summary(told)
    if not talk.parts and not previous:
        raise SessionEmptyError("there is nothing in words to sum up")
    files, notes = _listed(look, merged(_files(look.steps), earlier_files(look)))
    return Compaction(
        strategy=name,
        history=talk,
        tokens_before=tokens_of(name, look.state, look.steps),
        previous=previous,
        files=files,
        users=humans(look) if name == "codex" else (),
        summarized=len(speeches),
        notes=(*notes, *_cut(previous, talk)),
        done=None if talk.parts else previous,
    )


def _handed_over(look: Look, found: Compaction) -> Compaction:
    """The same for whoever has nothing else of the session (see `compaction`)."""
    whole, (_, rest) = found, _earlier(look.steps)
    if _goes_on(look, rest) if found.done is not None else found.strategy == "pi":
        whole = _whole(look, found.strategy)
    said = [*earlier_talk(look).parts, *whole.history.parts]
    return replace(
        whole,
        first_kept=found.first_kept,
        split=found.split,
        kept=_shown(look.summed(_speeches(look.steps)), look.clean),
        decisions=_decisions(said),
    )


def _earlier(steps: list[ContextEntry]) -> tuple[str, list[ContextEntry]]:
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


def _sums_up(step: ContextEntry) -> bool:
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
        read = reader(taken, lines, check, SUMMED)
        found = prepare_branch(entries_of(state, read, rows, edits=False), budget)
    look = Look(taken, read, [], clean)
    talk = look.talk(look.summed(found.speeches))
    if not talk.parts:
        return None
    own = set(rows)
    within = [at for at, row in enumerate(message_rows(state, rows[-1])) if row in own]
    files, _ = _listed(look, found.files)
    return Branch(
        talk=talk,
        files=files,
        leaf_id=leaf,
        first=within[0] if within else 0,
        last=within[-1] if within else 0,
        home=taken.home,
        decisions=_decisions(talk.parts),
    )


def _decisions(parts: Sequence[str]) -> tuple[str, ...]:
    return decisions(own_words(text) for _, text in said_in(parts))


def _speeches(steps: Iterable[ContextEntry]) -> list[ContextMessage]:
    return [speech for step in steps for speech in step.speeches]


def _files(steps: Iterable[ContextEntry]) -> FileLists:
    return file_lists(step.entry for step in steps)


def _shown(speeches: Sequence[ContextMessage], clean: Redactor) -> tuple[dict[str, Any], ...]:
    """The newest messages of human and agent, redacted, as a hand-off quotes them."""
    found = list[dict[str, Any]]()
    for one in reversed(speeches[-KEPT_LOOKED:]):
        role, text = whose(one), "".join(one.texts)
        text = own_words(text).strip() if role == "user" else text.strip()
        if role and text:
            shown = clean_text(clean(text)[0], KEPT_TEXT_MAX)
            found.append({"role": role, "text": shown, "entryId": one.entry.id})
        if len(found) >= KEPT_MAX:
            break
    return tuple(reversed(found))


def _listed(look: Look, files: FileLists) -> tuple[FileLists, tuple[str, ...]]:
    """Paths without secrets in them, and a note where there are more than anybody lists."""
    lists = files.read, files.modified
    read, modified = (_clean_paths(one[:PATHS_MAX], look.clean) for one in lists)
    more = sum(max(0, len(one) - PATHS_MAX) for one in lists)
    return FileLists(read, modified), (f"{more} more files are not listed",) if more else ()


def _clean_paths(paths: tuple[str, ...], clean: Redactor) -> tuple[str, ...]:
    """Mostly there is no secret in all of them, which is quicker to find out than one by one."""
    whole = "\n".join(paths)
    return paths if clean(whole)[0] == whole else tuple(clean(path)[0] for path in paths)


def _cut(previous: str, talk: Talk) -> tuple[str, ...]:
    """A note where no model gets all of the earlier summary."""
    more = len(previous) - PREVIOUS_MAX
    if more <= 0 or not talk.parts:
        return ()
    return (f"{more} characters at the end of the earlier summary were too much",)


def strategy_of(value: str | None) -> str | None:
    """A strategy that there is; UsageError for another."""
    if value is not None and value not in STRATEGIES:
        raise UsageError(f"strategy is one of {', '.join(STRATEGIES)}")
    return value
