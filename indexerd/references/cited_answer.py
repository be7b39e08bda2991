"""An answer with citations, judged: a model's reply in, what may be shown out (S0.63).

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
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from indexerd.indexing.check import faults, json_of
from indexerd.models.attempts import Rejected
from indexerd.models.extractive.passages import nearest
from indexerd.privacy.sanitize import clean_line, clean_text, scrub
from indexerd.references.question_context import CUT, Context, Said

ANSWER_MAX = 8000  # characters
EXCERPT_MAX = 280
CITATIONS_MAX = 8
_LOOKED_AT = 32  # citations; the rest of a longer list is not even read
_READ = 4 * EXCERPT_MAX  # characters of an excerpt, and of what is put in its place
_ELLIPSIS = re.compile(r"\[?(?:…|\.{3,})\]?")
_QUOTES = " \t\n\"'`“”„«»>"


def _scrubbed(value: Any) -> Any:
    return scrub(value) if isinstance(value, str) else value


def _lowered(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


def _short(value: Any) -> Any:
    return value[:_LOOKED_AT] if isinstance(value, list) else value


def _wanted(schema: dict[str, Any]) -> None:
    """Tell no model that a field may be left out."""
    schema.pop("default", None)


def _a_role(schema: dict[str, Any]) -> None:
    _wanted(schema)
    schema |= {"type": "string", "enum": ["user", "assistant", "summary"]}


Text = Annotated[str, BeforeValidator(_scrubbed)]


class _Said(BaseModel):
    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        json_schema_serialization_defaults_required=True,
    )


class Citation(_Said):
    """One place in the session that the answer rests on."""

    entry_id: Text
    # Asked for, as it makes a model look; but taken from the entry.
    role: Annotated[Any, Field(json_schema_extra=_a_role)] = ""
    excerpt: Annotated[Text, Field(json_schema_extra=_wanted)] = ""


class Answer(_Said):
    """An answer to the question, from the session alone."""

    answer_markdown: Annotated[Text, Field(min_length=1)]
    confidence: Annotated[Literal["high", "medium", "low"], BeforeValidator(_lowered)]
    citations: Annotated[list[Citation], BeforeValidator(_short)]


# What a model gets: every field is wanted, though the role may be missing in a reply.
SCHEMA: dict[str, Any] = Answer.model_json_schema(mode="serialization")


@dataclass(frozen=True, slots=True)
class Cited:
    """An answer that may be shown. `citations`: {entryId, role, excerpt}."""

    markdown: str
    confidence: str
    citations: tuple[dict[str, str], ...] = ()
    notes: tuple[str, ...] = ()


def judge_answer(
    reply: str, *, cut: bool, redact: Callable[[str], str], sections: Sequence[Said]
) -> Cited | Rejected:
    """Judge a reply to a question about `sections`; `cut`: the output limit ended it."""
    try:
        held = json_of(reply, cut=cut)
        if not isinstance(held, dict):
            return Rejected("The answer must be a JSON object")
        said = Answer.model_validate(held, by_alias=True, by_name=False)
    except RecursionError:
        return Rejected("The JSON is nested too deeply")
    except ValidationError as bad:
        return Rejected(faults(bad))
    except ValueError as bad:
        return Rejected(str(bad))
    whole = _safe(said.answer_markdown, redact)
    markdown = clean_text(whole, ANSWER_MAX)
    if not markdown.strip(" ."):
        return Rejected("answerMarkdown: it is empty")
    kept, notes = _Citations(sections, redact).judged(said.citations)
    if len(markdown) < len(whole):
        notes.append(f"The answer was cut to {ANSWER_MAX} characters.")
    return Cited(markdown, said.confidence, tuple(kept), tuple(notes))


def partly(cited: Cited, context: Context) -> Cited:
    """An answer of the built-in model, which says itself where it has not looked at everything."""
    if not context.notes:
        return cited
    first, gap, rest = cited.markdown.partition("\n\n")
    return replace(cited, markdown=f"{first} {context.notes[0]}{gap}{rest}")


def _safe(text: str, redact: Callable[[str], str]) -> str:
    return redact(clean_text(text, len(text)))


class _Citations:
    """Holds citations against the sections that were sent."""

    def __init__(self, sections: Sequence[Said], redact: Callable[[str], str]) -> None:
        self._sections = {one.shown: one for one in sections}
        self._sections |= {one.entry_id: one for one in sections}
        self._redact = redact
        self._bare: dict[str, str] = {}

    def judged(self, given: Sequence[Citation]) -> tuple[list[dict[str, str]], list[str]]:
        """Those that hold, and what is to be said of the others."""
        kept: list[dict[str, str]] = []
        unknown = mended = false = 0
        for one in given:
            section = self._section(one.entry_id)
            if section is None:
                unknown += 1
                continue
            excerpt = self._excerpt(section, one.excerpt)
            own = excerpt or self._own_words(section, one.excerpt)
            mended, false = mended + (not excerpt and bool(own)), false + (not own)
            found = {"entryId": section.entry_id, "role": section.role, "excerpt": own}
            if own and found not in kept:
                kept.append(found)
        notes = [
            _note(unknown, "named an entry that is not in the text that was read: dropped"),
            _note(false, "quoted words that its entry does not have: dropped"),
            _note(mended, "did not quote its entry to the letter: it now has the entry's words"),
            _note(max(0, len(kept) - CITATIONS_MAX), f"came after the first {CITATIONS_MAX}"),
        ]
        return kept[:CITATIONS_MAX], [note for note in notes if note]

    def _section(self, entry_id: str) -> Said | None:
        found = self._sections.get(entry_id)
        return found or self._sections.get(entry_id.strip(" \t\n[]`"))

    def _excerpt(self, section: Said, given: str) -> str:
        """As much of an excerpt as stands in its entry; nothing where that is too little.

        What stands there word for word is taken as it is: its dots and quotation marks may be the
        entry's own. Only of another one is what a model may have added taken off.
        """
        text = _safe(given[:_READ], self._redact)
        if section.shown not in self._bare:
            self._bare[section.shown] = _bare(section.text)
        bare = self._bare[section.shown]
        if text.strip(_QUOTES + "….") and _bare(text) in bare:
            return clean_line(text, EXCERPT_MAX)
        parts = (clean_line(part, EXCERPT_MAX).strip(_QUOTES) for part in _ELLIPSIS.split(text))
        held = [part for part in parts if part and _bare(part) in bare]
        best = max(held, key=len, default="")
        return best if 3 * len(best) >= min(len(text.strip()), EXCERPT_MAX) else ""

    def _own_words(self, section: Said, given: str) -> str:
        """What comes nearest in the entry; its beginning where no words were given."""
        text = section.text.removeprefix(CUT)
        words = nearest(text, given[:_READ]) if given.strip() else text
        return clean_line(_safe(words[:_READ], self._redact), EXCERPT_MAX)


def _bare(text: str) -> str:
    return "".join(text.split())


def _note(count: int, what: str) -> str:
    return f"{count} citation{'s' if count > 1 else ''} {what}." if count else ""
