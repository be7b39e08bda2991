"""The real pi writes sessions and reports what its own reader makes of them.

A new pi package can work from its bundle alone (`dist/bundle`, with jiti for extensions), because
some dependencies cannot be installed everywhere. The rig's scripts import unbundled modules, so
they get a directory that provides these from the bundle.
"""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.rig.sandbox import RIG
from tests.e2e.world import World

NODE = RIG / "node/node_modules/node/bin/node"
PACKAGE = RIG / "clients/pi/node_modules/@earendil-works/pi-coding-agent"
_BUNDLE = PACKAGE / "dist/bundle/index.js"
PI = _BUNDLE if _BUNDLE.exists() else PACKAGE / "dist/index.js"
# Modules that the rig imports, written on top of the bundle's exports.
_FILES = f"""
import {{ prepareBranchEntries }} from {json.dumps(str(PI))};
const kinds = ["read", "written", "edited"];
export const createFileOps = () => Object.fromEntries(kinds.map((kind) => [kind, new Set()]));
export function extractFileOpsFromMessage(message, ops) {{
  const entry = {{ type: "message", id: "a", parentId: null, timestamp: "", message }};
  const found = prepareBranchEntries([entry]).fileOps;
  for (const kind of kinds) for (const path of found[kind]) ops[kind].add(path);
}}
export function computeFileLists(ops) {{
  const modified = new Set([...ops.written, ...ops.edited]);
  const read = [...ops.read].filter((path) => !modified.has(path));
  return {{ readFiles: read.sort(), modifiedFiles: [...modified].sort() }};
}}
"""
TREE = re.compile(rb'^( +)"tree": \[.*?^\1\],\n', re.MULTILINE | re.DOTALL)


def package(world: World) -> Path:
    if PI != _BUNDLE or (PACKAGE.parent / "pi-ai").exists():
        return PACKAGE
    folder = world.root / "pi-package"
    if not folder.exists():
        (folder / "dist/core/compaction").mkdir(parents=True)
        (folder / "package.json").write_bytes((PACKAGE / "package.json").read_bytes())
        (folder / "dist/index.js").write_text(f"export * from {json.dumps(str(PI))};\n")
        (folder / "dist/core/compaction/utils.js").write_text(_FILES)
    return folder


def command(world: World, *argv: str | Path, **options: Any) -> subprocess.Popen[str]:
    env = {"PATH": os.environ["PATH"], "HOME": world.env["HOME"], "RIG": str(RIG)}
    env["PI_PKG"] = str(package(world))
    whole = [str(NODE), *map(str, argv)]
    return subprocess.Popen(whole, env=env, cwd=world.root, text=True, **options)


class Live:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process = process
        self._lines = (json.loads(line) for line in process.stdout)
        first = next(self._lines)
        self.id, self.path = str(first["id"]), Path(first["file"])
        self.seen: list[dict[str, Any]] = []

    def entries(self) -> Iterator[dict[str, Any]]:
        for entry in self._lines:
            if "done" not in entry:
                self.seen.append(entry)
                yield entry

    def answers(self) -> Iterator[dict[str, Any]]:
        for entry in self.entries():
            if entry.get("role") == "assistant":
                self.process.send_signal(signal.SIGSTOP)
                yield entry
                self.process.send_signal(signal.SIGCONT)

    def users(self, leaf: str, since: str | None) -> int:
        by_id = {entry["id"]: entry for entry in self.seen}
        path = [by_id[leaf]]
        while above := path[-1]["parentId"]:
            path.append(by_id[above])
        ids = [entry["id"] for entry in path]
        new = path[: ids.index(since)] if since in ids else path
        return sum(1 for entry in new if entry.get("role") == "user")


@contextmanager
def live(world: World, *options: str) -> Iterator[Live]:
    with command(world, *_pi_live(world), *options, stdout=subprocess.PIPE) as process:
        try:
            yield Live(process)
        finally:
            process.kill()


def _pi_live(world: World) -> tuple[str | Path, ...]:
    return RIG / "pi_live.mjs", "--agent-dir", world.pi, "--cwd", "/w"


def oracle(world: World, *files: Path) -> list[dict[str, Any]]:
    answer = world.root / "oracle.json"
    with answer.open("w") as out:
        assert command(world, RIG / "pi_oracle.mjs", *files, stdout=out).wait(50) == 0
    found = json.loads(
        TREE.sub(b"", answer.read_bytes())
    )  # its recursion is as deep as the branch is long
    return found if isinstance(found, list) else [found]
