"""Check a model's answer: text in, `Metadata` or the reason for its rejection out.

The JSON object reaches from the first `{` to the last `}`, whatever is around it. Its texts are
cleaned before they are redacted, since an invisible character could hide a secret.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from indexerd.meta.model import Metadata
from indexerd.models.attempts import Rejected
from indexerd.privacy.sanitize import clean_line, clean_text, without_surrogates
from indexerd.protocol.limits import DESCRIPTION_MAX, NAME_MAX, SUMMARY_MAX, TAG_MAX

# Small models copy these from the schema instead of reading the text.
_PLACEHOLDERS = frozenset(
    {"", "name", "title", "description", "summary", "string", "text", "…", "n/a", "todo", "tag"}
)


def validate(reply: str, *, cut: bool, redact: Callable[[str], str]) -> Metadata | Rejected:
    """Check a reply; it is rejected if the output limit `cut` it."""

    def safe(text: str, clean: Callable[[str, int], str], limit: int) -> str:
        return clean(redact(clean_text(text, len(text))), limit)

    try:
        answer = Metadata.model_validate(json_of(reply, cut=cut))
        metadata = Metadata(
            name=safe(answer.name, clean_line, NAME_MAX),
            description=safe(answer.description, clean_text, DESCRIPTION_MAX),
            summary=safe(answer.summary, clean_text, SUMMARY_MAX),
            tags=[safe(tag, clean_line, TAG_MAX) for tag in answer.tags],
        )
    except ValueError as bad:  # pydantic's ValidationError is one
        return Rejected(reason_of(bad))
    for field, texts in metadata.model_dump().items():
        parts = [texts] if isinstance(texts, str) else texts
        if all(text.strip(" .").casefold() in _PLACEHOLDERS for text in parts):
            return Rejected(f"{field}: a placeholder is not an answer")
    return metadata


def json_of(reply: str, *, cut: bool) -> dict[str, Any]:
    """Return the JSON object of a reply; ValueError has a message for the model."""
    if not reply.strip():
        raise ValueError("Empty model output" + (" (cut by the output limit)" if cut else ""))
    if cut:
        raise ValueError("The reply was cut by the output limit: answer more briefly")
    first, last = reply.find("{"), reply.rfind("}")
    text = reply[first : last + 1] if 0 <= first < last else reply.strip()
    try:
        answer = without_surrogates(json.loads(text))
    except ValueError as bad:
        raise ValueError(f"Not a JSON object: {bad}") from None
    except RecursionError:
        raise ValueError("The JSON is nested too deeply") from None
    if not isinstance(answer, dict):
        raise ValueError("The answer must be a JSON object")
    return answer


def reason_of(bad: ValueError) -> str:
    """Tell the model what is wrong with its answer, without quoting it."""
    if not isinstance(bad, ValidationError):
        return str(bad)
    return "; ".join(
        f"{'.'.join(map(str, bug['loc'])) or 'answer'}: {bug['msg']}" for bug in bad.errors()[:8]
    )
