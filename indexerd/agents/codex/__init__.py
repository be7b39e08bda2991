"""Codex: one rollout a session, in `<CODEX_HOME>/sessions/<year>/<month>/<day>`."""
