"""Judging a model's answer: text in, `Metadata` out, or the reason why not.

Accepted: bare JSON, JSON in a code fence, JSON with prose around it; always one object, from the
first `{` to the last `}`. The library's own view of the answer is not used: it hides why an
answer does not fit. What is accepted is then cleaned (escape sequences, control and bidi
characters), and only then redacted once more, since an invisible character inside a secret
would hide it; and it must still fit.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from pydantic import ValidationError

from indexerd.meta.model import Metadata
from indexerd.models.attempts import Rejected
from indexerd.privacy.sanitize import clean_line, clean_text, scrub
from indexerd.protocol.limits import DESCRIPTION_MAX, NAME_MAX, SUMMARY_MAX, TAG_MAX

REPLY_MAX = 1_000_000  # characters of an answer that are looked at

# What a small model writes when it fills in the schema instead of reading the text; full stops
# around it do not count.
_PLACEHOLDERS = frozenset(
    {"", "name", "title", "description", "summary", "string", "text", "…", "n/a", "todo", "tag"}
)


def validate(reply: str, *, cut: bool, redact: Callable[[str], str]) -> Metadata | Rejected:
    """Judge a reply. `cut` says that the output limit ended it: never salvaged (M10)."""
    try:
        return _clean(Metadata.model_validate(_scrubbed(json_of(reply, cut=cut))), redact)
    except RecursionError:
        return Rejected("The JSON is nested too deeply")
    except ValidationError as bad:
        return Rejected(faults(bad))
    except ValueError as bad:
        return Rejected(str(bad))


def json_of(reply: str, *, cut: bool) -> object:
    """The JSON value of a reply; ValueError, in words for the model, where there is none."""
    if not reply.strip():
        raise ValueError("Empty model output" + (" (cut by the output limit)" if cut else ""))
    if cut:
        raise ValueError("The reply was cut by the output limit: answer more briefly")
    if len(reply) > REPLY_MAX:
        raise ValueError(f"The reply is longer than {REPLY_MAX} characters")
    try:
        return json.loads(_object_text(reply), parse_constant=_no_constant)
    except ValueError as bad:
        raise ValueError(f"Not a JSON object: {bad}") from None


def _object_text(reply: str) -> str:
    first, last = reply.find("{"), reply.rfind("}")
    return reply[first : last + 1] if 0 <= first < last else reply.strip()


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is not JSON")


def _scrubbed(held: object) -> object:
    if not isinstance(held, dict):
        raise ValueError("The answer must be a JSON object")
    return {
        key: scrub(one)
        if isinstance(one, str)
        else [scrub(item) if isinstance(item, str) else item for item in one]
        if isinstance(one, list)
        else one
        for key, one in held.items()
    }


def _clean(said: Metadata, redact: Callable[[str], str]) -> Metadata:
    """The same, safe to store and to print; raises ValueError for what is then no answer."""

    def safe(text: str, clean: Callable[[str, int], str], limit: int) -> str:
        return clean(redact(clean_text(text, len(text))), limit)

    found = Metadata(
        name=safe(said.name, clean_line, NAME_MAX),
        description=safe(said.description, clean_text, DESCRIPTION_MAX),
        summary=safe(said.summary, clean_text, SUMMARY_MAX),
        tags=[safe(tag, clean_line, TAG_MAX) for tag in said.tags],
    )
    for field in ("name", "description", "summary"):
        if getattr(found, field).strip(" .").casefold() in _PLACEHOLDERS:
            raise ValueError(f"{field}: a placeholder is not an answer")
    if all(tag.strip(" .").casefold() in _PLACEHOLDERS for tag in found.tags):
        raise ValueError("tags: placeholders are not an answer")
    return found


def faults(bad: ValidationError) -> str:
    """What is wrong with an answer, in words for the model, none of them its own."""
    return "; ".join(_words(error) for error in bad.errors()[:8])


def _words(error: object) -> str:
    held = error if isinstance(error, dict) else {}
    where = ".".join(str(part) for part in held.get("loc", ())) or "answer"
    return f"{where}: {held.get('msg', 'invalid')}"
