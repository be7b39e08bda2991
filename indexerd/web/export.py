"""A session as a file: HTML, Markdown or JSON, made of one document.

There is no method of the socket for it: a document has megabytes, and whoever wants a file can read
the session as well as the daemon can, in a process of its own, where it keeps nobody waiting.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from indexerd.daemon.library import Library
from indexerd.privacy.sanitize import clean_line
from indexerd.web.document import Document, Stored, Wish, read_document, to_json
from indexerd.web.markdown import markdown
from indexerd.web.page import export_page

FORMATS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "html": export_page,
    "md": markdown,
    "json": to_json,
}
STEM_MAX = 60


def export(
    library: Library, stored: Stored, form: str, wish: Wish, relatives: Mapping[str, Any]
) -> tuple[str, str]:
    """A name for the file, and its text; `stored` is the answer of `get`. Blocks.

    NotFoundError where the session's file is gone.
    """
    document = read_document(library, stored, wish, relatives)
    return file_name(document, form), FORMATS[form](document)


def file_name(document: Document, form: str) -> str:
    """What the session is called, and the head of its id."""
    session = document["session"]
    name = clean_line(str(session.get("name", ""))[:400], 200).lower()
    stem = re.sub(r"[^a-z0-9]+", "-", name)[:STEM_MAX].strip("-") or "session"
    head = re.sub(r"[^A-Za-z0-9]", "", str(session["sessionId"]))[:8]
    return f"{stem}-{head}.{form}"
