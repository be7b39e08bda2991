"""Check a model's answer and its citations against the text that was sent.

A citation of an entry that was not in that text is dropped. An excerpt that is not in its entry is
replaced by the entry's nearest words, or dropped if they have no word in common; so every quotation
was really said by the speaker named. All text is cleaned, then redacted, then cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from indexerd.indexing.check import json_of, reason_of
from indexerd.models.attempts import Rejected
from indexerd.models.extractive.passages import nearest
from indexerd.privacy.sanitize import clean_line, clean_text

ANSWER_MAX = 8000  # characters
EXCERPT_MAX = 280
CITATIONS_MAX = 8
CUT = "…"  # begins a section whose text was cut
_READ_MAX = 4 * EXCERPT_MAX  # characters of an excerpt


@dataclass(frozen=True, slots=True)
class Section:
    """An entry with text. `role`: user, assistant, or summary for the agent's own."""

    entry_id: str
    shown: str  # the id shown to the model: the entry's own, if that is plain
    role: str
    text: str

    @property
    def head(self) -> str:
        return f"[{self.shown}] {self.role.capitalize()}: "


class _Said(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", alias_generator=to_camel)


class _Citation(_Said):
    entry_id: str
    role: str = ""  # makes a model look; the entry's own counts
    excerpt: str


class _Answer(_Said):
    answer_markdown: Annotated[str, Field(min_length=1)]
    confidence: Literal["high", "medium", "low"]
    citations: list[_Citation]


SCHEMA: dict[str, Any] = _Answer.model_json_schema()


Answer = dict[str, Any]  # fields of the result of `query_session`


def validate_answer(
    reply: str, *, cut: bool, redact: Callable[[str], str], sections: Sequence[Section]
) -> Answer | Rejected:
    """Check a reply to a question about `sections`; `cut`: the output limit ended it."""
    try:
        said = _Answer.model_validate(json_of(reply, cut=cut))
    except ValueError as bad:
        return Rejected(reason_of(bad))
    whole = redact(clean_text(said.answer_markdown, len(said.answer_markdown)))
    if not whole.strip(" ."):
        return Rejected("answerMarkdown: it is empty")
    kept, notes = _checked(said.citations[: 4 * CITATIONS_MAX], sections, redact)
    if len(whole) > ANSWER_MAX:
        notes.append(f"The answer was cut to {ANSWER_MAX} characters.")
    shown = {"answerMarkdown": clean_text(whole, ANSWER_MAX), "confidence": said.confidence}
    return {**shown, "citations": kept, "notes": notes}


def _checked(
    given: Sequence[_Citation], sections: Sequence[Section], redact: Callable[[str], str]
) -> tuple[list[dict[str, str]], list[str]]:
    places = {one.shown: one for one in sections}
    kept: list[dict[str, str]] = []
    unknown = mended = false = 0
    for one in given:
        section = places.get(one.entry_id.strip(" \t\n[]`"))
        if section is None:
            unknown += 1
            continue
        excerpt = clean_line(redact(clean_text(one.excerpt[:_READ_MAX], _READ_MAX)), EXCERPT_MAX)
        if not excerpt or _bare(excerpt) not in _bare(section.text):
            words = nearest(section.text.removeprefix(CUT), one.excerpt[:_READ_MAX])
            excerpt = clean_line(words, EXCERPT_MAX)
            mended, false = mended + bool(excerpt), false + (not excerpt)
        found = {"entryId": section.entry_id, "role": section.role, "excerpt": excerpt}
        if excerpt and found not in kept:
            kept.append(found)
    notes = {
        "named an entry that is not in the text that was read: dropped": unknown,
        "quoted words that its entry does not have: dropped": false,
        "did not quote its entry to the letter: it now has the entry's words": mended,
    }
    said = [f"{n} citation{'s' if n > 1 else ''} {what}." for what, n in notes.items() if n]
    return kept[:CITATIONS_MAX], said


def _bare(text: str) -> str:
    return "".join(text.split())
