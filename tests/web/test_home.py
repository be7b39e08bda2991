"""The home page as values: days, projects, lines, hits."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.web.home_address import (
    Filters,
)
from indexerd.web.home_view import FIND_MAX, GIST_MAX, NAME_MAX, Hit, Line, View
from tests.web.home_times import DAY, HOSTILE, HOUR, NOW, utc


def view(offset: Any = utc, home: str = "/home/ada", now: float = NOW, **filters: str) -> View:
    """What lines are made with."""
    return View(Filters(**filters), now, offset, home)


def row(ago: float = 60, **fields: Any) -> dict[str, Any]:
    """A row of a session last used so many seconds ago."""
    at = datetime.fromtimestamp(NOW - ago, UTC).isoformat()
    return {
        "sessionId": f"s-{ago:g}",
        "agent": "pi",
        "cwd": "/home/ada/work/site",
        "name": "Fix the cursor",
        "description": "Compared as pairs.",
        "state": "idle",
        "modifiedAt": at,
        "indexed": True,
        "newUserMessages": 0,
        "filesModified": [],
        "filesRead": [],
        "resume": "pi --session x",
    } | fields


def line(ago: float = 60, **fields: Any) -> Line:
    """One row's line."""
    return view().line(row(ago, **fields))


def titles(*ago: float, **how: Any) -> list[str]:
    """The stretches of days that sessions of these ages fall into."""
    return [one.title for one in view(**how).stretches(row(one) for one in ago)]


# -- days and projects ---------------------------------------------------------------------------


def test_days_are_those_of_the_calendar() -> None:
    """Twelve hours ago is today, a second more is yesterday; then come week, last week, months."""
    assert titles(12 * HOUR, 12 * HOUR + 1, 2 * DAY, 4 * DAY, 20 * DAY, 400 * DAY) == [
        "Today",
        "Yesterday",
        "This week",
        "Last week",
        "October 2026",
        "October 2025",
    ]


def test_days_are_local() -> None:
    """Thirteen hours ago is still today for somebody two hours to the east."""
    assert titles(13 * HOUR) == ["Yesterday"]
    assert titles(13 * HOUR, offset=lambda _: 2 * HOUR) == ["Today"]


def test_on_a_monday_the_week_has_only_begun() -> None:
    """What was done before yesterday is last week's then."""
    assert titles(DAY, 2 * DAY, now=NOW - 3 * DAY)[-1] == "Today"  # later than that now
    monday = view(now=NOW - 3 * DAY)
    found = monday.stretches([row(3 * DAY), row(4 * DAY), row(5 * DAY)])
    assert [one.title for one in found] == ["Today", "Yesterday", "Last week"]


def test_a_time_that_is_none_is_said_to_be_unknown() -> None:
    """Neither today nor 1970."""
    found = view().stretches([row(modifiedAt="soon"), row(modifiedAt=None)])
    assert [(one.title, len(one.projects[0].lines)) for one in found] == [("No date", 2)]
    assert found[0].projects[0].lines[0].moment.full == "at an unknown time"


def test_within_a_day_sessions_stand_by_project() -> None:
    """The project used last comes first, with all of its sessions of that day."""
    rows = [row(1, cwd="/a/x"), row(2, cwd="/home/ada"), row(3, cwd="/a/x"), row(2 * DAY)]
    today, week = view().stretches(rows)
    assert [(one.place.name, len(one.lines)) for one in today.projects] == [("x", 2), ("~", 1)]
    assert week.projects[0].place.path == "~/work/site"
    keys = [one.key for stretch in (today, week) for one in stretch.projects]
    assert len(set(keys)) == len(keys)


@given(st.lists(st.tuples(st.floats(-DAY, 900 * DAY), st.sampled_from("abc")), max_size=30))
def test_every_session_has_one_line(held: list[tuple[float, str]]) -> None:
    """None is lost and none is doubled, and the stretches' titles are all different."""
    rows = [row(ago, cwd=f"/{cwd}", sessionId=f"{n}") for n, (ago, cwd) in enumerate(held)]
    found = view().stretches(rows)
    ids = [one.session_id for days in found for project in days.projects for one in project.lines]
    assert sorted(ids) == sorted(one["sessionId"] for one in rows)
    assert len({one.title for one in found}) == len(found)


@pytest.mark.parametrize(
    ("cwd", "name", "path"),
    [
        ("/home/ada/work/site", "site", "~/work/site"),
        ("/home/ada", "~", "~"),
        ("/home/adam/x", "x", "/home/adam/x"),
        ("/", "/", "/"),
        ("", "no directory", ""),
        ("/w/a\nb", "a\\nb", "/w/a\\nb"),
    ],
)
def test_a_project_has_a_short_name(cwd: str, name: str, path: str) -> None:
    """Its directory's; the home directory is `~`, and nobody else's home is."""
    place = view().place(cwd)
    assert (place.name, place.path) == (name, path)


def test_a_project_s_link_is_for_that_project_and_not_for_the_one_shown() -> None:
    """And it keeps the other filters."""
    there = view(agent="pi", project="/a").place("/a/b & c").href
    assert dict(parse_qsl(urlsplit(there).query)) == {"agent": "pi", "project": "/a/b & c"}
    assert view(project="/a").place("/a").href == ""


# -- lines ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ago", "said"),
    [
        (-50, "just now"),
        (59, "just now"),
        (60, "1 min ago"),
        (3599, "59 min ago"),
        (2 * HOUR, "2 h ago"),
        (25 * HOUR, "yesterday 11:00"),
        (3 * DAY, "3 days ago"),
        (8 * DAY, "11 Nov"),
        (400 * DAY, "15 Oct 2025"),
    ],
)
def test_how_long_ago_is_said_in_one_unit(ago: float, said: str) -> None:
    """And from a week on as a day, with its year where that is another one."""
    assert view().moment(row(ago)["modifiedAt"]).ago == said


def test_the_whole_time_is_there_too() -> None:
    """For programs in UTC, for a reader in local time."""
    moment = view(offset=lambda _: HOUR).moment("2026-11-19T10:15:30Z")
    assert moment.iso == "2026-11-19T10:15:30.000Z"
    assert moment.full == "Thu 19 November 2026, 11:15"


def test_the_one_line_is_the_description_else_the_first_message() -> None:
    """And nothing where the title says it already."""
    assert line().gist == "Compared as pairs."
    assert line(description="", firstUserMessage="why?").gist == "why?"
    assert line(description="", firstUserMessage="Fix the cursor").gist == ""
    long = line(description="word " * 400).gist
    assert len(long) <= GIST_MAX + 1
    assert long.endswith("…")


def test_files_touched_are_a_few_base_names() -> None:
    """What was changed, else what was read; the whole path stays with each."""
    paths = [f"/w/src/f{n}.py" for n in range(7)]
    found = line(filesModified=paths, filesRead=["/etc/hosts"])
    assert (found.touched, found.more_files) == ("changed", 3)
    assert (found.files[0].name, found.files[0].path) == ("f0.py", "/w/src/f0.py")
    assert line(filesRead=["C:\\w\\b.txt"]).files[0].name == "b.txt"
    assert line(filesRead=["/etc/hosts"]).touched == "read"
    assert line(filesModified=[None, "/"]).touched == ""


def test_a_summary_that_is_behind_says_by_how_much() -> None:
    """Where there is a summary."""
    assert line(newUserMessages=1).behind == "1 message behind"
    assert line(newUserMessages=3).behind == "3 messages behind"
    assert line(newUserMessages=3, indexed=False).behind == ""


def test_an_open_turn_that_nothing_was_heard_of_is_unfinished() -> None:
    """Half an hour after its last change nobody is at it any more; other states stay."""
    assert line(ago=1800, state="active").state == "active"
    assert line(ago=1801, state="active").state == "unfinished"
    assert line(state="active", modifiedAt=None).state == "active"
    assert line(ago=DAY, state="idle").state == "idle"


@pytest.mark.parametrize(
    ("ahead", "said"), [(0, "UTC"), (2 * HOUR, "UTC+02:00"), (-12600, "UTC-03:30")]
)
def test_the_zone_of_all_times_has_a_name(ahead: int, said: str) -> None:
    """It is that of the machine, as it is now."""
    assert view(offset=lambda _: ahead).zone() == said


@pytest.mark.parametrize("command", ["pi\nrm -rf ~", "pi \x1b[2J", "pi \u202ex", None, "x" * 9000])
def test_a_resume_command_that_does_not_show_as_it_is_is_not_offered(command: Any) -> None:
    """Nobody is to paste what he has not seen."""
    assert line(resume=command).resume == ""


def test_the_resume_command_of_a_session_whose_file_is_gone_is_not_offered() -> None:
    """It would not work."""
    assert line(resume="pi -r").resume == "pi -r"
    gone = line(resume="pi -r", gone=True, subagent=True)
    assert (gone.resume, gone.marks) == ("", ("file gone", "sub-agent"))


@given(st.dictionaries(st.sampled_from(list(row())), HOSTILE | st.none() | st.integers()))
def test_whatever_a_row_holds_its_line_is_bounded_and_shows(held: dict[str, Any]) -> None:
    """No controls, no invisible characters, no half characters, no unknown state; no error."""
    found = view().stretches([row(**held)])[0].projects[0]
    one = found.lines[0]
    assert len(one.title) <= NAME_MAX
    assert one.state in {"active", "unfinished", "idle", "compacted", "archived"}
    for text in (one.title, one.agent, one.gist, one.resume, found.place.name, found.place.path):
        assert not {unicodedata.category(char) for char in text} & {"Cc", "Cs", "Zl", "Zp"}


# -- hits ----------------------------------------------------------------------------------------


def hit(q: str = "cursor", **fields: Any) -> Hit:
    """One hit of a search."""
    found = {"sessionId": "s-1", "name": "N", "field": "message", "snippet": "x", "score": 1.0}
    return view(q=q).hits([found | fields], {"s-1": row(sessionId="s-1")})[0]


def test_what_was_found_is_marked() -> None:
    """The catalog's marks go, and what they held is told apart; a single one is text."""
    found = hit(snippet="…the «cursor» of a «<b>» « page")
    assert found.snippet == (
        ("…the ", False),
        ("cursor", True),
        (" of a ", False),
        ("<b>", True),
        (" « page", False),
    )
    assert found.place is not None
    assert found.place.path == "~/work/site"


@pytest.mark.parametrize(
    ("fields", "there"),
    [
        ({"entryId": "a/b#c", "role": "user"}, "#target=a/b%23c"),
        ({"snippet": "the «Curser» of a «big page», the «Curser»"}, "?find=Curser%20big%20page"),
        ({"snippet": "nothing marked"}, ""),
        ({"field": "files", "snippet": "src/«cursor»/my page.py"}, "?find=my%20page.py"),
        ({"field": "files", "snippet": "…deep/src/«cur»sor.p…"}, "?find=cursor.p"),
        ({"field": "files", "snippet": "C:\\w\\«cursor»\\b.txt"}, "?find=b.txt"),
        ({"field": "files", "snippet": ""}, ""),
        *(
            ({"field": field, "snippet": "a «cursor»"}, "")
            for field in ("name", "tags", "description", "summary", "id", "cwd", "else")
        ),
    ],
)
def test_a_hit_leads_to_where_it_is(fields: dict[str, Any], there: str) -> None:
    """To its entry, else to what was found among the entries: never to what was only typed.

    What stands in a title or a summary need not be in the conversation, and would hide all of it.
    """
    assert hit('"cursor & page"', **fields).href == f"/s/s-1{there}"
    assert hit("re:cur.or", **fields).href == f"/s/s-1{there}"


@given(HOSTILE, st.sampled_from(["message", "files"]))
def test_what_a_hit_has_looked_for_is_bounded(snippet: str, field: str) -> None:
    """And stays one parameter, whatever the snippet holds."""
    there = urlsplit(hit(field=field, snippet=f"«{snippet} {'y' * 300}» «{snippet}»").href)
    assert (there.scheme, there.netloc, there.path, there.fragment) == ("", "", "/s/s-1", "")
    for key, words in parse_qsl(there.query):
        assert key == "find"
        assert 0 < len(words) <= FIND_MAX
    assert there.query.count("&") == 0


def test_a_hit_says_where_it_was_found() -> None:
    """In words; and a session that is not known any more has a line all the same."""
    assert hit(role="user", entryId="e").field == "message, you"
    assert hit(field="name").field == "title"
    [lost] = view(q="x").hits([{"sessionId": "s-9", "name": "Old", "field": "name"}], {})
    assert (lost.line.title, lost.place, lost.line.resume) == ("Old", None, "")
