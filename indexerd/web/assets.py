"""The files in `web/static`: templates, and the scripts and styles that pages load.

Whatever goes into a template is escaped; a name that nobody gave is an error. Assets are those of a
fixed list, so that no name out of an address becomes a path. Their addresses carry a hash, so that
a browser may keep them; and pages say what each must hold (`integrity`), since another program may
have answered under such an address before.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined

from indexerd.web.page import LIVE, LIVE_PARTS, read_static

MEDIA_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
FILES = frozenset({"view.css", "home.css", "home.js", "favicon.svg", LIVE})


@dataclass(frozen=True, slots=True)
class Asset:
    """What a file holds, its media type, the `v` of its address, and its `integrity`."""

    body: bytes
    media_type: str
    version: str
    integrity: str


class Assets:
    """Templates and assets, read once."""

    def __init__(self) -> None:
        self._templates = Environment(
            loader=FunctionLoader(read_static),
            autoescape=True,
            undefined=StrictUndefined,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        self._templates.globals["asset"] = self.url
        self._templates.globals["integrity"] = lambda name: self.asset(name).integrity

    def render(self, template: str, **values: Any) -> bytes:
        """Fill in a template."""
        return self._templates.get_template(template).render(values).encode("utf-8", "replace")

    def url(self, name: str) -> str:
        """The address of an asset."""
        return f"/static/{name}?v={self.asset(name).version}"

    @staticmethod
    @cache
    def asset(name: str) -> Asset:
        """A file of the list. KeyError for any other name."""
        if name not in FILES:
            raise KeyError(name)
        parts = LIVE_PARTS if name == LIVE else (name,)
        body = "\n".join(map(read_static, parts)).encode()
        digest = sha256(body).digest()
        media_type = MEDIA_TYPES[name.rpartition(".")[2]]
        return Asset(body, media_type, digest.hex()[:16], f"sha256-{b64encode(digest).decode()}")
