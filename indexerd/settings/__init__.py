"""One frozen tree of settings, from defaults < file < environment, that knows each value's source.

The file is TOML (or JSON); camelCase keys are accepted in both. Every problem is collected
with file, key and hint, never only the first. Reading the file is the caller's business:
this module sees bytes and a mapping of variables. What is read in `parsing` is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator

from indexerd.settings import parsing, patterns

Roots = list[str]
ModelKey = Annotated[str, Field(pattern=r"^[a-z0-9_-]+/\S+$")]
Seconds = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]
Glob = Annotated[str, Field(min_length=1, max_length=1000)]


class Section(BaseModel):
    """A table of the configuration: frozen, and strict about names and types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Index(Section):
    """When a session is indexed, and how much of it is sent."""

    quiet_seconds: Seconds = 2.0
    error_quiet_seconds: Seconds = 15.0
    max_wait_seconds: Annotated[float, Field(ge=1, le=86_400)] = 900.0
    max_bytes: Annotated[int, Field(ge=1024, le=2_000_000)] = 51_200
    max_lines: Annotated[int, Field(ge=10, le=100_000)] = 2000
    merge_previous_summary: bool = True
    backfill_days: Annotated[int, Field(ge=0, le=36_500)] = 30
    concurrency: Annotated[int, Field(ge=1, le=16)] = 2


class Budget(Section):
    """Caps on models that leave the machine."""

    daily_usd: Annotated[float, Field(ge=0, le=10_000, allow_inf_nan=False)] = 1.0
    daily_calls: Annotated[int, Field(ge=0, le=1_000_000)] = 500
    requests_per_minute: Annotated[int, Field(ge=1, le=10_000)] = 30


class ModelLimits(Section):
    """Limits of one provider call."""

    timeout_seconds: Annotated[float, Field(ge=1, le=600)] = 60.0
    max_response_bytes: Annotated[int, Field(ge=1024, le=64 * 1024 * 1024)] = 1_048_576


def _safe_url(url: str) -> str:
    """Refuse a base URL that would carry transcripts in the clear to another machine."""
    if not url:
        return url
    parts = urlsplit(url)
    safe = parts.scheme == "https" or (parts.scheme == "http" and _loopback(parts.hostname))
    if not parts.hostname or not safe:
        raise ValueError("must be https, or http on loopback")
    if parts.username or parts.password:
        raise ValueError("must not hold a user name or a password")
    if parts.port == 0:  # one that is no number, or too large, raises by itself
        raise ValueError("port 0 cannot be reached")
    return url


def _loopback(host: str | None) -> bool:
    try:
        return host == "localhost" or ip_address(host or "").is_loopback
    except ValueError:  # a name
        return False


class Price(Section):
    """What a model costs, in USD per million tokens."""

    input: Annotated[float, Field(ge=0, le=10_000)]
    output: Annotated[float, Field(ge=0, le=10_000)]


class Provider(Section):
    """How a provider is reached. A key is used only when it is named here, or by our variable."""

    api_key_env: Annotated[str, Field(pattern=r"^([A-Za-z_][A-Za-z0-9_]{0,127})?$")] = ""
    api_key_file: str = ""
    base_url: str = ""

    _check_url = field_validator("base_url")(_safe_url)


class OpenAIProvider(Provider):
    """Any OpenAI-compatible server; `prices` says what its models cost."""

    prices: dict[str, Price] = Field(default_factory=dict)


class Providers(Section):
    """The providers of `model_keys`."""

    google: Provider = Provider()
    openai: OpenAIProvider = OpenAIProvider()


class References(Section):
    """What `@@` may inject."""

    max_refs_per_prompt: Annotated[int, Field(ge=1, le=20)] = 3
    max_injected_bytes: Annotated[int, Field(ge=500, le=1_000_000)] = 12_000
    scope: Literal["project", "all"] = "project"


class Query(Section):
    """Questions about one session."""

    max_bytes: Annotated[int, Field(ge=1024, le=4_000_000)] = 160_000
    timeout_seconds: Annotated[float, Field(ge=1, le=600)] = 30.0
    max_calls_per_turn: Annotated[int, Field(ge=1, le=2)] = 1


class Digest(Section):
    """Automatic digests of long sessions."""

    enabled: bool = True
    trigger_threshold: Annotated[int, Field(ge=2, le=100_000)] = 50
    target_compression: Annotated[float, Field(gt=0, lt=1)] = 0.3
    preserve_recent: Annotated[int, Field(ge=0, le=10_000)] = 10
    preserve_system: bool = True
    model: Annotated[str, Field(pattern=r"^([a-z0-9_-]+/\S+)?$")] = ""
    exclude: list[Glob] = Field(default_factory=list, max_length=1000)
    token_trigger: bool = False
    context_window: Annotated[int, Field(ge=0, le=100_000_000)] = 0
    reserve_tokens: Annotated[int, Field(ge=0, le=10_000_000)] = 16_384
    prune_tool_output: bool = True
    hook: list[Annotated[str, Field(min_length=1, max_length=4096)]] = Field(
        default_factory=list, max_length=32
    )
    hook_seconds: Annotated[float, Field(ge=0.1, le=60)] = 5.0


def _quick(pattern: str) -> str:
    """Refuse what is no regular expression, or a slow one."""
    if reason := patterns.fault(pattern):
        raise ValueError(reason)
    return pattern


Pattern = Annotated[str, AfterValidator(_quick)]


class Redact(Section):
    """What is taken out before text leaves or is stored."""

    enabled: bool = True
    extra_patterns: list[Pattern] = Field(default_factory=list, max_length=100)


class Privacy(Section):
    """Sessions that are never read: globs over cwd and session file."""

    exclude: list[Glob] = Field(default_factory=list, max_length=1000)


class Watch(Section):
    """How changes are noticed."""

    mode: Literal["auto", "inotify", "poll"] = "auto"
    rescan_seconds: Annotated[float, Field(ge=0.1, le=3600)] = 30.0


class Log(Section):
    """The structured log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"


def listen_address(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`; ValueError for one that others than this machine can reach."""
    host, colon, port = text.strip().rpartition(":")
    host = host.strip("[]")
    if not colon or not _loopback(host):
        raise ValueError("must be HOST:PORT with a host on loopback, for example 127.0.0.1:7117")
    if not port.isascii() or not port.isdigit() or int(port[:6]) > PORT_MAX:
        raise ValueError("the port must be a number from 0 to 65535")
    return host, int(port)


class Web(Section):
    """The web view; empty = off."""

    listen: Annotated[str, Field(max_length=100)] = ""

    @field_validator("listen")
    @classmethod
    def _on_loopback(cls, text: str) -> str:
        if text:
            listen_address(text)
        return text


class Agent(Section):
    """Where one agent's sessions are, instead of its defaults."""

    roots: Roots = Field(default_factory=list)
    meta_dir: str = ""


class Agents(Section):
    """The four agents."""

    pi: Agent = Agent()
    claude: Agent = Agent()
    codex: Agent = Agent()
    opencode: Agent = Agent()


class Settings(Section):
    """Everything. The five top-level fields are the mission's own (S0.25)."""

    command_name: Annotated[str, Field(min_length=1, max_length=64)] = "index-session"
    status_key: Annotated[str, Field(min_length=1, max_length=64)] = "index-session"
    min_new_user_messages: Annotated[int, Field(ge=1, le=10_000)] = 5
    notification_auto_clear_ms: Annotated[int, Field(ge=0, le=3_600_000)] = 3000
    model_keys: list[ModelKey] = Field(
        default=["google/gemini-3.5-flash-lite", "local/extractive"], min_length=1, max_length=16
    )
    index: Index = Index()
    budget: Budget = Budget()
    model: ModelLimits = ModelLimits()
    providers: Providers = Providers()
    references: References = References()
    query: Query = Query()
    digest: Digest = Digest()
    redact: Redact = Redact()
    privacy: Privacy = Privacy()
    watch: Watch = Watch()
    log: Log = Log()
    web: Web = Web()
    agents: Agents = Agents()


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, where each value came from, and what was wrong.

    With `problems` the settings are the defaults, and nothing is indexed (S0.26); only sound
    exclusions and patterns of secrets still hold, each by itself.
    """

    settings: Settings
    sources: Mapping[str, str] = field(default_factory=dict)  # dotted key -> file or variable
    problems: tuple[dict[str, str], ...] = ()


PORT_MAX = 65_535
PATTERN_SHOWN = 60  # characters of a pattern that is refused
JUDGED_MAX = 1000  # patterns, where there are more than may be
SHOWN_MAX = 200  # characters of a key or a message
_SNAKE = re.compile(r"(?<=[a-z0-9])([A-Z])")
_FREE_KEYS = ("providers.openai.prices",)  # tables whose keys are the user's own words


def load(data: bytes | None, path: str, env: Mapping[str, str]) -> Loaded:
    """Build the tree from a file's bytes (None: no file) and `INDEXERD_<SECTION>__<KEY>` variables.

    A number is accepted for any number field; `INDEXERD_GOOGLE_API_KEY` and the like are not
    settings and are read by the providers alone.
    """
    try:
        tree = _snake(parsing.tree_of(data, path), "") if data is not None else {}
        sources = dict.fromkeys(_leaves(tree), path)
    except (ValueError, RecursionError) as bad:
        problem = {"file": path, "key": "", "message": _shown(str(bad)), "hint": "mend the syntax"}
        return Loaded(Settings(), {}, (problem,))
    for key, (variable, value) in _overrides(env).items():
        _put(tree, key.split("."), value)
        sources[key] = variable
    try:
        return Loaded(Settings.model_validate(tree), sources)
    except ValidationError as bad:
        problems = tuple(_problem(error, path, sources) for error in bad.errors())
        return Loaded(_guards(tree), {}, problems)


def sound(privacy: Any, redact: Any) -> tuple[Privacy, Redact]:
    """What two tables say of exclusions and secrets, piece by piece, whatever else is in them."""
    globs = [one for one in _texts(privacy, "exclude") if one]
    quick = [
        one for one in _texts(redact, "extra_patterns")[:JUDGED_MAX] if not patterns.fault(one)
    ]
    enabled = not isinstance(redact, dict) or redact.get("enabled") is not False
    return (
        Privacy.model_construct(exclude=globs),
        Redact.model_construct(enabled=enabled, extra_patterns=quick),
    )


def _texts(table: Any, key: str) -> list[str]:
    """The texts of a list, or the one that stands in its place."""
    value = table.get(key) if isinstance(table, dict) else None
    found = value if isinstance(value, list) else [value]
    return [one for one in found if isinstance(one, str)]


def _guards(tree: Mapping[str, Any]) -> Settings:
    """The defaults, with what a faulty tree soundly says of exclusions and secrets."""
    privacy, redact = sound(tree.get("privacy"), tree.get("redact"))
    return Settings().model_copy(update={"privacy": privacy, "redact": redact})


def _snake(value: Any, where: str) -> Any:
    if not isinstance(value, dict) or where in _FREE_KEYS:
        return value
    found = {}
    for key, one in value.items():
        name = _SNAKE.sub(r"_\1", key).lower()
        below = f"{where}.{name}".lstrip(".")
        if name in found:
            raise ValueError(f"{below} is given twice, in two spellings")
        found[name] = _snake(one, below)
    return found


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterable[str]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key


def _overrides(env: Mapping[str, str]) -> dict[str, tuple[str, Any]]:
    """`INDEXERD_INDEX__QUIET_SECONDS=1` sets `index.quiet_seconds`; values are read as TOML."""
    tops = set(Settings.model_fields)
    found: dict[str, tuple[str, Any]] = {}
    for variable, text in env.items():
        if not variable.startswith("INDEXERD_"):
            continue
        words = variable.removeprefix("INDEXERD_").lower().split("__")
        if words[0] not in tops and len(words) == 1:
            continue  # INDEXERD_SOCKET and the like; a misspelt section is a problem
        found[".".join(words)] = (variable, parsing.value_of(text))
    return found


def _put(tree: dict[str, Any], words: list[str], value: Any) -> None:
    """Set a value; below something that is no table it becomes an unknown key, and so a problem."""
    table = tree
    for word in words[:-1]:
        below = table.setdefault(word, {})
        if not isinstance(below, dict):
            tree[".".join(words)] = value
            return
        table = below
    table[words[-1]] = value


def _problem(error: Any, path: str, sources: Mapping[str, str]) -> dict[str, str]:
    key = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        message, hint = "no such key", "`indexerd config show` lists them all"
    elif key.startswith("model_keys"):
        message = "not a model key" if "." in key else str(error["msg"])
        hint = "a model key is written provider/model, for example google/gemini-3.5-flash-lite"
    elif key.startswith("redact.extra_patterns.") and error["type"] == "value_error":
        key, _, place = key.rpartition(".")
        why = str(error["msg"]).removeprefix("Value error, ")
        message = f"[{place}] {why}: {error['input'][:PATTERN_SHOWN]}"
        hint = patterns.hint(why)
    else:
        message = str(error["msg"]).removeprefix("Value error, ")
        hint = "see config/indexerd.toml for its type and range"
    file = _source(key, sources) or path
    return {"file": file, "key": _shown(key), "message": _shown(message), "hint": hint}


def _source(key: str, sources: Mapping[str, str]) -> str | None:
    """Where a faulty key came from: what set it, or the table around it, or a part of it."""
    words = key.split(".")
    above = (".".join(words[:count]) for count in range(len(words), 0, -1))
    around = next((sources[one] for one in above if one in sources), None)
    return around or next((sources[one] for one in sources if one.startswith(f"{key}.")), None)


def _shown(text: str) -> str:
    """A user's own words, fit for a terminal and a log: one line, no escapes, not endless."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)[:SHOWN_MAX]
