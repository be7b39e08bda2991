"""A cache from which the daemon starts quickly: rows, cursors, facts about files, notes."""
