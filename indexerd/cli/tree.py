"""Commands about one session's tree: tree, branches, path, context, branch, label.

The first four read, and do so without a daemon, too: then the one session file is read anew.
The other two add a file or a label, and need the daemon.

A tree is drawn as pi draws it: what follows one after the other stays in one column, and only
where a conversation parts does it move to the right. `*` marks the way to the leaf, `>` the leaf.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from indexerd.cli import printing as render
from indexerd.cli.backend import READING, project, read
from indexerd.cli.backend import ask as ask_daemon
from indexerd.cli.backend import show as show_json
from indexerd.cli.streams import aside, put, safe
from indexerd.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from indexerd.cli.main import App

FILTERS = ("default", "no-tools", "user-only", "labeled-only", "all")
TEXT_SHOWN = 200
PREFIX_MAX = 60  # columns that lines of the tree may take
_ROUND = ("├─ ", "└─ ", "│  ", "   ")
_PLAIN = ("|- ", "`- ", "|  ", "   ")


def look(app: App, method: str, params: dict[str, Any]) -> Any:
    """Ask the daemon, or read the session's file."""
    if params.get("leaf") == "":
        raise UsageError("--leaf takes an entry's id", hint="`indexerd tree REF` shows them")
    return read(app, method, params, otherwise=READING)


@click.command()
@click.argument("ref")
@click.option(
    "--filter",
    "mode",
    type=click.Choice(FILTERS),
    help="Which entries: default hides settings and answers that only call tools; with --json "
    "all is the default.",
)
@click.option("--search", metavar="WORDS", help="Only entries that have all these words.")
@click.option("--leaf", metavar="ID", help="As seen from another entry.")
@click.pass_obj
def tree(app: App, /, *, ref: str, mode: str | None, search: str | None, leaf: str | None) -> None:
    """Show a session's tree: every branch, with labels; `*` marks the current path."""
    chosen = mode or (None if app.json else "default")
    params = {"ref": ref, "cwd": project(), "filter": chosen, "search": search, "leaf": leaf}
    found = look(app, "tree", params)
    if show_json(app, found):
        return
    shown = [node for node in found["nodes"] if node.get("display", True)]
    rows = (
        (node["id"], _age(node["timestamp"]), drawn + _told(app, node, found["leafId"]))
        for drawn, node in zip(_drawn(shown), shown, strict=True)
    )
    _columns(app, rows)
    for warning in found.get("warnings", ()):
        aside(f"indexerd: {safe(warning)}")
    if not shown:
        aside("no entries")


def _drawn(nodes: list[dict[str, Any]]) -> Iterator[str]:
    """The lines before each node, which show where branches part."""
    tee, corner, bar, blank = _ROUND if _utf8() else _PLAIN
    last = _last_of_several(nodes)
    below: list[str] = []  # by depth: what stands before the children of the newest node there
    for node, place in zip(nodes, last, strict=True):
        depth = min(node["depth"], len(below))
        del below[depth:]
        before = below[-1] if below else ""
        here, after = before, before
        if place is not None and depth:
            here, after = before + (corner if place else tee), before + (blank if place else bar)
        below.append(after[-PREFIX_MAX:])
        yield here[-PREFIX_MAX:]


def _last_of_several(nodes: list[dict[str, Any]]) -> list[bool | None]:
    """Of each node: whether it is the last of several below one parent; None: it is the only one.

    A hidden node's children count as its parent's.
    """
    above: list[int] = []  # by depth: the newest node
    groups: dict[int, list[int]] = {}
    for at, node in enumerate(nodes):
        depth = min(node["depth"], len(above))
        del above[depth:]
        groups.setdefault(above[-1] if above else -1, []).append(at)
        above.append(at)
    found: list[bool | None] = [None] * len(nodes)
    for group in groups.values():
        for at in group if len(group) > 1 else ():
            found[at] = at == group[-1]
    return found


def _told(app: App, node: dict[str, Any], leaf: str | None) -> str:
    mark = ">" if node["id"] == leaf else "*" if node["active"] else " "
    label = f"[{safe(node['label'])}] " if node.get("label") else ""
    if label and render.coloured(app):
        label = render.yellow(label)
    who = f"{safe(node['role'])}:" if node.get("role") else f"[{safe(node['type'])}]"
    return f"{mark} {label}{who} {safe(node['text'], TEXT_SHOWN)}".rstrip()


def _columns(app: App, rows: Iterable[tuple[str, str, str]]) -> None:
    """Id, age and text: aligned and cut to the terminal's width, or split by tabs."""
    cells = [(safe(entry_id), age, text) for entry_id, age, text in rows]
    if not render.aligned(app):
        put("\t".join(row) for row in cells)
        return
    from indexerd.cli.printing import cut, padded, space, width_of

    ids = max((width_of(row[0]) for row in cells), default=0)
    ages = max((len(row[1]) for row in cells), default=0)
    width = space()
    lines = (f"{padded(entry_id, ids)}  {age:>{ages}}  {text}" for entry_id, age, text in cells)
    bare = ((line, render.plain(line)) for line in lines)  # colours go with a line's end
    put(line if width_of(plain) <= width else cut(plain, width) for line, plain in bare)


def _utf8() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def _age(timestamp: str) -> str:
    from indexerd.times import iso_ms

    return render.age(timestamp) if iso_ms(timestamp) else ""


@click.command()
@click.argument("ref")
@click.pass_obj
def branches(app: App, ref: str) -> None:
    """List the branches of a session, by their last entries."""
    found = look(app, "branches", {"ref": ref, "cwd": project()})
    if show_json(app, found):
        return
    rows = [
        (
            tip["leafId"],
            "*" if tip["active"] else "",
            str(tip["entries"]),
            str(tip["userMessages"]),
            _age(tip["lastActivity"]),
            tip["branchPointId"] or "",
            " ".join(filter(None, (tip.get("label") or tip.get("reason"), tip.get("gist")))),
        )
        for tip in found["tips"]
    ]
    heads = ("leaf", "current", "entries", "asks", "active", "parts at", "gist")
    render.table(app, heads, rows)
    if not rows:
        aside("no entries")


@click.command()
@click.argument("ref")
@click.option("--leaf", metavar="ID", help="The path to another entry than the current one.")
@click.pass_obj
def path(app: App, ref: str, leaf: str | None) -> None:
    """List the entries from the root to the leaf."""
    found = look(app, "path", {"ref": ref, "cwd": project(), "leaf": leaf})
    if show_json(app, found):
        return
    shown = [entry for entry in found["entries"] if entry.get("display", True)]
    told = ({**entry, "active": False} for entry in shown)
    rows = ((entry["id"], _age(entry["timestamp"]), _told(app, entry, None)) for entry in told)
    _columns(app, ((entry_id, age, text.strip()) for entry_id, age, text in rows))
    if not shown:
        aside("no entries")


@click.command()
@click.argument("ref")
@click.option("--leaf", metavar="ID", help="As it was, or would be, at another entry.")
@click.option(
    "--transform",
    "transforms",
    metavar="JSON",
    multiple=True,
    help='A rule for this output alone, such as {"rule": "prune", "protectTurns": 2}; repeatable.',
)
@click.option("--serialized", is_flag=True, help="As one text, the way pi gives it to a model.")
@click.pass_obj
def context(
    app: App, /, *, ref: str, leaf: str | None, transforms: tuple[str, ...], serialized: bool
) -> None:
    """Show what the agent would hand its model."""
    params: dict[str, Any] = {"ref": ref, "cwd": project(), "leaf": leaf}
    if transforms:
        params["transforms"] = [_rule(text) for text in transforms]
    if serialized:
        params["serialize"] = True
    found = look(app, "context", params)
    if show_json(app, found):
        return
    if serialized:
        put([render.exact(found["serialized"])])
        return
    model = found["model"] or {}
    named = "/".join(filter(None, (model.get("provider"), model.get("modelId"))))
    pairs = (("model", named), ("thinking", found["thinkingLevel"]))
    render.facts((*pairs, ("messages", len(found["messages"]))))
    for message in found["messages"]:
        put([""])
        render.heading(app, message["role"], f"  {safe(message['entryId'])}")
        if message["text"]:
            put([render.exact(message["text"])])


def _rule(text: str) -> Any:
    """A rule of a transform, as JSON."""
    import json

    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        hint = 'for example {"rule": "truncate", "chars": 500}'
        raise UsageError("--transform takes a JSON object", hint=hint) from None


@click.command()
@click.argument("ref")
@click.argument("leaf")
@click.option("-o", "--output", metavar="FILE", help="Write it there, not beside the session.")
@click.pass_obj
def branch(app: App, ref: str, leaf: str, output: str | None) -> None:
    """Make a new session file of the path to an entry. Only for pi; never over another file.

    Labels in the session's own file go along; those made with `indexerd label` do not.
    """
    if output == "":
        raise UsageError("--output takes a file's name")
    file = os.path.abspath(output) if output else None  # noqa: PTH100 - Path.absolute keeps `..`
    found = ask_daemon(app, "branch", {"ref": ref, "cwd": project(), "leaf": leaf, "file": file})
    if not show_json(app, found):
        put([f"{found['sessionId']}\t{render.exact(found['sessionFile'])}"])


@click.command()
@click.argument("ref")
@click.argument("entry")
@click.argument("text", required=False)
@click.pass_obj
def label(app: App, ref: str, entry: str, text: str | None) -> None:
    """Label an entry of a session. Without a text, take your label back."""
    params = {"ref": ref, "cwd": project(), "entryId": entry, "text": text}
    found = ask_daemon(app, "label", params)
    if not show_json(app, found):
        put([f"{safe(found['entryId'])}\t{safe(found['label'] or '')}".rstrip()])
