"""pi: one JSONL file per session in `<agent dir>/sessions`, with meta files next to it."""
