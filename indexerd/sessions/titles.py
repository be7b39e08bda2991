"""Find the titles that a call of a tool writes.

They are a commit's subject, a pull request's or an issue's title, and a document's heading. A
command line is split about as a shell does, so that a here-document is data and no command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from indexerd.entries import ToolCall
from indexerd.sessions.edits import edits_of

_DOCUMENT = re.compile(r"\.(?:md|mdx|markdown)\Z", re.IGNORECASE)
_OF_HABIT = re.compile(  # documents that tell of a project or an agent, not of a session
    r"(?:\A|[/\\])(?:\.(?:claude|codex|pi|opencode|gemini|cursor|agents?)|memory)[/\\]"
    r"|(?:\b|_)(?:readme|agents|claude|gemini|memory|changelog|contributing|security|code_of_conduct"
    r"|index|constitution|todo|tasks?|deployment|quick[-_]?start|setup|troubleshooting|notices"
    r")\.\w+\Z",
    re.IGNORECASE,
)
_HEADING = re.compile(r"(?:\+---\n(?:\+.*\n){,40}?\+---\n)?(?:\+\s*\n){,3}\+# +(.+)")  # in a diff
_UNFILLED = re.compile(r"\[[A-Z][A-Z ]+\]|\{\{|\$\{")  # of a template
_SORT = re.compile(  # "Feature Specification: "
    r"(?:[\w/-]+ ){,3}(?:specification|spec|prd|design|document|plan|model|research|notes|start|adr"
    r"|quickstart|context|contract|checklist|summary|report|roadmap|handoff|task)s?(?:[- ]\d+)?"
    r"\s*[:—–]\s+",  # noqa: RUF001 - dashes
    re.IGNORECASE,
)
_SUBJECT, _TITLE = re.compile(r"-[a-zA-Z]*m|--message"), re.compile(r"-t|--title")
_CREATED = {"pr": "pr", "mr": "pr", "issue": "issue"}
# A here-document, alone or as "$(cat <<…)"; a word; the end of a command.
_TOKEN = re.compile(
    r"(?P<cat>\"?\$\( ?cat +)?<<-? ?[\"'\\]?(?P<end>\w+)[^\n]*\n"
    r"(?P<body>[\s\S]*?)(?:^[ \t]*(?P=end)\b(?(cat)\s*\)\"?)|\Z)"
    r"|(?P<word>(?:\"(?:[^\"\\]|\\[\s\S])*+\"?|'[^']*+'?|\\[\s\S]|[^\s\"'\\;&|<]|<(?!<))++)"
    r"|[\n;&|]",
    re.MULTILINE,
)


def headings_in(call: ToolCall) -> Iterator[str]:
    """Yield the headings of Markdown files that a call writes whole."""
    if not any(map(_DOCUMENT.search, call.writes)):
        return
    for edit in edits_of(call.name, call.arguments):
        whole = edit.kind in ("write", "create") and _DOCUMENT.search(edit.path)
        found = _HEADING.match(edit.diff) if whole and not _OF_HABIT.search(edit.path) else None
        if found and not _UNFILLED.search(found[1]):
            sort = _SORT.match(found[1])
            yield found[1][sort.end() if sort else 0 :].strip()


def titles_in(command: str) -> Iterator[tuple[str, str]]:
    """Yield the kind (commit, pr or issue) and the title of each that the command line makes."""
    if "commit" not in command and " create" not in command:
        return
    words = list[str]()  # of the current command so far
    for token in _TOKEN.finditer(command.replace("\\\n", " ")):
        word, kind = token["word"] or token["body"], _made_by(words)
        if word is None:
            words = []
            continue
        option, equals, rest = word.partition("=")
        wanted = _SUBJECT if kind == "commit" else _TITLE
        if kind and equals and wanted.fullmatch(option):
            word, words = rest, [*words, option]
        if kind and (wanted.fullmatch(words[-1]) or (token["end"] and kind == "commit")):
            if token["word"] and word[:1] in ("'", '"'):
                word = word[1:].removesuffix(word[0])
            title = word.strip().partition("\n")[0]
            if not title.startswith("$"):  # else only the shell knew it
                yield kind, re.sub(r"\\([\"`$\\])", r"\1", title)
            words = []
        words.append(word)


def _made_by(words: list[str]) -> str:
    if "git" in words and "commit" in words[words.index("git") :]:
        return "commit"
    tool, what, verb = [*words, "", "", ""][:3]
    return _CREATED.get(what, "") if tool in ("gh", "glab") and verb == "create" else ""
