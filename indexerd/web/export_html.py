r"""A session's page: as one file that asks nothing of anybody, and as what the live view serves.

In: a document (web/export_json.py), and the assets of `indexerd/view`. Out: the file; or for the
live page (`live_page`) what stands before the data, between it and the rest, and after it.

The data stands in a script element of a type that no browser runs, as JSON in which `<`, `>` and
`&` are written `\uXXXX`: nothing in it can end the element, open a comment, or be an entity. The
page's own scripts put texts into the document as text, never as markup, and the policy sees to it
that they could not do otherwise (trusted types), nor load, send or frame anything. In the file,
script and style are allowed by their hashes alone: a byte more, and a browser leaves them out.
The live page has its policy in a header, and its scripts and style by address.

Both are made of the one `page.html`; its marks are filled in their order there, so that nothing
that was filled in is searched for marks.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from indexerd.privacy.sanitize import bare, clean_line
from indexerd.web.export_json import encoded, harmless

PAGE, STYLE, ICON, LIVE = "page.html", "view.css", "favicon.svg", "live-page.js"
EXPORT_PARTS = (
    "words.js", "prose.js", "story.js", "rows.js", "tree.js", "talk.js", "about.js", "session.js",
)  # fmt: skip
LIVE_PARTS = (  # of `LIVE`; session.js draws what those before it have to show
    "words.js", "prose.js", "story.js", "rows.js", "tree.js", "talk.js", "about.js", "family.js",
    "acts.js", "panel.js", "session.js", "live.js",
)  # fmt: skip
TITLE_MAX, DESCRIPTION_MAX = 300, 2000
_MARKS = ("TITLE", "POLICY", "STYLE", "HOME", "NAME", "DESCRIPTION", "DATA", "SCRIPT")
_UNSAFE = {char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}
_HOME = '<a class="home" href="/">Sessions</a>'


@dataclass(frozen=True, slots=True)
class Assets:
    """The page and what it is styled and moved by; ours, and trusted."""

    page: str
    style: str
    script: str


def html(found: Mapping[str, Any], assets: Assets) -> str:
    """The file. ValueError for a page without its marks, or assets that would end an element."""
    for text, end in (
        (assets.style, "</style"),
        (assets.script, "</script"),
        (assets.script, "<!--"),
    ):
        if end in text.lower():
            raise ValueError(f"an asset of the view holds {end}")
    session, meta = found.get("session") or {}, found.get("meta") or {}
    title = session.get("name") or session.get("sessionId") or "Session"
    description = meta.get("description") or session.get("description") or ""
    rules = escape(policy(assets), quote=False)
    fills = _named(title, description) | {
        "POLICY": f'<meta http-equiv="Content-Security-Policy" content="{rules}">',
        "STYLE": f"<style>{assets.style}</style>",
        "HOME": "",
        "DATA": island(found),
        "SCRIPT": f"<script>{assets.script}</script>",
    }
    return "".join(_filled(assets.page, fills))


def live_page(
    assets: Assets,
    *,
    title: str,
    description: str,
    urls: Mapping[str, str],
    integrity: Mapping[str, str],
) -> tuple[str, str, str]:
    """The live page, to be streamed: up to the data, from there to what may follow it, the end.

    `urls` has the addresses of the style and of `LIVE`, the parts as one script, and may have the
    icon's; `integrity` has the hashes of the first two, by which a browser knows them: what it kept
    under such an address may be another server's. The script is fetched while the data comes, and
    runs when all of the page is there. The data goes through `island` first. ValueError for a page
    without its marks.
    """
    whole = {name: f'integrity="{escape(told)}"' for name, told in integrity.items()}
    links = [f'<link rel="stylesheet" href="{escape(urls[STYLE])}" {whole[STYLE]}>']
    icon = escape(urls.get(ICON, f"/static/{ICON}"))  # a browser looks for one, and complains
    links.append(f'<link rel="icon" type="image/svg+xml" href="{icon}">')
    links.append(f'<script src="{escape(urls[LIVE])}" {whole[LIVE]} defer></script>')
    fills = _named(title, description) | {
        "POLICY": "",
        "STYLE": "\n".join(links),
        "HOME": _HOME,
        "DATA": "",
        "SCRIPT": "",
    }
    *before, _data, between, _script, after = _filled(assets.page, fills)
    return "".join(before), between, after


def _named(title: Any, description: Any) -> dict[str, str]:
    """What a reader sees first, as text that no part of is markup."""
    name = escape(clean_line(bare(str(title)[: 4 * TITLE_MAX]), TITLE_MAX)) or "Session"
    told = escape(clean_line(bare(str(description)[: 4 * DESCRIPTION_MAX]), DESCRIPTION_MAX))
    return {"TITLE": name, "NAME": name, "DESCRIPTION": told}


def _filled(page: str, fills: Mapping[str, str]) -> list[str]:
    """The page's pieces: its own and what is filled in by turns, beginning and ending with ours."""
    rest, parts = page, list[str]()
    for mark in _MARKS:  # in the page's order: data is not searched
        before, between, rest = rest.partition(f"@{mark}@")
        if not between:
            raise ValueError(f"the page of the view lacks @{mark}@")
        parts += [before, fills[mark]]
    return [*parts, rest]


def island(found: Any) -> str:
    """A value as JSON that can stand in a script element."""
    text = harmless(encoded(found))
    for char, written in _UNSAFE.items():  # on megabytes this is far quicker than a table
        text = text.replace(char, written)
    return text


def policy(assets: Assets) -> str:
    """The content security policy of the file: nothing but this script and this style."""
    rules = (
        "default-src 'none'",
        f"script-src '{_hash(assets.script)}'",
        f"style-src '{_hash(assets.style)}'",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
    return "; ".join(rules)


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
