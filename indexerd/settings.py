"""All settings, with defaults and ranges, and where they come from.

Defaults < file < environment. The file is TOML, or JSON by its suffix; keys may be in camelCase. If
anything is wrong, the last valid settings apply, or the defaults if there are none: a typo must not
expose excluded sessions.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from indexerd.disk import write_atomically
from indexerd.paths import Places
from indexerd.privacy.patterns import compile_pattern
from indexerd.privacy.sanitize import clean_line

SHOWN_MAX = 200  # characters of a key or a message
PATTERN_SHOWN = 60
LAST_GOOD = "settings.last-good.json"
_FREE_TABLES = (".providers.openai.prices", ".fleet.hosts")  # tables whose keys are not ours
_CAMEL = re.compile(r"(?<=[a-z0-9])([A-Z])")
_MODEL = r"(google|openai|scripted)/\S+|local/extractive"  # scripted: for tests only
ModelKey = Annotated[str, Field(pattern=rf"^({_MODEL})$")]
Seconds = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]
Glob = Annotated[str, Field(min_length=1, max_length=1000)]


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


def _bare(model: str) -> str:
    if model.startswith("openai/"):
        raise ValueError("must be named as its server does: without openai/")
    return model


def _safe_url(url: str) -> str:
    """Refuse a base URL that would send transcripts unencrypted to another machine."""
    parts = urlsplit(url)
    safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname))
    if url and not (parts.hostname and safe):
        raise ValueError("must be https, or http on loopback")
    if parts.username or parts.password:
        raise ValueError("must not contain a user name or a password")
    if parts.port == 0:  # other invalid ports raise by themselves
        raise ValueError("port 0 cannot be reached")
    return url


def is_loopback(host: str | None) -> bool:
    """Whether a host is this machine, without asking a name server."""
    try:
        return host == "localhost" or ip_address(host or "").is_loopback
    except ValueError:  # a name
        return False


class Price(Section):
    input: Annotated[float, Field(ge=0, le=10_000)]
    output: Annotated[float, Field(ge=0, le=10_000)]


class Provider(Section):
    """A provider; its key is used only if a setting here or our own variable names it."""

    api_key_env: Annotated[str, Field(pattern=r"^([A-Za-z_][A-Za-z0-9_]{0,127})?$")] = ""
    api_key_file: str = ""
    base_url: Annotated[str, AfterValidator(_safe_url)] = ""


class OpenAIProvider(Provider):
    prices: dict[Annotated[str, AfterValidator(_bare)], Price] = Field(default_factory=dict)


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
    model: Annotated[str, Field(pattern=rf"^({_MODEL})?$")] = ""
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


Pattern = Annotated[str, Field(max_length=2000), AfterValidator(_compiled)]


class Redact(Section):
    enabled: bool = True
    extra_patterns: Annotated[list[Pattern], Field(max_length=100)] = []


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
    parts = urlsplit(f"//{text.strip()}")
    if parts.port is None or not is_loopback(parts.hostname):
        raise ValueError("must be HOST:PORT with a host on loopback, for example 127.0.0.1:7117")
    return parts.hostname or "", parts.port


def _on_loopback(text: str) -> str:
    if text:
        listen_address(text)
    return text


class Web(Section):
    listen: Annotated[str, Field(max_length=100), AfterValidator(_on_loopback)] = ""


class Archive(Section):
    enabled: bool = False
    max_gb: Annotated[float, Field(ge=0.001, le=100_000, allow_inf_nan=False)] = 10.0
    quiet_seconds: Seconds = 60.0


class Fleet(Section):
    name: Annotated[str, Field(pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,62})?$")] = ""
    text: bool = True
    ca_file: str = ""
    hosts: dict[str, Annotated[str, Field(pattern=r"^[A-Za-z0-9][^\s]{0,254}$")]] = Field(
        default_factory=dict
    )


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
    archive: Archive = Archive()
    fleet: Fleet = Fleet()
    agents: Agents = Agents()


_PLAIN = {  # the validator's words -> ours
    "^(Input|String|List|Value) should ": "must ",
    "valid (dictionary.*)": "table",
    "valid integer.*": "whole number",
    "a valid boolean.*": "true or false",
    "a valid string.*": "text",
    "valid (list|number).*": r"\1",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    " after validation.*": "",
    "must match pattern.*": "is too long, or has a character that is not allowed there",
    "^Port out of range.*": "must have a port of at most 65535",
}


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings and their sources; with `problems` nothing is indexed."""

    settings: Settings
    sources: Mapping[str, str] = field(default_factory=dict)  # dotted key -> file or variable
    problems: tuple[dict[str, str], ...] = ()


def read_config(places: Places, env: Mapping[str, str]) -> Loaded:
    """Read the configuration file; a missing file is a problem only if it was named."""
    path = places.config_file
    try:
        loaded = load(path.read_bytes(), str(path), env)
    except OSError as bad:
        loaded = load(None, str(path), env)
        if places.config_explicit or not isinstance(bad, FileNotFoundError):
            problem = _problem(str(path), "", str(bad.strerror).lower(), "check --config")
            loaded = replace(loaded, problems=(problem,))
    if loaded.problems and (good := _last_good(places.state_dir)):
        return replace(loaded, settings=good)
    return loaded


def remember(loaded: Loaded, state_dir: Path) -> None:
    """Store valid settings, for a later start with a broken file."""
    if not loaded.problems and _last_good(state_dir) != loaded.settings:
        with suppress(OSError):  # on a full disk lookups still work
            write_atomically(state_dir / LAST_GOOD, loaded.settings.model_dump_json().encode())


def _last_good(state_dir: Path) -> Settings | None:
    try:
        return Settings.model_validate_json((state_dir / LAST_GOOD).read_bytes())
    except (OSError, ValueError):
        return None


def load(data: bytes | None, path: str, env: Mapping[str, str]) -> Loaded:
    """Build settings from a file's bytes (None: no file) and `INDEXERD_<SECTION>__<KEY>`."""
    try:
        tree = _parse(data, path) if data is not None else {}
    except (ValueError, RecursionError) as bad:
        return Loaded(Settings(), {}, (_problem(path, "", str(bad), "correct the syntax"),))
    sources = dict.fromkeys((key for key, _ in leaves(tree)), path)
    for variable, value in env.items():
        words = variable.removeprefix("INDEXERD_").lower().split("__")
        # INDEXERD_SOCKET and the like are not settings; a misspelt section is a problem.
        known = len(words) > 1 or words[0] in Settings.model_fields
        if known and variable.startswith("INDEXERD_"):
            _put(tree, words, value)
            sources[".".join(words)] = variable
    try:
        return Loaded(Settings.model_validate(tree), sources)
    except ValidationError as bad:
        return Loaded(Settings(), {}, tuple(_explain(e, path, sources) for e in bad.errors()))


def _parse(data: bytes, path: str) -> dict[str, Any]:
    text = data.decode("utf-8-sig")  # some editors begin a file with a byte order mark
    tree = _snake(json.loads(text) if path.endswith(".json") else tomllib.loads(text), "")
    if not isinstance(tree, dict):
        raise ValueError("the file must be a table of keys")
    return tree


def _snake(value: Any, where: str) -> Any:
    """Convert the keys of a tree to snake case."""
    if not isinstance(value, dict) or where in _FREE_TABLES:  # by models, machines
        return value
    names = {key: _CAMEL.sub(r"_\1", key).lower() for key in value}
    return {names[key]: _snake(below, f"{where}.{names[key]}") for key, below in value.items()}


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value of a tree, with its dotted key."""
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _put(tree: dict[str, Any], words: list[str], text: str) -> None:
    """Set a value, given as TOML or as plain text."""
    value: Any = text
    with suppress(ValueError, RecursionError):
        value = tomllib.loads(f"v = {text}")["v"]
    for word in words[:-1]:
        below = tree.get(word)
        below = below if isinstance(below, dict) else {}
        tree[word] = below
        tree = below
    tree[words[-1]] = value


def _explain(error: Any, path: str, sources: Mapping[str, str]) -> dict[str, str]:
    key = ".".join(str(part) for part in error["loc"] if part != "[key]")
    message = str(error["msg"]).removeprefix("Value error, ")
    for theirs, ours in _PLAIN.items():
        message = re.sub(theirs, ours, message)
    hint = "`indexerd config show` lists every setting"
    if error["type"] == "extra_forbidden":
        message, hint = "no such key", "`indexerd config show` lists every setting"
    elif key.startswith("model_keys") or key == "digest.model":
        message = "not a model key" if "." in key else message
        hint = "write provider/model: google/gemini-3.5-flash-lite, openai/… for any server"
        hint += " of that kind, or local/extractive"
    elif key.startswith("redact.extra_patterns.") and error["type"] == "value_error":
        key, _, place = key.rpartition(".")
        message = f"[{place}] {message}: {error['input'][:PATTERN_SHOWN]}"
        hint = "patterns have RE2's syntax: no look-around, no back-references"
    # The problem's source is that of the key, of a table that contains it, or of a part of it.
    set_by = [source for source in sources if f"{key}.".startswith(f"{source}.")]
    set_by = set_by or [source for source in sources if source.startswith(f"{key}.")]
    return _problem(sources[max(set_by, key=len)] if set_by else path, key, message, hint)


def _problem(file: str, key: str, message: str, hint: str) -> dict[str, str]:
    shown = {"key": clean_line(key, SHOWN_MAX), "message": clean_line(message, SHOWN_MAX)}
    return {"file": file, **shown, "hint": hint}
