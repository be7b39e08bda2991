"""The methods of the socket and their params; `daemon/methods.py` has the handlers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from indexerd.errors import FileGoneError, IndexerdError
from indexerd.protocol import params
from indexerd.protocol.params import LeafParams, Params, RefParams, decode


class Method(NamedTuple):
    """A method's params, and where it can be called."""

    params: type[Params]
    exact: bool = False  # a name that is only similar to `ref` does not match
    needs_daemon: bool = False  # cannot be answered in another process


METHODS: dict[str, Method] = {
    "hello": Method(Params, needs_daemon=True),
    "status": Method(Params, needs_daemon=True),
    "subscribe": Method(params.Subscribe, needs_daemon=True),
    "list": Method(params.List),
    "counts": Method(params.Counts),
    "usage": Method(params.Usage),
    "get": Method(RefParams),
    "resolve": Method(params.Resolve),
    "complete": Method(params.Complete),
    "search": Method(params.Search),
    "family": Method(RefParams),
    "tree": Method(params.Tree),
    "branches": Method(LeafParams),
    "path": Method(params.Path),
    "context": Method(params.Context),
    "history": Method(params.History),
    "stats": Method(RefParams),
    "footer": Method(RefParams),
    "as_sent": Method(RefParams),
    "expand": Method(params.Expand),
    "query_session": Method(params.QuerySession),
    "compact": Method(params.Compact),
    "get_relevant_context": Method(params.GetContext),
    "resume_context": Method(params.ResumeContext, needs_daemon=True),
    "set_relevant_context": Method(params.SetContext, needs_daemon=True),
    "update": Method(params.Update, exact=True, needs_daemon=True),
    "label": Method(params.Label, exact=True, needs_daemon=True),
    "branch": Method(params.Branch, exact=True, needs_daemon=True),
    "digest": Method(params.RefParams, exact=True, needs_daemon=True),
    "branch_summary": Method(params.BranchSummary, exact=True, needs_daemon=True),
    "index": Method(params.Index, needs_daemon=True),
    "purge": Method(params.Purge, needs_daemon=True),
    "move": Method(params.Move, needs_daemon=True),
    "fleet": Method(params.Fleet, needs_daemon=True),
}


# Codes of `query_session` in pi's session-query extension; it had no budget and no limit of a
# model's input, so these errors get the nearest code.
_QUERY_CODES = {
    "usage": "INVALID_ARGS",
    "call_limit_exceeded": "CALL_LIMIT_EXCEEDED",
    "not_found": "SESSION_NOT_FOUND",
    "ambiguous_reference": "SESSION_AMBIGUOUS",
    "session_unreadable": "SESSION_PARSE_FAILED",
    "session_empty": "SESSION_EMPTY",
    "model_unavailable": "QUERY_MODEL_UNAVAILABLE",
    "provider_unavailable": "QUERY_TRANSPORT_FAILED",
    "timeout": "QUERY_TRANSPORT_FAILED",
    "daemon_down": "QUERY_TRANSPORT_FAILED",
    "model_output_invalid": "QUERY_INVALID_OUTPUT",
    "budget_exhausted": "QUERY_MODEL_UNAVAILABLE",
    "context_too_large": "QUERY_TRANSPORT_FAILED",
}
_GONE, _UNKNOWN = "SESSION_FILE_MISSING", "UNKNOWN_QUERY_SESSION_ERROR"
_CODED = frozenset({*_QUERY_CODES.values(), _GONE, _UNKNOWN})


@contextmanager
def coded(method: str) -> Iterator[None]:
    """Add the `upstream` code to every error of `query_session` that leaves this block without."""
    try:
        yield
    except IndexerdError as bad:
        if method == "query_session" and bad.upstream not in _CODED:
            code = _QUERY_CODES.get(bad.kind, _UNKNOWN)
            bad.upstream = _GONE if isinstance(bad, FileGoneError) else code
        raise


def decode_params(method: str, fields: Mapping[str, Any]) -> Params:
    """Check the params of a call; UsageError if they are wrong."""
    with coded(method):
        return decode(METHODS[method].params, fields)
