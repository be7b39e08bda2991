"""Claude Code: a JSONL file per session in `projects/<directory>`, sub-agents' files below it."""
