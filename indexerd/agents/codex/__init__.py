"""Codex: one rollout a session, in `<CODEX_HOME>/sessions/<year>/<month>/<day>`.

Three dialects have been written: bare items, items in an envelope with events beside them, and
envelopes with ordinals, whose forks only point at the history that they share.
"""
