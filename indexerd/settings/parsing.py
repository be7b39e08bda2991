"""The bytes of a configuration, and the text of a variable, as values; bounded in what they cost.

In: bytes of TOML or JSON, or one value in TOML. Out: a table, or a value. Errors are ValueError
and RecursionError, in words that can be shown.

`tomllib` takes time and memory with the square of the dots in a key: one of 128 KiB takes more
than a minute and gigabytes. Keys do not go over lines, and so the dots of each line are counted,
those in texts and comments, too: what a scanner of our own took for a text might be none.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any

SIZE_MAX = 256 * 1024  # bytes of a configuration
DOTS_MAX = 4_000_000  # squares of the dots in each line, summed up: 2000 in a single one


def tree_of(data: bytes, path: str) -> dict[str, Any]:
    """The table that a file holds; `path` tells JSON from TOML by its end."""
    if len(data) > SIZE_MAX:
        raise ValueError(f"the file is larger than {SIZE_MAX >> 10} KiB")
    text = data.decode("utf-8-sig")  # some editors begin a file with a byte order mark
    tree = json.loads(text) if path.endswith(".json") else _toml(text)
    if not isinstance(tree, dict):
        raise ValueError("the file must hold a table of keys")
    return tree


def tables_of(data: bytes, path: str, names: Collection[str]) -> Iterator[dict[str, Any]]:
    """Of a file that cannot be read as a whole, what can be read by itself and has these names."""
    text = data.decode("utf-8-sig", "replace")
    if len(data) > SIZE_MAX or path.endswith(".json") or _dots(text) > DOTS_MAX:
        return
    table = ""
    for line in [*text.splitlines(), "["]:
        if line.lstrip(" \t").startswith("["):
            if any(name in table.lower() for name in names):
                with suppress(ValueError, RecursionError):
                    yield _toml(table)
            table = ""
        table += f"{line}\n"


def value_of(text: str) -> Any:
    """A variable's value, read as TOML; the text itself where it is none."""
    try:
        return _toml(f"v = {text}")["v"]
    except (ValueError, RecursionError):
        return text


def _toml(text: str) -> dict[str, Any]:
    if _dots(text) > DOTS_MAX:
        raise ValueError("too many dots in one line; put what is in a list on lines of its own")
    return tomllib.loads(text)


def _dots(text: str) -> int:
    return sum(line.count(".") ** 2 for line in text.split("\n"))
