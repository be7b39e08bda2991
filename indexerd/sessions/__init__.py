"""One session: its tree, path, branches and facts, whatever agent wrote it. Pure."""
