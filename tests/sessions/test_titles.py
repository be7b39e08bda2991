"""Titles of plans, documents, commits, pull requests and issues, from calls of the four agents."""

import pytest

from indexerd.agents import ADAPTERS
from indexerd.sessions.facts import TITLES_KEPT, ActivityStats
from indexerd.sessions.titles import titles_in
from tests.agents import claude_files as claude
from tests.agents import codex_files as codex
from tests.sessions import tree_sessions as pi

BODY = "$(cat <<'EOF'\n{}\n\nIt's why; say \"so\".\ngit commit -m 'quoted'\nEOF\n)"


def line(agent: str, command: str) -> bytes:
    """A call of the agent's shell."""
    if agent == "codex":
        return codex.call("c", "shell", command=["bash", "-lc", command])
    return called(agent, "bash", command=command)


def writing(agent: str, path: str, text: str) -> bytes:
    """A call of the agent's tool that writes a file whole."""
    if agent == "codex":
        patch = "\n".join(f"+{one}" for one in text.split("\n"))
        patch = f"*** Begin Patch\n*** Add File: {path}\n{patch}\n*** End Patch"
        return codex.item("custom_tool_call", name="apply_patch", input=patch, call_id="c")
    name = {"pi": "path", "opencode": "filePath"}.get(agent, "file_path")
    return called(agent, "write", **{name: path, "content": text})


def called(agent: str, tool: str, **arguments: str) -> bytes:
    if agent == "opencode":
        state = {"status": "completed", "input": arguments, "output": ""}
        part = {"type": "tool", "tool": tool, "callID": "c", "state": state}
        return pi.line(id="m", role="assistant", parts=[part])
    if agent == "pi":
        return pi.said("m", None, "assistant", content=[pi.call("c", tool, **arguments)])
    return claude.call("m", None, "c", name=tool.title(), **arguments)


def gathered(*lines: bytes, agent: str = "claude") -> list[tuple[str, str]]:
    stats = ActivityStats()
    for one in lines:
        stats.add(ADAPTERS[agent].read(one, "m"), "/w")
    return [(kind, title) for kind, title, _call in stats.titles]


@pytest.mark.parametrize("agent", ["claude", "codex", "opencode", "pi"])
def test_a_call_gives_the_titles_of_what_it_makes(agent: str) -> None:
    key = "ghp_" + "a1B2c3D4e5" * 4
    command = (
        f'git add -A && git commit -q -m "{BODY.format("Cut the queue")}" && git push\n'
        f'gh pr create --base main --body "{BODY.format("## Why")}" --title "Drop {key}"'
    )
    expected = [("commit", "Cut the queue"), ("pr", "Drop [redacted:github-token]")]
    assert gathered(line(agent, command), agent=agent) == expected


@pytest.mark.parametrize("agent", ["claude", "codex", "opencode", "pi"])
def test_a_document_gives_its_heading(agent: str) -> None:
    """But for documents of habit, and files that are no Markdown."""
    spec = "---\nstatus: draft\n---\n# Feature Specification: Cache of forecasts\n\n# Why"
    files = {
        "docs/cache.md": spec,
        "docs/AGENTS.md": "# Rules",
        "w/.claude/plans/blue-fox.md": "# Plan: other",
        "w/.claude/agents/mateo.md": "# Mateo",
        "README.md": "# Weather",
        "docs/template.md": "# [FEATURE NAME] of {{project}}",
        "docs/fence.md": "```sh\n# remove all\n```\n# Real",
        "docs/matter.md": "---\n# a comment\n---\nText",
        "cache.py": "# Cache",
        "notes.md": "No heading",
    }
    calls = [writing(agent, path, text) for path, text in files.items()]
    assert gathered(*calls, agent=agent) == [("doc", "Cache of forecasts")]


@pytest.mark.parametrize(
    ("command", "titles"),
    [
        ("git -C w commit \\\n  -am 'a; b'\ngit commit --amend -m c", ["a; b", "c"]),
        ('git commit -m "First \\"line\\"\n\nbody" -m "Second"', ['First "line"']),
        ("git commit -F - <<EOF\nSubject\n\nbody\nEOF", ["Subject"]),
        ("git commit --message='By option'", ["By option"]),
        ("gh issue create -t One --label x; glab mr create --title=Two", ["One", "Two"]),
        ("cat > do.sh <<'EOF'\ngit commit -m no\nEOF\nsh do.sh", []),
        ('git commit -m "$MESSAGE"; git stash push -m commit; echo "git commit -m no"', []),
        ("gh pr create -m v1; gh pr edit --title no; git log --grep commit", []),
    ],
)
def test_a_command_line_is_read_as_a_shell_does(command: str, titles: list[str]) -> None:
    assert [title for _kind, title in titles_in(command)] == titles


def test_a_plan_and_a_call_that_failed() -> None:
    """What failed or was refused is no title; the first and the newest titles are kept."""
    asked = claude.call("m", None, "p", name="ExitPlanMode", plan="# Sort it\n")
    bad, made = claude.result("m", None, "p", error=True), line("claude", "git commit -m Done")
    words = "Implement the following plan:\n\n# Carry it out\n"
    carried = claude.user("m", None, words, planContent="# Carry it out\n")
    assert gathered(asked, made) == [("plan", "Sort it"), ("commit", "Done")]
    assert gathered(carried, asked, bad, made) == [("plan", "Carry it out"), ("commit", "Done")]
    assert gathered(made, line("claude", "git revert --no-edit HEAD")) == []
    many = gathered(*(line("claude", f"git commit -m s{n}") for n in range(99)))
    assert (len(many), many[0][1], many[-1][1]) == (TITLES_KEPT, "s0", "s98")
