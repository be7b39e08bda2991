"""What the MCP tools answer, field by field: their output schemas are made of these.

Names are those of the socket (interfaces.md §5). Every field that holds a text of a session is
data that somebody else wrote; `provenance` says so in each answer.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

Provenance = Annotated[str, Field(description="Who wrote the texts of this answer.")]
Truncated = Annotated[
    list[str], Field(description="Fields that were cut to keep the answer small.")
]


class Hit(TypedDict):
    """A place in a past session that fits the query."""

    sessionId: str
    name: str
    agent: NotRequired[str]
    cwd: NotRequired[str]
    modifiedAt: NotRequired[str]
    description: NotRequired[str]
    field: Annotated[str, Field(description="Where it was found: name, summary, message, …")]
    snippet: str
    entryId: NotRequired[str]
    role: NotRequired[str]
    at: NotRequired[str]
    score: NotRequired[float]


class SearchAnswer(TypedDict):
    """Hits, best first."""

    provenance: Provenance
    scope: Annotated[
        Literal["project", "all"],
        Field(description="`all` also where nothing in the project fitted."),
    ]
    hits: list[Hit]
    warnings: list[str]
    truncated: NotRequired[Truncated]


class Brief(TypedDict):
    """One session in a list."""

    sessionId: str
    name: str
    agent: str
    description: str
    tags: list[str]
    cwd: str
    modifiedAt: str
    userMessageCount: int
    state: NotRequired[str]
    gone: NotRequired[bool]
    subagent: NotRequired[bool]


class ListAnswer(TypedDict):
    """Sessions, newest first."""

    provenance: Provenance
    sessions: list[Brief]
    nextCursor: NotRequired[Annotated[str, Field(description="Pass it as `cursor` to go on.")]]
    truncated: NotRequired[Truncated]


class SessionAnswer(TypedDict):
    """All that is known of one session."""

    provenance: Provenance
    sessionId: str
    name: str
    agent: str
    description: str
    summary: Annotated[str, Field(description="Quoted Markdown; empty if not summarised yet.")]
    tags: list[str]
    keyDecisions: list[str]
    cwd: str
    gitBranch: NotRequired[str]
    createdAt: str
    modifiedAt: str
    state: NotRequired[str]
    messageCount: int
    userMessageCount: int
    firstUserMessage: str
    models: list[str]
    filesModified: list[str]
    filesRead: list[str]
    toolsUsed: dict[str, int]
    parentSessionId: NotRequired[str]
    gone: bool
    context: dict[str, list[str]]
    labels: dict[str, str]
    resume: Annotated[str | None, Field(description="Shell command that opens it again.")]
    warnings: list[str]
    truncated: NotRequired[Truncated]


class Citation(TypedDict):
    """Where an answer comes from."""

    entryId: str
    role: str
    excerpt: str


class QueryAnswer(TypedDict):
    """An answer from one session."""

    provenance: Provenance
    sessionId: str
    name: str
    answerMarkdown: Annotated[str, Field(description="Quoted Markdown.")]
    confidence: Annotated[str, Field(description="high, medium or low.")]
    citations: list[Citation]
    notes: list[str]
    usage: dict[str, Any]
    truncated: NotRequired[Truncated]


class ResolveAnswer(TypedDict):
    """The session that a reference means."""

    sessionId: str
    name: str
    how: str
    score: NotRequired[float]


class Candidate(TypedDict):
    """A session that a reference may mean."""

    sessionId: str
    name: str


class Reference(TypedDict):
    """One `@@` reference of a text."""

    raw: str
    status: Annotated[
        str, Field(description="resolved, not_found, ambiguous, invalid_meta or over_limit")
    ]
    sessionId: NotRequired[str]
    name: NotRequired[str]
    candidates: NotRequired[list[Candidate]]
    notes: NotRequired[list[str]]


class ExpandAnswer(TypedDict):
    """What the references of a text stand for."""

    provenance: Provenance
    references: list[Reference]
    messages: Annotated[list[str], Field(description="Quoted summaries and answers.")]
    statusText: list[str]
    truncated: NotRequired[Truncated]


class Node(TypedDict):
    """One entry of a session's tree."""

    id: str
    parentId: str | None
    depth: int
    role: NotRequired[str]
    type: str
    label: NotRequired[str]
    timestamp: str
    active: bool
    text: str


class TreeAnswer(TypedDict):
    """A part of a session's tree, depth first."""

    provenance: Provenance
    sessionId: str
    name: str
    leafId: str | None
    total: Annotated[int, Field(description="Entries that fit the filter.")]
    offset: int
    nodes: list[Node]
    warnings: list[str]
    truncated: NotRequired[Truncated]


class SetContextAnswer(TypedDict):
    """What became of a context set."""

    sessionId: str
    name: NotRequired[str]
    text: str
    contextChanged: bool
    setName: str
    warnings: list[str]


class GetContextAnswer(TypedDict):
    """A session's context sets."""

    provenance: Provenance
    sessionId: str
    name: NotRequired[str]
    text: str
    context: dict[str, list[str]]
    truncated: NotRequired[Truncated]


class ResumeAnswer(TypedDict):
    """How to go on with a session."""

    sessionId: str
    name: str
    agent: str
    cwd: str
    command: str | None
    note: str
