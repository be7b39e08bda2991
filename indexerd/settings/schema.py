"""All settings, with defaults and ranges."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

from indexerd.privacy.patterns import compile_pattern

ModelKey = Annotated[str, Field(pattern=r"^[a-z0-9_-]+/\S+$")]
Seconds = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]
Glob = Annotated[str, Field(min_length=1, max_length=1000)]
PORT_MAX = 65_535


class Section(BaseModel):
    """A table of the configuration, strict about names and types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Index(Section):
    quiet_seconds: Seconds = 2.0
    error_quiet_seconds: Seconds = 15.0
    max_wait_seconds: Annotated[float, Field(ge=1, le=86_400)] = 900.0
    max_bytes: Annotated[int, Field(ge=1024, le=2_000_000)] = 51_200
    max_lines: Annotated[int, Field(ge=10, le=100_000)] = 2000
    merge_previous_summary: bool = True
    backfill_days: Annotated[int, Field(ge=0, le=36_500)] = 30
    concurrency: Annotated[int, Field(ge=1, le=16)] = 2


class Budget(Section):
    daily_usd: Annotated[float, Field(ge=0, le=10_000, allow_inf_nan=False)] = 1.0
    daily_calls: Annotated[int, Field(ge=0, le=1_000_000)] = 500
    requests_per_minute: Annotated[int, Field(ge=1, le=10_000)] = 30


class ModelLimits(Section):
    timeout_seconds: Annotated[float, Field(ge=1, le=600)] = 60.0
    max_response_bytes: Annotated[int, Field(ge=1024, le=64 * 1024 * 1024)] = 1_048_576


def _safe_url(url: str) -> str:
    """Refuse a base URL that would send transcripts unencrypted to another machine."""
    if not url:
        return url
    parts = urlsplit(url)
    safe = parts.scheme == "https" or (parts.scheme == "http" and _loopback(parts.hostname))
    if not parts.hostname or not safe:
        raise ValueError("must be https, or http on loopback")
    if parts.username or parts.password:
        raise ValueError("must not hold a user name or a password")
    if parts.port == 0:  # other invalid ports raise by themselves
        raise ValueError("port 0 cannot be reached")
    return url


def _loopback(host: str | None) -> bool:
    try:
        return host == "localhost" or ip_address(host or "").is_loopback
    except ValueError:  # a name
        return False


class Price(Section):
    input: Annotated[float, Field(ge=0, le=10_000)]
    output: Annotated[float, Field(ge=0, le=10_000)]


class Provider(Section):
    """A key is used only if it is named here, or by our own variable."""

    api_key_env: Annotated[str, Field(pattern=r"^([A-Za-z_][A-Za-z0-9_]{0,127})?$")] = ""
    api_key_file: str = ""
    base_url: str = ""

    _check_url = field_validator("base_url")(_safe_url)


class OpenAIProvider(Provider):
    prices: dict[str, Price] = Field(default_factory=dict)


class Providers(Section):
    google: Provider = Provider()
    openai: OpenAIProvider = OpenAIProvider()


class References(Section):
    max_refs_per_prompt: Annotated[int, Field(ge=1, le=20)] = 3
    max_injected_bytes: Annotated[int, Field(ge=500, le=1_000_000)] = 12_000
    scope: Literal["project", "all"] = "project"


class Query(Section):
    max_bytes: Annotated[int, Field(ge=1024, le=4_000_000)] = 160_000
    timeout_seconds: Annotated[float, Field(ge=1, le=600)] = 30.0
    max_calls_per_turn: Annotated[int, Field(ge=1, le=2)] = 1


class Digest(Section):
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


def _compiled(pattern: str) -> str:
    compile_pattern(pattern)
    return pattern


class Redact(Section):
    enabled: bool = True
    extra_patterns: list[Annotated[str, Field(max_length=2000), AfterValidator(_compiled)]] = Field(
        default_factory=list, max_length=100
    )


class Privacy(Section):
    exclude: list[Glob] = Field(default_factory=list, max_length=1000)


class Watch(Section):
    mode: Literal["auto", "inotify", "poll"] = "auto"
    rescan_seconds: Annotated[float, Field(ge=0.1, le=3600)] = 30.0


class Log(Section):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"


def listen_address(text: str) -> tuple[str, int]:
    """Split `HOST:PORT`; ValueError for a host that other machines can reach."""
    host, colon, port = text.strip().rpartition(":")
    host = host.strip("[]")
    if not colon or not _loopback(host):
        raise ValueError("must be HOST:PORT with a host on loopback, for example 127.0.0.1:7117")
    if not port.isascii() or not port.isdigit() or int(port[:6]) > PORT_MAX:
        raise ValueError("the port must be a number from 0 to 65535")
    return host, int(port)


class Web(Section):
    listen: Annotated[str, Field(max_length=100)] = ""

    @field_validator("listen")
    @classmethod
    def _on_loopback(cls, text: str) -> str:
        if text:
            listen_address(text)
        return text


class Agent(Section):
    roots: list[str] = Field(default_factory=list)
    meta_dir: str = ""


class Agents(Section):
    pi: Agent = Agent()
    claude: Agent = Agent()
    codex: Agent = Agent()
    opencode: Agent = Agent()


class Settings(Section):
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
