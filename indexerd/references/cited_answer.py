"""An answer with citations, checked: a model's reply in, what may be shown out.

The answer's shape is enforced, and what it cites is held against the text that was sent. A
citation of an entry that was not in that text is dropped. An excerpt that stands in its entry,
white space aside, is taken as it is; of another one ellipses and quotation marks are taken off,
and where that does not help, it gets the entry's own words that come nearest to it, or is dropped
where the two have no word in common; so what is quoted was said, by whom it says. Each of these
is noted. All text is cleaned, then redacted, then cut, as every reply is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from indexerd.indexing.check import json_of, reason_of
from indexerd.models.attempts import Rejected
from indexerd.models.extractive.passages import nearest
from indexerd.privacy.sanitize import clean_line, clean_text

ANSWER_MAX = 8000  # characters
EXCERPT_MAX = 280
CITATIONS_MAX = 8
CUT = "…"  # where a section's text was cut
_LOOKED_AT = 32  # citations; the rest of a longer list is not even read
_READ = 4 * EXCERPT_MAX  # characters of an excerpt, and of what is put in its place
_ELLIPSIS = re.compile(r"\[?(?:…|\.{3,})\]?")
_QUOTES = " \t\n\"'`“”„«»>"
_TEXT = {"type": "string"}

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "answerMarkdown": {"type": "string", "minLength": 1},
        "confidence": {"type": "string", "enum": ["high", "medium", "low"]},
        "citations": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {  # the role makes a model look; it is taken from the entry
                    "entryId": _TEXT,
                    "role": {"type": "string", "enum": ["user", "assistant", "summary"]},
                    "excerpt": _TEXT,
                },
                "required": ["entryId", "role", "excerpt"],
            },
        },
    },
    "required": ["answerMarkdown", "confidence", "citations"],
}


@dataclass(frozen=True, slots=True)
class Section:
    """One entry that says something. `role`: user, assistant, or summary for an agent's own."""

    entry_id: str
    shown: str  # the id that the model gets to see: the entry's own, where that is plain
    role: str
    text: str
    age: int = 0  # entries after it; of a summary, how far back it covers

    @property
    def head(self) -> str:
        """What it begins with."""
        return f"[{self.shown}] {self.role.capitalize()}: "


class _Said(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", alias_generator=to_camel)


class _Citation(_Said):
    entry_id: str
    excerpt: str = ""


def _lowered(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


def _first(value: Any) -> Any:
    return value[:_LOOKED_AT] if isinstance(value, list) else value


class _Answer(_Said):
    answer_markdown: Annotated[str, Field(min_length=1)]
    confidence: Annotated[Literal["high", "medium", "low"], BeforeValidator(_lowered)]
    citations: Annotated[list[_Citation], BeforeValidator(_first)]


@dataclass(frozen=True, slots=True)
class Cited:
    """An answer that may be shown. `citations`: {entryId, role, excerpt}."""

    markdown: str
    confidence: str
    citations: list[dict[str, str]]
    notes: list[str]


def validate_answer(
    reply: str, *, cut: bool, redact: Callable[[str], str], sections: Sequence[Section]
) -> Cited | Rejected:
    """Check a reply to a question about `sections`; `cut`: the output limit ended it."""
    try:
        said = _Answer.model_validate(json_of(reply, cut=cut))
    except ValueError as bad:
        return Rejected(reason_of(bad))
    whole = redact(clean_text(said.answer_markdown, len(said.answer_markdown)))
    markdown = clean_text(whole, ANSWER_MAX)
    if not markdown.strip(" ."):
        return Rejected("answerMarkdown: it is empty")
    kept, notes = _checked(said.citations, sections, redact)
    if len(markdown) < len(whole):
        notes.append(f"The answer was cut to {ANSWER_MAX} characters.")
    return Cited(markdown, said.confidence, kept, notes)


def _checked(
    given: Sequence[_Citation], sections: Sequence[Section], redact: Callable[[str], str]
) -> tuple[list[dict[str, str]], list[str]]:
    """Those citations that hold, and what is to be said of the others."""
    places = {one.shown: one for one in sections} | {one.entry_id: one for one in sections}
    kept: list[dict[str, str]] = []
    unknown = mended = false = 0
    for one in given:
        section = places.get(one.entry_id) or places.get(one.entry_id.strip(" \t\n[]`"))
        if section is None:
            unknown += 1
            continue
        text = redact(clean_text(one.excerpt[:_READ], _READ))
        excerpt = _quoted(section.text, text)
        if not excerpt:
            own = section.text.removeprefix(CUT)
            words = nearest(own, one.excerpt[:_READ]) if one.excerpt.strip() else own
            excerpt = clean_line(redact(clean_text(words[:_READ], _READ)), EXCERPT_MAX)
            mended, false = mended + bool(excerpt), false + (not excerpt)
        found = {"entryId": section.entry_id, "role": section.role, "excerpt": excerpt}
        if excerpt and found not in kept:
            kept.append(found)
    notes = [
        _note(unknown, "named an entry that is not in the text that was read: dropped"),
        _note(false, "quoted words that its entry does not have: dropped"),
        _note(mended, "did not quote its entry to the letter: it now has the entry's words"),
        _note(max(0, len(kept) - CITATIONS_MAX), f"came after the first {CITATIONS_MAX}"),
    ]
    return kept[:CITATIONS_MAX], [note for note in notes if note]


def _quoted(entry: str, text: str) -> str:
    """As much of an excerpt as stands in its entry; nothing where that is too little.

    What stands there word for word is taken as it is: its dots and quotation marks may be the
    entry's own. Only of another one is what a model may have added taken off.
    """
    bare = _bare(entry)
    if text.strip(_QUOTES + "….") and _bare(text) in bare:
        return clean_line(text, EXCERPT_MAX)
    parts = (clean_line(part, EXCERPT_MAX).strip(_QUOTES) for part in _ELLIPSIS.split(text))
    best = max((part for part in parts if part and _bare(part) in bare), key=len, default="")
    return best if 3 * len(best) >= min(len(text.strip()), EXCERPT_MAX) else ""


def _bare(text: str) -> str:
    return "".join(text.split())


def _note(count: int, what: str) -> str:
    return f"{count} citation{'s' if count > 1 else ''} {what}." if count else ""
