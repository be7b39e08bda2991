"""Commands that find, show, ask and resume sessions, or change what indexerd stores about them.

A row's `resume` is a command for a POSIX shell: `cd DIR && [VARIABLE=…] AGENT …`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import count as count_from
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from indexerd.amounts import cost, count, dollars
from indexerd.cli import hook
from indexerd.cli import main as cli
from indexerd.cli import printing as render
from indexerd.cli.backend import aside, place, project, put, safe
from indexerd.errors import NotFoundError, UsageError
from indexerd.paths import basename, directory_of
from indexerd.protocol import words
from indexerd.protocol.limits import WAITS_MAX
from indexerd.times import iso_ms, since

_NO_MARKS = str.maketrans("", "", "«»")  # of matches
_PLACES = 3  # in a session that are shown of a search, about
_WIDE = 220  # columns of a terminal, below which ids are cut
_DIRECTORY = 16  # columns of a directory there
_PAGE = 500  # rows of one answer of the socket
_ORIGINS = {"root": "", "fork": "fork: ", "subagent": "sub-agent: "}
_FACTS = """question sessionId machine agent cwd gitBranch sessionFile createdAt modifiedAt
messageCount userMessageCount newUserMessages compactions models tokens costUsd costEstimatedUsd
unpricedTokens cost subagents fork tags filesModified filesRead toolsUsed namedBy parentSessionId
parentSessionFile"""
_WAITS = "waiting for the end of its turn (60 s at most), and for the model"
_STATUS = "state sessions textPending meaning queued indexing lastScanAt models budget watches"


SINCE = cli.option(
    "--since",
    "Only sessions active since then: 7d, yesterday, 2026-11-01.",
    metavar="TIME",
    type=lambda text: since(text, time.time()),
)
TAG = cli.option("--tag", "Only sessions with this tag.", metavar="TAG")


@cli.command(
    cli.AGENT,
    cli.BELOW,
    cli.flag("--all", "everywhere", "List every project's sessions."),
    SINCE,
    TAG,
    cli.option("-n", "--limit", "How many.", type=click.IntRange(1), default=50, show_default=True),
    cli.option("--page", "Which page of that many.", type=click.IntRange(1), default=1),
    cli.flag("--archived", "Include archived sessions, and those whose file is gone."),
    cli.flag("--subagents", "Include sub-agents' sessions."),
    cli.flag("--hidden", "Include hidden sessions."),
)
def list_(*, everywhere: bool, limit: int, page: int, **params: Any) -> None:
    """List the current project's sessions, newest first; pinned ones on top."""
    params["cwd"] = params["cwd"] or (None if everywhere else project())
    rows, most = list[Any](), limit * page
    while True:
        answer = cli.current().call("list", params | {"limit": min(most - len(rows), _PAGE)})
        rows += answer["sessions"]
        params["cursor"] = answer.get("nextCursor")
        if len(rows) >= most or not params["cursor"]:
            break
    rows = rows[most - limit :]
    if cli.as_json({**answer, "sessions": rows}):
        return
    columns, shown = "sessionId modifiedAt agent userMessageCount name cwd", [*map(_marked, rows)]
    if render.columns() < _WIDE:
        _shorten(shown)
        for row in shown:
            place = basename(row["cwd"])
            row["cwd"] = render.cut(place, _DIRECTORY)
            if row["nameSource"] != "user":
                row["name"] = row["name"].removesuffix(f" ({place})")
    columns = columns if render.columns() >= render.NARROW else "sessionId modifiedAt name"
    if render.on_terminal() and not everywhere and len({row["cwd"] for row in rows}) == 1:
        columns = columns.removesuffix(" cwd")
    if any("machine" in row for row in rows):
        columns += " machine"
    render.page(render.records(columns, shown))
    if not rows:
        where = f"there is no page {page}" if page > 1 else "no sessions"
        aside(where if everywhere or page > 1 else f"{where} here; --all lists every project's")
    if params["cursor"]:
        aside(f"more: --page {page + 1}, or a larger -n")


def _shorten(rows: list[dict[str, Any]]) -> None:
    """Cut each id as far as it tells its row from the others: names need the room."""
    ids = sorted({row["sessionId"] for row in rows})
    apart = [next(n for n in count_from(8) if one[:n] != other[:n]) for one, other in pairwise(ids)]
    lengths = map(max, [8, *apart], [*apart, 8])  # with the ids before and after
    # Without any id there is still one length.
    short = {key: key[:length] for key, length in zip(ids, lengths, strict=False)}
    for row in rows:
        row["sessionId"] = short[row["sessionId"]]


def marks(row: dict[str, Any]) -> str:
    """Say in brackets what is special about a session, if anything is."""
    gone = "prompts only" if row.get("promptsOnly") else "gone"
    said = [gone] if row["gone"] else ["archived"] if row["archived"] else []
    said += ["sub-agent"] if row.get("subagent") else []
    age = time.time() - iso_ms(row["modifiedAt"]) / 1000
    said += ["waiting"] if row["state"] == "waiting" and age < WAITS_MAX else []
    said += [mark for mark in ("pinned", "hidden") if row.get(mark)]
    return f"({', '.join(said)})" if said else ""


def _marked(row: dict[str, Any]) -> dict[str, Any]:
    """Prepare a row for people: no secrets in paths, marks and own tags beside its name."""
    row |= row.get("shown", {})
    tags = (f"#{tag}" for tag in row.get("ownTags", ()))
    name = " ".join(filter(None, [marks(row), render.without_signs(row["name"]), *tags]))
    return row | {"name": name, "cwd": render.exact(directory_of(row))}


@cli.command(cli.REF, cli.flag("--as-sent", "Show the exact redacted prompt that would be sent."))
def show(ref: str, *, as_sent: bool) -> None:
    """Show one session: metadata and facts."""
    render.page(shown(ref, as_sent=as_sent))


def shown(ref: str, *, as_sent: bool) -> Iterator[str]:
    answer = cli.current().call("as_sent" if as_sent else "get", {"ref": ref, "cwd": project()})
    if cli.as_json(answer):
        return
    if as_sent:
        yield render.exact(f"{answer['system']}\n\n{answer['user']}")
        return
    row, meta = _marked(answer["session"]), answer["meta"]
    by = {"user": "you", "meta": row.get("model"), "agent": row["agent"]}
    by |= {"first-message": "its first prompt", "file": "its file"}
    if model := row["name"] != row.get("agentTitle") and row.get("model"):  # it tells more
        by["agent"] = f"{row['agent']} and {model}"
    row["namedBy"] = by[row["nameSource"]]
    row["createdAt"] = words.began(row)
    for key in ("filesModified", "filesRead"):
        row[key] = [file.removeprefix(f"{row['cwd']}/") for file in row[key]]
    row |= render.unpriced(row)
    if row.get("parentSessionId") and not row.get("subagent"):
        row["fork"] = words.FORK
    if helped := row.get("subagents"):
        paid = cost(helped["costUsd"], helped["costEstimatedUsd"], helped["unpricedTokens"])
        row["subagents"] = f"{helped['sessions']:,}, {paid or 'cost not known'}"
    yield from render.heading(row["name"])
    yield from (*(render.paragraph(row["description"]) if row["description"] else ()), "")
    yield from render.fields(row, _FACTS if row["gone"] else f"{_FACTS} resume")
    if meta:
        yield from ("", f"by {safe(meta['model'])}:", *render.markdown(meta["summary"]))


@cli.method("resolve", cli.REF)
def resolve(answer: Any) -> list[str]:
    """Show which session an id, a prefix or a name means."""
    return hook.lines(answer)


@cli.method("complete", cli.argument("prefix", default=""))
def complete(answer: Any) -> list[str]:
    """List completions for `@@`, newest first."""
    return hook.lines(answer)


def _words(name: str) -> Any:
    """Declare an argument of several words, which are joined."""
    joined = lambda _context, _param, words: " ".join(words)  # noqa: E731 - one line
    return cli.argument(name, nargs=-1, required=True, callback=joined)


QUERY, QUESTION = _words("query"), _words("question")
LIMIT = cli.option(
    "-n", "--limit", "How many.", type=click.IntRange(1, _PAGE), default=20, show_default=True
)


@cli.command(QUERY, cli.AGENT, cli.BELOW, SINCE, TAG, LIMIT)
def search(limit: int, **params: Any) -> None:
    """Search names, tags and texts; "a phrase" or re:pattern.

    agent:claude, project:NAME, tag:TAG and since:7d in QUERY narrow the search.
    """
    as_json = cli.current().json
    most = limit if as_json else min(_PAGE, _PLACES * limit)  # hits are places in sessions
    answer = cli.current().call("search", params | {"limit": most, "rows": not as_json})
    if cli.as_json(answer):
        return
    put(_found(answer, limit))
    warnings = answer.get("warnings", ())
    for warning in warnings:
        aside(f"indexerd: {safe(warning)}")
    if len(answer["hits"]) == most and limit < _PAGE:
        aside("there may be more: a larger -n")
    if not answer["hits"] and words.NO_MATCH not in warnings:
        shown = safe(params["query"])
        aside(f"no session matches {shown}" if '"' in shown else f'no session matches "{shown}"')


def _found(answer: dict[str, Any], limit: int) -> Iterator[str]:
    """Write the sessions of a search, each with its best places."""
    hits = list[dict[str, Any]](answer["hits"])
    for key in [*dict.fromkeys(hit["sessionId"] for hit in hits)][:limit]:
        places = [hit for hit in hits if hit["sessionId"] == key]
        name, row = answer["rows"][key]["name"], _marked(answer["rows"][key])
        facts = [render.age(row["modifiedAt"]), row["agent"], safe(row["cwd"])]
        facts += [f"on {safe(row['machine'])}"] if "machine" in row else []
        facts += [f"{places[0]['words']} words"] if "words" in places[0] else []
        for hit in places:
            if hit["snippet"].translate(_NO_MARKS) == name:  # the heading gets its marks
                row["name"] = row["name"].replace(name, hit["snippet"])
                places.remove(hit)
                break
        yield from render.heading(row["name"], f"  {key}")
        lines = render.wrapped("  " + "  ".join(filter(None, facts)))
        yield from (render.styled(line, render.DIM) for line in lines)
        for hit in places:
            yield from render.paragraph(f"{words.place(hit)}: {hit['snippet']}", "  ")


@cli.method("family", cli.REF)
def family(answer: Any) -> Iterator[str]:
    """Show a session's ancestors, forks and sub-agents."""
    for member in answer["members"]:
        gone = " (gone)" if member["gone"] else " (archived)" if member["archived"] else ""
        indent = "  " * min(member["depth"], render.DEEPEST)
        member["name"] = indent + _ORIGINS[member["relation"]] + safe(member["name"]) + gone
        member["current"] = member["sessionId"] == answer["sessionId"]
    columns = "sessionId agent modifiedAt userMessageCount current name"
    if render.columns() < _WIDE:
        _shorten(answer["members"])
    columns = columns if render.columns() >= render.NARROW else "sessionId current name"
    yield from render.records(columns, answer["members"])
    if "missingParent" in answer:
        aside("the parent of the first session is unknown")
    if answer["more"]:
        aside(f"{answer['more']} more; only the nearest are shown")


@cli.method("status")
def status(answer: Any) -> Iterator[str]:
    """Show the daemon's state, queue, budget and problems."""
    watches = {key: answer["watches"][key] for key in ("mode", "watched", "overflows")}
    kinds = {"subagents": "of sub-agents"}
    parts = [f"{number:,} {kinds.get(kind, kind)}" for kind, number in answer["kinds"].items()]
    facts = {"watches": watches, "models": answer["models"]["usable"]}
    used = answer["budget"]
    spent = [f"{dollars(used['usd'])} of {dollars(used['dailyUsd'])}"]
    spent.append(f"{used['calls']:,} of {used['dailyCalls']:,} calls today")
    if used["unpricedCalls"]:
        spent.append(f"{used['unpricedCalls']:,} at an unknown price")
    facts["budget"] = ", ".join(spent)
    facts["sessions"] = f"{answer['sessions']:,}" + (f" ({', '.join(parts)})" if parts else "")
    yield from render.fields(answer | facts, _STATUS)
    if soon := answer["deletedSoon"]:
        yield from ("", *render.paragraph(f"{soon['cause']}\n{soon['cure']}"))
    for problem in answer["problems"]:
        yield from ("", f"{safe(problem['code'])} since {render.when(problem['since'])}")
        yield from render.paragraph(f"{problem['cause']}\nfix: {problem['cure']}", "  ")


@cli.command(
    cli.ANY_REF,
    cli.flag("--force", "Index even with too few new prompts."),
    cli.flag("--wait", "Wait until the session is indexed."),
    cli.flag("--all", "everything", "Index all sessions with enough new prompts."),
    cli.flag("--dry-run", "With --all: only count sessions and estimate the cost."),
)
def index(
    ref: str | None, *, force: bool, wait: bool, everything: bool, dry_run: bool
) -> Iterable[str]:
    """Index a session now, or all that are due."""
    if everything == bool(ref) or (dry_run and not everything):
        raise UsageError("pass either a session or --all", hint="--dry-run needs --all")
    if everything and wait:
        raise UsageError("--wait is for one session", hint="`indexerd status` shows the queue")
    # Called by the name in the configuration, this command forces a run.
    force = force or click.get_current_context().info_name != "index"
    params = {"ref": ref, "cwd": project(), "force": force, "wait": wait}
    params |= {"all": everything, "dryRun": dry_run}
    answer = cli.current().call("index", params, what=_WAITS if wait else "")
    return () if cli.as_json(answer) else render.wrapped(_outcome(answer))


def _outcome(answer: dict[str, Any]) -> str:
    if "status" in answer:
        few = "nothing to do: too few new prompts; --force indexes it anyway"
        return few if answer["status"] == "below_threshold" else str(answer["status"])
    if "queued" in answer:
        number = len(answer["queued"])
        return f"{count(number, 'session')} queued" if number else "nothing to index"
    cost = answer["costUsd"]
    price = "at an unknown price" if cost is None else f"for at most {dollars(cost)}"
    needs = f"about {answer['inputTokens']:,} tokens to {safe(answer['model'] or 'no model')}"
    return f"{count(answer['sessions'], 'session')}, {needs}, {price}; nothing was sent"


@cli.method("update", cli.REF, cli.argument("title"))
def rename(row: Any) -> list[str]:
    """Give a session your own title; an empty one removes it."""
    return hook.lines(row)


OFF = cli.flag("--off", "Undo it.")


def _marked_as(mark: str, ref: str, *, off: bool) -> Iterable[str]:
    row = cli.current().call("update", {"ref": ref, "cwd": project(), mark: not off})
    state = f"not {mark}" if off else mark
    return () if cli.as_json(row) else (f"{state}: {safe(row['name'])}",)


@cli.command(cli.REF, OFF)
def pin(ref: str, *, off: bool) -> Iterable[str]:
    """List a session before all others."""
    return _marked_as("pinned", ref, off=off)


@cli.command(cli.REF, OFF)
def hide(ref: str, *, off: bool) -> Iterable[str]:
    """Leave a session out of lists and searches; its id and name still work."""
    return _marked_as("hidden", ref, off=off)


@cli.command(
    cli.REF,
    cli.argument("tags", nargs=-1, metavar="[TAG]..."),
    cli.option("--remove", "Remove this tag of yours.", metavar="TAG", multiple=True),
)
def tag(ref: str, tags: tuple[str, ...], remove: tuple[str, ...]) -> str:
    """Add tags of your own to a session; without any, print yours."""
    call = cli.current().call
    row = call("update", {"ref": ref, "cwd": project()})  # finds the session; changes nothing
    own = call("get", {"ref": row["sessionId"]})["tags"]
    parts = (part.strip() for each in tags for part in each.removesuffix(",").split(","))
    tags = tuple(part.removeprefix("#") for part in parts)
    if not all(tags):
        raise UsageError("a tag is empty")
    dropped = {each.casefold() for each in remove}
    kept = [each for each in (*own, *tags) if each.casefold() not in dropped]
    if lacking := dropped - {each.casefold() for each in own}:
        aside(f"no tag of yours: {safe(', '.join(sorted(lacking)))}")
    if tags or remove:
        row = call("update", {"ref": row["sessionId"], "tags": kept})
    if cli.as_json(row):
        return ""
    if not kept:
        aside("no tags of yours")
    return safe(", ".join(kept), 4000)


@cli.command(
    cli.REF,
    cli.flag("--yes", "Do not ask for confirmation."),
    cli.flag("--transcript", "Also delete the agent's own session files."),
)
def purge(ref: str, *, yes: bool, transcript: bool) -> int:
    """Forget a session and its sub-agents, and do not read them again.

    This cannot be undone. It removes the session's name, summary, digests and searchable text,
    your title, tags, labels and notes, and its copies in the archive; in a fleet, on all machines.
    The agent's own files stay, unless you pass --transcript.
    """
    params = {"ref": ref, "cwd": project(), "by": "cli", "transcript": transcript}
    call = cli.current().call
    planned = call("purge", params | {"dryRun": True})
    if not yes and not _confirmed(planned, transcript=transcript):
        aside("nothing was removed")
        return 1
    params["ref"] = planned["sessionId"]  # the reference may mean another session by now
    answer = call("purge", params)
    if not cli.as_json(answer):
        put(map(render.exact, answer["removed"]))
        aside(f"forgotten: {safe(answer['sessionId'])}{_with_subagents(answer)}")
    for file in answer.get("notRemoved", ()):
        aside(f"not removed: {render.exact(file['path'])}: {safe(file['reason'])}")
    return 1 if answer.get("notRemoved") else 0


def _with_subagents(purged: dict[str, Any]) -> str:
    count = len(purged.get("subagents", ()))
    return f" and its {count} sub-agent{'s' * (count > 1)}" if count else ""


def _confirmed(planned: dict[str, Any], *, transcript: bool) -> bool:
    """Show what will be removed, and ask for confirmation."""
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("not a terminal: pass --yes", hint="nothing was removed")
    aside(f"{safe(planned['name'] or '')}  {safe(planned['sessionId'])}")
    aside("Its name, summary, digests and searchable text go, and your title, tags and notes.")
    if planned["files"]:
        aside("These files are deleted:")
    for path in planned["files"]:
        aside(f"  {render.exact(path)}")
    last = "Also delete the agent's own file?"
    first = f"Forget this session{_with_subagents(planned)}? This cannot be undone."
    first += "" if transcript else " The agent's own file stays, and is not read again."
    questions = [first, *([last] if transcript else ())]
    return all(click.confirm(question, err=True) for question in questions)


@cli.command(
    cli.argument("old", metavar="[OLD]", required=False, type=place),
    cli.argument("new", metavar="[NEW]", required=False, type=place),
    cli.flag("--undo", "Take back this move."),
)
def move(old: str | None, new: str | None, *, undo: bool) -> Iterator[str]:
    """Say where a moved project is now, or list the moves.

    Sessions that began in OLD, or below, are listed, found and resumed in NEW. No file is moved.
    """
    if old and not new:
        raise UsageError("NEW is missing")
    answer = cli.current().call("move", {"old": old, "new": new, "undo": undo})
    if cli.as_json(answer):
        return
    if old:
        found = count(answer["sessions"], "session")
        if undo:
            yield f"taken back for {found}"
        elif answer["sessions"]:
            yield f"{found} now found in {render.exact(new or '')}; no file was moved"
        else:
            yield f"noted, but no session began in {render.exact(old)}"
        return
    yield from render.records("old new by at", answer["moves"])
    if not answer["moves"]:
        aside("no project has moved")


EXEC = cli.flag("--exec", "run", "Run the command in the session's directory.")


@cli.command(cli.ANY_REF, EXEC)
def resume(ref: str | None, *, run: bool) -> Iterable[str]:
    """Print the agent's own command that reopens a session.

    Without REF, choose a session on the terminal, and resume it.
    """
    if ref is None:
        return picked()
    row = cli.current().call("get", {"ref": ref, "cwd": project()})["session"]
    return _opened(row, run=run, headed=False)


def picked() -> Iterable[str]:
    """Let the user choose a session, and resume or show it."""
    from indexerd.cli import picker

    if cli.current().json or not picker.possible():
        raise UsageError("REF is missing", hint="without it, a session is chosen on a terminal")
    choice = picker.pick(cli.current())
    if choice is None:
        return ()
    if choice.action == "show":
        render.page(shown(choice.row["sessionId"], as_sent=False))
        return ()
    return _opened(choice.row, run=True)


@cli.command(cli.HERE, cli.AGENT, EXEC)
def continue_recent(cwd: str | None, agent: str | None, *, run: bool) -> Iterable[str]:
    """Print a project's newest session and how to reopen it."""
    rows = cli.current().call("list", {"cwd": cwd, "agent": agent})["sessions"]
    if not rows:
        what = f"no session of {agent}" if agent else "no session"
        raise NotFoundError(f"{what} in {render.exact(cwd or 'any project')}")
    return _opened(max(rows, key=lambda row: row["modifiedAt"]), run=run)  # pinned ones come first


def _opened(row: dict[str, Any], *, run: bool, headed: bool = True) -> Iterator[str]:
    """Print a session and its command, or run the command; NotFoundError if its file is gone."""
    command = str(row.get("resume") or "")
    if row.get("copyOnly"):
        where = f" on {row['machine']}" if "machine" in row else ""
        hint = f"`indexerd restore {row['sessionId']}`{where} puts it back"
        raise NotFoundError("the session is only in the archive", hint=hint)
    if row["gone"] or not command:
        raise NotFoundError(
            f"the file of session {row['sessionId']} is gone: there is nothing to resume",
            hint=f"`indexerd show {row['sessionId']}` shows what is stored",
        )
    try:
        check_place(row)
    except NotFoundError as missing:
        if "machine" not in row and (run or not Path(directory_of(row)).is_dir()):
            if run:
                raise
            aside(f"indexerd: {missing}")
    if run:
        aside(f"indexerd: resuming {safe(row['name'])}")
        # Python ignores SIGPIPE; an agent that inherited this would not exit on a closed pipe.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.execv("/bin/sh", ["sh", "-c", command])  # noqa: S606 - the command is one for a shell
    answer = {key: row[key] for key in ("sessionId", "name", "agent")} | {"command": command}
    if not cli.as_json(answer):
        yield from render.heading(row["name"], f"  {row['sessionId']}") if headed else ()
        yield render.exact(command)


def check_place(row: dict[str, Any], hint: str = "") -> None:
    """Check that a session's directory and its agent's program are there; NotFoundError if not."""
    cwd = directory_of(row)
    if cwd and not Path(cwd).is_dir():
        moved = f"if it has moved: `indexerd move {shlex.quote(cwd)} NEW`"
        gone = f"the session's directory {render.exact(cwd)} is gone"
        raise NotFoundError(gone, hint=hint or render.exact(moved))
    if not shutil.which(row["agent"]):
        missing = f"{row['agent']} is not installed, or not on PATH"
        raise NotFoundError(missing, hint=hint or f"install {row['agent']}, or add it to PATH")


ASKING = cli.option("--session", "sessionId", "The session that the prompt is for.", metavar="ID")
INLINE = cli.flag("--inline", "Print the block, a rule, and the prompt.")
NAME = cli.argument("set_name", metavar="NAME")
SET = cli.argument("set_name", metavar="[NAME]", required=False)
ITEMS = cli.argument("items", nargs=-1, metavar="[ITEM]...")
MERGE = cli.option(
    "--merge", "mode", "Add to the set instead of replacing it.", is_flag=True, flag_value="merge"
)
RESUME = cli.option(
    "--resume-id", "Identifies the resume; its block is printed once.", metavar="ID"
)


@cli.command(cli.argument("text", default="-"), ASKING, cli.HERE, INLINE)
def expand(text: str, *, inline: bool, **params: Any) -> int:
    """Expand the `@@` references of a prompt.

    Prints the block to inject. TEXT is the prompt; `-`, or nothing, reads it from stdin. References
    that match no session, or several, are listed on stderr. The exit code is 0 even then, so that
    the prompt is not blocked.
    """
    return hook.expand(cli.current(), text, params, inline=inline)


@cli.method("query_session", cli.SESSION, QUESTION, cli.LEAF)
def ask(answer: Any) -> Iterator[str]:
    """Ask one past session a question."""
    from indexerd.references.inject import quotes

    yield from render.heading(answer["name"], f"  {safe(answer['sessionId'])}")
    yield from (f"confidence: {safe(answer['confidence'])}", "")
    yield from (*render.markdown(answer["answerMarkdown"], "  "), "")
    for quote in answer["citations"]:
        if not quotes(answer, quote):
            yield f"[{safe(quote['entryId'])}] {safe(quote['role'])}: {safe(quote['excerpt'], 300)}"
    yield from (f"note: {safe(note)}" for note in answer["notes"])


@cli.method("set_relevant_context", cli.SESSION, NAME, ITEMS, MERGE)
def context_set(answer: Any) -> str:
    """Note what a session works with.

    NAME is files, applet, endpoints, ports, or a name of your own. A set has at most 10 items, all
    sets together 50; without items the set is cleared. Relative paths of files start at the
    session's directory.
    """
    for warning in answer["warnings"]:
        aside(f"indexerd: {safe(warning, 4000)}")
    return safe(answer["text"])


@cli.method("get_relevant_context", cli.SESSION, SET)
def context_get(answer: Any) -> Iterator[str]:
    """Show what was noted for a session: all sets, or one."""
    rows = [(name, item) for name, items in answer["context"].items() for item in items]
    yield from render.table(("set", "item"), rows)
    if not rows:
        aside("nothing was noted")


@cli.method("resume_context", cli.SESSION, RESUME)
def resume_context(answer: Any) -> list[str]:
    """Print the block for the first message after a resume, once."""
    return hook.lines(answer)


@cli.method("footer", cli.REF)
def footer(answer: Any) -> str:
    """Print a session's first files and its applet in one line."""
    return safe(answer["text"])
