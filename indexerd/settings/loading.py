"""Settings from defaults < file < environment, with each value's source, and every problem.

In: a file's bytes and a mapping of variables. Out: `Loaded`. The file is TOML (or JSON); camelCase
keys are accepted in both. Every problem is collected with file, key and hint, never only the first.

With a problem anywhere the defaults hold, but for exclusions and patterns of secrets: of these
whatever can be read does, in the file and in the environment, however little of the rest can be.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from pydantic import ValidationError

from indexerd.settings import parsing, patterns
from indexerd.settings.tree import Privacy, Redact, Settings


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, where each value came from, and what was wrong.

    With `problems` the settings are the defaults, and nothing is indexed (S0.26); only sound
    exclusions and patterns of secrets still hold, each by itself.
    """

    settings: Settings
    sources: Mapping[str, str] = field(default_factory=dict)  # dotted key -> file or variable
    problems: tuple[dict[str, str], ...] = ()


PATTERN_SHOWN = 60  # characters of a pattern that is refused
JUDGED_MAX = 1000  # patterns, where there are more than may be
TABLES_MAX = 100  # that are read by themselves
SHOWN_MAX = 200  # characters of a key or a message
_SNAKE = re.compile(r"(?<=[a-z0-9])([A-Z])")
_FREE_KEYS = ("providers.openai.prices",)  # tables whose keys are the user's own words


def load(data: bytes | None, path: str, env: Mapping[str, str]) -> Loaded:
    """Build the tree from a file's bytes (None: no file) and `INDEXERD_<SECTION>__<KEY>` variables.

    A number is accepted for any number field; `INDEXERD_GOOGLE_API_KEY` and the like are not
    settings and are read by the providers alone.
    """
    given: list[Any] = []
    overrides = _overrides(env)
    try:
        given += [parsing.tree_of(data, path)] if data is not None else [{}]
        tree = _snake(given[0], "")
        sources = dict.fromkeys(_leaves(tree), path)
    except (ValueError, RecursionError) as bad:
        problem = {"file": path, "key": "", "message": _shown(str(bad)), "hint": "mend the syntax"}
        if not given:
            tables = parsing.tables_of(data or b"", path, ("privacy", "redact"))
            given += islice(tables, TABLES_MAX)
        return Loaded(_guards(given, overrides), {}, (problem,))
    for key, (variable, value) in overrides.items():
        _put(tree, key.split("."), value)
        sources[key] = variable
    try:
        return Loaded(Settings.model_validate(tree), sources)
    except ValidationError as bad:
        problems = tuple(_problem(error, path, sources) for error in bad.errors())
        return Loaded(_guards(given, overrides), {}, problems)


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


def _guards(trees: Iterable[Any], overrides: Mapping[str, tuple[str, Any]]) -> Settings:
    """The defaults, with what faulty trees and variables soundly say of exclusions and secrets."""
    told = [(_spelled(name), table) for tree in trees for name, table in _pairs(tree)]
    told += [(key, value) for key, (_, value) in overrides.items()]
    words = [(tuple(key.split(".")), value) for key, (_, value) in overrides.items()]
    words += [((name, _spelled(key)), value) for name, one in told for key, value in _pairs(one)]

    def of(*key: str) -> list[Any]:
        return [value for place, value in words if place == key]

    globs = {"exclude": _flat(of("privacy", "exclude"))}
    rules = {"extra_patterns": _flat(of("redact", "extra_patterns"))}
    switches = of("redact", "enabled") or [True]
    enabled = any(one is not False for one in switches)
    privacy, redact = sound(globs, {**rules, "enabled": enabled})
    return Settings().model_copy(update={"privacy": privacy, "redact": redact})


def _pairs(table: Any) -> Iterator[tuple[str, Any]]:
    return iter(table.items() if isinstance(table, dict) else ())


def _flat(values: Iterable[Any]) -> list[Any]:
    """What several lists hold, each once, or what stands in a list's place."""
    every = [one for value in values for one in (value if isinstance(value, list) else [value])]
    return list(dict.fromkeys(one for one in every if isinstance(one, str)))


def _spelled(key: str) -> str:
    """A key as it is written here, however it was written there."""
    return _SNAKE.sub(r"_\1", key).lower()


def _snake(value: Any, where: str) -> Any:
    if not isinstance(value, dict) or where in _FREE_KEYS:
        return value
    found = {}
    for key, one in value.items():
        name = _spelled(key)
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
