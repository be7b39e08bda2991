"""Commands about one session's tree, digests and export.

Summaries are untrusted text, so they are indented. A hand-off is not: it is meant for a file.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from indexerd.cli import main as cli
from indexerd.cli import printing as render
from indexerd.cli.backend import Clock, aside, project, put, safe
from indexerd.errors import UsageError
from indexerd.protocol import words

SHOWN = cli.option(
    "--filter",
    "Entries to show; `default` hides settings and answers that only call tools. With --json: all.",
    type=click.Choice(("default", "no-tools", "user-only", "labeled-only", "all")),
    default=lambda: None if cli.current().json else "default",
)
SEARCH = cli.option("--search", "Only entries with all these words.", metavar="WORDS")
ENTRY = cli.argument("entry_id", metavar="ENTRY")
FORMAT = cli.option(
    "--format",
    "form",
    "html: a page; md: one path; json: everything. Default: by FILE's suffix, else html.",
    type=click.Choice(("html", "md", "json")),
)
REDACT = cli.flag("--redact", "Remove known kinds of secrets from every text.")
_UNSAID = ("other", "setting", "label", "name")  # kinds of entries that nobody wrote
RECENT_SHOWN = 10  # messages that `history` shows without --full
FULL = cli.flag("--full", "All summaries and messages, uncut.")
STRATEGY = cli.option(
    "--strategy",
    "Whose rules to use; default: its own agent's.",
    type=click.Choice(("pi", "codex", "opencode")),
)
HANDOFF = cli.flag("--handoff", "Print a document to start a new session with.")


@cli.method("tree", cli.REF, SHOWN, SEARCH, cli.LEAF)
def tree(answer: Any) -> Iterator[str]:
    """Show a session's tree: every branch, with labels.

    `>` marks the leaf and `*` the path to it. Entries are indented where the session branches.
    """
    nodes, parents, path = answer["nodes"], list[int](), list[int]()
    for at, node in enumerate(nodes):  # depth first
        del path[node["depth"] :]
        parents.append(path[-1] if path else -1)
        path.append(at)
    current = (at for at, node in enumerate(nodes) if node["active"] and node.get("display", True))
    leaf = max(current, default=-1)  # the last entry that is shown of the path
    children, levels = Counter(parents), {-1: 0}
    for at, (node, parent) in enumerate(zip(nodes, parents, strict=True)):
        levels[at] = levels[parent] + (parent >= 0 and children[parent] > 1)
        mark = ">" if at == leaf else "*" if node["active"] else " "
        node["mark"] = "  " * min(levels[at], render.DEEPEST) + f"{mark} "
    yield from _entries(nodes, answer["idLength"])
    if not nodes:
        aside("no entries, or none that match")
    for warning in answer.get("warnings", ()):
        aside(f"indexerd: {safe(warning)}")


@cli.method("path", cli.REF, cli.LEAF)
def path(answer: Any) -> Iterator[str]:
    """List the entries from the root to the leaf.

    Settings, and answers without text, are left out; --json has all.
    """
    kept = [each for each in answer["entries"] if each.get("label") or _says(each)]
    return _entries(kept, answer["idLength"])


def _says(entry: dict[str, Any]) -> bool:
    return bool(entry["text"]) and entry["kind"] not in _UNSAID


def _entries(entries: list[dict[str, Any]], id_length: int) -> Iterator[str]:
    shown = [entry for entry in entries if entry.get("display", True)]  # extensions may hide some
    for entry in shown:
        label = f"[{safe(entry['label'])}] " if entry.get("label") else ""
        who = f"{words.who(entry['kind'])}:"
        if entry["kind"] in _UNSAID:
            who = f"[{safe(entry['type'])}]"
            text = safe(entry["text"], 200)
        else:
            text = safe(render.without_signs(entry["text"]), 200) or "(no text)"
        entry["text"] = f"{entry.get('mark', '')}{label}{who} {text}".rstrip()
        _shorten(entry, id_length, "id")
    narrow = render.columns() < render.NARROW
    return render.records("id text" if narrow else "id timestamp text", shown)


def _shorten(entry: dict[str, Any], id_length: int, *keys: str) -> None:
    """Cut ids on a terminal: commands accept as much of an id as tells it from the others."""
    for key in keys if render.on_terminal() else ():
        short = slice(id_length) if id_length > 0 else slice(id_length, None)
        entry[key] = entry[key] and entry[key][short]


@cli.method("branches", cli.REF)
def branches(answer: Any) -> Iterator[str]:
    """List a session's branches by their last entries."""
    for tip in answer["tips"]:
        why = (tip.get("label") or tip.get("reason"), tip.get("gist"))
        tip["gist"] = safe(render.without_signs(" ".join(filter(None, why))), 200)
        _shorten(tip, answer["idLength"], "leafId", "branchPointId")
    columns = "leafId active entries userMessages lastActivity branchPointId gist"
    narrow = render.columns() < render.NARROW
    return render.records("leafId active gist" if narrow else columns, answer["tips"])


@cli.method("context", cli.REF, cli.LEAF)
def context(answer: Any) -> Iterator[str]:
    """Show what the agent would send to its model."""
    model = answer["model"] or {}
    name = "/".join(filter(None, (model.get("provider"), model.get("modelId"))))
    facts = {"model": name, "messages": len(answer["messages"])}
    yield from render.fields(answer | facts, "model thinkingLevel messages")
    for message in answer["messages"]:
        yield from ("", *render.heading(message["role"], f"  {safe(message['entryId'])}"))
        yield from render.paragraph(message["text"]) if message["text"] else ()


@cli.method("label", cli.REF, ENTRY, cli.argument("text", required=False))
def label(answer: Any) -> str:
    """Label an entry of a session. Without a text, remove your label."""
    return f"{safe(answer['entryId'])}\t{safe(answer['label'] or '')}".rstrip()


@cli.method("branch", cli.REF, cli.argument("leaf"), cli.OUTPUT)
def branch(answer: Any) -> str:
    """Write the path to an entry as a new pi session.

    Writes to FILE, or else next to the old session file. Labels in the session's own file are
    copied; those made with `indexerd label` are not.
    """
    return f"{answer['sessionId']}\t{render.exact(answer['sessionFile'])}"


@cli.command(cli.REF, cli.OUTPUT, FORMAT, cli.LEAF, REDACT)
def export(ref: str, file: str | None, form: str | None, leaf: str | None, *, redact: bool) -> None:
    """Write a session to one self-contained file.

    The file has the session's tree, texts, digests and metadata. Without --redact nothing is
    redacted: it has every word, path and tool result. Only very long texts are cut, and say so.
    """
    # The session is read in this process: the answer could be too large for the socket.
    from indexerd.daemon.open_session import read_alone
    from indexerd.disk import create_file
    from indexerd.privacy.redact import Redactor
    from indexerd.web.session_page import export as make
    from indexerd.web.session_page import wish_for

    app = cli.current()
    settings = app.loaded.settings
    suffix = Path(file or "").suffix.removeprefix(".").lower() or "html"
    form = form or {"html": "html", "htm": "html", "md": "md", "json": "json"}.get(suffix)
    if form is None:
        raise UsageError(f"there is no format .{suffix}", hint="pass --format html, md or json")
    if not file and not app.json and form == "html" and sys.stdout.isatty():
        raise UsageError("a page cannot be shown in a terminal", hint="pass a file: -o FILE.html")
    redactor = Redactor(tuple(settings.redact.extra_patterns)) if redact else None
    wish = wish_for(form, redact=redactor, leaf=leaf)
    stored = app.call("get", {"ref": ref, "cwd": project()})
    given = stored["session"], settings, os.environ, Path.home()
    with Clock("Exporting", silent=app.json, left="interrupted"), read_alone(*given) as library:
        name, text = make(library, stored, form, wish)
    data = text.encode("utf-8", "replace")
    if file:
        create_file(Path(file), [data])
        if not cli.as_json({"format": form, "file": file, "bytes": len(data)}):
            put([render.exact(file)])
    elif not cli.as_json({"format": form, "fileName": name, "text": text}):
        sys.stdout.flush()
        sys.stdout.buffer.write(data)  # UTF-8, whatever the stream's encoding: a page says so


@cli.method("history", cli.REF, FULL, cli.LEAF)
def history(answer: Any) -> Iterator[str]:
    """Show a session's digests, and the messages after them."""
    full = "context" in answer
    for segment in answer["segments"]:
        first, last = segment["covering_messages"]
        by = f"{render.when(segment['generated_at'])} by {segment['model']}"
        yield from render.heading(f"{first + 1}-{last + 1}", f"  {safe(by)}")
        yield from [*render.markdown(segment["content"], "  ")][: None if full else 12]
        yield from render.fields({"filesModified": segment.get("files_modified")})
        yield ""
    for message in answer["recent"] if full else answer["recent"][-RECENT_SHOWN:]:
        text = message["text"] or ", ".join(message.get("tools", ())) or "(no text)"
        more = safe(message["entryId"] if full else render.without_signs(text))
        who = words.who(message["role"])
        yield from render.heading(f"{message['n'] + 1} {who}", f"  {more}")
        yield from (render.exact(text), "") if full else ()
    messages, done = answer["fullMessageCount"], answer["foldedMessages"]
    least = len(answer["recent"]) > RECENT_SHOWN and not full
    more = f"; these are the last {RECENT_SHOWN}, --full has all" if least else ""
    yield f"{messages:,} prompts and answers, {done:,} summarised{more}"


@cli.method("digest", cli.REF)
def digest(answer: Any) -> Iterator[str]:
    """Summarise a session's older messages that no digest covers."""
    segment = answer["segment"]
    if segment is None:
        yield f"nothing to do: {safe(answer['reason'])}"
        return
    first, last = segment["covering_messages"]
    yield f"{answer['before']} -> {answer['after']} messages ({answer['reduction']:g}% less)"
    yield f"messages {first + 1}-{last + 1} are now summarised"
    yield from render.fields(answer, "tokensSaved topics files commands decisions model")
    yield from ("", *render.markdown(segment["content"], "  "))


@cli.method("compact", cli.REF, STRATEGY, cli.FOCUS, HANDOFF, cli.LEAF)
def compact(answer: Any) -> Iterator[str]:
    """Summarise a session to continue elsewhere; it is not changed."""
    for note in answer["notes"]:
        aside(f"indexerd: {safe(note)}")
    if "handoff" in answer:
        yield render.exact(answer["handoff"]).rstrip("\n")
        return
    names = "strategy tokensBefore firstKeptEntryId modifiedFiles readFiles model"
    yield from render.fields(answer | answer["details"] | answer["usage"], names)
    yield from ("", *render.markdown(answer["summary"], "  "))


@cli.method("branch_summary", cli.REF, cli.argument("leaf"), cli.FOCUS)
def branch_summary(answer: Any) -> Iterator[str]:
    """Summarise an abandoned branch, given its last entry."""
    return render.markdown(answer["summary"], "  ")
