"""Text of others, quoted for a place where a model reads it (X10).

Each line of it stands either behind a label of ours or behind `> `, and nothing in it is a
reference, a tag or a chat template's mark any more. So nothing in it can pose as a role, as our
own words, or as the end of a block.
"""

from __future__ import annotations

from indexerd.privacy.late import late
from indexerd.privacy.sanitize import clean_line, clean_text

# Signs that a tag begins with, and look-alikes; what looks like a chat template's own mark.
_TAG = str.maketrans({"<": "&lt;", "\uff1c": "&lt;"})
_TEMPLATE = late(r"\[(?=\s{0,4}/?\s{0,4}(?:[A-Z][A-Z_]{2,30}\s{0,4}\]|INST|SYS))")
_AT = late("@(?=@)")
# Characters that are drawn as nothing, and are no format characters to Unicode.
_UNSEEN = late(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef"
    "\ufdd0-\ufdef\ufffe\uffff]"
)


def harmless(text: str) -> str:
    """Cleaned text in which nothing is a reference, a tag or a chat template's mark."""
    return _TEMPLATE.sub("[ ", _AT.sub("@ ", _UNSEEN.sub("", text).translate(_TAG)))


def inline(text: str, limit: int) -> str:
    """One line of text, to stand behind a label of ours."""
    return harmless(clean_line(text, limit))


def quoted(text: str, limit: int) -> str:
    """Text with each of its lines quoted."""
    return "\n".join(f"> {line}".rstrip() for line in harmless(clean_text(text, limit)).split("\n"))
