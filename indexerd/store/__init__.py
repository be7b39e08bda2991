"""What the daemon keeps to start quickly: rows, cursors, session states. A cache."""
