"""What each method of the socket answers.

Plain dictionaries at run time: an answer is JSON wherever it was made, behind a socket or in
this process. Fields may be added; readers ignore what they do not know. docs/PROTOCOL.md says
what the fields mean.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, NotRequired, TypeAlias, TypedDict

Sets: TypeAlias = dict[str, list[str]]  # relevant context, by the names of its sets
State = Literal["active", "idle", "compacted", "archived"]
NameSource = Literal["user", "meta", "agent", "first-message", "file"]
Relation = Literal["root", "fork", "resumed", "subagent"]


class Tokens(TypedDict):
    """Tokens that the agent recorded; `input` without what a cache gave."""

    input: int
    output: int
    cacheRead: int
    cacheWrite: int


class Row(TypedDict):
    """One session, as lists, lookups and searches show it."""

    sessionId: str
    agent: str
    sessionFile: str
    cwd: str
    name: str
    nameSource: NameSource
    description: str
    tags: list[str]
    createdAt: str
    modifiedAt: str
    messageCount: int
    userMessageCount: int
    newUserMessages: int
    firstUserMessage: str
    archived: bool
    gone: bool
    indexed: bool
    state: State
    filesRead: list[str]
    filesModified: list[str]
    toolsUsed: dict[str, int]
    resume: str
    toolUses: NotRequired[dict[str, list[str]]]
    models: NotRequired[list[str]]
    version: NotRequired[int]
    subagent: NotRequired[bool]
    compactions: NotRequired[int]
    leafId: NotRequired[str | None]
    agentTitle: NotRequired[str]
    gitBranch: NotRequired[str]
    parentSessionId: NotRequired[str]
    parentSessionFile: NotRequired[str]
    tokens: NotRequired[Tokens]
    costUsd: NotRequired[float | None]
    durationMs: NotRequired[int]
    model: NotRequired[str]  # that wrote the meta file
    updatedAt: NotRequired[str]  # when it did
    metaName: NotRequired[str]  # the meta file's name, where the user gave another
    warnings: NotRequired[list[str]]  # in the answer of `update`


class StoredRow(NamedTuple):
    """A row, and the texts besides it that a session is found by."""

    row: dict[str, Any]
    summary: str
    aliases: tuple[str, ...]


class Hello(TypedDict):
    """Result of `hello`."""

    version: str
    protocol: int
    capabilities: list[str]
    pid: int
    startedAt: str
    settings: dict[str, Any]


class Problem(TypedDict):
    """A problem in `status`."""

    code: str
    cause: str
    since: str
    cure: str


class Status(TypedDict):
    """Result of `status`."""

    state: Literal["ok", "degraded", "indexing-off"]
    sessions: int
    queued: int
    indexing: list[str]
    lastScanAt: str | None
    budget: dict[str, Any]
    watches: dict[str, Any]
    problems: list[Problem]


class Page(TypedDict):
    """Result of `list`."""

    sessions: list[Row]
    nextCursor: NotRequired[str]


class Stored(TypedDict):
    """Result of `get`."""

    session: Row
    meta: dict[str, Any] | None
    context: Sets
    labels: dict[str, str]
    digest: dict[Literal["segments"], list[dict[str, Any]]]
    warnings: NotRequired[list[str]]
    indexing: NotRequired[dict[str, Any]]


class Resolved(TypedDict):
    """Result of `resolve`."""

    sessionId: str
    name: str
    how: Literal["id", "prefix", "name", "fuzzy", "search"]
    score: NotRequired[float]


class Candidate(TypedDict):
    """One candidate of `complete`."""

    sessionId: str
    label: str
    age: str
    named: bool
    insert: str


class Completed(TypedDict):
    """Result of `complete`."""

    items: list[Candidate]


class Hit(TypedDict):
    """One hit of `search`."""

    sessionId: str
    name: str
    field: str
    snippet: str
    score: float
    entryId: NotRequired[str]


class Found(TypedDict):
    """Result of `search`."""

    hits: list[Hit]
    rows: NotRequired[dict[str, Row]]
    warnings: NotRequired[list[str]]


class Member(TypedDict):
    """One session of a family."""

    sessionId: str
    name: str
    agent: str
    cwd: str
    state: State
    archived: bool
    gone: bool
    subagent: bool
    createdAt: str
    modifiedAt: str
    userMessageCount: int
    parentSessionId: str | None
    relation: Relation
    depth: int


class Family(TypedDict):
    """Result of `family`."""

    sessionId: str
    members: list[Member]
    more: int
    missingParent: NotRequired[str]


class Seen(TypedDict):
    """What every answer about one session's tree begins with."""

    sessionId: str
    leafId: str | None
    warnings: NotRequired[list[str]]


class Node(TypedDict):
    """One entry in `tree`."""

    id: str
    parentId: str | None
    ordinal: int
    depth: int
    type: str
    text: str
    timestamp: str
    active: bool
    role: NotRequired[str]
    label: NotRequired[str]
    display: NotRequired[bool]


class Tree(Seen):
    """Result of `tree`."""

    nodes: list[Node]
    truncated: NotRequired[bool]
    cycles: NotRequired[list[str]]


class Tip(TypedDict):
    """The last entry of one branch."""

    leafId: str
    branchPointId: str | None
    entries: int
    userMessages: int
    lastActivity: str
    active: bool
    label: NotRequired[str]
    gist: NotRequired[str]
    gistSource: NotRequired[Literal["agent", "digest", "ask"]]
    reason: NotRequired[str]


class Branches(Seen):
    """Result of `branches`."""

    tips: list[Tip]


class PathEntry(TypedDict):
    """One entry of a path, with its text."""

    id: str
    parentId: str | None
    ordinal: int
    type: str
    timestamp: str
    text: str
    role: NotRequired[str]
    label: NotRequired[str]
    customType: NotRequired[str]
    display: NotRequired[bool]
    fromId: NotRequired[str]
    data: NotRequired[Any]


class Path(Seen):
    """Result of `path`."""

    entries: list[PathEntry]
    textMax: NotRequired[int]


class Message(TypedDict):
    """One message of a context."""

    role: str
    text: str
    entryId: str | None


class Compaction(TypedDict):
    """A compaction that the agent made itself."""

    entryId: str
    timestamp: str
    summary: str
    firstKeptEntryId: NotRequired[str]
    tokensBefore: NotRequired[Any]
    fromHook: NotRequired[Any]
    details: NotRequired[Any]


class Context(Seen):
    """Result of `context`."""

    messages: list[Message]
    model: dict[str, str | None] | None
    thinkingLevel: str | None
    compactions: list[Compaction]
    previousSummary: str | None
    transformed: NotRequired[bool]
    serialized: NotRequired[str]


class RecentMessage(TypedDict):
    """A message that no segment covers."""

    n: int
    role: str
    text: str
    entryId: str
    at: str
    tools: NotRequired[Any]


class History(Seen):
    """Result of `history`."""

    segments: list[dict[str, Any]]
    recent: list[RecentMessage]
    fullMessageCount: int
    foldedMessages: int
    context: NotRequired[list[Message]]


class Digest(TypedDict):
    """Result of `digest`."""

    sessionId: str
    segment: dict[str, Any] | None
    before: int
    after: int
    reduction: float
    tokensSaved: int
    reason: NotRequired[str]
    tokensBefore: NotRequired[int]
    tokensAfter: NotRequired[int]
    compression: NotRequired[float | None]
    targetCompression: NotRequired[float]
    targetMet: NotRequired[bool]
    covering: NotRequired[list[int]]
    topics: NotRequired[list[str]]
    files: NotRequired[list[str]]
    commands: NotRequired[list[str]]
    decisions: NotRequired[list[str]]
    model: NotRequired[str]
    costUsd: NotRequired[float | None]
    usage: NotRequired[dict[str, Any]]
    notes: NotRequired[list[str]]


class FileNames(TypedDict):
    """Files of a path, as the agent named them."""

    readFiles: list[str]
    modifiedFiles: list[str]


class Compacted(TypedDict):
    """Result of `compact`."""

    sessionId: str
    strategy: str
    summary: str
    firstKeptEntryId: str | None
    tokensBefore: int
    details: FileNames
    isSplitTurn: bool
    messagesSummarized: int
    alreadyCompacted: bool
    usage: dict[str, Any]
    notes: list[str]
    replacementHistory: NotRequired[list[dict[str, Any]]]
    handoff: NotRequired[str]


class BranchSummary(TypedDict):
    """Result of `branch_summary`."""

    sessionId: str
    leafId: str
    summary: str
    details: FileNames
    usage: dict[str, Any]
    notes: list[str]


class Stats(TypedDict):
    """Result of `stats`."""

    sessionId: str
    contextTokens: int
    estimated: bool
    reserve: int
    level: Literal["ok", "warning", "fold"] | None
    shouldCompact: dict[str, bool]
    warnings: list[str]
    totals: dict[str, Any]
    window: NotRequired[int]
    windowSource: NotRequired[Literal["settings", "agent", "list"]]
    usable: NotRequired[int]
    percent: NotRequired[float]


class BranchFile(TypedDict):
    """Result of `branch`."""

    sessionId: str
    sessionFile: str
    entries: int


class Labelled(TypedDict):
    """Result of `label`."""

    sessionId: str
    entryId: str
    label: str | None


class InjectedMessage(TypedDict):
    """A message to put behind the user's own."""

    customType: str
    content: str
    display: bool
    details: dict[str, Any]


class Expanded(TypedDict):
    """Result of `expand`."""

    references: list[dict[str, Any]]
    messages: list[InjectedMessage]
    message: InjectedMessage | None
    injectedBytes: int
    truncated: bool
    statusText: NotRequired[list[str]]


class Citation(TypedDict):
    """Where in the session an answer is from."""

    entryId: str
    role: str
    excerpt: str


class Answer(TypedDict):
    """Result of `query_session`."""

    sessionId: str
    name: str
    answerMarkdown: str
    confidence: Literal["high", "medium", "low"]
    citations: list[Citation]
    notes: list[str]
    usage: dict[str, Any]


class ContextSet(TypedDict):
    """Result of `set_relevant_context`."""

    sessionId: str
    text: str
    contextChanged: bool
    setName: str
    warnings: list[str]


class ContextSets(TypedDict):
    """Result of `get_relevant_context`."""

    sessionId: str
    cwd: str
    text: str
    context: Sets


class ResumeBlock(TypedDict):
    """Result of `resume_context`; `text` is null where the block was given out before."""

    sessionId: str
    text: str | None
    missingFiles: int


class FooterFile(TypedDict):
    """A file in a footer."""

    basename: str
    path: str


class Footer(TypedDict):
    """Result of `footer`."""

    sessionId: str
    files: list[FooterFile]
    more: int
    text: str
    applet: NotRequired[dict[str, Any]]


class Indexed(TypedDict):
    """Result of `index` for one session."""

    status: Literal["queued", "indexed", "below_threshold", "already_running"]
    costUsd: NotRequired[float | None]
    model: NotRequired[str]


class Purged(TypedDict):
    """Result of `purge`, other than for `dryRun` and `undo`."""

    sessionId: str
    removed: list[str]
    transcriptRemoved: bool
    notRemoved: NotRequired[list[dict[str, str]]]


class PurgePreview(TypedDict):
    """Result of `purge` with `dryRun`."""

    sessionId: str
    name: str | None
    sessionFile: str | None
    files: list[str]


class Unpurged(TypedDict):
    """Result of `purge` with `undo`."""

    sessionId: str
    undone: bool


class AsSent(TypedDict):
    """Result of `as_sent`."""

    sessionId: str
    model: str | None
    leavesTheMachine: bool
    system: str
    user: str
    truncated: bool
    redactions: dict[str, int]


class Subscribed(TypedDict):
    """Result of `subscribe`."""

    subscribed: Literal["all"] | list[str]
