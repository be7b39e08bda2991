"""The methods of the socket: what each takes, what it answers, and what calling it does.

The daemon's method table (`daemon/methods.py`) has a handler for each name here, and none more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from indexerd.errors import UsageError
from indexerd.protocol import params, results
from indexerd.protocol.params import LeafParams, Params, RefParams, decode


class Method(NamedTuple):
    """One method."""

    params: type[Params]
    result: Any  # the TypedDict of its answer, or several of them
    exact: bool = False  # not for a session whose name is only close to `ref`
    needs_daemon: bool = False  # cannot be answered in another process
    invalid: str | None = None  # `upstream` of the error for wrong params


METHODS: dict[str, Method] = {
    "hello": Method(Params, results.Hello, needs_daemon=True),
    "status": Method(Params, results.Status, needs_daemon=True),
    "subscribe": Method(params.Subscribe, results.Subscribed, needs_daemon=True),
    "list": Method(params.List, results.Page),
    "get": Method(RefParams, results.Stored),
    "resolve": Method(params.Resolve, results.Resolved),
    "complete": Method(params.Complete, results.Completed),
    "search": Method(params.Search, results.Found),
    "family": Method(RefParams, results.Family),
    "tree": Method(params.Tree, results.Tree),
    "branches": Method(LeafParams, results.Branches),
    "path": Method(params.Path, results.Path),
    "context": Method(params.Context, results.Context),
    "history": Method(params.History, results.History),
    "stats": Method(RefParams, results.Stats),
    "footer": Method(RefParams, results.Footer),
    "as_sent": Method(RefParams, results.AsSent),
    "expand": Method(params.Expand, results.Expanded),
    "query_session": Method(params.QuerySession, results.Answer, invalid="INVALID_ARGS"),
    "compact": Method(params.Compact, results.Compacted),
    "get_relevant_context": Method(params.GetContext, results.ContextSets),
    "resume_context": Method(params.ResumeContext, results.ResumeBlock, needs_daemon=True),
    "set_relevant_context": Method(params.SetContext, results.ContextSet, needs_daemon=True),
    "update": Method(params.Update, results.Row, exact=True, needs_daemon=True),
    "label": Method(params.Label, results.Labelled, exact=True, needs_daemon=True),
    "branch": Method(params.Branch, results.BranchFile, exact=True, needs_daemon=True),
    "digest": Method(params.Digest, results.Digest, exact=True, needs_daemon=True),
    "branch_summary": Method(
        params.BranchSummary, results.BranchSummary, exact=True, needs_daemon=True
    ),
    "index": Method(params.Index, results.Indexed, needs_daemon=True),
    "purge": Method(
        params.Purge,
        results.Purged | results.PurgePreview | results.Unpurged,
        needs_daemon=True,
    ),
}


def asked(method: str, given: Mapping[str, Any]) -> Params:
    """The params of a call, checked; UsageError where they are wrong."""
    spec = METHODS[method]
    try:
        return decode(spec.params, given)
    except UsageError as bad:
        bad.upstream = spec.invalid
        raise


class Backend(Protocol):
    """Whoever answers methods: a daemon behind a socket, or this process (`daemon/local.py`).

    `indexerd.client.Client` is the first, and needs the standard library only;
    `indexerd.daemon.local.LocalBackend` the second. Both take the same methods and params, give
    the same results and raise the same errors; what only a daemon can do is a DaemonDownError of
    the second.
    """

    def call(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        """The method's result, as plain JSON values; an error of `indexerd.errors`."""
        ...
