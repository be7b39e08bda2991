"""What every command is given: the options before its name. A plain class: dataclasses cost."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    Color = Literal["auto", "always", "never"]


class App:
    """`config` is the file to use, where one was named; `json` asks for one document on stdout."""

    __slots__ = ("color", "config", "json")

    def __init__(
        self,
        config: str | None = None,
        json: bool = False,
        color: Color = "auto",
    ) -> None:
        self.config = config
        self.json = json
        self.color = color
