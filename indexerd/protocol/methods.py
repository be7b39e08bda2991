"""The methods of the socket and their params; `daemon/methods.py` has the handlers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from indexerd.errors import UsageError
from indexerd.protocol import params
from indexerd.protocol.params import LeafParams, Params, RefParams, decode


class Method(NamedTuple):
    """Where and for which sessions a method can be called."""

    params: type[Params]
    exact: bool = False  # not for a session whose name is merely similar to `ref`
    needs_daemon: bool = False  # cannot be answered in another process


METHODS: dict[str, Method] = {
    "hello": Method(Params, needs_daemon=True),
    "status": Method(Params, needs_daemon=True),
    "subscribe": Method(params.Subscribe, needs_daemon=True),
    "list": Method(params.List),
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
}


def asked(method: str, given: Mapping[str, Any]) -> Params:
    """Check the params of a call; UsageError if they are wrong."""
    try:
        return decode(METHODS[method].params, given)
    except UsageError as bad:
        bad.upstream = "INVALID_ARGS" if method == "query_session" else None
        raise
