r"""A session as a file: HTML, Markdown or JSON, made of one document.

There is no method of the socket for it: a document has megabytes, and whoever wants a file can read
the session as well as the daemon can, in a process of its own, where it keeps nobody waiting.

A page's data is in a script element of a type that no browser runs, as JSON in which `<`, `>` and
`&` are written `\uXXXX`: nothing in it can end the element, open a comment or be an entity. The
page's scripts put texts into the document as text, and the policy (trusted types) sees to it that
they could do nothing else, nor load, send or frame anything. In the file, script and style are
allowed by their hashes alone.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping
from html import escape
from importlib.resources import files
from typing import Any

from indexerd.daemon.library import Library
from indexerd.errors import IndexerdError
from indexerd.privacy.sanitize import bare, clean_line
from indexerd.web.document import (
    Document,
    Stored,
    Wish,
    read_document,
    to_json,
)
from indexerd.web.markdown import markdown

PARTS = (
    "words.js", "prose.js", "story.js", "rows.js", "tree.js", "talk.js", "about.js",
)  # fmt: skip
STEM_MAX, TITLE_MAX, DESCRIPTION_MAX = 60, 300, 2000  # characters
_MARKS = ("TITLE", "POLICY", "STYLE", "HOME", "NAME", "DESCRIPTION", "DATA", "SCRIPT")


def export(
    library: Library, stored: Stored, form: str, wish: Wish, relatives: Mapping[str, Any]
) -> tuple[str, str]:
    """A name for the file, and its text. Blocks. NotFoundError: the session's file is gone."""
    document = read_document(library, stored, wish, relatives)
    return file_name(document, form), FORMATS[form](document)


def file_name(document: Document, form: str) -> str:
    """What the session is called, and the head of its id."""
    session = document["session"]
    name = clean_line(str(session.get("name", ""))[:400], 200).lower()
    stem = re.sub(r"[^a-z0-9]+", "-", name)[:STEM_MAX].strip("-") or "session"
    head = re.sub(r"[^A-Za-z0-9]", "", str(session["sessionId"]))[:8]
    return f"{stem}-{head}.{form}"


def read_static(name: str) -> str:
    """The text of a file of the view."""
    try:
        return (files("indexerd") / "web" / "static" / name).read_text(encoding="utf-8")
    except OSError:
        raise IndexerdError(
            f"a file of the view is missing: {name}", hint="install indexerd again"
        ) from None


def export_page(document: Mapping[str, Any]) -> str:
    """The page as one file that needs nothing else."""
    style = read_static("view.css")
    script = "\n".join(map(read_static, (*PARTS, "session.js")))
    policy = (
        f"default-src 'none'; script-src '{content_hash(script)}'; "
        f"style-src '{content_hash(style)}'; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return session_page(
        document,
        policy=f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        style=f"<style>{style}</style>",
        script=f"<script>{script}</script>",
    )


def session_page(
    document: Mapping[str, Any], *, style: str, policy: str = "", home: str = "", script: str = ""
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
    """A value as JSON that can stand in a script element."""
    text = to_json(value)
    for char in "<>&":  # on megabytes this is far quicker than a table
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def content_hash(text: str) -> str:
    """What a policy or an `integrity` names a text by."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


FORMATS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "html": export_page,
    "md": markdown,
    "json": lambda document: to_json(document) + "\n",
}
