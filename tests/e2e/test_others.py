"""Another user of the machine, who may look at everything that its modes let him."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_web_beside import announced, free_port
from tests.e2e.world import World, until

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root"),
]

AS_NOBODY = """
import json, os, socket, sys
root, *sockets = sys.argv[1:]
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
seen = {"entered": [], "read": [], "written": [], "connected": []}
for path, directories, files in os.walk(root):
    seen["entered"].append(path)
    if os.access(path, os.W_OK):
        seen["written"].append(path)
    for name in files:
        whole = os.path.join(path, name)
        for way, flag in (("read", os.O_RDONLY), ("written", os.O_WRONLY | os.O_NONBLOCK)):
            try:
                os.close(os.open(whole, flag))
                seen[way].append(whole)
            except OSError:
                continue
for one in sockets:
    with socket.socket(socket.AF_UNIX) as ear:
        try:
            ear.connect(one)
            seen["connected"].append(one)
        except OSError:
            continue
print(json.dumps(seen))
"""


@pytest.fixture
def open_world() -> Iterator[World]:
    """A home that everybody may enter, made under a umask that forbids nothing."""
    root = Path(tempfile.mkdtemp(prefix="others-", dir="/tmp"))
    old = os.umask(0)
    try:
        root.chmod(0o755)
        world = World(root)
        world.install_pi()
        yield world
    finally:
        os.umask(old)
        shutil.rmtree(root)


def looked(world: World) -> dict[str, set[str]]:
    """What nobody could enter, read, write to and connect with."""
    command = [sys.executable, "-c", AS_NOBODY, str(world.root), str(world.socket)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=True, cwd="/")
    return {way: set(paths) for way, paths in json.loads(done.stdout).items()}


def test_another_user_sees_nothing_of_ours(open_world: World) -> None:
    """S3, S2, C4: a daemon with its view, exports and a key, under umask 000; and after its end.

    What an agent and this test made stands open, and is what another user sees; nothing else.
    """
    world = open_world
    session = world.session(turns=6)
    key = world.root / "key"
    key.touch(0o600)
    key.write_text("sk-not-one")
    world.env["INDEXERD_PROVIDERS__OPENAI__API_KEY_FILE"] = json.dumps(str(key))
    world.env["INDEXERD_WEB__LISTEN"] = json.dumps(f"127.0.0.1:{free_port()}")
    world.env["INDEXERD_SOCKET"] = str(world.root / "run/indexerd/s.sock")
    world.socket = Path(world.env["INDEXERD_SOCKET"])
    (world.root / "run").mkdir(0o755)
    (world.root / "stderr").touch()
    theirs = {str(path) for path in world.root.rglob("*")} - {str(key)} | {str(world.root)}

    with world.daemon():
        world.wait_meta(session.id)
        until(lambda: announced(world), "the view")
        world.run("web", "--json")
        world.call("update", ref=session.id, title="A title")
        for kind in ("html", "md"):
            world.run("export", session.id, "-o", str(world.root / f"out.{kind}"))
        running = looked(world)
        mine = {str(path) for path in world.root.rglob("*")} - theirs
    after = looked(world)

    made = {Path(path).name for path in mine}
    assert {"out.html", "out.md", "store.sqlite", "meta.json", "log.jsonl"} <= made
    assert any(name.startswith("web-") for name in made)
    for seen in (running, after):
        assert seen["connected"] == set()
        assert str(session.path) in seen["read"]  # it could look, and it was an open place
        for way in ("read", "written", "entered"):
            assert seen[way] <= theirs, way
