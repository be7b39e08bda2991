"""Failed questions: the codes of the tool that `query_session` follows, and hints.

An error keeps its own kind; the code goes with it as `upstream`. That tool knew neither budgets
nor texts that are too large: they get the nearest code. The hints of the errors themselves are
about indexing, which tries again by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from indexerd import errors

MISSING = "SESSION_FILE_MISSING"
UNKNOWN = "UNKNOWN_QUERY_SESSION_ERROR"
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
    "budget_exhausted": "QUERY_MODEL_UNAVAILABLE",  # a model that may not be called
    "context_too_large": "QUERY_TRANSPORT_FAILED",  # a request that did not get through
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
    """Give every IndexerdError that leaves this block its code, and its hint."""
    try:
        yield
    except errors.IndexerdError as bad:
        gone = isinstance(bad, errors.FileGoneError)
        bad.upstream = MISSING if gone else BY_KIND.get(bad.kind, UNKNOWN)
        bad.hint = HINTS.get(type(bad), bad.hint)
        raise
