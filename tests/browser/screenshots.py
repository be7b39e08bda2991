"""`make screenshots` takes the README's pictures, of invented sessions."""

import json
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from indexerd.digests.segments import Segment, encode  # noqa: E402 - the path comes first
from tests.browser.site import Site, site  # noqa: E402 - the path comes first
from tests.browser.tabs import FLAGS, PATIENCE, program  # noqa: E402 - the path comes first
from tests.e2e.search.corpus import read, write  # noqa: E402 - the path comes first
from tests.e2e.world import Session, World, clock, until  # noqa: E402 - the path comes first

IMAGES = ROOT / "docs/images"
CORPUS = ROOT / "tests/fixtures/retrieval/corpus.txt"
HOURS = {  # age of the corpus's sessions
    "app-login": 1.2, "shop-vat": 2.5, "weather-cache": 5, "shop-stripe": 22, "infra-upgrade": 27,
    "shop-checkout": 50, "lib-parser": 75, "game-path": 300, "lib-parser3": 420,
}  # fmt: skip
PAUSE = timedelta(seconds=50)
CWD = "/home/ana/weatherd"
STILL = "new Promise((done) => requestIdleCallback(() => requestAnimationFrame(() => done())))"
# `u` asks, `$` runs, `e` edits (`FILE | OLD => NEW`), `a` answers; three branches begin at `fork`.
TALK = """u Alerts are sent again after every restart of weatherd. Where do we remember them?
$ rg -n 'alert' weatherd/
a Nowhere that lasts: `alerts.py` keeps a set in memory, so a restart forgets which alerts went out.
fork where to keep it
u Try Redis first, the ops team has it already.
e weatherd/alerts.py | sent = set() => sent = redis.Redis().sadd
$ docker compose up -d redis
$ pytest -q tests/test_alerts.py
a It works, but every developer now needs Redis to run eleven tests.
fork
u Use a plain file then, one line per alert.
e weatherd/sent.py | sent = set() => sent = Path("sent.log")
a Two workers write at once, and lines get lost: a file needs a lock of its own.
fork
u All right: a table in the SQLite database we have.
e weatherd/schema.sql |  => CREATE TABLE sent_alerts (station, kind, day)
e weatherd/sent.py | if key in sent:;     return => if not db.insert(key):;     return
$ pytest -q
a Done. The table `sent_alerts` has a key of station, kind and day, and the insert is the check.
digest
u How long are rows kept?
a We decided on fourteen days; the nightly job deletes what is older.
u Write it down in the changelog, and we are done.
e CHANGELOG.md | **Fixed** => **Fixed**; - Alerts are sent once, also across restarts.
a Written, under **Fixed**: alerts are sent once, also across restarts."""
SUMMARY = """Goal: no alert twice, whatever restarts.

Decided: a table `sent_alerts` in the database there is; rows live for fourteen days. Redis was too
much to ask of every developer, a plain file lost lines when two workers wrote.

Open: nothing."""


def alerts(world: World) -> Session:
    """The session in the pictures: three branches, two of them abandoned, named, with a digest."""
    lines, fork = TALK.splitlines(), ""
    clock.now = datetime.now(UTC) - len(lines) * PAUSE
    talk = Session(world.sessions, CWD)
    for line in lines:
        clock.now += PAUSE
        mark, _, text = line.partition(" ")
        if mark == "u":
            talk.say("user", text)
        elif mark == "$":
            talk.tool("bash", command=text)
        elif mark == "e":
            path, _, change = text.partition(" | ")
            old, _, new = change.replace("; ", "\n").partition(" => ")
            talk.tool("edit", path=f"{CWD}/{path}", oldText=old, newText=new)
        elif mark == "a":
            talk.say("assistant", text, stopReason="stop", model="sonnet-5", provider="anthropic")
        elif mark == "digest":
            told = "Alerts were kept in memory only, so that each restart sent them again."
            held = Segment(
                id="1", covering=(0, 8), content=told, model="google/gemini", leaf_id=str(talk.last)
            )
        elif fork:
            talk.last = fork
        else:
            fork = talk.entry("custom", customType="pick", data={})
            talk.entry("label", targetId=fork, label=text)
    clock.now = None
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    meta = {
        "sessionId": talk.id, "sessionFile": str(talk.path), "name": "Alerts that are sent once",
        "description": "Alerts went out again after each restart; they are now kept in SQLite.",
        "summary": SUMMARY, "tags": ["alerts", "sqlite", "restart"], "cwd": CWD, "createdAt": now,
        "updatedAt": now, "model": "google/gemini-3.5-flash-lite", "lastIndexedLeafId": talk.last,
    }  # fmt: skip
    world.metas.mkdir(parents=True, exist_ok=True)
    (world.metas / f"{talk.id}.meta.json").write_text(json.dumps(meta))
    (world.metas / f"{talk.id}.digest.jsonl").write_text(json.dumps(encode(held)) + "\n")
    return talk


def take(browser: Any, running: Site, talk: Session) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    context.set_default_timeout(1000 * PATIENCE)
    page = context.new_page()
    page.goto(running.link)
    for name, address in (("home", "/"), ("session", f"/s/{talk.id}")):
        page.goto(running.origin + address)
        page.locator("#results a.title, #tree [role=treeitem]").first.wait_for()
        page.evaluate(STILL)
        page.screenshot(path=IMAGES / f"{name}.png")
    context.close()


def main() -> int:
    """Prepare the home, run the program, take the pictures."""
    from playwright.sync_api import sync_playwright

    found = program()
    if found is None:
        sys.stderr.write("screenshots: there is no Chromium here\n")
        return 1
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ixd") as place, sync_playwright() as playwright:
        world = World(Path(place))
        world.install_pi()
        now = datetime.now(UTC)
        others = [one for one in read(CORPUS) if one.key in HOURS]
        write(world, [replace(one, began=now - timedelta(hours=HOURS[one.key])) for one in others])
        talk = alerts(world)
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        with world.daemon(), site(world) as running:
            until(lambda: world.row(talk.id).get("indexed"), "the sessions")
            take(browser, running, talk)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
