"""opencode: `sources` makes lines of its database or files. A fork copies all its history."""
