"""Every session's names, in memory, in step with the catalog: for references and completions.

In: the catalog, what is not to be shown, and each row that changes. Out: `Names`. They are put
together when somebody first asks, since most of a daemon's life nobody does; for 10,000 sessions
that takes 130 ms. A command does it at once. The daemon has it done in a thread (`NamesSoon`),
and what changes meanwhile is kept and made up for; whoever cannot wait does it at once there, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from indexerd.search.names import Known, Names, known
from indexerd.store.store import StateStore

Row = dict[str, Any]


class NameIndex:
    """The names; not for several threads at once, but for `made`."""

    def __init__(self, store: StateStore, hides: Callable[[str], bool]) -> None:
        """`hides(session_id)` says what is not to be shown."""
        self._store = store
        self._hides = hides
        self._names: Names | None = None
        self._of = store.renamed  # what of the catalog they were made of
        self._meanwhile: list[tuple[str, Row | None]] | None = None

    @property
    def ready(self) -> bool:
        """Whether nothing has to be put together."""
        return self._names is not None and self._of == self._store.renamed

    def now(self) -> Names:
        """The names; where they are not ready, this takes its time."""
        if self._names is None or not self.ready:
            self._of = self._store.renamed
            self._names = self.made()
        return self._names

    def made(self) -> Names:
        """Names as the catalog has them, and nobody else: in any thread."""
        rows = (Known._make(one) for one in self._store.names())
        return Names.load(one for one in rows if not self._hides(one.session_id))

    def changed(self, session_id: str, row: Row | None) -> None:
        """Take over a row that the catalog has by now; None: that it has no more."""
        if self._meanwhile is not None:
            self._meanwhile.append((session_id, row))
        if self._names is not None:
            _put(self._names, session_id, row)

    def begin(self) -> Callable[[Names | None], None]:
        """Keep what changes from now on; what this gives is to be called with what was made."""
        kept = self._meanwhile = []
        of = self._store.renamed

        def end(names: Names | None) -> None:
            self._meanwhile = None
            if names is None or self.ready:
                return
            for session_id, row in kept:
                _put(names, session_id, row)
            self._names, self._of = names, of

        return end


def _put(names: Names, session_id: str, row: Row | None) -> None:
    if row is None:
        names.forget(session_id)
    else:
        other = row.get("metaName")
        names.put(known(row, (other,) if other else ()))
