"""Decide what may be read, stored and sent: redaction, sanitising, exclusions."""
