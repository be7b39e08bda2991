"""The user's own patterns of secrets, compiled, or refused with a reason."""

from __future__ import annotations

import re
from collections.abc import Sequence

from indexerd.errors import ConfigError
from indexerd.settings.patterns import fault, hint


def compile_extra(patterns: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    """Compile the user's patterns.

    Raises ConfigError, naming each pattern by its place, for one that is not a regular
    expression, that fits the empty text, or that could take time without end. The settings hold
    no such pattern; what comes from elsewhere might.
    """
    faults = {f"redact.extra_patterns[{n}]": fault(one) for n, one in enumerate(patterns)}
    problems = [
        {"file": "", "key": key, "message": why, "hint": hint(why)}
        for key, why in faults.items()
        if why
    ]
    if problems:
        raise ConfigError(problems)
    return tuple(re.compile(one) for one in patterns)
