"""The error tree: the only place where indexerd's errors are defined.

    IndexerdError
    ├── AskError               you asked for something we cannot give
    │   ├── UsageError             bad arguments                        exit 2
    │   ├── NotFoundError          no session fits the reference        exit 3
    │   │   └── FileGoneError          its file is gone                 exit 3
    │   ├── AmbiguousError         several fit; carries the candidates  exit 3
    │   ├── SessionEmptyError      no user/assistant conversation       exit 1
    │   └── SessionUnreadableError the session file cannot be read      exit 1
    ├── StateError             what is on disk or configured is not right
    │   ├── ConfigError            every problem with file, key, hint   exit 78
    │   ├── InvalidMetaError       a meta file that is not one          exit 1
    │   ├── AlreadyRunningError    another daemon, or this session's run exit 75
    │   ├── DaemonDownError        no daemon answers on the socket      exit 69
    │   ├── AccessError            the system denies access             exit 77
    │   ├── WriteError             a meta file could not be written     exit 75
    │   └── DamagedError           a cache is not as it was left        exit 1
    └── ModelError             the provider's side
        ├── ModelUnavailableError  no configured model can be used      exit 1
        ├── ProviderError          the provider failed; may be retried  exit 75
        ├── ProviderDeniedError    bad key, no such model: until reload exit 1
        ├── RefusedError           the model declined this content      exit 1
        ├── OutputInvalidError     three malformed answers              exit 1
        ├── BudgetError            the daily cap is reached             exit 75
        ├── CallLimitError         too many calls in one turn           exit 75
        ├── ContextTooLargeError   the request does not fit             exit 1
        └── DeadlineError          the total deadline passed            exit 75

Every error says: ``kind`` (the word of interfaces.md §5, stable), ``hint`` (what to do),
``retryable`` (may the same call succeed later), ``exit_code``. Texts never hold transcript
text, prompts, replies or keys: they end up in logs. Standard library only.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` costs a hook 20 ms, and is needed for annotations only
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, ClassVar

RPC_CODES: dict[str, int] = {
    kind: 1001 + n
    for n, kind in enumerate(
        (
            "not_found",
            "ambiguous_reference",
            "invalid_meta",
            "session_empty",
            "session_unreadable",
            "model_unavailable",
            "model_output_invalid",
            "budget_exhausted",
            "provider_unavailable",
            "already_running",
            "context_too_large",
            "call_limit_exceeded",
            "timeout",
            "config_invalid",
            "usage",
            "daemon_down",
            "permission",
            "write_failed",
            "internal",
        )
    )
}


class IndexerdError(Exception):
    """The root. ``str(error)`` is one readable sentence."""

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
        found: dict[str, Any] = {
            "kind": self.kind,
            "hint": self.hint,
            "retryable": self.retryable,
        }
        if self.upstream is not None:
            found["upstream"] = self.upstream
        return found

    @property
    def rpc_code(self) -> int:
        """JSON-RPC application code (1000 + n); stable per kind."""
        return RPC_CODES[self.kind]


class AskError(IndexerdError):
    """What was asked for cannot be given."""


class UsageError(AskError):
    """Arguments of the wrong shape."""

    kind = "usage"
    hint = "see `indexerd --help`"
    exit_code = 2


class NotFoundError(AskError):
    """No session fits."""

    kind = "not_found"
    hint = "`indexerd list --all` shows every session"
    exit_code = 3


class FileGoneError(NotFoundError):
    """The session is known, and its file is gone."""

    hint = "what is stored of it: `indexerd show REF`"


class AmbiguousError(AskError):
    """Several sessions fit; ``candidates`` says which."""

    kind = "ambiguous_reference"
    hint = "use the session id, or a longer part of the name"
    exit_code = 3

    def __init__(self, message: str, candidates: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(message)
        self.candidates = [dict(one) for one in candidates]

    def data(self) -> dict[str, Any]:
        """As for the root, with the candidates."""
        return super().data() | {"candidates": self.candidates}


class SessionEmptyError(AskError):
    """A session without a word of conversation."""

    kind = "session_empty"
    hint = "there is nothing to index yet"


class SessionUnreadableError(AskError):
    """The session file is gone, or cannot be read."""

    kind = "session_unreadable"
    hint = "check that the session file exists and is readable"
    retryable = True


class StateError(IndexerdError):
    """Something on disk, or in the configuration, is not as it must be."""


class ConfigError(StateError):
    """One or more problems in the configuration; ``problems`` lists each with file, key, hint."""

    kind = "config_invalid"
    hint = "`indexerd config check` lists every problem"
    exit_code = 78

    def __init__(self, problems: Sequence[Mapping[str, str]]) -> None:
        self.problems = [dict(one) for one in problems]
        lines = "; ".join(f"{p['file']}: {p['key']}: {p['message']}" for p in self.problems)
        super().__init__(f"invalid configuration: {lines}")

    def data(self) -> dict[str, Any]:
        """As for the root, with every problem."""
        return super().data() | {"problems": self.problems}


class InvalidMetaError(StateError):
    """A meta file that is not JSON, or not of the contract's shape."""

    kind = "invalid_meta"
    hint = "`indexerd index REF --force` writes it anew"


class AlreadyRunningError(StateError):
    """Another daemon holds the state directory, or this session is being indexed now."""

    kind = "already_running"
    hint = "wait for it to end"
    retryable = True
    exit_code = 75


class DaemonDownError(StateError):
    """Nobody answers on the socket."""

    kind = "daemon_down"
    hint = "start it with `indexerd service install`, or `indexerd run`"
    retryable = True
    exit_code = 69


class AccessError(StateError):
    """The system denies access to something that we need."""

    kind = "permission"
    hint = "check the owner and mode of the path named"
    exit_code = 77


class WriteError(StateError):
    """A meta file could not be written; the old one is intact."""

    kind = "write_failed"
    hint = "free some space, or check the directory's permissions; it is tried again"
    retryable = True
    exit_code = 75


class DamagedError(StateError):
    """A cache holds what was not put into it, or its file is not as it was left."""


class ModelError(IndexerdError):
    """The provider's side of an indexing run."""


class ModelUnavailableError(ModelError):
    """No configured model can be used."""

    kind = "model_unavailable"
    hint = "configure a key, or add local/extractive to model_keys"


class ProviderError(ModelError):
    """The provider failed for now; ``retry_after`` is its own wish in seconds, if it said so."""

    kind = "provider_unavailable"
    hint = "it is tried again later by itself"
    retryable = True
    exit_code = 75

    def __init__(
        self, message: str, *, retry_after: float | None = None, throttled: bool = False
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.throttled = throttled


class ProviderDeniedError(ModelError):
    """The provider will not serve us until something is changed.

    `model_only`: it is this model that it does not have; its others may do.
    """

    kind = "model_unavailable"
    hint = "check the API key and the model's name, then reload the daemon"

    def __init__(self, message: str, *, hint: str | None = None, model_only: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.model_only = model_only


class RefusedError(ModelError):
    """The model declined this content (safety, recitation, blocked prompt)."""

    kind = "model_unavailable"
    hint = "it is asked again once the session has new messages"


class OutputInvalidError(ModelError):
    """The model's answers were malformed on every attempt."""

    kind = "model_output_invalid"
    hint = "try another model; the session is tried again later"
    retryable = True


_SOON = "wait a minute; it is tried again by itself"


class BudgetError(ModelError):
    """A daily or per-minute cap is reached; ``retry_after`` says in how many seconds it opens.

    `passing`: within a minute or so, and so no reason to settle for another model.
    """

    kind = "budget_exhausted"
    hint = "raise [budget] in the configuration, or wait until tomorrow"
    retryable = True
    exit_code = 75

    def __init__(
        self, message: str, *, hint: str = "", retry_after: float = 3600.0, passing: bool = False
    ) -> None:
        super().__init__(message, hint=hint or (_SOON if passing else self.hint))
        self.retry_after = retry_after
        self.passing = passing


class CallLimitError(ModelError):
    """More questions in one turn than allowed."""

    kind = "call_limit_exceeded"
    hint = "ask again in the next turn"
    retryable = True
    exit_code = 75


class ContextTooLargeError(ModelError):
    """The request is larger than the model takes."""

    kind = "context_too_large"
    hint = "lower [index] max_bytes"


class DeadlineError(ModelError):
    """The total deadline of a call passed."""

    kind = "timeout"
    hint = "raise the timeout, or try again"
    retryable = True
    exit_code = 75
