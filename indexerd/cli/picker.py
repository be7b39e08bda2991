"""Choose a session on a terminal: type to search, with a preview of the selected one.

Answers come from the daemon, or from stored data, in a thread, so typing never waits. While one is
computed, only the newest of the later requests is kept.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from textwrap import fill
from typing import Any, NamedTuple

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Point
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.layout import (
    BufferControl,
    DynamicContainer,
    FormattedTextControl,
    HSplit,
    Layout,
    VSplit,
    Window,
)

from indexerd.amounts import count
from indexerd.cli import printing as render
from indexerd.cli.backend import App, project, safe
from indexerd.cli.sessions import marks
from indexerd.errors import IndexerdError
from indexerd.paths import basename, directory_of
from indexerd.protocol.limits import FIRST_MESSAGE_MAX

ROWS = 100  # sessions that are listed
WIDE = 100  # columns, from which the preview is beside the list
_AGE, _AGENT, _PROJECT = 5, 8, 14  # columns
_DIM = "fg:ansibrightblack"
_SOME = "No session has all of these words; these have some: ↓ choose · Esc leave"
_KEYS = "Enter resume · Tab show · Esc leave · type to search all projects"

Row = dict[str, Any]


class Choice(NamedTuple):
    """What the user wants to do with which session."""

    action: str  # resume, show
    row: Row


def possible() -> bool:
    """Return whether a person is at a terminal."""
    streams = (sys.stdin, sys.stdout)
    return all(stream is not None and stream.isatty() for stream in streams)


def pick(app: App) -> Choice | None:
    """Let the user choose a session; None: leave. KeyboardInterrupt for Control-C."""
    quiet = App(app.config, json=True)
    rows = _found(quiet, "")  # before the screen is taken: without a daemon this prints a note
    return _Picker(quiet, rows).application.run()


def _found(app: App, query: str) -> list[Row]:
    if not query.strip():
        rows: list[Row] = app.call("list", {"limit": ROWS, "cwd": project()})["sessions"]
        return rows or app.call("list", {"limit": ROWS})["sessions"]  # of all projects
    answer = app.call("search", {"query": query, "limit": ROWS, "rows": True})
    partial = {hit["sessionId"]: "words" in hit for hit in answer["hits"]}
    return [answer["rows"][key] | {"partial": partial[key]} for key in partial]


def _columns() -> int:
    return shutil.get_terminal_size().columns


class _Picker:
    def __init__(self, app: App, rows: list[Row]) -> None:
        self._app, self._rows = app, rows
        self._at = 0  # the selected row
        self._answered = ""  # the query whose rows are shown
        self._action = ""  # what to do once the newest query is answered
        self._note = ""
        self._thread = ThreadPoolExecutor(1)
        self._query = Buffer(multiline=False, on_text_changed=lambda _: self._ask())
        self.application: Application[Choice | None] = Application(
            layout=self._layout(), key_bindings=self._keys(), full_screen=True
        )

    def _ask(self) -> None:
        self._action = ""
        self.application.create_background_task(self._search(self._query.text))

    async def _search(self, query: str) -> None:
        """Search in the thread, and show the rows, unless the query has changed by then."""

        def work() -> list[Row] | None:
            return _found(self._app, query) if query == self._query.text else None

        try:
            rows = await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except IndexerdError as bad:
            self._note, rows = safe(bad), None
        if rows is not None and query == self._query.text:
            lacking = bool(rows) and rows[0].get("partial", False)
            self._rows, self._at, self._answered = rows, -1 if lacking else 0, query
            self._note = _SOME if lacking else ""
            if self._action:
                self._choose(self._action)
        self.application.invalidate()

    # -- keys

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        moves = {"up": -1, "down": 1, "c-p": -1, "c-n": 1, "pageup": -10, "pagedown": 10}
        for name, step in moves.items():
            keys.add(name)(lambda _event, step=step: self._move(step))
        for name, action in {"enter": "resume", "tab": "show"}.items():
            keys.add(name)(lambda _event, action=action: self._choose(action))
        keys.add("escape", eager=True)(lambda event: event.app.exit())
        keys.add("c-c")(lambda event: event.app.exit(exception=KeyboardInterrupt))
        return keys

    def _move(self, step: int) -> None:
        self._at = max(0, min(len(self._rows) - 1, self._at + step))
        self._note = ""

    def _choose(self, action: str) -> None:
        """End with the selected session; of a search that is not answered yet, with its first."""
        self._action = action if self._answered != self._query.text else ""
        if self._rows and self._at >= 0 and not self._action:
            self.application.exit(result=Choice(action, self._rows[self._at]))

    # -- what is shown

    def _layout(self) -> Layout:
        query = Window(BufferControl(self._query), height=1)
        prompt = VSplit([Window(FormattedTextControl("> "), width=2, height=1), query])
        listed = FormattedTextControl(self._list, get_cursor_position=self._cursor)
        rows = Window(listed, width=lambda: self._width)
        about = Window(FormattedTextControl(self._about), wrap_lines=True)
        beside = VSplit([rows, Window(width=1, char="│"), about])
        below = HSplit([rows, Window(height=1, char="─"), about])
        body = DynamicContainer(lambda: beside if _columns() >= WIDE else below)
        note = FormattedTextControl(lambda: fill(self._note or _KEYS, _columns()))
        foot = Window(note, dont_extend_height=True)
        return Layout(HSplit([prompt, body, foot]), query)

    @property
    def _width(self) -> int:
        """The columns of the list, and of the preview."""
        return _columns() // 2 if _columns() >= WIDE else _columns()

    def _cursor(self) -> Point:
        return Point(0, max(0, self._at))

    def _list(self) -> StyleAndTextTuples:
        if not self._rows:
            return [("", "no sessions")]
        narrow, lines = self._width < render.NARROW, StyleAndTextTuples()
        room = self._width - _AGE - (2 if narrow else _AGENT + _PROJECT + 4)
        for at, row in enumerate(self._rows):
            age = render.age(row["modifiedAt"]).removesuffix(" ago")
            place = basename(safe(directory_of(row)))
            name = safe(f"{marks(row)} {render.without_signs(row['name'], '')}".lstrip())
            style, dim = ("reverse", "reverse") if at == self._at else ("", _DIM)
            agent = "" if narrow else f" {row['agent']:{_AGENT}}"
            before = f"{age:>{_AGE}}{agent} "
            lines += [(dim, before), (style, render.fitted(name, max(10, room)))]
            lines.append((dim, "\n" if narrow else f" {render.fitted(place, _PROJECT)}\n"))
        return lines

    def _about(self) -> StyleAndTextTuples:
        if not self._rows or self._at < 0:
            return []
        row = self._rows[self._at]
        facts = [row["agent"], count(row["userMessageCount"], "prompt"), *row["models"], row["cwd"]]
        texts = [
            ("bold", render.without_signs(row["name"], "")),
            (_DIM, " · ".join(filter(None, map(safe, facts)))),
            ("", ""),
        ]
        prompt = row["firstUserMessage"]
        prompt += "…" * (len(prompt) >= FIRST_MESSAGE_MAX)
        for text in (row["description"], prompt):
            if text not in ("", row["name"]):
                texts += [("", line) for line in (*text.split("\n"), "")]
        width = max(20, self._width - 2)
        return [(style, fill(safe(line, 4000), width) + "\n") for style, line in texts]
