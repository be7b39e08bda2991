"""The table of commands: where each is, and the line that `indexerd --help` has for it."""

from __future__ import annotations

# name -> (module of this package, attribute, one line of help)
COMMANDS: dict[str, tuple[str, str, str]] = {
    "run": ("run", "run", "Run the daemon in the foreground; --once for a single pass."),
    "status": ("look", "status", "Show the daemon, its watches, queue, budget and problems."),
    "list": ("look", "list_", "List sessions, newest first."),
    "show": ("look", "show", "Show one session: metadata and facts."),
    "resolve": ("look", "resolve", "Say which session a reference means."),
    "complete": ("look", "complete", "List candidates for `@@`."),
    "expand": ("expand", "expand", "Expand the `@@` references of a prompt."),
    "search": ("look", "search", "Search names, tags, summaries and messages."),
    "resume": ("resume", "resume", "Print the command that opens a session again."),
    "continue-recent": ("resume", "continue_recent", "Print the newest session of a project."),
    "tree": ("tree", "tree", "Show a session's tree: every branch, with labels."),
    "branches": ("tree", "branches", "List the branches of a session, by their last entries."),
    "family": (
        "family",
        "family",
        "Show the sessions that one came from, and all that came from them.",
    ),
    "path": ("tree", "path", "List the entries from the root to the leaf."),
    "context": ("tree", "context", "Show what the agent would hand its model."),
    "ask": ("question", "ask", "Ask one past session a question."),
    "context-set": ("contexts", "context_set", "Note what a session works with."),
    "context-get": ("contexts", "context_get", "Show what was noted of a session."),
    "resume-context": (
        "contexts",
        "resume_context",
        "Print the block for the first message after a resume.",
    ),
    "footer": ("contexts", "footer", "Print a session's context in one line."),
    "history": (
        "digest",
        "history",
        "Show what a session came to: its digests, and the messages after them.",
    ),
    "digest": (
        "digest",
        "digest",
        "Sum up what no digest of a session covers yet, but for its newest messages.",
    ),
    "compact": ("digest", "compact", "Sum up a session so that it can go on elsewhere."),
    "branch-summary": (
        "digest",
        "branch_summary",
        "Sum up a branch that was left, by its last entry",
    ),
    "export": ("export", "export", "Make one self-contained file of a session."),
    "stats": (
        "stats",
        "stats",
        "Show how full a session's context is, and what the session came to so far.",
    ),
    "index": ("act", "index", "Index a session now, or all that are due."),
    "rename": ("act", "rename", "Give a session a title of your own."),
    "label": ("tree", "label", "Label an entry of a session."),
    "purge": ("purge", "purge", "Forget a session: remove what indexerd holds of it."),
    "branch": ("tree", "branch", "Make a new session file of the path to an entry."),
    "logs": ("logs", "logs", "Show the structured log."),
    "config": ("config", "config", "Show and check the configuration."),
    "doctor": ("doctor", "doctor", "Check the set-up, and say what to mend."),
    "service": ("service", "service", "Run the daemon at every login (systemd or launchd)."),
    "web": ("web", "web", "Look at sessions in a browser: home, search, trees, live."),
    "mcp": ("mcp", "mcp", "Serve coding agents by the Model Context Protocol."),
    "integrate": (
        "integrate",
        "integrate",
        "Install into an agent: references, questions, context.",
    ),
    "completion": ("completion", "completion", "Print a shell's completion script."),
}

# The alias that `command_name` gives to a forced run, as the older extension's command (S0.3).
FORCED = ("act", "forced", "Index a session now, below the threshold too.")
