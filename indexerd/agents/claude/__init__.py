"""Claude Code: one JSONL file a session, in `projects/<directory>`, sub-agents' files below it."""
