"""The bytes of sessions, wherever they lie: watched, scanned, tailed."""
