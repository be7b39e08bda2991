"""A meta directory for the tests of the writer."""

from pathlib import Path

import pytest

from indexerd.meta.writer import MetaWriter
from tests.meta.writer_driver import meta


@pytest.fixture
def directory_with_meta(tmp_path: Path) -> Path:
    """A meta directory that contains generation 0."""
    directory = tmp_path / "sessions-meta"
    MetaWriter().write_meta(directory, meta(0))
    return directory
