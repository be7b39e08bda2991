"""click's command, made of what was said of ours: for help, completion, and what is not plain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from indexerd.cli.declare import said_of

if TYPE_CHECKING:
    from indexerd.cli.declare import Kind


def clicked(work: Any) -> click.Command:
    """The command; one of click's own is taken as it is."""
    said = said_of(work)
    if said is None:
        found: click.Command = work
        return found
    taking: Any = click.pass_obj(work)
    for one in reversed(said.params):
        made = click.option if one.is_option else click.argument
        taking = made(*one.words, type=_type(one.kind), **one.how)(taking)
    return click.command(said.name)(taking)


def _type(kind: Kind) -> Any:
    """What a value may be, in click's words."""
    if isinstance(kind, tuple):
        return click.Choice(kind)
    if isinstance(kind, range):
        return click.IntRange(kind.start, kind.stop - 1)
    return kind
