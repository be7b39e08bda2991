"""What is told of a session in a prompt: from its row and meta file, or from an answer about it.

Everything here was written by others: each text is redacted whole, before it is cut to its length
and quoted, so that no half of a secret is left, and none of our own words is taken for one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from indexerd.meta.model import MetaFile
from indexerd.privacy.redactor import Redactor
from indexerd.privacy.sanitize import clean_line, clean_text
from indexerd.references import inject

FILES_SHOWN = 10
_LOOKED_AT = 65_536  # characters of one text; far more than is shown of any


def section_of(row: dict[str, Any], meta: MetaFile | None, redact: Redactor) -> str:
    """The section of a session; where there is no meta file, with what is known without one."""

    def line(text: str) -> str:
        return redact(clean_line(text[:_LOOKED_AT], _LOOKED_AT))[0]

    source = f"{row.get('agent', '')} session in {row.get('cwd', '')}"
    if meta is None:
        begun = row["firstUserMessage"] or "-"
        told = inject.Told(
            session_id=row["sessionId"],
            name=line(row["name"]),
            updated_at=row["modifiedAt"],
            description=f"Not summarised yet. It begins: {line(begun)}",
            summary=_facts(row),
            tags=[line(tag) for tag in row["tags"]],
            source=line(source),
        )
    else:
        told = inject.Told(
            session_id=row["sessionId"],
            name=line(row["name"]),
            updated_at=meta.updated_at,
            description=line(meta.description),
            summary=redact(clean_text(meta.summary[:_LOOKED_AT], _LOOKED_AT))[0],
            tags=[line(tag) for tag in meta.tags[: inject.TAGS_MAX]],
            source=line(f"{source}, summarised by {meta.model}"),
        )
    return inject.section(told)


def _facts(row: dict[str, Any]) -> str:
    """What is known of a session that nobody summarised."""
    files = [str(one) for one in row.get("filesModified") or ()]
    more = f", and {len(files) - FILES_SHOWN} more" if len(files) > FILES_SHOWN else ""
    count = row.get("userMessageCount", 0)
    lines = ["- 1 message of its user" if count == 1 else f"- {count} messages of its user"]
    if files:
        lines.append(f"- files modified: {', '.join(files[:FILES_SHOWN])}{more}")
    return "\n".join(lines)


def answer_of(
    row: dict[str, Any], question: str, answer: dict[str, Any], redact: Redactor
) -> Callable[[int], inject.Block]:
    """What makes the message of an answer, given room for it; the answer is redacted already."""
    name = redact(clean_line(row["name"][:_LOOKED_AT], _LOOKED_AT))[0]
    lines = [answer["answerMarkdown"], "", f"Confidence: {answer['confidence']}"]
    lines += [f"[{one['entryId']}] {one['role']}: {one['excerpt']}" for one in answer["citations"]]
    lines += [f"Note: {one}" for one in answer["notes"]]
    return lambda room: inject.answer(name, row["sessionId"], question, "\n".join(lines), room)
