"""Every error of indexerd: `kind` (stable, docs/PROTOCOL.md), `hint`, `retryable`, `exit_code`.

Messages are logged, so they never contain transcript text, prompts, replies or keys. Agents' hooks
import this, so it uses little of the standard library.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` costs a hook 20 ms
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, ClassVar

_KINDS: dict[str, tuple[int, bool, str]] = {  # exit code, retryable, hint
    "not_found": (3, False, "`indexerd list --all` lists all projects' sessions"),
    "ambiguous_reference": (3, False, "use the session id, or more of what you typed"),
    "invalid_meta": (1, False, "`indexerd index REF --force` rewrites it"),
    "session_empty": (1, False, "there is no conversation in it yet"),
    "session_unreadable": (1, True, "check that the session file exists and is readable"),
    "model_unavailable": (1, False, "configure a key, or add local/extractive to model_keys"),
    "model_output_invalid": (1, True, "try again, or use another model (model_keys)"),
    "budget_exhausted": (75, True, "raise [budget] in the configuration, or wait until tomorrow"),
    "provider_unavailable": (75, True, "try again later; indexing is retried automatically"),
    "already_running": (75, True, "wait for it to finish"),
    "context_too_large": (1, False, "lower max_bytes in [index] or [query]"),
    "call_limit_exceeded": (75, True, "ask again in the next turn"),
    "timeout": (75, True, "try again; `indexerd doctor` looks for a cause"),
    "config_invalid": (78, False, "`indexerd config check` lists every problem"),
    "usage": (2, False, "see `indexerd --help`"),
    "daemon_down": (69, True, "start it with `indexerd service install`, or `indexerd run`"),
    "permission": (77, False, "check the owner and mode of the path"),
    "write_failed": (75, True, "free some space, or check the directory's permissions"),
    "internal": (1, False, "see `indexerd logs`"),
}
BY_KIND: dict[str, type[IndexerdError]] = {}  # the base class of each kind
RPC_CODES: dict[str, int] = {kind: code for code, kind in enumerate(_KINDS, 1001)}


class IndexerdError(Exception):
    """The base class. `str(error)` is one sentence; `upstream` is the code of a cause, if any."""

    kind: ClassVar[str] = "internal"
    exit_code: ClassVar[int]
    retryable: bool
    hint: str
    exit_code, retryable, hint = _KINDS["internal"]
    upstream: str | None = None

    def __init_subclass__(cls, kind: str = "", hint: str = "") -> None:
        if kind:
            cls.kind = kind
            BY_KIND.setdefault(kind, cls)
            cls.exit_code, cls.retryable, cls.hint = _KINDS[kind]
        cls.hint = hint or cls.hint

    def __init__(self, message: str, **more: Any) -> None:
        """`more` sets attributes, for example a hint for this case."""
        super().__init__(message)
        vars(self).update({key: value for key, value in more.items() if value is not None})

    def data(self) -> dict[str, Any]:
        """Return the `data` object of a JSON-RPC error."""
        data = {"kind": self.kind, "hint": self.hint, "retryable": self.retryable}
        more = ("upstream", "candidates", "problems")
        return data | {key: vars(self)[key] for key in more if key in vars(self)}


class UsageError(IndexerdError, kind="usage"):
    """Invalid arguments."""


class NotFoundError(IndexerdError, kind="not_found"):
    """No session matches."""


class FileGoneError(NotFoundError, hint="`indexerd show REF` shows what is stored"):
    """The session is known, but its file is gone."""


class AmbiguousError(IndexerdError, kind="ambiguous_reference"):
    """Several sessions match; `candidates` lists them."""

    candidates: list[dict[str, Any]]

    def __init__(self, message: str, candidates: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(message, candidates=[dict(candidate) for candidate in candidates])


class SessionEmptyError(IndexerdError, kind="session_empty"):
    """The session has no conversation."""


class SessionUnreadableError(IndexerdError, kind="session_unreadable"):
    """The session file is gone, or cannot be read."""


class StateError(IndexerdError):
    """Something on the disk or in the configuration is wrong."""


class ConfigError(StateError, kind="config_invalid"):
    """The configuration is invalid; `problems` lists each error with file, key and hint."""

    def __init__(self, problems: Sequence[Mapping[str, str]]) -> None:
        self.problems = [dict(problem) for problem in problems]
        places = [": ".join(filter(None, (p["file"], p["key"], p["message"]))) for p in problems]
        super().__init__(f"invalid configuration: {'; '.join(places)}")


class InvalidMetaError(StateError, kind="invalid_meta"):
    """A meta file is not JSON, or lacks required fields."""


class AlreadyRunningError(StateError, kind="already_running"):
    """Another daemon holds the state directory, or this session is being indexed now."""


class DaemonDownError(StateError, kind="daemon_down"):
    """No daemon answers on the socket."""


class AccessError(StateError, kind="permission"):
    """The system denies access."""


class WriteError(StateError, kind="write_failed"):
    """A file could not be written; the old one is intact."""


class DamagedError(StateError, hint="the daemon rebuilds it; ask again in a moment"):
    """A cache's file is damaged, or was changed by another program."""

    retryable = True


class ModelError(IndexerdError):
    """A model call failed."""


class ModelUnavailableError(ModelError, kind="model_unavailable"):
    """No configured model is usable."""


class ProviderError(ModelError, kind="provider_unavailable"):
    """The provider failed for now; `retry_after` is in seconds, if the provider sent it."""

    retry_after: float | None = None
    throttled: bool = False


_CURE = "check the API key and the model's name, then reload the daemon"
_LATER = "use another model (model_keys); indexing is retried after new messages"


class ProviderDeniedError(ModelError, kind="model_unavailable", hint=_CURE):
    """The provider rejects the key, or with `model_only` the model; only a new setting helps."""

    model_only: bool = False


class RefusedError(ModelError, kind="model_unavailable", hint=_LATER):
    """The model refused this content (safety, recitation, blocked prompt)."""


class OutputInvalidError(ModelError, kind="model_output_invalid"):
    """The model's answers were malformed on every attempt."""


class BudgetError(ModelError, kind="budget_exhausted"):
    """A daily cap is reached; it is lifted after `retry_after` seconds."""

    retry_after: float = 3600.0


class CallLimitError(ModelError, kind="call_limit_exceeded"):
    """Too many questions in one turn."""


class ContextTooLargeError(ModelError, kind="context_too_large"):
    """The request is too large for the model."""


class DeadlineError(ModelError, kind="timeout"):
    """A call took longer than its deadline."""
