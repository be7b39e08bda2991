"""What the daemon keeps to start quickly: rows, cursors, facts of files, notes. A cache."""
