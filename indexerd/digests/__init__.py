"""Condense long sessions: segments, compaction, hand-offs, statistics."""
