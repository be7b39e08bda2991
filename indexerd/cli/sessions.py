"""Commands that find, show, ask and resume sessions, or change what indexerd stores about them.

A row's `resume` is a command for a POSIX shell: `cd DIR && [VARIABLE=…] AGENT …`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

import click

from indexerd.cli import hook
from indexerd.cli import main as cli
from indexerd.cli import printing as render
from indexerd.cli.backend import aside, project, put, safe
from indexerd.errors import NotFoundError, UsageError
from indexerd.times import iso, iso_ms

_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_PAGE = 500  # rows of one answer of the socket
_ORIGINS = {"root": "", "fork": "fork: ", "resumed": "resumed: ", "subagent": "sub-agent: "}
_FACTS = """sessionId agent cwd gitBranch sessionFile createdAt modifiedAt messageCount
userMessageCount newUserMessages compactions models tokens costUsd tags filesModified filesRead
toolsUsed nameSource parentSessionId parentSessionFile"""
_STATUS = "state sessions textPending queued indexing lastScanAt models budget watches"


def _since(text: str) -> str:
    """Parse an ISO-8601 date or time, or a time ago (`90m`, `12h`, `7d`, `2w`)."""
    number, unit = text[:-1], text[-1:]
    if number.isdecimal() and len(number) <= 6 and unit in _SECONDS:  # noqa: PLR2004 - digits
        return iso(max(0.0, time.time() - int(number) * _SECONDS[unit]))
    if not iso_ms(text):
        raise UsageError(f"not a time: {text}", hint="write 7d, 12h, or an ISO-8601 time")
    return text


SINCE = cli.option(
    "--since", "Only sessions active since then: 7d, 12h, 2026-11-01.", metavar="TIME", type=_since
)


@cli.command(
    cli.AGENT,
    cli.BELOW,
    cli.flag("--all", "everywhere", "List every project's sessions."),
    SINCE,
    click.option("--limit", type=click.IntRange(1), default=50, show_default=True),
    cli.flag("--archived", "Include archived sessions, and those whose file is gone."),
    cli.flag("--subagents", "Include sub-agents' sessions."),
)
def list_(*, everywhere: bool, limit: int, **params: Any) -> Iterator[str]:
    """List the current project's sessions, newest first."""
    params["cwd"] = params["cwd"] or (None if everywhere else project())
    rows: list[Any] = []
    while True:
        page = cli.current().call("list", params | {"limit": min(limit - len(rows), _PAGE)})
        rows += page["sessions"]
        params["cursor"] = page.get("nextCursor")
        if len(rows) >= limit or not params["cursor"]:
            break
    if cli.as_json({**page, "sessions": rows}):
        return
    columns = "sessionId modifiedAt agent userMessageCount name cwd"
    yield from render.records(columns, map(_marked, rows))
    if not rows:
        aside("no sessions" if everywhere else "no sessions here; --all lists every project's")
    if params["cursor"]:
        aside("there are more; --limit shows them")


def _marked(row: dict[str, Any]) -> dict[str, Any]:
    """Prepare a row for people: no secrets in paths, and a mark if `list` hides it by default."""
    marks = ["gone"] if row["gone"] else ["archived"] if row["archived"] else []
    marks += ["sub-agent"] if row.get("subagent") else []
    mark = f"({', '.join(marks)}) " if marks else ""
    row |= row.get("shown", {})
    return row | {"name": mark + row["name"], "cwd": render.exact(row["cwd"])}


@cli.command(cli.REF, cli.flag("--as-sent", "Show the exact redacted prompt that would be sent."))
def show(ref: str, *, as_sent: bool) -> Iterator[str]:
    """Show one session: metadata and facts."""
    answer = cli.current().call("as_sent" if as_sent else "get", {"ref": ref, "cwd": project()})
    if cli.as_json(answer):
        return
    if as_sent:
        yield render.exact(f"{answer['system']}\n\n{answer['user']}")
        return
    row, meta = _marked(answer["session"]), answer["meta"]
    yield render.heading(row["name"])
    yield from (*render.paragraph(row["description"]), "")
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


LIMIT = click.option("--limit", type=click.IntRange(1, _PAGE), default=20, show_default=True)


@cli.method("search", cli.argument("query"), cli.AGENT, cli.BELOW, SINCE, LIMIT)
def search(answer: Any) -> Iterator[str]:
    """Search names, tags and texts; "a phrase" or re:pattern."""
    for hit in answer["hits"]:
        partial = f"  {hit['words']} words" if "words" in hit else ""
        yield render.heading(hit["name"], f"  {hit['sessionId']}{partial}")
        yield from render.paragraph(f"{hit['field']}: {hit['snippet']}", "  ")
    for warning in answer.get("warnings", ()):
        aside(f"indexerd: {safe(warning)}")
    if not answer["hits"]:
        aside("nothing found")


@cli.method("family", cli.REF)
def family(answer: Any) -> Iterator[str]:
    """Show a session's ancestors, forks and sub-agents."""
    for member in answer["members"]:
        gone = " (gone)" if member["gone"] else " (archived)" if member["archived"] else ""
        indent = "  " * min(member["depth"], render.DEEPEST)
        member["name"] = indent + _ORIGINS[member["relation"]] + safe(member["name"]) + gone
        member["current"] = member["sessionId"] == answer["sessionId"]
    columns = "sessionId agent modifiedAt userMessageCount current name"
    yield from render.records(columns, answer["members"])
    if "missingParent" in answer:
        aside("the parent of the first session is unknown")
    if answer["more"]:
        aside(f"{answer['more']} more; only the nearest are shown")


@cli.method("status")
def status(answer: Any) -> Iterator[str]:
    """Show the daemon's state, queue, budget and problems."""
    watches = {key: answer["watches"][key] for key in ("mode", "watched", "overflows")}
    models = answer["models"]["usable"]
    yield from render.fields(answer | {"watches": watches, "models": models}, _STATUS)
    for problem in answer["problems"]:
        yield from ("", f"{safe(problem['code'])} since {safe(problem['since'])}")
        yield from render.paragraph(f"{problem['cause']}\nfix: {problem['cure']}", "  ")


@cli.command(
    cli.argument("ref", required=False),
    cli.flag("--force", "Index even with too few new prompts."),
    cli.flag("--wait", "Wait until the session is indexed."),
    cli.flag("--all", "everything", "Index all sessions with enough new prompts."),
    cli.flag("--dry-run", "With --all: only count sessions and estimate the cost."),
)
def index(ref: str | None, *, force: bool, wait: bool, everything: bool, dry_run: bool) -> str:
    """Index a session now, or all that are due."""
    if everything == bool(ref) or (dry_run and not everything):
        raise UsageError("pass either a session or --all", hint="--dry-run needs --all")
    # Called by the name in the configuration, this command forces a run.
    force = force or click.get_current_context().info_name != "index"
    params = {"ref": ref, "cwd": project(), "force": force, "wait": wait}
    answer = cli.current().call("index", params | {"all": everything, "dryRun": dry_run})
    if cli.as_json(answer):
        return ""
    if not everything:
        few = "not indexed: too few new prompts; --force indexes it anyway"
        return few if answer["status"] == "below_threshold" else str(answer["status"])
    if "queued" in answer:
        return f"{render.count(len(answer['queued']), 'session')} queued"
    cost = answer["costUsd"]
    price = "at an unknown price" if cost is None else f"for at most {render.dollars(cost)}"
    needs = f"about {answer['inputTokens']:,} tokens to {safe(answer['model'] or 'no model')}"
    return f"{render.count(answer['sessions'], 'session')}, {needs}, {price}; nothing was sent"


@cli.method("update", cli.REF, cli.argument("title"))
def rename(row: Any) -> list[str]:
    """Give a session your own title; an empty one removes it."""
    return hook.lines(row)


@cli.command(
    cli.REF,
    cli.flag("--yes", "Do not ask for confirmation."),
    cli.flag("--transcript", "Also delete the agent's own session file. This cannot be undone."),
)
def purge(ref: str, *, yes: bool, transcript: bool) -> int:
    """Forget a session, and do not read it again.

    Removes everything that indexerd stores about it. The agent's own file stays, unless you pass
    --transcript.
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
        aside(f"forgotten: {safe(answer['sessionId'])}")
    for file in answer.get("notRemoved", ()):
        aside(f"not removed: {render.exact(file['path'])}: {safe(file['reason'])}")
    return 1 if answer.get("notRemoved") else 0


def _confirmed(planned: dict[str, Any], *, transcript: bool) -> bool:
    """Show what will be removed, and ask for confirmation."""
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("not a terminal: pass --yes", hint="nothing was removed")
    aside(f"{safe(planned['name'] or '')}  {safe(planned['sessionId'])}")
    for path in planned["files"]:
        aside(f"  {render.exact(path)}")
    last = "Also delete the agent's own file? This cannot be undone."
    questions = ["Forget this session?", *([last] if transcript else ())]
    return all(click.confirm(question, err=True) for question in questions)


EXEC = cli.flag("--exec", "run", "Run the command in the session's directory.")


@cli.command(cli.REF, EXEC)
def resume(ref: str, *, run: bool) -> Iterable[str]:
    """Print the agent's own command that reopens a session."""
    row = cli.current().call("get", {"ref": ref, "cwd": project()})["session"]
    return [*_opened(row, run=run)][1:]


@cli.command(cli.HERE, cli.AGENT, EXEC)
def continue_recent(cwd: str | None, agent: str | None, *, run: bool) -> Iterable[str]:
    """Print a project's newest session and how to reopen it."""
    rows = cli.current().call("list", {"cwd": cwd, "agent": agent, "limit": 1})["sessions"]
    if not rows:
        what = f"no session of {agent}" if agent else "no session"
        raise NotFoundError(f"{what} in {render.exact(cwd or 'any project')}")
    return _opened(rows[0], run=run)


def _opened(row: dict[str, Any], *, run: bool) -> Iterator[str]:
    """Print a session and its command, or run the command; NotFoundError if its file is gone."""
    command = str(row.get("resume") or "")
    if row["gone"] or not command:
        raise NotFoundError(
            f"the file of session {row['sessionId']} is gone: there is nothing to resume",
            hint=f"`indexerd show {row['sessionId']}` shows what is stored",
        )
    if run:
        aside(f"indexerd: resuming {safe(row['name'])}")
        # Python ignores SIGPIPE; an agent that inherited this would not exit on a closed pipe.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.execv("/bin/sh", ["sh", "-c", command])  # noqa: S606 - the command is one for a shell
    answer = {key: row[key] for key in ("sessionId", "name", "agent")} | {"command": command}
    if not cli.as_json(answer):
        yield render.heading(row["name"], f"  {row['sessionId']}")
        yield render.exact(command)


ASKING = cli.option("--session", "sessionId", "The session that the prompt is for.", metavar="ID")
INLINE = cli.flag("--inline", "Print the block, a rule, and the prompt.")
QUESTION = cli.argument(
    "question", nargs=-1, required=True, callback=lambda _c, _p, words: " ".join(words)
)
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
    yield render.heading(answer["name"], f"  {safe(answer['sessionId'])}")
    yield from (f"confidence: {safe(answer['confidence'])}", "")
    yield from (*render.markdown(answer["answerMarkdown"], "  "), "")
    quoted = " ".join(answer["answerMarkdown"].replace("\n> ", "\n").split())
    for quote in answer["citations"]:
        if quote["excerpt"] not in quoted:  # the built-in model's answer is its quotes
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
