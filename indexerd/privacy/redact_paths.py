"""Secrets in the names of files and directories, where these are shown.

In: a path, or a row. Out: the same as it is shown, with secrets replaced. A path that is used, and
not only shown, has to stay whole: such fields of a row stay, and `shown` has beside them what
people are shown; in place of a command that would tell a secret, one of ours that leads to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from indexerd.privacy.redact import redact

Row = dict[str, Any]
_WHOLE = ("cwd", "sessionFile", "parentSessionFile")  # of a row: programs go there


def _clean(text: str) -> str:
    return redact(text).text


@lru_cache(4096)
def shown_path(path: str) -> str:
    """A path without secrets."""
    return _clean(path)


@lru_cache(512)
def shown_paths(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Paths without secrets, each once."""
    return paths if _are_plain(paths, _clean) else tuple(dict.fromkeys(map(_clean, paths)))


def _are_plain(texts: Iterable[str], clean: Callable[[str], str]) -> bool:
    """Whether none has a secret, as it mostly is: all together tell it quickly."""
    whole = "\n".join(texts)
    return clean(whole) == whole


def with_shown(row: Row, clean: Callable[[str], str] = _clean) -> Row:
    """A row with `shown`: what people are shown in place of paths, where a secret is in one."""
    rest = {key: value for key, value in row.items() if key != "shown"}
    held = {key: row[key] for key in (*_WHOLE, "resume") if row.get(key)}
    if _are_plain(held.values(), clean):
        return rest
    named = _folder_names(str(row.get("cwd") or ""), clean)
    found = {key: _without(named, clean(text)) for key, text in held.items()}
    shown = {key: text for key, text in found.items() if text != held[key]}
    if "resume" in shown:
        shown["resume"] = f"indexerd resume {row['sessionId']}"
    return rest | ({"shown": shown} if shown else {})


def _folder_names(cwd: str, clean: Callable[[str], str]) -> dict[str, str]:
    """Secrets of a directory as agents write them in the names of folders, and what is shown."""
    parts = {part: clean(part) for part in cwd.split("/")}
    secret = {part: shown for part, shown in parts.items() if shown != part}
    return {
        folder: shown
        for part, shown in secret.items()
        for folder in (re.sub(r"[\\:]", "-", part), re.sub(r"[^A-Za-z0-9-]", "-", part))
    }


def _without(named: Mapping[str, str], text: str) -> str:
    for folder, shown in named.items():
        text = text.replace(folder, shown)
    return text


def for_people(row: Mapping[str, Any]) -> Row:
    """A row as people are shown it."""
    return {**row, **(row.get("shown") or {})}
