"""What people see of Claude Code's lines that nobody typed: `tree`, `branches` and exports."""

from tests.e2e.clients import ClaudeSession
from tests.e2e.world import World, wait

CAVEAT = "<local-command-caveat>Caveat: The messages below were generated.</local-command-caveat>"
COMMAND = "<command-name>/plugin</command-name>\n            <command-message>plugin"
COMMAND += "</command-message>\n            <command-args>add x</command-args>"
OUTPUT = "<local-command-stdout>Added \x1b[1mx\x1b[22m to 3 &lt;files&gt;</local-command-stdout>"
NOTICE = "<task-notification>\n<task-id>b1</task-id>\n<status>completed</status>\n<summary>"
NOTICE += "Command finished</summary>\n<result>All green.</result>\n</task-notification>"
SHELL = "<bash-stdout>on main</bash-stdout><bash-stderr>no upstream</bash-stderr>"


def shown(world: World, session: ClaudeSession) -> list[str]:
    return [line.split("\t")[2].strip() for line in world.run("tree", session.id).splitlines()]


def test_reports_of_progress_and_hooks_are_not_in_the_conversation(running: World) -> None:
    """S1.14, S1.35, S1.36: what names such a line hangs from the entry above it."""
    session = ClaudeSession(running.root / "home")
    session.line("progress", data={"type": "hook_progress", "hookEvent": "SessionStart"})
    first = session.prompt("Find the bug.")
    call = session.call("Agent", prompt="Look.")
    asked = str(session.last)
    for kind in ("hook_progress", "agent_progress", "bash_progress"):
        inner = {"type": "user", "message": {"role": "user", "content": "Look at a.py."}}
        session.last = asked
        for _ in range(3):
            session.line("progress", data={"type": kind, "message": inner})
    session.last = asked
    session.line("attachment", attachment={"type": "hook_success", "hookEvent": "PostToolUse"})
    session.last = asked
    result = session.result(call, "In b.py.")
    behind = session.line("progress", data={"type": "hook_progress", "hookEvent": "PostToolUse"})
    left = session.say("The bug is in b.py.")
    session.last = behind
    chosen = session.say("The bug is a race.")
    session.line("system", subtype="turn_duration", durationMs=9)
    session.prompt("Fix it.")
    fixed = session.say("Fixed.")
    session.last = behind
    instead = session.prompt("Where else?")
    wait(running, session.id, leafId=instead)
    nodes = running.call("tree", ref=session.id)["nodes"]
    assert "progress" not in {node["type"] for node in nodes}
    above = {node["id"]: node["parentId"] for node in nodes}
    assert (above[first], above[asked], above[result]) == (None, first, asked)
    assert (above[left], above[chosen], above[instead]) == (result, left, result)
    assert shown(running, session) == [
        *("* You: Find the bug.", "* Result: In b.py."),
        *("Answer: The bug is in b.py.", "Answer: The bug is a race."),
        *("You: Fix it.", "Answer: Fixed.", "> You: Where else?"),
    ]
    tips = running.call("branches", ref=session.id)["tips"]
    listed = [(tip["leafId"], tip["branchPointId"], tip["userMessages"]) for tip in tips]
    assert listed == [(fixed, result, 2), (instead, result, 2)]


def test_commands_and_notices_read_as_on_the_screen(running: World) -> None:
    """S1.35, S1.38, S1.40: without the client's tags, which only the model gets."""
    session = ClaudeSession(running.root / "home")
    session.turn("Set it up.")
    session.prompt(CAVEAT, isMeta=True)
    session.prompt(COMMAND)
    session.prompt(OUTPUT)
    session.line("system", subtype="local_command", content=COMMAND)
    session.prompt("<bash-input>git status</bash-input>")
    session.prompt(SHELL)
    session.prompt(NOTICE, origin={"kind": "task-notification"})
    wait(running, session.id, leafId=session.say("I see."))
    assert shown(running, session)[2:] == [
        *("* Note: /plugin add x", "* Note: Added x to 3 <files>", "* Note: /plugin add x"),
        *("* Shell command: git status", "* Note: on main no upstream"),
        *("* Inserted by the agent: Command finished All green.", "> Answer: I see."),
    ]
    for form in ("md", "html", "json"):
        text = running.run("export", session.id, "--format", form)
        assert "/plugin add x" in text
        assert not [tag for tag in ("local-command", "command-name", "bash-std") if tag in text]
    context = running.call("context", ref=session.id)["messages"]
    assert [message["text"] for message in context][2:5] == [CAVEAT, COMMAND, OUTPUT]
