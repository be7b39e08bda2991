"""Render a session's Markdown as HTML that is safe to insert into a page.

Raw HTML is shown as text, pictures become links, links lead to http and https only, and nh3 checks
the result against a short list of tags. Code has classes for its colours, never styles. Prompts are
shown as they were typed: paths, logs and code that people paste have Markdown's signs by chance.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping, Sequence
from html import escape
from typing import Any

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token as Mark
from pygments.lexers import get_lexer_by_name
from pygments.token import STANDARD_TYPES

TEXT_MAX = 100_000  # characters; a longer text stays as it is
CODE_MAX, LINE_MAX = 10_000, 400  # characters of code, and of its lines, that are coloured
_BRACKETS_MAX = 3000  # "[" in a text: looking for links takes quadratic time
_NESTED_MAX = 60  # levels
_BELOW = 3  # levels: the page's own headings are above
_TAGS = (
    "p br hr h4 h5 h6 strong em s a code pre span blockquote ul ol li table thead tbody tr th td"
)
# Others, such as make, take quadratic time for hostile code.
_LANGUAGES = """bash sh zsh shell c cpp c++ cs csharp css diff docker dockerfile elixir go graphql
    html ini java javascript js json json5 jsx kotlin lua markdown md php powershell
    proto py python python3 rb ruby rs rust scss sql swift toml ts tsx typescript xml yaml
    yml zig"""
_FRAME = re.compile(r"^</?proposed_plan>$", re.MULTILINE)  # Codex writes it around a plan
_LINK = re.compile(r"https?://", re.IGNORECASE)
_ADDRESS = re.compile(r"(https?://[^\s<>\"'`\\]{1,2000}(?<![.,;:!?)\]}*_]))")
_NAMES = {"nf", "fm", "nc", "nt", "na", "nb", "bp"}
_DIFF = {"gd": "del", "gi": "add", "gh": "nf"}
_ALIGNED = {"text-align:center": "mid", "text-align:right": "right"}


def to_html(text: str) -> str:
    """Render a text; one that is too long or nested too deeply is shown as it is."""
    plain = f"<pre>{escape(text, quote=False)}</pre>"
    if len(text) > TEXT_MAX or text.count("[") > _BRACKETS_MAX:
        return plain
    environment: dict[str, Any] = {}
    tokens = _PARSER.parse(_FRAME.sub("", text), environment)
    if any(token.level >= _NESTED_MAX - 2 for token in tokens):  # the parser skips what is deeper
        return plain
    return _clean(str(_PARSER.renderer.render(tokens, _PARSER.options, environment)))


def _clean(html: str) -> str:
    return nh3.clean(
        html,
        tags=set(_TAGS.split()),
        attributes={
            "a": {"href", "title"}, "ol": {"start"},
            **{tag: {"class"} for tag in ("code", "span", "th", "td", "p")},
        },
        url_schemes={"http", "https"},
        link_rel="noopener noreferrer",
        set_tag_attribute_values={"a": {"target": "_blank"}},
    )  # fmt: skip


def typed_to_html(text: str) -> str:
    """Render what a person typed: each character as it is, but fenced code, and links."""
    text = re.sub("\r\n?", "\n", text)
    if len(text) > TEXT_MAX:
        return to_html(text)
    lines, shown, start = text.split("\n"), list[str](), 0
    for fence in (token for token in _FENCES.parse(text) if token.type == "fence"):
        begin, end = fence.map or (start, start)
        code = _PARSER.renderer.render([fence], _PARSER.options, {})
        shown += [_as_typed(lines[start:begin]), str(code)]
        start = end
    return _clean("".join([*shown, _as_typed(lines[start:])]))


def _as_typed(lines: Sequence[str]) -> str:
    if not (text := "\n".join(lines).strip("\n")):
        return ""
    return f'<p class="typed">{_linked(text)}</p>\n'


def _linked(text: str) -> str:
    """Escape a text, and make links of the addresses in it."""
    parts = enumerate(map(escape, _ADDRESS.split(text)))  # every second one is an address
    return "".join(f'<a href="{part}">{part}</a>' if at % 2 else part for at, part in parts)


def to_text(text: str, limit: int) -> str:
    """Return the first characters of a text as one line, without Markdown's signs."""
    tokens = _PARSER.parse(text[: 8 * limit + 400])
    words = " ".join(" ".join(_words(token)) for token in tokens)
    return " ".join(words.split())[:limit]


def _words(token: Mark) -> Iterator[str]:
    if token.type in ("fence", "code_block"):
        yield token.content
    elif token.type == "inline":
        parts = (
            " " if child.type.endswith("break") else child.content for child in token.children or ()
        )
        yield "".join(parts)


def _coloured(code: str, name: str, _attributes: str = "") -> str:
    """Return code as HTML, with classes if its language is known."""
    long = len(code) > CODE_MAX or max(map(len, code.split("\n"))) > LINE_MAX
    if long or name.lower() not in _LANGUAGES.split():
        return escape(code, quote=False)
    lexer, parts = get_lexer_by_name(name.lower(), stripnl=False, ensurenl=False), list[str]()
    for kind, text in lexer.get_tokens(code):
        shown = escape(text, quote=False)
        short = STANDARD_TYPES.get(kind, "")
        named = _DIFF.get(short, short if short[:1] in [*"cksm"] or short in _NAMES else "")
        parts.append(f'<span class="{named}">{shown}</span>' if named and text.strip() else shown)
    return "".join(parts)


def _text(_renderer: RendererHTML, tokens: Sequence[Mark], at: int, _options: Any, env: Any) -> str:
    text = tokens[at].content
    return escape(text) if env.get("in_link") else _linked(text)


def _link(renderer: RendererHTML, tokens: Sequence[Mark], at: int, options: Any, env: Any) -> str:
    env["in_link"] = tokens[at].nesting > 0
    if not _LINK.match(str(tokens[at].attrs.get("href", ""))):
        tokens[at].attrs = {}  # a path on some machine
    return renderer.renderToken(tokens, at, options, env)


def _cell(renderer: RendererHTML, tokens: Sequence[Mark], at: int, *more: Any) -> str:
    style = str(tokens[at].attrs.pop("style", ""))
    if style in _ALIGNED:
        tokens[at].attrs["class"] = _ALIGNED[style]
    return renderer.renderToken(tokens, at, *more)


def _image(
    _renderer: RendererHTML,
    tokens: Sequence[Mark],
    at: int,
    _options: Any,
    _env: MutableMapping[str, Any],
) -> str:
    address, words = str(tokens[at].attrs.get("src", "")), escape(tokens[at].content or "image")
    return f'<a href="{escape(address)}">{words}</a>' if _LINK.match(address) else words


def _set_headings(state: StateCore) -> None:
    """Set headings below the page's own, with no level left out."""
    above = list[str]()
    for token in state.tokens:
        if token.type == "heading_open":
            above = [tag for tag in above if tag < token.tag] + [token.tag]
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, len(above) + _BELOW)}"


def _parser() -> MarkdownIt:
    options = {"html": False, "linkify": False, "maxNesting": _NESTED_MAX, "highlight": _coloured}
    options["breaks"] = True  # people and agents write lines
    parser = MarkdownIt("commonmark", options).enable(["table", "strikethrough"])
    rules: dict[str, Any] = {"text": _text, "link_open": _link, "link_close": _link}
    rules |= {"image": _image, "th_open": _cell, "td_open": _cell}
    parser.core.ruler.push("headings", _set_headings)
    for name, rule in rules.items():
        parser.add_render_rule(name, rule)
    return parser


_PARSER = _parser()
_FENCES = MarkdownIt("zero").enable("fence")
