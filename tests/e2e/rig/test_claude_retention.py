"""What the real Claude Code deletes when it starts."""

import json
import os
import shutil
import time

import pytest

from tests.archive.keeping import Archived
from tests.archive.test_claude_retention import aged
from tests.e2e.clients import ClaudeSession
from tests.e2e.rig.claude import Claude
from tests.e2e.rig.sandbox import FIVE, HELPER, needed, sandbox
from tests.e2e.rig.test_continue import carry_on
from tests.e2e.world import World, hit_by, until, wait

pytestmark = needed


@pytest.mark.parametrize(("user", "project", "deleted"), [
    ("", "", {40}),
    ("", '{"cleanupPeriodDays": 5}', {40, 8}),  # of all projects
    ('{"cleanupPeriodDays": 365}', "", set()),
])  # fmt: skip
def test_files_of_all_projects_by_their_age(
    world: World, user: str, project: str, deleted: set[int]
) -> None:
    """The settings where it is started decide; `.last-cleanup` says that it has cleaned up."""
    with sandbox(world) as box:
        claude, home = Claude(box), world.root / "home"
        files = {days: aged(ClaudeSession(home), days).path for days in (40, 8, 2)}
        for place, text in ((home, user), (box.project, project)):
            (place / ".claude").mkdir(exist_ok=True)
            if text:
                (place / ".claude/settings.json").write_text(text)
        with claude.talk() as talk:
            talk.say(FIVE[0])
            until((home / ".claude/.last-cleanup").exists, "the clean-up")
        assert {days for days, path in files.items() if not path.exists()} == deleted


def test_what_it_deletes_is_read_from_the_archive_and_put_back(world: World) -> None:
    """End to end: a real session, aged, deleted by the next start of Claude Code, and resumed."""
    archived = Archived(world)
    with sandbox(world) as box, world.daemon():
        claude = Claude(box)
        with claude.talk() as talk:
            talk.say(FIVE[0])
            talk.say(HELPER)
        path = claude.file(talk.id)
        files = [path, *(each for each in path.with_suffix("").rglob("*") if each.is_file())]
        assert len(files) > 1  # the sub-agent's
        archived.copied(*files)
        before = {each: each.read_bytes() for each in files}
        for each in files:
            os.utime(each, (time.time() - 40 * 86_400,) * 2)
        (world.root / "home/.claude/.last-cleanup").unlink(missing_ok=True)
        with claude.talk() as other:
            other.say(FIVE[1])
            until(lambda: not path.exists(), "the clean-up")
        archived.taken_over(talk.id)
        world.run("restore", talk.id)
        assert {each: each.read_bytes() for each in files if each in before} == before
        archived.at(talk.id, path)
        assert claude.once(FIVE[2], "--resume", talk.id) == talk.id


def test_prompts_of_its_history_are_listed_of_sessions_never_seen(world: World) -> None:
    history = world.root / "home/.claude/history.jsonl"
    with sandbox(world) as box:
        with world.daemon():
            other = world.session(cwd=str(box.project))
            other.turn("Look into the quaggas.", "They are in the cache.")
            wait(world, other.id, userMessageCount=1)
            carry_on(box, other.id, "claude")
            until(lambda: history.exists() and history.read_text().endswith("\n"), "its history")
            [line] = map(json.loads, history.read_text().splitlines())
            wait(world, line["sessionId"], userMessageCount=1)
            box.close()
        Claude(box).file(line["sessionId"]).unlink()
    history.write_text(json.dumps(line | {"timestamp": line["timestamp"] - 2 * 86_400_000}) + "\n")
    shutil.rmtree(world.state)
    with world.daemon():
        wait(world, line["sessionId"], promptsOnly=True, gone=True, cwd=str(box.project))
        until(lambda: line["sessionId"] in hit_by(world, "quaggas"), "its prompt")
