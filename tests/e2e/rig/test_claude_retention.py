"""What the real Claude Code deletes when it starts."""

import pytest

from tests.archive.test_claude_retention import aged
from tests.e2e.clients import ClaudeSession
from tests.e2e.rig.claude import Claude
from tests.e2e.rig.sandbox import FIVE, needed, sandbox
from tests.e2e.world import World, until

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
