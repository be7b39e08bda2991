"""Loads settings from defaults < file < environment, with each value's source and every problem.

The file is TOML, or JSON by its suffix; camelCase keys are accepted in both. If there is any
problem, the last valid settings apply, else the defaults: a typo must not expose excluded sessions.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from indexerd.disk import write_atomically
from indexerd.paths import Places
from indexerd.privacy.sanitize import clean_line
from indexerd.settings.schema import Settings

SIZE_MAX = 256 * 1024  # bytes of a configuration
SHOWN_MAX = 200  # characters of a key or a message
PATTERN_SHOWN = 60
LAST_GOOD = "settings.last-good.json"
_CAMEL = re.compile(r"(?<=[a-z0-9])([A-Z])")
_FREE_KEYS = ("providers.openai.prices",)  # tables whose keys are model names


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
        with path.open("rb") as file:
            loaded = load(file.read(SIZE_MAX + 1), str(path), env)
    except OSError as bad:
        loaded = load(None, str(path), env)
        missing = isinstance(bad, FileNotFoundError)
        if places.config_explicit or not missing:
            why = "no such file" if missing else str(bad.strerror)
            problem = {"file": str(path), "key": "", "message": why, "hint": "check --config"}
            loaded = replace(loaded, problems=(problem,))
    if loaded.problems and (good := _last_good(places.state_dir)):
        return replace(loaded, settings=good)
    return loaded


def remember(loaded: Loaded, state_dir: Path) -> None:
    """Store valid settings, for a later start with a broken file. OSError if that fails."""
    if not loaded.problems and _last_good(state_dir) != loaded.settings:
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
        problem = {
            "file": path,
            "key": "",
            "message": clean_line(str(bad), SHOWN_MAX),
            "hint": "mend the syntax",
        }
        return Loaded(Settings(), {}, (problem,))
    sources = dict.fromkeys(_leaves(tree), path)
    for variable, value in env.items():
        words = variable.removeprefix("INDEXERD_").lower().split("__")
        # INDEXERD_SOCKET and others are not settings; a misspelt section is a problem.
        if variable.startswith("INDEXERD_") and (
            len(words) > 1 or words[0] in Settings.model_fields
        ):
            _put(tree, words, value)
            sources[".".join(words)] = variable
    try:
        return Loaded(Settings.model_validate(tree), sources)
    except ValidationError as bad:
        return Loaded(Settings(), {}, tuple(_problem(one, path, sources) for one in bad.errors()))


def _parse(data: bytes, path: str) -> dict[str, Any]:
    if len(data) > SIZE_MAX:
        raise ValueError(f"the file is larger than {SIZE_MAX >> 10} KiB")
    text = data.decode("utf-8-sig")  # some editors begin a file with a byte order mark
    tree = _snake(json.loads(text) if path.endswith(".json") else tomllib.loads(text), "")
    if not isinstance(tree, dict):
        raise ValueError("the file must hold a table of keys")
    return tree


def _snake(value: Any, where: str) -> Any:
    """Convert the keys of a tree to snake case."""
    if not isinstance(value, dict) or where in _FREE_KEYS:
        return value
    found = {}
    for key, below in value.items():
        name = _CAMEL.sub(r"_\1", key).lower()
        place = f"{where}.{name}".lstrip(".")
        if name in found:
            raise ValueError(f"{place} is given twice, in two spellings")
        found[name] = _snake(below, place)
    return found


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterable[str]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key


def _put(tree: dict[str, Any], words: list[str], text: str) -> None:
    """Set a value, given as TOML or as plain text."""
    value: Any = text
    with suppress(ValueError, RecursionError):
        value = tomllib.loads(f"v = {text}")["v"]
    for at, word in enumerate(words[:-1]):
        below = tree.setdefault(word, {})
        if not isinstance(below, dict):
            words = [".".join(words[at:])]
            break
        tree = below
    tree[words[-1]] = value


def _problem(error: Any, path: str, sources: Mapping[str, str]) -> dict[str, str]:
    key = ".".join(str(part) for part in error["loc"])
    message, hint = str(error["msg"]).removeprefix("Value error, "), "see config/indexerd.toml"
    if error["type"] == "extra_forbidden":
        message, hint = "no such key", "`indexerd config show` lists them all"
    elif key.startswith("model_keys"):
        message = "not a model key" if "." in key else message
        hint = "a model key is written provider/model, for example google/gemini-3.5-flash-lite"
    elif key.startswith("redact.extra_patterns.") and error["type"] == "value_error":
        key, _, place = key.rpartition(".")
        message = f"[{place}] {message}: {error['input'][:PATTERN_SHOWN]}"
        hint = "patterns are those of RE2: without look-around and back-references"
    # Its source is that of the key, of a table around it, or of a part of it.
    set_by = [one for one in sources if f"{key}.".startswith(f"{one}.")]
    set_by = set_by or [one for one in sources if one.startswith(f"{key}.")]
    file = sources[max(set_by, key=len)] if set_by else path
    shown = {"key": clean_line(key, SHOWN_MAX), "message": clean_line(message, SHOWN_MAX)}
    return {"file": file, **shown, "hint": hint}
