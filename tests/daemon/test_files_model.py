"""Files changed in any way and order, compared with a fresh read of the same bytes.

One change is left out because neither `stat` nor the bytes before the cursor can show it: a rewrite
to the same size with the same mtime.
"""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from indexerd.daemon.files import Files
from indexerd.privacy.exclusions import Exclusions
from indexerd.sessions.info import pack, unpack
from indexerd.sources import tail
from indexerd.sources.roots import SessionRoot
from tests.sessions.tree_sessions import STAMP, line, said

IDS = ("0b0c6a4e-1111-7000-8000-00000000000a", "0b0c6a4e-2222-7000-8000-00000000000b")
NAMES = ("a.jsonl", "b.jsonl")
TICK = 10**9


def entry(number: int, parent: int | None, text: str) -> bytes:
    """A user message of pi."""
    return said(f"{number:08x}", f"{parent:08x}" if parent else None, "user", text)


def header(session_id: str) -> bytes:
    """The first line of a pi session."""
    return line(type="session", version=3, id=session_id, cwd="/w", timestamp=STAMP)


entries = st.lists(
    st.builds(entry, st.integers(1, 9), st.none() | st.integers(1, 9), st.sampled_from("ab")),
    max_size=4,
).map(b"".join)
contents = st.builds(lambda one, rest: header(one) + rest, st.sampled_from(IDS), entries)
torn = st.sampled_from([b"", b"{", entry(1, None, "torn")[:40], b"\xc3", b"\r", b"not JSON\n"])
names = st.sampled_from(NAMES)


class FilesMachine(RuleBasedStateMachine):
    """Two files below one root, and what indexerd knows of them."""

    def __init__(self) -> None:
        super().__init__()
        self.place = TemporaryDirectory()
        self.sessions = Path(self.place.name) / "--w--"
        self.sessions.mkdir()
        self.clock = 1_790_000_000 * TICK
        self.chunk, tail.CHUNK = tail.CHUNK, 64
        self.files = self.fresh()

    def teardown(self) -> None:
        tail.CHUNK = self.chunk
        self.place.cleanup()

    def fresh(self) -> Files:
        """A process that knows nothing yet."""
        files = Files(
            since=lambda _id: None,
            title=lambda *_: None,
            exclusions=Exclusions(list),
            defect=self.no_defect,
        )
        files.roots = [SessionRoot("pi", self.place.name, f"{self.place.name}/meta")]
        return files

    def refresh(self, files: Files, name: str) -> bool:
        """Read a step of a file, or note that it is gone. Return whether more is left to read."""
        path = str(self.sessions / name)
        if not Path(path).exists():
            files.vanish(path)
        return files.refresh(path).more

    def no_defect(self, path: str, bug: Exception) -> None:
        """Fail: no file may be set aside as defective here."""
        raise AssertionError(path) from bug

    def changed(self, path: Path) -> None:
        """Give the file an mtime that it never had before."""
        self.clock += TICK
        if path.exists():
            os.utime(path, ns=(self.clock, self.clock))

    @rule(name=names, data=entries, rest=torn)
    def append(self, name: str, data: bytes, rest: bytes) -> None:
        """Append whole lines, possibly completing a torn line or starting one."""
        with (self.sessions / name).open("ab") as out:
            out.write(data + rest)
        self.changed(self.sessions / name)

    @rule(name=names, share=st.integers(0, 100))
    def truncate(self, name: str, share: int) -> None:
        """Cut the file anywhere, possibly in the middle of a line."""
        path = self.sessions / name
        if path.exists():
            os.truncate(path, path.stat().st_size * share // 100)
        self.changed(path)

    @rule(name=names, data=contents, rest=torn)
    def rewrite(self, name: str, data: bytes, rest: bytes) -> None:
        """Write other bytes to the same inode, shorter or longer."""
        (self.sessions / name).write_bytes(data + rest)
        self.changed(self.sessions / name)

    @rule(name=names, data=contents)
    def rename_over(self, name: str, data: bytes) -> None:
        """Replace the file by another one."""
        other = self.sessions / "other"
        other.write_bytes(data)
        other.replace(self.sessions / name)
        self.changed(self.sessions / name)

    @rule(name=names)
    def delete(self, name: str) -> None:
        """Delete the file; the next one usually gets its inode."""
        (self.sessions / name).unlink(missing_ok=True)

    @rule(name=names)
    def touch(self, name: str) -> None:
        """Change only the mtime."""
        self.changed(self.sessions / name)

    @rule()
    def drop_trees(self) -> None:
        """Drop the trees from memory."""
        for path in map(str, self.sessions.iterdir()):
            file = self.files._files.get(path)
            if file is not None and not file.underway:
                file.drop_tree()

    @rule()
    def restart(self) -> None:
        """Start a new process that knows only what the store has."""
        kept = {
            str(path): self.files.stored(str(path)) for path in map(self.sessions.joinpath, NAMES)
        }
        self.files = self.fresh()
        self.files.load(
            (path, row[0], unpack(pack(row[1]), path) if row[1] else None)
            for path, row in kept.items()
            if row
        )

    @rule(steps=st.integers(1, 3))
    def read_some_steps(self, steps: int) -> None:
        """Read a few bounded steps, which may end in the middle of a file."""
        for name in NAMES:
            for _ in range(steps):
                self.refresh(self.files, name)

    @rule()
    def read_everything(self) -> None:
        """Read everything: the result equals that of a fresh process."""
        fresh = self.fresh()
        for files in (self.files, fresh):
            for name in NAMES:
                more = True
                while more:
                    more = self.refresh(files, name)
        for session_id in IDS:
            info = self.files.info(session_id)
            if info is not None and b"\n" not in Path(info.path).read_bytes():
                continue  # S1.11: an emptied file is about to be rewritten; the session stays
            assert info == fresh.info(session_id)
        assert self.files.problems() == fresh.problems()


TestFiles = FilesMachine.TestCase
TestFiles.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
