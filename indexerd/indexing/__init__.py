"""From a session that is due to a checked description of it."""
