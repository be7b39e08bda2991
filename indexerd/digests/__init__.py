"""Long sessions made short: segments, compaction, hand-offs, statistics."""
