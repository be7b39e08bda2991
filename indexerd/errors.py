"""Every error of indexerd: `kind` (stable, docs/PROTOCOL.md), `hint`, `retryable`, `exit_code`.

Texts never hold transcript text, prompts, replies or keys: they end up in logs. Standard library
only, and little of it: agents' hooks import this.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` costs a hook 20 ms
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, ClassVar

_KINDS = (
    "not_found ambiguous_reference invalid_meta session_empty session_unreadable model_unavailable "
    "model_output_invalid budget_exhausted provider_unavailable already_running context_too_large "
    "call_limit_exceeded timeout config_invalid usage daemon_down permission write_failed internal"
)
RPC_CODES: dict[str, int] = {kind: code for code, kind in enumerate(_KINDS.split(), 1001)}


class IndexerdError(Exception):
    """The root. `str(error)` is one readable sentence; `upstream` is another system's own code."""

    kind: ClassVar[str] = "internal"
    hint: str = "see `indexerd logs`"
    retryable: bool = False
    exit_code: ClassVar[int] = 1

    def __init__(
        self, message: str, *, hint: str | None = None, upstream: str | None = None
    ) -> None:
        super().__init__(message)
        if hint is not None:
            self.hint = hint
        self.upstream = upstream

    def data(self) -> dict[str, Any]:
        """The `data` object of a JSON-RPC error."""
        data = {"kind": self.kind, "hint": self.hint, "retryable": self.retryable}
        return data if self.upstream is None else data | {"upstream": self.upstream}


# -- the request ---------------------------------------------------------------------------------


class AskError(IndexerdError):
    """What was asked for cannot be given."""


class UsageError(AskError):
    """Arguments of the wrong shape."""

    kind, exit_code = "usage", 2
    hint = "see `indexerd --help`"


class NotFoundError(AskError):
    """No session fits."""

    kind, exit_code = "not_found", 3
    hint = "`indexerd list --all` shows every session"


class FileGoneError(NotFoundError):
    """The session is known, and its file is gone."""

    hint = "what is stored of it: `indexerd show REF`"


class AmbiguousError(AskError):
    """Several sessions fit: `candidates`."""

    kind, exit_code = "ambiguous_reference", 3
    hint = "use the session id, or a longer part of the name"

    def __init__(self, message: str, candidates: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(message)
        self.candidates = [dict(one) for one in candidates]

    def data(self) -> dict[str, Any]:
        """As for the root, with the candidates."""
        return super().data() | {"candidates": self.candidates}


class SessionEmptyError(AskError):
    """A session without a word of conversation."""

    kind, hint = "session_empty", "there is nothing to index yet"


class SessionUnreadableError(AskError):
    """The session file is gone, or cannot be read."""

    kind, retryable = "session_unreadable", True
    hint = "check that the session file exists and is readable"


# -- this machine --------------------------------------------------------------------------------


class StateError(IndexerdError):
    """Something on disk, or in the configuration, is not as it must be."""


class ConfigError(StateError):
    """Mistakes in the configuration; `problems` lists each with file, key and hint."""

    kind, exit_code = "config_invalid", 78
    hint = "`indexerd config check` lists every problem"

    def __init__(self, problems: Sequence[Mapping[str, str]]) -> None:
        self.problems = [dict(one) for one in problems]
        lines = "; ".join(f"{p['file']}: {p['key']}: {p['message']}" for p in self.problems)
        super().__init__(f"invalid configuration: {lines}")

    def data(self) -> dict[str, Any]:
        """As for the root, with every problem."""
        return super().data() | {"problems": self.problems}


class InvalidMetaError(StateError):
    """A meta file that is not JSON, or not of the contract's shape."""

    kind, hint = "invalid_meta", "`indexerd index REF --force` writes it anew"


class AlreadyRunningError(StateError):
    """Another daemon holds the state directory, or this session is being indexed now."""

    kind, retryable, exit_code = "already_running", True, 75
    hint = "wait for it to end"


class DaemonDownError(StateError):
    """Nobody answers on the socket."""

    kind, retryable, exit_code = "daemon_down", True, 69
    hint = "start it with `indexerd service install`, or `indexerd run`"


class AccessError(StateError):
    """The system denies access to something that we need."""

    kind, exit_code = "permission", 77
    hint = "check the owner and mode of the path named"


class WriteError(StateError):
    """A file could not be written; the old one is intact."""

    kind, retryable, exit_code = "write_failed", True, 75
    hint = "free some space, or check the directory's permissions; it is tried again"


class DamagedError(StateError):
    """A cache holds what was not put into it, or its file is not as it was left."""


# -- models --------------------------------------------------------------------------------------


class ModelError(IndexerdError):
    """The provider's side of a model call."""


class ModelUnavailableError(ModelError):
    """No configured model can be used."""

    kind = "model_unavailable"
    hint = "configure a key, or add local/extractive to model_keys"


class ProviderError(ModelError):
    """The provider failed for now; `retry_after` is its own wish in seconds, if it said so."""

    kind, retryable, exit_code = "provider_unavailable", True, 75
    hint = "it is tried again later by itself"

    def __init__(
        self, message: str, *, retry_after: float | None = None, throttled: bool = False
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.throttled = throttled


class ProviderDeniedError(ModelError):
    """The provider denies a key, or with `model_only` one model, until something is changed."""

    kind = "model_unavailable"
    hint = "check the API key and the model's name, then reload the daemon"

    def __init__(self, message: str, *, hint: str | None = None, model_only: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.model_only = model_only


class RefusedError(ModelError):
    """The model declined this content (safety, recitation, blocked prompt)."""

    kind, hint = "model_unavailable", "it is asked again once the session has new messages"


class OutputInvalidError(ModelError):
    """The model's answers were malformed on every attempt."""

    kind, retryable = "model_output_invalid", True
    hint = "try another model; the session is tried again later"


class BudgetError(ModelError):
    """A cap is reached, and opens in `retry_after` seconds.

    `passing`: within a minute or so, and so no reason to settle for another model.
    """

    kind, retryable, exit_code = "budget_exhausted", True, 75
    hint = "raise [budget] in the configuration, or wait until tomorrow"

    def __init__(
        self, message: str, *, hint: str = "", retry_after: float = 3600.0, passing: bool = False
    ) -> None:
        soon = "wait a minute; it is tried again by itself" if passing else self.hint
        super().__init__(message, hint=hint or soon)
        self.retry_after = retry_after
        self.passing = passing


class CallLimitError(ModelError):
    """More questions in one turn than allowed."""

    kind, retryable, exit_code = "call_limit_exceeded", True, 75
    hint = "ask again in the next turn"


class ContextTooLargeError(ModelError):
    """The request is larger than the model takes."""

    kind, hint = "context_too_large", "lower [index] max_bytes"


class DeadlineError(ModelError):
    """The total deadline of a call passed."""

    kind, retryable, exit_code = "timeout", True, 75
    hint = "raise the timeout, or try again"
