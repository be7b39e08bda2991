"""Addresses of the home page, and words typed as filters: they hold what they say."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.web.footer_html import address
from indexerd.web.home_address import (
    PATH_MAX,
    QUERY_MAX,
    WORD_MAX,
    Filters,
    asked,
    choices,
    filters_of,
    footer_target,
    session_address,
    spoken,
)
from indexerd.web.home_view import since_time
from tests.web.home_times import DAY, HOSTILE, HOUR, NOW, utc

# -- filters in words ----------------------------------------------------------------------------


DIRECTORIES = ("/w/weatherd-old", "/w/weatherd", "/x/weatherd", "/home/ada/my site")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("agent:pi cursor since:7d page", Filters(q="cursor page", agent="pi", since="7d")),
        ("agent:pi", Filters(agent="pi")),
        ("project:Weatherd x", Filters(q="x", project="/w/weatherd")),
        ("project:herd-o x", Filters(q="x", project="/w/weatherd-old")),
        ('project:"my site" x', Filters(q="x", project="/home/ada/my site")),
        ("project:~/a/ x", Filters(q="x", project="/home/ada/a")),
        ("project:~ x", Filters(q="x", project="/home/ada")),
        ("project:/ x", Filters(q="x", project="/")),
        *(
            (same, Filters(q=same))
            for same in (
                "agent:smith x",
                "project:nowhere x",
                "since:1970 x",
                "name:cursor file:a.py",
                "agent: project: since:",
                '"agent:pi" x',
                '"a agent:pi b" x',
                "useragent:pi",
                "re:agent:pi  x",
                'project:"" x',
                '"agent:pi',
            )
        ),
        ("agent:pi re:a  agent:codex", Filters(q="re:a  agent:codex", agent="pi")),
    ],
)
def test_filters_can_be_typed(typed: str, meant: Filters) -> None:
    """Words that say a filter are one; all others stay words, as they were."""
    assert spoken(Filters(q=typed), ("pi", "codex"), "/home/ada", DIRECTORIES) == meant


def test_what_is_typed_counts_more_than_what_stands_beside_it() -> None:
    """The rest of the address stays, and so does a search without such words."""
    held = Filters(q="agent:pi  x", agent="codex", archived="1")
    assert spoken(held, ("pi", "codex"), "/") == Filters(q="x", agent="pi", archived="1")
    plain = Filters(q="x  y", agent="codex")
    assert spoken(plain, ("pi",), "/") is plain


@given(HOSTILE, st.sampled_from(["agent:", "project:", "since:", "re:", '"']), HOSTILE)
def test_no_search_is_too_odd_for_its_filters(before: str, word: str, after: str) -> None:
    """Whatever is typed, what comes of it can be an address."""
    held = filters_of({"q": f"{before} {word}{after}"})
    found = spoken(held, ("pi",), "/home/ada", DIRECTORIES)
    assert len(found.q) <= len(held.q)
    assert found.address().startswith("/")


# -- addresses -----------------------------------------------------------------------------------


@given(st.builds(Filters, q=HOSTILE, agent=HOSTILE, project=HOSTILE, before=HOSTILE))
def test_an_address_says_what_its_filters_say(held: Filters) -> None:
    """There and back; it is ours, and no value begins another parameter, a host or a fragment."""
    plain = filters_of(asked(urlsplit(held.address(before=held.before)).query))
    there = plain.address(before=plain.before)
    parts = urlsplit(there)
    assert (parts.scheme, parts.netloc, parts.path, parts.fragment) == ("", "", "/", "")
    assert filters_of(asked(parts.query)) == plain


def test_changing_a_filter_begins_at_the_first_page() -> None:
    """A cursor is good for its own list alone."""
    assert Filters(agent="pi", before="abc").address(agent="codex") == "/?agent=codex"
    assert Filters(agent="pi").address(agent="") == "/"


def test_what_is_no_value_of_a_filter_counts_as_absent() -> None:
    """An address may be anybody's."""
    found = filters_of(asked("since=1970&archived=yes&subagents=1&agent=&q=%1b%5b2Jx&q=second"))
    assert found == Filters(q="x", subagents="1")


def test_addresses_are_bounded() -> None:
    """However long, and of however many parameters."""
    long = "&".join(f"{key}={'x' * 5000}" for key in ("q", "agent", "before"))
    found = filters_of(asked(long))
    assert (len(found.q), len(found.agent), len(found.before)) == (QUERY_MAX, WORD_MAX, WORD_MAX)
    assert len(filters_of({"project": "/" * 9000}).project) == PATH_MAX
    assert len(asked("&".join(f"k{n}=1" for n in range(1000)))) < 100


def test_choices_say_which_is_on() -> None:
    """One agent, one stretch of time; what is left out otherwise goes on and off."""
    found = choices(Filters(q="a b", agent="codex", archived="1"), ["pi", "codex"])
    assert [(one.label, one.on) for one in found["agent"]] == [
        ("any", False),
        ("pi", False),
        ("codex", True),
    ]
    assert found["agent"][0].href == "/?q=a%20b&archived=1"
    assert [one.href for one in found["more"]] == [
        "/?q=a%20b&agent=codex",
        "/?q=a%20b&agent=codex&archived=1&subagents=1",
    ]
    assert "other" in [one.label for one in choices(Filters(agent="other"), ["pi"])["agent"]]


def test_since_begins_at_a_local_midnight() -> None:
    """So that it is the same all day, and a page's cursor fits the next one."""
    assert since_time("today", NOW, utc) == "2026-11-19T00:00:00.000Z"
    assert since_time("7d", NOW, lambda _: 2 * HOUR) == "2026-11-12T22:00:00.000Z"
    assert since_time("30d", NOW, utc) == since_time("30d", NOW + 11 * HOUR, utc)
    assert since_time("", NOW, utc) is None


def test_since_knows_that_clocks_were_changed() -> None:
    """Midnight is that of its own day, not one that today's difference would give."""

    def offset(seconds: float) -> int:
        return HOUR if seconds >= NOW - 2 * DAY else 2 * HOUR

    assert since_time("7d", NOW, offset) == "2026-11-12T22:00:00.000Z"


@pytest.mark.parametrize("path", ["/w/a b&c.py", "C:\\w\\a b&c.py"])
def test_a_footer_s_link_leads_into_its_session(path: str) -> None:
    """To the session's page, where its tree shows what has to do with the file (S4.22, S4.24)."""
    link = address("/", "s/1", "text-editor", [("path", path)])
    assert footer_target(asked(urlsplit(link).query)) == "/s/s%2F1?find=a%20b%26c.py"


def test_an_applet_s_link_leads_to_its_session_and_no_other_address_does() -> None:
    """What an applet shows is not ours to say."""
    assert footer_target(asked("session=s-1&applet=board&path=/x")) == "/s/s-1"
    assert footer_target(asked("session=s-1")) is None
    assert footer_target(asked("session=&applet=text-editor&path=/x")) is None


@given(HOSTILE)
def test_a_session_s_address_stays_below_its_own_place(session_id: str) -> None:
    """Whatever the id is, it is one step of the path."""
    parts = urlsplit(session_address(session_id))
    assert (parts.scheme, parts.netloc, parts.query, parts.fragment) == ("", "", "", "")
    assert parts.path.startswith("/s/")
    assert parts.path.count("/") == 2
    assert unquote(parts.path) not in {"/s/.", "/s/.."}
