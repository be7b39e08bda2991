"""Reading any content of a meta directory gives a value or a typed error."""

import contextlib
import os
import re
import socket
from pathlib import Path

import pytest

from indexerd.errors import AccessError
from indexerd.meta import model as metas
from tests.meta.writer_driver import meta


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a1.meta.json"


@pytest.mark.parametrize("kind", ["link", "loop", "directory", "fifo", "socket"])
def test_what_is_not_a_regular_file_is_an_access_error(path: Path, kind: str) -> None:
    """S0.40: links are not followed, even to a valid file, and a FIFO is not waited for."""
    other = path.with_name("other")
    other.write_bytes(meta().to_json())
    with contextlib.ExitStack() as stack:
        if kind == "link":
            path.symlink_to(other)
        elif kind == "loop":
            path.symlink_to(path)
        elif kind == "directory":
            path.mkdir()
        elif kind == "fifo":
            os.mkfifo(path)
        else:
            bound = stack.enter_context(socket.socket(socket.AF_UNIX))
            stack.enter_context(contextlib.chdir(path.parent))  # the path may be too long to bind
            bound.bind(path.name)
        for read in (metas.read_meta, metas.read_user, metas.read_digest):
            with pytest.raises(AccessError, match=re.escape(str(path))):
                read(path)
        assert list(metas.scan(path.parent)) == []
