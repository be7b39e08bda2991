"""A fleet: machines that share what they know about sessions, through PostgreSQL.

    store -> outbox -> [encrypted] -> server: one append-only log per machine
    server -> inbox -> store and text index of every other machine

docs/FLEET.md has the protocol and the threat model. Nothing here is imported without a fleet.
"""
