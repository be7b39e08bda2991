"""Commands about one session's tree, and its export.

A tree is drawn as pi draws it: what follows one after the other stays in one column, and only
where a conversation parts does it move to the right. `*` marks the way to the leaf, `>` the leaf.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from indexerd.cli import main as cli
from indexerd.cli import printing as render
from indexerd.cli.backend import App, aside, project, put, safe
from indexerd.errors import UsageError

FILTERS = ("default", "no-tools", "user-only", "labeled-only", "all")
FORMATS = ("html", "md", "json")
_OF_DATABASES = ("-wal", "-shm", "-journal")  # files that belong to one
_SUFFIXES = {".html": "html", ".htm": "html", ".md": "md", ".markdown": "md", ".json": "json"}


def _rules(given: tuple[str, ...]) -> list[Any] | None:
    try:
        return [json.loads(text) for text in given] or None
    except (ValueError, RecursionError):
        hint = 'for example {"rule": "truncate", "chars": 500}'
        raise UsageError("--transform takes a JSON object", hint=hint) from None


def _file(name: str | None) -> str | None:
    if name == "":
        raise UsageError("--output takes a file's name")
    return project(name) if name else None


def _output(text: str) -> Any:
    return cli.option("-o", "--output", "file", text, metavar="FILE", checked=_file)


@cli.method(
    "tree",
    cli.REF,
    cli.option(
        "--filter",
        "Which entries: default hides settings and answers that only call tools; with --json "
        "all is the default.",
        type=click.Choice(FILTERS),
        checked=lambda value: value or (None if cli.current().json else "default"),
    ),
    cli.option("--search", "Only entries that have all these words.", metavar="WORDS"),
    cli.leaf(),
)
def tree(found: Any) -> Iterator[str]:
    """Show a session's tree: every branch, with labels; `*` marks the current path."""
    nodes = [node for node in found["nodes"] if node.get("display", True)]
    drawn = render.branches([node["depth"] for node in nodes], single=False)
    leaf = found["leafId"]
    marks = (">" if node["id"] == leaf else "*" if node["active"] else " " for node in nodes)
    yield from _entries(nodes, map("{}{} ".format, drawn, marks))
    for warning in found.get("warnings", ()):
        aside(f"indexerd: {safe(warning)}")


@cli.method("path", cli.REF, cli.leaf("The path to this entry, not to the current one."))
def path(found: Any) -> Iterator[str]:
    """List the entries from the root to the leaf."""
    entries = [entry for entry in found["entries"] if entry.get("display", True)]
    return _entries(entries, [""] * len(entries))


def _entries(entries: list[dict[str, Any]], before: Iterable[str]) -> Iterator[str]:
    def text(entry: dict[str, Any]) -> str:
        label = render.coloured(f"[{safe(entry['label'])}] ") if entry.get("label") else ""
        who = f"{safe(entry['role'])}:" if entry.get("role") else f"[{safe(entry['type'])}]"
        return f"{label}{who} {safe(entry['text'], 200)}".rstrip()

    yield from render.entries(
        (safe(entry["id"]), render.age(entry["timestamp"]), mark + text(entry))
        for mark, entry in zip(before, entries, strict=True)
    )
    if not entries:
        aside("no entries")


@cli.method("branches", cli.REF)
def branches(found: Any) -> Iterator[str]:
    """List the branches of a session, by their last entries."""
    rows = [
        (
            tip["leafId"],
            "*" if tip["active"] else "",
            str(tip["entries"]),
            str(tip["userMessages"]),
            render.age(tip["lastActivity"]),
            tip["branchPointId"] or "",
            " ".join(filter(None, (tip.get("label") or tip.get("reason"), tip.get("gist")))),
        )
        for tip in found["tips"]
    ]
    heads = ("leaf", "current", "entries", "asks", "active", "parts at", "gist")
    yield from render.table(heads, rows)
    if not rows:
        aside("no entries")


@cli.method(
    "context",
    cli.REF,
    cli.leaf("As it was, or would be, at another entry."),
    cli.option(
        "--transform",
        "transforms",
        'A rule for this output alone, such as {"rule": "prune", "protectTurns": 2}; repeatable.',
        metavar="JSON",
        multiple=True,
        checked=_rules,
    ),
    cli.flag("--serialized", "serialize", "As one text, the way pi gives it to a model."),
)
def context(found: Any) -> Iterator[str]:
    """Show what the agent would send to its model."""
    if "serialized" in found:
        yield render.exact(found["serialized"])
        return
    model = found["model"] or {}
    name = "/".join(filter(None, (model.get("provider"), model.get("modelId"))))
    pairs = (("model", name), ("thinking", found["thinkingLevel"]))
    yield from render.facts((*pairs, ("messages", len(found["messages"]))))
    for message in found["messages"]:
        yield ""
        yield render.heading(message["role"], f"  {safe(message['entryId'])}")
        if message["text"]:
            yield render.exact(message["text"])


ENTRY = cli.argument("entry_id", metavar="ENTRY")


@cli.method("label", cli.REF, ENTRY, cli.argument("text", required=False))
def label(found: Any) -> str:
    """Label an entry of a session. Without a text, remove your label."""
    return f"{safe(found['entryId'])}\t{safe(found['label'] or '')}".rstrip()


@cli.method(
    "branch", cli.REF, cli.argument("leaf"), _output("Write it there, not beside the session.")
)
def branch(found: Any) -> str:
    """Write the path to an entry as a new pi session. Never overwrites a file.

    Labels in the session's own file are copied; those made with `indexerd label` are not.
    """
    return f"{found['sessionId']}\t{render.exact(found['sessionFile'])}"


# -- export: the session itself is read, as a document of megabytes is nothing for a socket ------


@cli.command(
    cli.REF,
    _output("Write it there (0600), not to stdout."),
    cli.option(
        "--format",
        "form",
        "html: the whole tree, in one page for a browser, offline; md: one path, to be read; "
        "json: all of it, for programs. By default chosen by FILE's suffix, else html.",
        type=click.Choice(FORMATS),
    ),
    cli.leaf("As seen from another entry than the current one."),
    cli.flag("--redact", "Take known kinds of secrets out of every text."),
    cli.flag("--force", "Replace FILE if it exists."),
)
def export(
    ref: str, file: str | None, form: str | None, leaf: str | None, *, redact: bool, force: bool
) -> None:
    """Write a session to one self-contained file: its tree, texts, digests and metadata.

    Nothing is redacted without --redact: the file holds every word, path and tool result of the
    session. Only very long texts are cut, and say so.
    """
    from indexerd.daemon.open_session import read_alone
    from indexerd.meta.newfile import create
    from indexerd.privacy.patterns import compile_patterns
    from indexerd.web.document import Wish
    from indexerd.web.export import export as make

    app = cli.current()
    settings = app.loaded.settings
    form = form or _SUFFIXES.get(Path(file or "").suffix.lower(), "html")
    if file:
        _check(Path(file), app, force=force)
    elif not app.json and form == "html" and sys.stdout.isatty():
        raise UsageError("a page cannot be shown in a terminal", hint="name a file: -o FILE.html")
    extra = compile_patterns(settings.redact.extra_patterns)
    wish = Wish(for_people=form != "json", redact=redact, extra=extra, leaf=leaf)
    stored = app.call("get", {"ref": ref, "cwd": project()})
    row = stored["session"]
    family = app.local().answers.relatives(row) if app.places.store.exists() else {}
    with read_alone(row, settings, os.environ, app.home) as library:
        name, text = make(library, stored, form, wish, family)
    data = text.encode("utf-8", "replace")
    if file:
        create(Path(file), [data], over=force)
        if not cli.as_json({"format": form, "file": file, "bytes": len(data)}):
            put([render.exact(file)])
    elif not cli.as_json({"format": form, "fileName": name, "text": text}):
        sys.stdout.flush()
        sys.stdout.buffer.write(data)  # UTF-8, whatever the stream's encoding: a page says so


def _check(path: Path, app: App, *, force: bool) -> None:
    """UsageError for a file that is there, or where sessions or we keep things."""
    from indexerd.paths import within
    from indexerd.sources.stores import stores

    real = os.path.realpath(path)
    beside = [real, *(real.removesuffix(end) for end in _OF_DATABASES)]
    agents = stores(app.loaded.settings, os.environ, app.home)
    if any(one.holds(name) for one in agents for name in beside):
        raise UsageError(f"{path} is where sessions are kept", hint="name a file elsewhere")
    own = (str(app.places.state_dir), str(app.places.data_dir), *(one.meta for one in agents))
    if any(within(real, os.path.realpath(one)) for one in own):
        raise UsageError(
            f"{path} is where indexerd keeps its own files", hint="name a file elsewhere"
        )
    if force and (path.is_symlink() or (path.exists() and not path.is_file())):
        raise UsageError(
            f"{path} is not a regular file", hint="--force replaces regular files only"
        )
    if not force and os.path.lexists(path):
        raise UsageError(f"{path} exists", hint="name another file, or replace it with --force")
