"""Codes and hints for failed questions.

An error keeps its own kind; the code of the original `query_session` tool is added as `upstream`.
That tool had neither budgets nor texts too large for a model: they get the nearest code. The hints
of the errors themselves are about indexing, which is retried automatically.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from indexerd import errors

BY_KIND = {
    "usage": "INVALID_ARGS",
    "call_limit_exceeded": "CALL_LIMIT_EXCEEDED",
    "not_found": "SESSION_NOT_FOUND",
    "ambiguous_reference": "SESSION_AMBIGUOUS",
    "session_unreadable": "SESSION_PARSE_FAILED",
    "session_empty": "SESSION_EMPTY",
    "model_unavailable": "QUERY_MODEL_UNAVAILABLE",
    "provider_unavailable": "QUERY_TRANSPORT_FAILED",
    "timeout": "QUERY_TRANSPORT_FAILED",
    "model_output_invalid": "QUERY_INVALID_OUTPUT",
    "budget_exhausted": "QUERY_MODEL_UNAVAILABLE",
    "context_too_large": "QUERY_TRANSPORT_FAILED",
}
HINTS: dict[type[errors.IndexerdError], str] = {
    errors.ProviderError: "ask again later",
    errors.RefusedError: "ask another model (model_keys), or put the question differently",
    errors.OutputInvalidError: "ask again, or ask another model (model_keys)",
    errors.ContextTooLargeError: "lower [query] max_bytes",
    errors.DeadlineError: "ask again, or raise [query] timeout_seconds",
    errors.SessionEmptyError: "there is no conversation in it yet",
}


@contextmanager
def coded() -> Iterator[None]:
    """Add code and hint to every IndexerdError that leaves this block."""
    try:
        yield
    except errors.IndexerdError as bad:
        gone = isinstance(bad, errors.FileGoneError)
        code = BY_KIND.get(bad.kind, "UNKNOWN_QUERY_SESSION_ERROR")
        bad.upstream = "SESSION_FILE_MISSING" if gone else code
        bad.hint = HINTS.get(type(bad), bad.hint)
        raise
