"""Search: the text index, the query language, and ranking."""
