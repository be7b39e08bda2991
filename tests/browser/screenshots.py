"""`make screenshots`: the pictures of the README, of sessions that nobody has had.

A temporary home gets sessions of four agents, as these write them, with names and summaries; the
real daemon and `indexerd web` run on it, and Chromium takes docs/images/*.png. Nothing of the home
of whoever runs this is read, and nothing is asked of any other machine.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import uuid
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
from tests.e2e.world import World, until  # noqa: E402 - the path comes first

IMAGES = ROOT / "docs/images"
CORPUS = ROOT / "tests/fixtures/retrieval/corpus.txt"
HOURS = {  # how long ago sessions of the corpus were
    "app-login": 1.2,
    "shop-vat": 2.5,
    "weather-cache": 5,
    "shop-stripe": 22,
    "infra-upgrade": 27,
    "shop-checkout": 50,
    "lib-parser": 75,
    "game-path": 300,
    "lib-parser3": 420,
}
CWD = "/home/ana/weatherd"
STILL = "new Promise((done) => requestIdleCallback(() => requestAnimationFrame(() => done())))"
Tool = tuple[str, dict[str, str], str]


class Talk:
    """A pi session, written as pi writes it, at times of its own."""

    def __init__(self, world: World, began: datetime, parent: Path | None = None) -> None:
        self.id = str(uuid.uuid4())
        self.began, self._now = began, began
        self.last: str | None = None
        self.digested = ""  # the message that a digest ends with
        self.asked = ""  # the first request
        self.left = ""  # an answer on a branch that was left
        folder = world.pi / "sessions" / f"--{CWD.strip('/').replace('/', '-')}--"
        stem = stamp(began).replace(":", "-").replace(".", "-")
        self.path = folder / f"{stem}_{self.id}.jsonl"
        self._lines: list[dict[str, Any]] = [
            {"type": "session", "version": 3, "id": self.id, "timestamp": stamp(began), "cwd": CWD}
            | ({"parentSession": str(parent)} if parent else {})
        ]

    def entry(self, kind: str, seconds: float, **held: Any) -> str:
        """One entry below the last, some seconds after it."""
        self._now += timedelta(seconds=seconds)
        made = uuid.uuid4().hex[:8]
        entry = {"type": kind, "id": made, "parentId": self.last, "timestamp": stamp(self._now)}
        self._lines.append(entry | held)
        self.last = made
        return made

    def ask(self, text: str) -> str:
        """A request."""
        return self._say("user", 40, [{"type": "text", "text": text}])

    def work(self, *tools: Tool) -> None:
        """Calls of tools, and what came of them."""
        for name, arguments, result in tools:
            key = uuid.uuid4().hex[:8]
            call = {"type": "toolCall", "id": key, "name": name, "arguments": arguments}
            self._say("assistant", 6, [call], stopReason="toolUse", **usage(40))
            told = [{"type": "text", "text": result}]
            failed = {"isError": result.startswith("error")}
            self._say("toolResult", 4, told, toolCallId=key, toolName=name, **failed)

    def answer(self, text: str) -> str:
        """The answer at the end of a turn."""
        told = [{"type": "text", "text": text}]
        return self._say("assistant", 15, told, stopReason="stop", **usage(len(text) // 3))

    def write(self) -> None:
        """Put it on disk, as old as it says."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("".join(json.dumps(line) + "\n" for line in self._lines))
        os.utime(self.path, (self._now.timestamp(),) * 2)

    def _say(self, role: str, seconds: float, content: list[dict[str, Any]], **more: Any) -> str:
        said = {"role": role, "content": content, **more}
        said["timestamp"] = int(self._now.timestamp() * 1000)
        return self.entry("message", seconds, message=said)


def stamp(moment: datetime) -> str:
    """As agents write times."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def usage(output: int) -> dict[str, Any]:
    """What an answer says of its model."""
    cost = {"input": 0.004, "output": output * 15e-6, "cacheRead": 0.002, "cacheWrite": 0}
    held = {"input": 1300, "output": output, "cacheRead": 18_000, "cacheWrite": 0}
    cost["total"] = sum(cost.values())
    return {"model": "sonnet-5", "provider": "anthropic", "usage": held | {"cost": cost}}


def bash(command: str, result: str) -> Tool:
    """A call of the shell."""
    return "bash", {"command": command}, result


def edit(path: str) -> Tool:
    """A call of the editor."""
    return "edit", {"path": f"{CWD}/{path}"}, f"Edited {path}."


def alerts(world: World, began: datetime) -> Talk:
    """The session that is shown: three ways tried, two of them left."""
    talk = Talk(world, began)
    talk.asked = talk.ask(
        "Alerts are sent again after every restart of weatherd. Where do we remember them?"
    )
    talk.work(
        bash("rg -n 'alert' weatherd/", "weatherd/alerts.py:41: _sent: set[str] = set()"),
        ("read", {"path": f"{CWD}/weatherd/alerts.py"}, "_sent: set[str] = set()\n..."),
    )
    talk.answer(
        "Nowhere that lasts: `alerts.py` keeps a set in memory, so a restart forgets which alerts "
        "went out.\n\nThere are three places where it could go:\n\n"
        "- a table beside the forecasts, in SQLite\n- a key in Redis that expires by itself\n"
        "- a file of one line per alert"
    )
    fork = talk.entry("custom", 1, customType="pick", data={})
    talk.entry("label", 1, targetId=fork, label="where to keep it")
    talk.ask("Try Redis first, the ops team has it already.")
    talk.work(
        edit("weatherd/alerts.py"),
        bash("docker compose up -d redis", "Container redis  Started"),
        bash("pytest -q tests/test_alerts.py", "error: 2 failed, 9 passed"),
        edit("tests/test_alerts.py"),
        bash("pytest -q tests/test_alerts.py", "11 passed"),
    )
    talk.left = talk.answer("It works, but every developer now needs Redis to run eleven tests.")
    talk.ask("That is too much for a few hundred keys. Go back.")
    talk.answer("Gone back to the fork. The Redis client and its compose file are not kept.")
    talk.last = fork
    kept(talk, fork)
    talk.write()
    return talk


def kept(talk: Talk, fork: str) -> None:
    """The second way, left as well, and the third, which is the one that is kept."""
    talk.ask("Use a plain file then, one line per alert.")
    talk.work(edit("weatherd/sent.py"), bash("pytest -q", "error: 1 failed, 212 passed"))
    talk.answer("Two workers write at once, and lines get lost: a file needs a lock of its own.")
    talk.last = fork
    talk.ask("All right: a table in the SQLite database we have.")
    talk.work(
        edit("weatherd/schema.sql"),
        edit("weatherd/sent.py"),
        edit("weatherd/alerts.py"),
        bash("pytest -q", "214 passed in 6.1s"),
    )
    talk.digested = talk.answer(
        "Done. The table `sent_alerts` has a primary key of station, kind and day, and the insert "
        "is the check:\n\n```sql\nINSERT INTO sent_alerts VALUES (?, ?, ?)\nON CONFLICT DO NOTHING"
        "\n```\n\nNo row changed means that it was sent already."
    )
    talk.ask("How long are rows kept?")
    talk.answer("We decided on fourteen days; the nightly job deletes what is older.")
    talk.ask("Add a test with two workers at once.")
    talk.work(edit("tests/test_sent.py"), bash("pytest -q tests/test_sent.py", "8 passed"))
    talk.answer("Eight processes race for one alert in it, and exactly one of them wins.")
    talk.ask("Write it down in the changelog, and we are done.")
    talk.work(edit("CHANGELOG.md"))
    talk.answer("Written, under **Fixed**: alerts are sent once, also across restarts.")


def kin(world: World, origin: Talk, began: datetime, *asks: str) -> Talk:
    """A session that goes on from another."""
    talk = Talk(world, began, origin.path)
    for n, one in enumerate(asks):
        if n:
            talk.answer("Done, and the tests pass.")
        talk.ask(one)  # the last one is not answered yet
    talk.write()
    return talk


def named(
    world: World, talk: Talk, *, name: str, description: str, tags: str, summary: str
) -> None:
    """A meta file."""
    held = {
        "sessionId": talk.id,
        "sessionFile": str(talk.path),
        "name": name,
        "description": description,
        "summary": summary,
        "tags": tags.split(", "),
        "cwd": CWD,
        "createdAt": stamp(talk.began),
        "updatedAt": stamp(talk.began + timedelta(minutes=12)),
        "model": "google/gemini-3.5-flash-lite",
        "lastIndexedLeafId": talk.last,
        "agent": "pi",
    }
    world.metas.mkdir(parents=True, exist_ok=True)
    (world.metas / f"{talk.id}.meta.json").write_text(json.dumps(held))


def furnish(world: World) -> Talk:
    """All sessions; the one that is shown."""
    now = datetime.now(UTC)
    others = [one for one in read(CORPUS) if one.key in HOURS]
    write(world, [replace(one, began=now - timedelta(hours=HOURS[one.key])) for one in others])
    talk = alerts(world, now - timedelta(minutes=50))
    named(
        world,
        talk,
        name="Alerts that are sent once",
        description="Alerts went out again after each restart; they are now kept in SQLite.",
        tags="alerts, sqlite, restart",
        summary="Goal: no alert twice, whatever restarts.\n\n"
        "Decided: a table `sent_alerts` in the database there is, with station, kind and day as "
        "its key; rows live for fourteen days. Redis was too much to ask of every developer, a "
        "plain file lost lines when two workers wrote.\n\nOpen: nothing.",
    )
    digest = Segment(
        id=uuid.uuid4().hex,
        covering=(0, 9),
        content="Alerts were kept in memory only, so that each restart sent them again. A table "
        "beside the forecasts takes the place of the set; its insert is the check.",
        key_decisions=("Alerts are remembered in SQLite, not in Redis or a file.",),
        files_modified=(f"{CWD}/weatherd/alerts.py", f"{CWD}/weatherd/sent.py"),
        generated_at=stamp(now),
        token_count=60,
        model="google/gemini-3.5-flash-lite",
        leaf_id=talk.digested,
    )
    (world.metas / f"{talk.id}.digest.jsonl").write_text(json.dumps(encode(digest)) + "\n")
    old = now - timedelta(minutes=2)
    fork = kin(world, talk, old, "Do the same for the mails of the weekly report.", "And a test.")
    told = "The mails of the weekly report are remembered in the same table."
    named(world, fork, name="Weekly report sent once", description=told, tags="mail", summary=told)
    return talk


def take(browser: Any, running: Site, talk: Talk) -> None:
    """The pictures."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    context.set_default_timeout(1000 * PATIENCE)
    page = context.new_page()
    page.goto(running.link)
    about = f"/s/{talk.id}"
    for name, address, scheme in (
        ("home", "/", "light"),
        ("search-dark", "/?q=sqlite", "dark"),
        ("session", f"{about}#target={talk.asked}", "light"),
        ("session-dark", f"{about}#target={talk.left}", "dark"),
        ("sent", about, "light"),
    ):
        page.emulate_media(color_scheme=scheme)
        page.goto("about:blank")
        page.goto(running.origin + address)
        page.locator("#results a.title, #tree [role=treeitem]").first.wait_for()
        if name == "sent":
            page.locator("#sent > summary").click()
            page.get_by_role("region", name="User text").wait_for()
            page.locator("#sent").evaluate("(one) => one.scrollIntoView()")
        page.evaluate(STILL)
        page.screenshot(path=IMAGES / f"{name}.png")
    context.close()


def main() -> int:
    """Make the home, run the program, take the pictures."""
    from playwright.sync_api import sync_playwright

    found = program()
    if found is None:
        sys.stderr.write("screenshots: there is no Chromium here\n")
        return 1
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ixd") as place, sync_playwright() as playwright:
        world = World(Path(place))
        world.install_pi()
        talk = furnish(world)
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        with world.daemon(), site(world) as running:
            until(lambda: world.row(talk.id).get("indexed"), "the sessions")
            take(browser, running, talk)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
