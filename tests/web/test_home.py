"""The home page's filters, days and lines."""

import re
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.web import home
from indexerd.web.home import Filters

HOSTILE = "</script><img src=x onerror=alert(1)>\"'&\u202e\ud800"
TEXT = st.text(st.sampled_from(HOSTILE + "ab/:.%#? \n"), max_size=12)


def test_projects_that_end_alike_are_told_apart() -> None:
    """By as many directories above them as that takes."""
    cwds = ["/w/a/x/dl", "/w/b/x/dl", "/w/c/y/dl", "/w/shop"]
    names = [place["name"] for place in home.places_of(cwds, "/home/eva")]
    assert names == ["a/x/dl", "b/x/dl", "y/dl", "shop"]


@given(TEXT, TEXT, TEXT, st.sampled_from(["", "7d", "never"]))
def test_an_address_comes_back_as_it_was(q: str, agent: str, project: str, since: str) -> None:
    """S4.24: every part is encoded, so none adds a parameter or leads to another host."""
    asked = Filters.of({"q": q, "agent": agent, "project": project, "since": since})
    address = asked.address()
    assert re.fullmatch(r"/(\?[\w=&%./~-]*)?", address)
    again = Filters.of(dict(parse_qsl(address.partition("?")[2])))
    agent = agent if agent in home.ADAPTERS else ""
    known = (home.replace_surrogates(asked.q), agent, "" if since == "never" else since)
    assert (again.q, again.agent, again.since) == known
    assert asked.address(before="") == address


@pytest.mark.parametrize(("session_id", "address"), [
    ("a/../b", "/s/a%2F..%2Fb"), ("..", "/s/-"), ("x y\ud800", "/s/x%20y%EF%BF%BD"),
])  # fmt: skip
def test_an_id_is_one_part_of_an_address(session_id: str, address: str) -> None:
    """S4.24: an id cannot change the rest of the address."""
    assert home.session_address(session_id) == address
