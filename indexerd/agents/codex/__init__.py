"""Codex: one rollout file per session, in `<CODEX_HOME>/sessions/<year>/<month>/<day>`."""
