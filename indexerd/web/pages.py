"""The files of the view: templates filled in, and what pages load beside them.

In: the name of a template or of an asset, both in `indexerd/view`. Out: HTML, or bytes with their
media type and a digest. Whatever goes into a template is escaped, always: there is no way to say
that a text is safe. A name that a template uses and nobody gave is an error, not an empty place.

Assets are those of a fixed list: no name out of an address ever becomes a path. Their addresses
carry a digest of what they hold, so that a browser may keep them for ever; and since a browser may
have been given something else under such an address, pages name what each must hold, too
(`integrity`). jinja2 is imported here and nowhere else.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined

from indexerd.errors import IndexerdError
from indexerd.privacy.sanitize import scrub
from indexerd.web.export_html import LIVE, LIVE_PARTS

MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
STATIC = frozenset({"view.css", "home.css", "home.js", "favicon.svg", LIVE})
PARTS = {LIVE: LIVE_PARTS}  # made of these, so that a page waits for one answer and not for twelve
_DIGEST_CHARS = 16


@dataclass(frozen=True, slots=True)
class Static:
    """An asset: what it holds, what it is, the `v` of its address (hex), and its `integrity`."""

    body: bytes
    media_type: str
    digest: str
    integrity: str


class Pages:
    """Templates and assets, read once; not for several threads at a time."""

    def __init__(self, folder: Traversable | None = None) -> None:
        """`folder` holds the files; the program's own where it is not said."""
        self._folder = folder or files("indexerd") / "view"
        self._statics: dict[str, Static] = {}
        self._templates = Environment(
            loader=FunctionLoader(lambda name: self._read(name).decode()),
            autoescape=True,
            undefined=StrictUndefined,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        self._templates.globals["asset"] = self.url
        self._templates.globals["integrity"] = self.integrity

    def render(self, template: str, **values: Any) -> str:
        """Fill in a template; the result can be encoded, whatever the values are.

        IndexerdError for a template that is not there.
        """
        return scrub(self._templates.get_template(template).render(values))

    def static(self, name: str) -> Static | None:
        """An asset; None for a name that is not one. IndexerdError where its file is missing."""
        if name not in STATIC:
            return None
        held = self._statics.get(name)
        if held is None:
            body = b"\n".join(self._read(one) for one in PARTS.get(name, (name,)))
            digest = sha256(body).digest()
            media_type = MEDIA_TYPES[name[name.rindex(".") :]]
            held = self._statics[name] = Static(
                body,
                media_type,
                digest.hex()[:_DIGEST_CHARS],
                f"sha256-{b64encode(digest).decode()}",
            )
        return held

    def url(self, name: str) -> str:
        """The address of an asset. KeyError for a name that is not one."""
        return f"/static/{name}?v={self._static(name).digest}"

    def integrity(self, name: str) -> str:
        """What a browser compares a script or a style with. KeyError as for `url`."""
        return self._static(name).integrity

    def _static(self, name: str) -> Static:
        held = self.static(name)
        if held is None:
            raise KeyError(name)
        return held

    def _read(self, name: str) -> bytes:
        try:
            return (self._folder / name).read_bytes()
        except OSError:
            raise IndexerdError(
                f"a file of the view is missing: {name}", hint="install indexerd again"
            ) from None
