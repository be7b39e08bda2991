"""Regular expressions that are compiled at their first use, not when their module is loaded.

Most patterns of a daemon are not used before somebody asks for something; compiling all of them
took 0.12 of 0.6 s of loading it. For module-level patterns whose shape is a constant. Once
compiled, it is as fast as the pattern: a method is found among the attributes of the instance.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast

_TAKEN_OVER = ("search", "match", "fullmatch", "finditer", "findall", "sub", "subn", "split")


class _Late:
    """Stands for a pattern; the first question compiles it. Any thread may ask."""

    def __init__(self, shape: Any, flags: int) -> None:
        self._asked_for = shape, flags

    def __getattr__(self, name: str) -> Any:
        made = re.compile(*self._asked_for)
        for one in _TAKEN_OVER:
            setattr(self, one, getattr(made, one))
        return getattr(made, name)


def late(shape: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """The pattern of this shape; what is wrong with it is raised at its first use."""
    return cast("re.Pattern[AnyStr]", _Late(shape, flags))
