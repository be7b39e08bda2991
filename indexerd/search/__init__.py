"""Finding sessions: the text index, the query language, and names."""
