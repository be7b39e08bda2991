"""The flow, the answers, and the life of the daemon."""
