"""A long session as it is handed on: what was folded, as summaries, and the rest verbatim.

In: system messages, the chain of segments, the recent messages. Out: messages in the order of
S2.14, and the figures of a digest (S2.10, S2.16). A segment's text came from a model that read
text from any hand. It must not be able to end its own block and begin another: lines of it that
begin like a heading of ours are quoted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from indexerd.digests.segments import CONTENT_MAX, DECISION_MAX, Segment, covered
from indexerd.privacy.late import late
from indexerd.privacy.sanitize import clean_line, clean_text, escape_path

CONTEXT = "Previous conversation context:"
EARLIER = "--- Earlier in conversation ---"
FILES = "Files modified: "
DECISIONS = "Key decisions:"
FILES_SHOWN = 100  # of one segment

Said = tuple[str, str, str]  # role, text, entry id

# Marks of Markdown, white space, case and other dashes do not make a heading another one.
_DASH = "[-\u2010-\u2015\u2212]"
_HEADING = late(
    r"^(?=[ \t#*_`]*+(?:previous[ \t]+conversation[ \t]+context"
    rf"|(?:{_DASH}[ \t]*+)++[*_`]*+earlier[ \t]+in[ \t]+conversation"
    r"|\[[ \t]*+previous[ \t]+conversation[ \t]+summari[sz]ed"
    r"|files[ \t]+modified|key[ \t]+decisions[ \t]*+:))",
    re.IGNORECASE | re.MULTILINE,
)


class Assembled(NamedTuple):
    """One message; `entry_id` is None where it comes from no entry."""

    role: str
    text: str
    entry_id: str | None


def assembled(
    system: Sequence[Said], chain: Sequence[Segment], recent: Sequence[Said]
) -> list[Assembled]:
    """System messages, one message with all segments oldest first, recent messages (S2.14).

    Without segments there is no such message. `recent` begins where the chain ends.
    """
    folded = [Assembled("user", earlier(chain), None)] if chain else []
    return [
        *(Assembled(*one) for one in system),
        *folded,
        *(Assembled(*one) for one in recent),
    ]


def earlier(chain: Sequence[Segment]) -> str:
    """The segments as one text, oldest first, under their headings (S2.15)."""
    return "\n\n".join([CONTEXT, *(part for one in chain for part in _parts(one))])


def folded(messages: int) -> str:
    """The line that says how many messages a block stands for."""
    return f"[Previous conversation summarized - {messages} messages]"


def _parts(segment: Segment) -> Iterator[str]:
    yield EARLIER
    yield folded(segment.messages)
    yield _HEADING.sub("> ", clean_text(segment.content, CONTENT_MAX))
    if segment.files_modified:
        more = len(segment.files_modified) - FILES_SHOWN
        names = ", ".join(map(escape_path, segment.files_modified[:FILES_SHOWN]))
        yield FILES + names + (f" and {more} more" if more > 0 else "")
    if segment.key_decisions:
        yield "\n".join(
            [DECISIONS, *(f"- {clean_line(one, DECISION_MAX)}" for one in segment.key_decisions)]
        )


class Figures(NamedTuple):
    """What a digest brought. Messages are those of the assembled context."""

    before: int  # messages: the verbatim ones, and one for each segment
    after: int
    reduction: float  # percent of the messages, one decimal
    tokens_before: int  # of the assembled context
    tokens_after: int
    tokens_saved: int  # negative where the summary is longer than what it stands for
    compression: float | None  # tokens of the summary for one of what it covers; None: of nothing
    target: float  # the compression that is aimed at
    met: bool


def figures(
    total: int,
    chain: Sequence[Segment],
    segment: Segment | None,
    *,
    tokens_before: int,
    tokens_covered: int,
    target: float,
) -> Figures:
    """The figures of a digest; `segment` None: there was nothing to do.

    `total` messages are on the path, and `chain` had folded the first of them. `tokens_before`
    are those of the assembled context without the segment, `tokens_covered` those of the
    messages that it covers, counted in the same way as its own.
    """
    before = len(chain) + total - covered(chain)
    gone = segment.messages - 1 if segment else 0
    saved = tokens_covered - segment.token_count if segment else 0
    part = segment.token_count / tokens_covered if segment and tokens_covered > 0 else None
    return Figures(
        before=before,
        after=before - gone,
        reduction=round(100 * gone / before, 1) if before > 0 else 0.0,
        tokens_before=tokens_before,
        tokens_after=tokens_before - saved,
        tokens_saved=saved,
        compression=None if part is None else round(part, 4),
        target=target,
        met=part is not None and part <= target,
    )
