r"""A session's page: as one file that needs nothing else, and as the live view serves it.

The data is in a script element of a type that no browser runs, as JSON in which `<`, `>` and `&`
are written `\uXXXX`: nothing in it can end the element, open a comment or be an entity. The page's
scripts put texts into the document as text, and the policy (trusted types) sees to it that they
could do nothing else, nor load, send or frame anything. In the file, script and style are allowed
by their hashes alone; the live page has its policy in a header, and its scripts and style by
address.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from typing import Any

import msgspec

from indexerd.errors import IndexerdError
from indexerd.privacy.sanitize import bare, clean_line
from indexerd.web.document import compact_json, without_controls

LIVE = "live-page.js"  # one script of these parts, so that a page waits for one answer
_PARTS = (
    "words.js", "prose.js", "story.js", "rows.js", "tree.js", "talk.js", "about.js",
)  # fmt: skip
EXPORT_PARTS = (*_PARTS, "session.js")
LIVE_PARTS = (*_PARTS, "family.js", "acts.js", "panel.js", "session.js", "live.js")
TITLE_MAX, DESCRIPTION_MAX = 300, 2000
_MARKS = ("TITLE", "POLICY", "STYLE", "HOME", "NAME", "DESCRIPTION", "DATA", "SCRIPT")
_UNSAFE = {char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}

Document = Mapping[str, Any]


def read_static(name: str) -> str:
    """The text of a file of the view."""
    try:
        return (files("indexerd") / "web" / "static" / name).read_text(encoding="utf-8")
    except OSError:
        raise IndexerdError(
            f"a file of the view is missing: {name}", hint="install indexerd again"
        ) from None


def export_page(document: Document) -> str:
    """The file."""
    style, script = read_static("view.css"), "\n".join(map(read_static, EXPORT_PARTS))
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return _filled(
        document,
        policy=f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        style=f"<style>{style}</style>",
        script=f"<script>{script}</script>",
    )


def live_page(document: Document, urls: Mapping[str, str], integrity: Mapping[str, str]) -> str:
    """The page of the live view; `urls` and `integrity` of its assets."""
    style = (
        f'<link rel="stylesheet" href="{urls["view.css"]}" integrity="{integrity["view.css"]}">\n'
        f'<link rel="icon" type="image/svg+xml" href="{urls["favicon.svg"]}">\n'
        f'<script src="{urls[LIVE]}" integrity="{integrity[LIVE]}" defer></script>'
    )
    return _filled(document, style=style, home='<a class="home" href="/">Sessions</a>')


def _filled(
    document: Document, *, style: str, policy: str = "", home: str = "", script: str = ""
) -> str:
    """The page; its marks are filled in their order, so that no data is searched for marks."""
    session, meta = document.get("session") or {}, document.get("meta") or {}
    title = session.get("name") or session.get("sessionId") or "Session"
    description = meta.get("description") or session.get("description") or ""
    name = escape(clean_line(bare(str(title)[: 4 * TITLE_MAX]), TITLE_MAX)) or "Session"
    described = escape(clean_line(bare(str(description)[: 4 * DESCRIPTION_MAX]), DESCRIPTION_MAX))
    fills = (name, policy, style, home, name, described, embedded(document), script)
    rest, parts = read_static("page.html"), list[str]()
    for mark, fill in zip(_MARKS, fills, strict=True):
        before, _, rest = rest.partition(f"@{mark}@")
        parts += [before, fill]
    return "".join([*parts, rest])


def embedded(value: Any) -> str:
    """A value as JSON that can stand in a script element.

    Numbers may be written another way than by `json` (`1e-5`), and a number that is none is null.
    """
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError):  # half a character, or a number beyond 64 bits
        plain = json.loads(compact_json(value), parse_constant=lambda _: None)
        text = compact_json(plain)
    text = without_controls(text)
    for char, written in _UNSAFE.items():  # on megabytes this is far quicker than a table
        text = text.replace(char, written)
    return text


def since(document: Mapping[str, Any], version: str) -> dict[str, Any]:
    """What a page needs that has a version of a document, or "".

    A version is `COUNT.HASH.HASH`, of the nodes and of the rest. A page whose nodes are still the
    first ones gets only those behind them.

        whole    {version, …the document}
        changes  {version, base, keep, …the document}: its first `keep` nodes stay
        nothing  {version, base}
    """
    nodes = document["nodes"]
    rest = {key: one for key, one in document.items() if key not in ("nodes", "exportedAt")}
    newest = f"{len(nodes)}.{_digest(nodes)}.{_digest(rest)}"
    if version == newest:
        return {"version": newest, "base": version}
    count, _, digests = version.partition(".")
    keep = int(count) if re.fullmatch("[0-9]{1,9}", count) else len(nodes) + 1
    change = {"version": newest, **document}
    if keep <= len(nodes) and digests.startswith(f"{_digest(nodes[:keep])}."):
        change |= {"base": version, "keep": keep, "nodes": nodes[keep:]}
    return change


def _digest(value: Any) -> str:
    return hashlib.blake2b(embedded(value).encode("utf-8", "replace"), digest_size=12).hexdigest()


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
