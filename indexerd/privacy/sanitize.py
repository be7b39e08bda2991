"""Make untrusted text safe to store, send and print, and bound its length.

Whole escape sequences are removed first: removing only ESC from `ESC ]0;pwn BEL` would leave
`]0;pwn`. Then control, invisible and private-use characters are; the joiners ZWJ and ZWNJ stay
where scripts and emoji need them: single, between two letters, marks or symbols outside ASCII.
Every function is idempotent and linear.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from indexerd.privacy.patterns import lazy_pattern

_FORBIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
_JOINERS = "\u200c\u200d"
_MODIFIERS = ("Mn", "Me", "Sk")  # accents, the emoji style, skin tones
_EMOJI_MAX = 16  # characters of one emoji

# An unterminated control string ends with its line, so that a forged start cannot remove a whole
# text, and the time is linear.
_ESCAPES = re.compile(
    r"(?:\x1b[PX\]^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c\n\r]*+(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)[0-?]*+[ -/]*+[@-~]?"
    r"|\x1b[ -/]*+[0-~]?"
)
_JOINER_RUN = re.compile(f"[{_JOINERS}]+")


def replace_surrogates(text: str) -> str:
    """Replace each lone surrogate with U+FFFD; a pair of surrogates becomes its character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def without_surrogates(value: Any) -> Any:
    """Replace lone surrogates in all texts of a JSON value."""
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, Mapping):
        return {replace_surrogates(key): without_surrogates(item) for key, item in value.items()}
    return [*map(without_surrogates, value)] if isinstance(value, list | tuple) else value


def clean_line(text: str, limit: int) -> str:
    """Make a line of at most `limit` characters; each run of white space becomes a space."""
    plain = " ".join(text.split())
    if plain.isprintable():  # mostly: no escape sequence, nothing invisible
        return _cut(plain, limit)
    plain = " ".join(_ESCAPES.sub("", text).split())
    # Invisible characters may have been between two spaces, or at an end.
    return _cut(" ".join(_visible(plain, "").split()), limit)


def clean_text(text: str, limit: int) -> str:
    r"""Clean a text and cut it to `limit` characters, but keep its lines.

    `\n` and `\t` stay, other line ends become `\n`, and other white space a space. Indentation
    stays, runs of spaces inside a line become one, spaces at a line's end are removed, and at most
    two blank lines in a row stay.
    """
    if not is_plain(text):
        text = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
        spaces = {ord(char): " " for char in set(text) if char.isspace() and char not in "\n\t "}
        text = _visible(text.translate(spaces), "\n\t")
    lines = list[str]()
    for line in map(str.rstrip, text.split("\n")):
        if "  " in line:
            words = line.lstrip(" \t")
            line = line[: len(line) - len(words)] + re.sub(" {2,}", " ", words)  # noqa: PLW2901 - each pass goes on with it
        lines.append(line)
    return _cut(re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines)).strip(), limit)


def bare(text: str) -> str:
    """Remove escape sequences and invisible characters, but no white space."""
    if is_plain(text):
        return text
    return _visible(_ESCAPES.sub("", text), "\n\t\r\v\f\x1c\x1d\x1e\x1f\x85")


def bare_lines(text: str) -> str:
    """Return the `bare` text with a line feed for every kind of line end."""
    return "\n".join(bare(text).splitlines())


def escape_path(path: str) -> str:
    """Escape control, invisible and undecodable characters of a file name, for people and logs."""
    if path.isprintable():
        return path
    shown = dict[int, str]()
    for char in set(path):
        if "\udc80" <= char <= "\udcff":  # the way `surrogateescape` keeps an undecodable byte
            shown[ord(char)] = f"\\x{ord(char) & 0xFF:02x}"
        elif unicodedata.category(char) in _FORBIDDEN and char not in _JOINERS:
            shown[ord(char)] = char.encode("unicode_escape").decode()
    return _JOINER_RUN.sub(_joiner_shown, path.translate(shown))


def is_plain(text: str) -> bool:
    """Return whether a text has only visible characters, spaces, tabs and line feeds."""
    return text.replace("\n", "").replace("\t", "").isprintable()


def _visible(text: str, kept: str) -> str:
    """Remove the forbidden categories, except `kept` and joiners that join something."""
    if text.isprintable():
        return text
    chars = set(text).difference(kept, _JOINERS)
    gone = {ord(char): None for char in chars if unicodedata.category(char) in _FORBIDDEN}
    return _JOINER_RUN.sub(_joiner, text.translate(gone))


def _joiner(run: re.Match[str]) -> str:
    start, end = run.span()
    beside = run.string[start - 1 : start], run.string[end : end + 1]
    fits = all(char > "\x7f" and unicodedata.category(char)[0] in "LMS" for char in beside)
    return run[0] if len(run[0]) == 1 and fits else ""


def _joiner_shown(run: re.Match[str]) -> str:
    return _joiner(run) or run[0].encode("unicode_escape").decode()


def _cut(text: str, limit: int) -> str:
    """Cut a text, but not inside an emoji of several characters."""
    if len(text) <= limit:
        return text
    ends = range(max(limit, 0), max(limit - _EMOJI_MAX, 0), -1)
    end = next((end for end in ends if not _is_joined(text[end - 1], text[end])), max(limit, 0))
    return text[:end].rstrip().rstrip(_JOINERS)


def _is_joined(before: str, after: str) -> bool:
    """Return whether two neighbours are parts of one drawn character."""
    if after <= "\x7f":
        return False
    return before in _JOINERS or after in _JOINERS or unicodedata.category(after) in _MODIFIERS


# Where a model reads, each line of foreign text follows a label of ours or `> `, and nothing in it
# is a reference, a tag or a chat template's mark. So nothing in it can pose as a role, as our own
# words, or as the end of a block.
_TAG = str.maketrans({"<": "&lt;", "\uff1c": "&lt;"})
_TEMPLATE = lazy_pattern(r"\[(?=\s{0,4}/?\s{0,4}(?:[A-Z][A-Z_]{2,30}\s{0,4}\]|INST|SYS))")
_AT = lazy_pattern("@(?=@)")
# Characters that are drawn as nothing, although Unicode does not call them format characters.
_UNSEEN = lazy_pattern(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef"
    "\ufdd0-\ufdef\ufffe\uffff]"
)


def harmless(text: str) -> str:
    """Defuse references, tags and chat templates' marks in cleaned text."""
    return _TEMPLATE.sub("[ ", _AT.sub("@ ", _UNSEEN.sub("", text).translate(_TAG)))


def inline(text: str, limit: int) -> str:
    """Make a harmless line to put behind a label of ours."""
    return harmless(clean_line(text, limit))


def quoted(text: str, limit: int) -> str:
    """Make a harmless text, each line quoted."""
    return "\n".join(f"> {line}".rstrip() for line in harmless(clean_text(text, limit)).split("\n"))
