"""Session storage of every kind: watched, scanned and read."""
