"""A session's footer as HTML with links (S4.22, S4.24).

In: what the method `footer` answers, the session it is of, and its directory. Out: one line of
HTML, or "" where there is nothing to show. Everything in it was chosen by others: a path, a slug
and a parameter may be whatever a sidecar made by hand holds. So every text is escaped, and stands
in a `bdi`, as a name that is written from right to left would turn its neighbours around; every
part of an address is percent-encoded, so that none can begin another parameter. An address begins
with `page`, which is ours: no scheme, no host and no fragment can come out of a path.

Each link names its session: one that is left over from before a switch leads nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any
from urllib.parse import quote

from indexerd.meta.context_sets import SEPARATOR, relative
from indexerd.privacy.sanitize import escape_path, scrub

FILE_VIEW = "text-editor"  # what shows a file; the older program's name of it
_OURS = ("session", "applet")  # parameters that no item may give once more


def footer_html(found: Mapping[str, Any], session_id: str, cwd: str, page: str = "/") -> str:
    """Links to the files and the applet; a file's whole path is its title, relative to `cwd`."""
    parts = [_file(one, session_id, cwd, page) for one in found["files"]]
    if found["more"]:
        parts.append(f"<span>+{int(found['more'])} more</span>")
    applet = found.get("applet")
    if applet:
        where = address(page, session_id, applet["slug"], _pairs(applet["params"]))
        title = " ".join([applet["slug"], *applet["params"]])
        parts.append(_link(where, title, f"[{applet['slug']}]"))
    return SEPARATOR.join(parts)


def address(page: str, session_id: str, view: str, params: Iterable[tuple[str, str]] = ()) -> str:
    """Where a view of a session is to be found: `page` with everything else encoded behind it."""
    pairs = [("session", session_id), ("applet", view), *params]
    return f"{page}?{'&'.join(f'{_encoded(key)}={_encoded(value)}' for key, value in pairs)}"


def _file(one: Mapping[str, str], session_id: str, cwd: str, page: str) -> str:
    where = address(page, session_id, FILE_VIEW, [("path", one["path"])])
    return _link(where, relative(cwd, one["path"]), one["basename"])


def _pairs(items: Iterable[str]) -> Iterator[tuple[str, str]]:
    """`key=value` items; one without a sign is a key alone."""
    for item in items:
        key, _, value = item.partition("=")
        if key.strip().casefold() not in _OURS:
            yield key, value


def _link(where: str, title: str, text: str) -> str:
    return f'<a href="{escape(where)}" title="{_shown(title)}"><bdi>{_shown(text)}</bdi></a>'


def _shown(text: str) -> str:
    """Text for a reader: what does not show is named, and nothing in it is markup."""
    return escape(escape_path(text))


def _encoded(text: str) -> str:
    """Text as one part of an address; half of a surrogate pair is no text."""
    return quote(scrub(text), safe="")
