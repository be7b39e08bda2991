"""core/names: completions are those of looking through all names, whatever came and went."""

from __future__ import annotations

from heapq import nlargest

from hypothesis import given
from hypothesis import strategies as st

from indexerd.search.names import Names, folded
from indexerd.search.names import _ring as ring_of
from indexerd.store.store import Named

TEXTS = st.sampled_from(
    ("Fix login", "fix log-in bug", "Add C++", "++ --", "検索 機能", "login", "Log", "a b c", "")
)
PLACES = st.sampled_from(("/w", "/w/a", "/w/a/b", "/x", ""))
PREFIXES = st.sampled_from(
    ("", "fix", "fi", "fix l", "log in", "log", "++", "検", "c", "s1", "b c")
)


def known(number: int, text: str, cwd: str, modified: int, *, live: bool) -> Named:
    """A session by that name."""
    return Named(f"s{number}", text, (text,), cwd, modified, named=True, live=live)


ROWS = st.builds(
    known, st.integers(0, 9), TEXTS, PLACES, st.integers(1, 5), live=st.sampled_from((True, False))
)
STEPS = st.lists(ROWS | st.integers(0, 9) | st.tuples(PREFIXES, PLACES), max_size=30)


def obvious(rows: list[Named], prefix: str, cwd: str, limit: int) -> list[str]:
    """By looking at each; of one time the order is open."""
    key = folded(prefix)

    def fits(row: Named) -> bool:
        names = (folded(one) for one in row.aliases)
        begun = any(f" {one}".find(f" {key}") >= 0 for one in names)
        return not prefix or row.session_id.startswith(prefix) or begun

    found = [row for row in rows if row.live and fits(row)]
    if cwd and found:
        nearest = min(ring_of(cwd, row.cwd) for row in found)
        found = [row for row in found if ring_of(cwd, row.cwd) == nearest]
    return nlargest(limit, (str(row.modified) for row in found))


@given(STEPS, st.sampled_from((1, 2, 20)))
def test_completions_are_those_of_a_look_at_every_name(
    steps: list[Named | int | tuple[str, str]], limit: int
) -> None:
    """S0.59: the newest of the nearest ring, also while names are indexed, come, move and go."""
    names, rows = Names(), dict[str, Named]()
    for step in [*steps, ("", ""), ("log", "/w/a")]:
        if isinstance(step, Named):
            names.put(step)
            rows[step.session_id] = step
        elif isinstance(step, int):
            names.forget(f"s{step}")
            rows.pop(f"s{step}", None)
        else:
            prefix, cwd = step
            items = names.complete(prefix, cwd=cwd or None, limit=limit, now=0)
            held = [rows[one["sessionId"]] for one in items]
            times = [str(one.modified) for one in held]
            assert times == obvious([*rows.values()], prefix, cwd, limit)
            assert len({one.session_id for one in held}) == len(held)
