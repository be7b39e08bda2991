"""The edges: one device per file."""
