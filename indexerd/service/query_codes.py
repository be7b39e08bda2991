"""Codes of failed questions: those of the tool that `query_session` follows (S0.64).

An error keeps its own kind; the code goes with it as `upstream`. Where the kind alone does not
say which (a session that is unknown, or whose file is gone), whoever raises it sets the code.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from indexerd.errors import IndexerdError

INVALID = "INVALID_ARGS"
MISSING = "SESSION_FILE_MISSING"
UNREADABLE = "SESSION_PARSE_FAILED"
UNKNOWN = "UNKNOWN_QUERY_SESSION_ERROR"
BY_KIND = {
    "usage": INVALID,
    "call_limit_exceeded": "CALL_LIMIT_EXCEEDED",
    "not_found": "SESSION_NOT_FOUND",
    "ambiguous_reference": "SESSION_AMBIGUOUS",
    "session_unreadable": UNREADABLE,
    "session_empty": "SESSION_EMPTY",
    "model_unavailable": "QUERY_MODEL_UNAVAILABLE",
    "provider_unavailable": "QUERY_TRANSPORT_FAILED",
    "timeout": "QUERY_TRANSPORT_FAILED",
    "model_output_invalid": "QUERY_INVALID_OUTPUT",
}
_CODES = frozenset({*BY_KIND.values(), MISSING, UNKNOWN})


@contextmanager
def coded() -> Iterator[None]:
    """Give every error of the tree that leaves this block its code."""
    try:
        yield
    except IndexerdError as bad:
        if bad.upstream not in _CODES:
            bad.upstream = BY_KIND.get(bad.kind, UNKNOWN)
        raise
