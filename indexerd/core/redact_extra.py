"""The user's own patterns of secrets, compiled, or refused with a reason."""

from __future__ import annotations

import re
from collections.abc import Sequence

from indexerd.errors import ConfigError


def compile_extra(patterns: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    """Compile the user's patterns.

    Raises ConfigError, naming each pattern by its place, for one that is not a regular
    expression, that fits the empty text, or that repeats a repetition (`(a+)+`), whose time
    can double with every character.
    """
    faults = {f"redact.extra_patterns[{n}]": _fault(one) for n, one in enumerate(patterns)}
    problems = [
        {"file": "", "key": key, "message": fault, "hint": "it is read by Python's `re`"}
        for key, fault in faults.items()
        if fault
    ]
    if problems:
        raise ConfigError(problems)
    return tuple(re.compile(one) for one in patterns)


def _fault(pattern: str) -> str:
    try:
        if re.compile(pattern).search(""):
            return "fits the empty text"
    except (re.error, OverflowError, RecursionError):
        return "is not a regular expression"
    bare = re.sub(r"\[\^?\]?[^\]]*\]", "c", re.sub(r"\\.", "e", pattern, flags=re.DOTALL))
    while group := re.search(r"\(([^()]*)\)", bare):
        loops = re.search(r"[*+\0]|\{\d*,", group[1])
        if loops and re.match(r"[*+]|\{\d*,", bare[group.end() :]):
            return "repeats a repetition"
        bare = bare[: group.start()] + ("\0" if loops else "c") + bare[group.end() :]
    return ""
