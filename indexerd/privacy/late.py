"""Regular expressions that are compiled at their first use, not when their module is loaded.

In: a shape and its flags, as `re.compile` takes them. Out: what stands for the pattern, and does
all that it does by its methods. Most of the patterns that a daemon has at hand are not used before
somebody asks for something, many of them never: compiling all of them would be a tenth of its
start. Only module-level patterns whose shape is a constant belong here: a shape that is wrong is
told of late. What surprised us: once compiled, this is no slower than the pattern itself, since a
method is found among the attributes of the instance.
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
