"""Index a session that is due: prompt, model, checked description."""
