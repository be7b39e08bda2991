"""Settings from defaults < file < environment, with each value's source, and every problem.

The file is TOML, or JSON by its suffix; camelCase keys are accepted in both. All problems are
collected with file, key and hint. With any problem the defaults hold, or, in `read_config`, the
settings that were last without one: a typo must not make sessions readable that are excluded.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from indexerd.disk import write_atomically
from indexerd.paths import Places
from indexerd.settings.tree import Settings

SIZE_MAX = 256 * 1024  # bytes of a configuration
# `tomllib` takes time with the square of the dots in a key; keys do not span lines.
DOTS_MAX = 4_000_000  # squares of the dots in each line, summed up
SHOWN_MAX = 200  # characters of a key or a message
PATTERN_SHOWN = 60
LAST_GOOD = "settings.last-good.json"
_CAMEL = re.compile(r"(?<=[a-z0-9])([A-Z])")
_FREE_KEYS = ("providers.openai.prices",)  # tables whose keys are model names


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, their sources, and what was wrong: with `problems` nothing is indexed."""

    settings: Settings
    sources: Mapping[str, str] = field(default_factory=dict)  # dotted key -> file or variable
    problems: tuple[dict[str, str], ...] = ()


def read_config(places: Places, env: Mapping[str, str]) -> Loaded:
    """Read the configuration file; a missing one is a problem only where it was asked for."""
    loaded = _read_file(places, env)
    if loaded.problems and (good := _last_good(places.state_dir)):
        return replace(loaded, settings=good)
    return loaded


def remember(loaded: Loaded, state_dir: Path) -> None:
    """Keep sound settings for a start beside a broken file. OSError where they cannot be kept."""
    if not loaded.problems and _last_good(state_dir) != loaded.settings:
        write_atomically(state_dir / LAST_GOOD, loaded.settings.model_dump_json().encode())


def load(data: bytes | None, path: str, env: Mapping[str, str]) -> Loaded:
    """Build the tree from a file's bytes (None: no file) and `INDEXERD_<SECTION>__<KEY>` variables.

    `INDEXERD_GOOGLE_API_KEY` and the like are no settings; the providers read them.
    """
    try:
        tree = _snake(_parse(data, path), "") if data is not None else {}
    except (ValueError, RecursionError) as bad:
        problem = {"file": path, "key": "", "message": _shown(str(bad)), "hint": "mend the syntax"}
        return Loaded(Settings(), {}, (problem,))
    sources = dict.fromkeys(_leaves(tree), path)
    for key, (variable, value) in _overrides(env).items():
        _put(tree, key.split("."), value)
        sources[key] = variable
    try:
        return Loaded(Settings.model_validate(tree), sources)
    except ValidationError as bad:
        return Loaded(Settings(), {}, tuple(_problem(one, path, sources) for one in bad.errors()))


# -- files ------------------------------------------------------------------------------------


def _read_file(places: Places, env: Mapping[str, str]) -> Loaded:
    path = places.config_file
    try:
        return load(_bytes(path), str(path), env)
    except FileNotFoundError:
        loaded, why = load(None, str(path), env), "no such file"
        if not places.config_explicit:
            return loaded
    except OSError as bad:
        loaded, why = load(None, str(path), env), bad.strerror or "unreadable"
    problem = {"file": str(path), "key": "", "message": why, "hint": "check --config"}
    return replace(loaded, problems=(problem,))


def _bytes(path: Path) -> bytes:
    """A file's bytes, or a device's such as /dev/null; never waiting for a pipe."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(fd).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISCHR(mode)):
            raise OSError(errno.EINVAL, "not a regular file")
        with open(fd, "rb", closefd=False) as file:
            return file.read(SIZE_MAX + 1)
    finally:
        os.close(fd)


def _last_good(state_dir: Path) -> Settings | None:
    try:
        return Settings.model_validate_json((state_dir / LAST_GOOD).read_bytes())
    except (OSError, ValueError):
        return None


# -- from bytes to a tree ---------------------------------------------------------------------


def _parse(data: bytes, path: str) -> dict[str, Any]:
    if len(data) > SIZE_MAX:
        raise ValueError(f"the file is larger than {SIZE_MAX >> 10} KiB")
    text = data.decode("utf-8-sig")  # some editors begin a file with a byte order mark
    tree = json.loads(text) if path.endswith(".json") else _toml(text)
    if not isinstance(tree, dict):
        raise ValueError("the file must hold a table of keys")
    return tree


def _toml(text: str) -> dict[str, Any]:
    if sum(line.count(".") ** 2 for line in text.split("\n")) > DOTS_MAX:
        raise ValueError("too many dots in one line; put what is in a list on lines of its own")
    return tomllib.loads(text)


def _snake(value: Any, where: str) -> Any:
    """A tree with its keys in snake case."""
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


def _overrides(env: Mapping[str, str]) -> dict[str, tuple[str, Any]]:
    """`INDEXERD_INDEX__QUIET_SECONDS=1` sets `index.quiet_seconds`; values are read as TOML."""
    found: dict[str, tuple[str, Any]] = {}
    for variable, text in env.items():
        if not variable.startswith("INDEXERD_"):
            continue
        words = variable.removeprefix("INDEXERD_").lower().split("__")
        if words[0] not in Settings.model_fields and len(words) == 1:
            continue  # INDEXERD_SOCKET and the like; a misspelt section is a problem
        try:
            value = _toml(f"v = {text}")["v"]
        except (ValueError, RecursionError):
            value = text
        found[".".join(words)] = (variable, value)
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


# -- problems ---------------------------------------------------------------------------------


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
    file = _source(key, sources) or path
    return {"file": file, "key": _shown(key), "message": _shown(message), "hint": hint}


def _source(key: str, sources: Mapping[str, str]) -> str | None:
    """What set a faulty key: the key itself, a table around it, or a part of it."""
    words = key.split(".")
    for count in range(len(words), 0, -1):
        if found := sources.get(".".join(words[:count])):
            return found
    return next((sources[one] for one in sources if one.startswith(f"{key}.")), None)


def _shown(text: str) -> str:
    """A user's own words, fit for a terminal and a log."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)[:SHOWN_MAX]
