"""Why a promise is missed: what was looked into, and what the rest of the way would take.

Figures differ from run to run, so more stands here than is missed in any one. A figure is found by
its script and the beginning of its name.
"""

from __future__ import annotations

UNKNOWN = "not looked into"

WHY: tuple[tuple[str, str, str], ...] = ()


def why(bench: str, figure: str) -> str:
    """The reason for a figure that misses its promise."""
    return next(
        (told for name, start, told in WHY if name == bench and figure.startswith(start)), UNKNOWN
    )
