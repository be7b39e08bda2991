"""What the MCP tools answer, field by field: their output schemas are made of these.

Names are those of the socket (interfaces.md §5). Every field that holds a text of a session is
data that somebody else wrote; `provenance` says so in each answer.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

Provenance = Annotated[str, Field(description="Who wrote the texts of this answer.")]
Scope = Annotated[
    Literal["project", "realpath", "all"],
    Field(
        description="`realpath`: the project that `cwd` is a link to, as nothing is known of `cwd`"
        " itself. `all`: every project, for a search also where nothing in the project fitted."
    ),
]
Path = Annotated[
    str, Field(description="As it is stored; what cannot be seen in it is shown as \\x1b.")
]
Paths = Annotated[
    list[str], Field(description="As they are stored; what cannot be seen is shown as \\x1b.")
]
Sets = Annotated[
    dict[str, list[str]],
    Field(description="Items by set, as they are stored; what cannot be seen is shown as \\x1b."),
]
Truncated = Annotated[
    list[str], Field(description="Fields that were cut to keep the answer small.")
]


class Hit(TypedDict):
    """A place in a past session that fits the query."""

    sessionId: str
    name: str
    agent: NotRequired[str]
    cwd: NotRequired[Path]
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
    scope: Scope
    hits: list[Hit]
    warnings: list[str]
    truncated: NotRequired[Truncated]


class Candidate(TypedDict):
    """A session that is referred to."""

    sessionId: str
    name: str


class Brief(TypedDict):
    """One session in a list."""

    sessionId: str
    name: str
    agent: str
    description: str
    tags: list[str]
    cwd: Path
    modifiedAt: str
    userMessageCount: int
    state: NotRequired[str]
    parentSessionId: NotRequired[str]
    gone: NotRequired[bool]
    subagent: NotRequired[bool]


class ListAnswer(TypedDict):
    """Sessions, newest first."""

    provenance: Provenance
    scope: Scope
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
    cwd: Path
    gitBranch: NotRequired[str]
    createdAt: str
    modifiedAt: str
    state: NotRequired[str]
    messageCount: int
    userMessageCount: int
    firstUserMessage: str
    models: list[str]
    filesModified: Paths
    filesRead: Paths
    toolsUsed: dict[str, int]
    parentSessionId: NotRequired[str]
    parentSessionFile: NotRequired[Path]
    forkedFrom: NotRequired[
        Annotated[
            list[Candidate],
            Field(description="Its parent first, then that one's; no name: not known here."),
        ]
    ]
    gone: bool
    context: Sets
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


class AskedQuestion(TypedDict):
    """A question that a text asked with a reference."""

    question: str
    status: Annotated[str, Field(description="answered, or failed: then `code` says why.")]
    code: NotRequired[str]
    message: NotRequired[str]


class Reference(TypedDict):
    """One `@@` reference of a text."""

    raw: str
    status: Annotated[
        str, Field(description="resolved, not_found, ambiguous, invalid_meta or over_limit")
    ]
    sessionId: NotRequired[str]
    name: NotRequired[str]
    how: NotRequired[Annotated[str, Field(description="How it was found: id, name, fuzzy, …")]]
    candidates: NotRequired[list[Candidate]]
    notes: NotRequired[list[str]]
    questions: NotRequired[list[AskedQuestion]]


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
    nextOffset: NotRequired[
        Annotated[int, Field(description="Pass it as `offset` to go on; absent at the end.")]
    ]
    nodes: list[Node]
    warnings: list[str]
    truncated: NotRequired[Truncated]


class Tip(TypedDict):
    """Where a branch ends."""

    leafId: str
    branchPointId: Annotated[str | None, Field(description="The entry where it parts.")]
    entries: int
    userMessages: int
    lastActivity: str
    active: Annotated[bool, Field(description="Whether the session is on it.")]
    label: NotRequired[str]
    gist: NotRequired[str]
    reason: NotRequired[str]


class BranchesAnswer(TypedDict):
    """Branches: the current one, then those that were active last."""

    provenance: Provenance
    sessionId: str
    name: str
    leafId: str | None
    total: int
    branches: list[Tip]
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
    context: Sets
    leftOut: NotRequired[
        Annotated[
            dict[str, int],
            Field(description="Items that did not fit, by set: ask for one set by `setName`."),
        ]
    ]
    truncated: NotRequired[Truncated]


class ResumeAnswer(TypedDict):
    """How to go on with a session."""

    sessionId: str
    name: str
    agent: str
    cwd: Path
    command: str | None
    note: str
