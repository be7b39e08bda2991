"""What the MCP tools that sum up answer, field by field; as `mcp_shapes`, whose names these use.

What the socket nests is flat here, where it may have to be cut: an answer loses the ends of its
largest fields, and half an object would be none.
"""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from indexerd.mcp.shapes import Paths, Provenance, Truncated

Covering = Annotated[
    list[int],
    Field(description="First and last message, both included, counted from 0 on the path."),
]
Quoted = Annotated[str, Field(description="Quoted Markdown.")]
Usage = Annotated[dict[str, Any], Field(description="What the model was given, and its cost.")]


class SegmentShown(TypedDict):
    """A stretch of the session that was summed up."""

    covering: Covering
    content: Quoted
    keyDecisions: list[str]
    filesModified: Paths
    generatedAt: str
    model: str


class MessageShown(TypedDict):
    """A message that is in no segment."""

    n: Annotated[int, Field(description="Its place on the path, from 0.")]
    role: str
    text: Annotated[str, Field(description="One line; with `full`, quoted Markdown.")]
    entryId: str
    at: str
    tools: NotRequired[Annotated[list[str], Field(description="What it called, without a word.")]]


class HistoryAnswer(TypedDict):
    """A long session as a page, oldest first."""

    provenance: Provenance
    sessionId: str
    name: str
    leafId: str | None
    fullMessageCount: int
    foldedMessages: Annotated[int, Field(description="So many are in segments.")]
    segments: list[SegmentShown]
    recent: list[MessageShown]
    nextBefore: NotRequired[
        Annotated[int, Field(description="Pass it as `before` for what came earlier.")]
    ]
    truncated: NotRequired[Truncated]


class StatsAnswer(TypedDict):
    """How full a session's context is, and what the session came to."""

    provenance: Provenance
    sessionId: str
    name: str
    contextTokens: int
    estimated: Annotated[bool, Field(description="Whether some of them are estimates.")]
    reserve: int
    level: Annotated[
        str | None, Field(description="ok, warning or fold; null where no window is known.")
    ]
    window: NotRequired[int]
    windowSource: NotRequired[Annotated[str, Field(description="settings, agent or list.")]]
    usable: NotRequired[int]
    percent: NotRequired[Annotated[float, Field(description="Of the usable tokens.")]]
    shouldCompact: Annotated[
        dict[str, bool], Field(description="Which agents would compact it by themselves now.")
    ]
    totals: Annotated[
        dict[str, float | None],
        Field(
            description="Tokens and costUsd of every branch, files and tools of the current path."
        ),
    ]
    warnings: list[str]


class DigestAnswer(TypedDict):
    """What a digest brought."""

    provenance: Provenance
    sessionId: str
    name: str
    made: Annotated[bool, Field(description="False: nothing was written, and `reason` says why.")]
    reason: NotRequired[str]
    covering: NotRequired[Covering]
    content: NotRequired[Quoted]
    before: Annotated[int, Field(description="Messages of the context: each segment is one.")]
    after: int
    reduction: Annotated[float, Field(description="Percent of the messages.")]
    tokensSaved: int
    tokensBefore: NotRequired[int]
    tokensAfter: NotRequired[int]
    compression: NotRequired[float | None]
    targetCompression: NotRequired[float]
    targetMet: NotRequired[bool]
    topics: list[str]
    filesModified: Paths
    commands: list[str]
    keyDecisions: list[str]
    usage: Usage
    notes: list[str]
    truncated: NotRequired[Truncated]


class Replacing(TypedDict):
    """A message that Codex would keep."""

    role: str
    text: Quoted
    entryId: str | None


class CompactAnswer(TypedDict):
    """A session summed up."""

    provenance: Provenance
    sessionId: str
    name: str
    strategy: str
    tokensBefore: int
    firstKeptEntryId: Annotated[str | None, Field(description="From there on all would stay.")]
    messagesSummarized: int
    isSplitTurn: bool
    alreadyCompacted: Annotated[
        bool, Field(description="The session ends with a compaction: this is that one.")
    ]
    summary: NotRequired[Quoted]
    filesModified: NotRequired[Paths]
    filesRead: NotRequired[Paths]
    replacementHistory: NotRequired[
        Annotated[list[Replacing], Field(description="Codex: what stays, before the summary.")]
    ]
    handoff: NotRequired[Annotated[str, Field(description="Markdown to begin a new session with.")]]
    usage: Usage
    notes: list[str]
    truncated: NotRequired[Truncated]


class BranchAnswer(TypedDict):
    """A branch summed up."""

    provenance: Provenance
    sessionId: str
    name: str
    leafId: str
    summary: Quoted
    filesModified: Paths
    filesRead: Paths
    usage: Usage
    notes: list[str]
    truncated: NotRequired[Truncated]
