"""One session over HTTP: its page streams, and is patched; changes, exports, odd requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from indexerd.errors import DaemonDownError, NotFoundError
from indexerd.web.session_acts import BODY_MAX
from tests.sessions.tree_sessions import said
from tests.web.session_site import HOSTILE, Data, Site, sites

HEADERS = {"Content-Type": "application/json"}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A site with one session."""
    yield from sites(tmp_path)


@pytest.fixture
def client(site: Site) -> Iterator[TestClient]:
    """A browser of sorts."""
    with TestClient(site.app(), follow_redirects=False) as found:
        yield found


# -- the page ------------------------------------------------------------------------------------


def test_the_page_holds_its_document(site: Site, client: TestClient) -> None:
    """All of it in one island that nothing in it can leave; no script stands in the page itself."""
    found = client.get("/s/s1?find=x")
    assert (found.status_code, found.headers["cache-control"]) == (200, "no-store")
    page = Data(found.text)
    held = json.loads(page.data)
    assert [node["id"] for node in held["nodes"]] == ["a", "b"]
    assert held["nodes"][0]["text"] == f"Go {HOSTILE}"
    assert page.scripts == 0
    assert held["live"] == {"daemon": True, "behind": 3}
    assert "Two ways" in found.text.partition("<body")[0]


def test_other_names_lead_to_the_page(client: TestClient) -> None:
    """The beginning of an id, or a name: the page's address has the id; unknown ones have none."""
    for ref in ("s", "Two%20ways"):
        found = client.get(f"/s/{ref}?find=a%26b")
        assert (found.status_code, found.headers["location"]) == (303, "/s/s1?find=a%26b")
    assert client.get("/s/nobody").status_code == 404
    assert client.get(f"/s/{'x' * 500}").status_code == 404


def test_a_session_without_its_file_has_a_page(site: Site, client: TestClient) -> None:
    """What is stored is shown, without a tree."""
    Path(site.desk.rows["s1"]["sessionFile"]).unlink()
    held = json.loads(Data(client.get("/s/s1").text).data)
    assert (held["nodes"], held["live"]["gone"]) == ([], True)
    assert held["session"]["name"] == "Two ways"


# -- what its scripts ask for --------------------------------------------------------------------


def test_the_document_follows_the_file(site: Site, client: TestClient) -> None:
    """Whole, then nothing, then a patch; the daemon's going is told as well."""
    path = Path(site.desk.rows["s1"]["sessionFile"])
    whole = client.get("/s/s1/document").json()
    since = {"since": whole["version"]}
    assert client.get("/s/s1/document", params=since).json() == {
        "version": whole["version"],
        "base": whole["version"],
    }
    with path.open("ab") as file:
        file.write(said("c", "b", "user", "On."))
    told = client.get("/s/s1/document", params=since).json()
    assert [node["id"] for node in told["nodes"]] == ["c"]
    site.up = False
    told = client.get("/s/s1/document", params={"since": told["version"]}).json()
    assert (told["live"]["daemon"], told["nodes"]) == (False, [])
    found = client.get("/s/nobody/document")
    assert (found.status_code, found.json()["error"]["code"]) == (404, "not_found")
    assert client.get("/s/s/document").status_code == 404


def test_what_is_sent_and_what_was(site: Site, client: TestClient) -> None:
    """The prompt as it would go, and the audit rows; without a prompt, why not."""
    site.desk.answers["as_sent"] = {"sessionId": "s1", "user": "Sum it up"}
    audit = site.desk.where.telemetry
    found = client.get("/s/s1/sent").json()
    assert found == {"asSent": {"sessionId": "s1", "user": "Sum it up"}, "runs": []}
    audit.parent.mkdir(parents=True)
    row = {"customType": "session-index:index", "success": True, "sessionId": "s1", "model": "m"}
    audit.write_text(json.dumps(row) + "\n" + json.dumps(row | {"sessionId": "s2"}) + "\n")
    site.desk.answers["as_sent"] = NotFoundError("the session's file is gone")
    found = client.get("/s/s1/sent").json()
    assert (found["asSent"], found["problem"]) == (None, "the session's file is gone")
    assert [one["model"] for one in found["runs"]] == ["m"]


def test_family_is_handed_on(site: Site, client: TestClient) -> None:
    """As the method answers it."""
    site.desk.answers["family"] = {"sessionId": "s1", "members": [], "more": 0}
    assert client.get("/s/s1/family").json() == site.desk.answers["family"]
    site.desk.answers["family"] = DaemonDownError("no daemon answers")
    found = client.get("/s/s1/family")
    assert (found.status_code, found.json()["error"]["retryable"]) == (503, True)


@pytest.mark.parametrize(("form", "begins"), [("html", "<!doctype"), ("md", "#"), ("json", "{")])
def test_an_export_is_a_download(site: Site, client: TestClient, form: str, begins: str) -> None:
    """The same file that the command makes, under a name of letters and digits."""
    members = [
        {"sessionId": "s1", "parentSessionId": None, "relation": "root"},
        {"sessionId": "f1", "parentSessionId": "s1", "relation": "fork"},
    ]
    site.desk.answers["family"] = {"sessionId": "s1", "members": members, "more": 0}
    found = client.get(f"/s/s1/export?format={form}")
    assert found.status_code == 200
    disposition = found.headers["content-disposition"]
    assert disposition == f'attachment; filename="two-ways-s1.{form}"'
    assert found.text.lower().startswith(begins)
    if form == "json":
        assert found.json()["kin"] == {"forks": ["f1"]}
    assert client.get("/s/s1/export?format=pdf").status_code == 400
    Path(site.desk.rows["s1"]["sessionFile"]).unlink()
    assert client.get(f"/s/s1/export?format={form}").status_code == 404


# -- changes -------------------------------------------------------------------------------------


CHANGES: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "renamed": ("rename", {"title": "New"}, "update", {"ref": "s1", "title": "New"}),
    "name taken back": ("rename", {"title": None}, "update", {"ref": "s1", "title": None}),
    "labelled": (
        "label",
        {"entryId": "a", "text": "start"},
        "label",
        {"ref": "s1", "entryId": "a", "text": "start"},
    ),
    "label taken back": (
        "label",
        {"entryId": "a", "text": None},
        "label",
        {"ref": "s1", "entryId": "a"},
    ),
    "indexed": ("index", {}, "index", {"ref": "s1", "force": True}),
    "shown": (
        "state",
        {"slug": "tree", "items": ["node=a", "filter=all"]},
        "set_relevant_context",
        {"session": "s1", "setName": "applet", "items": ["tree", "node=a", "filter=all"]},
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_the_daemons(site: Site, client: TestClient, change: str) -> None:
    """S4.25, S4.26: each is one question that names its session, and the answer is handed on."""
    name, fields, method, params = CHANGES[change]
    found = client.post(f"/s/s1/{name}", json=fields)
    assert (found.status_code, found.json()) == (200, {"status": "done"})
    assert site.desk.changes == [(method, params)]
    site.desk.down = True
    found = client.post(f"/s/s1/{name}", json=fields)
    assert (found.status_code, found.json()["error"]["code"]) == (503, "daemon_down")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("s1/rename", b"{}"),
        ("s1/rename", b'{"title":1}'),
        ("s1/rename", b'{"title":"x","more":1}'),
        ("s1/rename", b'{"title":"\\ud800"}'),
        ("s1/rename", b"[]"),
        ("s1/rename", b"no json"),
        ("s1/rename", b"[" * 20_000),
        ("s1/rename", b'{"title":"' + b"x" * BODY_MAX + b'"}'),
        ("s1/label", b'{"text":"x"}'),
        ("s1/label", b'{"entryId":"","text":"x"}'),
        ("s1/index", b'{"force":false}'),
        ("s1/state", b'{"slug":"","items":[]}'),
        ("s1/state", b'{"slug":"x","items":["novalue"]}'),
        ("s1/state", b'{"slug":"x","items":["=x"]}'),
        ("s1/state", b'{"slug":"x","items":"a=b"}'),
    ],
)
def test_odd_changes_are_refused(site: Site, client: TestClient, path: str, body: bytes) -> None:
    """Nothing of another shape reaches the daemon."""
    found = client.post(f"/s/{path}", content=body, headers=HEADERS)
    assert (found.status_code, found.json()["error"]["code"]) == (400, "usage")
    assert site.desk.changes == []


def test_a_change_names_its_session_by_its_id(site: Site, client: TestClient) -> None:
    """S4.26: neither the beginning of an id nor a name will do, and only JSON is a change."""
    body = {"title": "x"}
    for ref in ("s", "Two%20ways", "nobody"):
        assert client.post(f"/s/{ref}/rename", json=body).status_code == 404
    plain = client.post("/s/s1/rename", content=b'{"title":"x"}')
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    posted = client.post("/s/s1/rename", content=b'{"title":"x"}', headers=form)
    assert (plain.status_code, posted.status_code) == (400, 400)
    assert client.get("/s/s1/rename").status_code == 405
    assert site.desk.changes == []


def test_what_is_not_there_any_more_is_kept_nowhere(
    site: Site, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purged while its page is open: the next question closes what was read of it."""
    site.write(said("a", None, "user", "Go."))
    assert client.get("/s/s1/document").status_code == 200
    forgotten: list[str] = []
    monkeypatch.setattr(site.live, "forget", forgotten.append)
    del site.desk.rows["s1"]
    assert client.get("/s/s1/document").status_code == 404
    assert forgotten == ["s1"]
