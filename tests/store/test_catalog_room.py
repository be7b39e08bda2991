"""Reading needs no room on a disk: not in the directory of the catalog, nor for SQLite itself."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from indexerd.store.catalog import Catalog, SearchText
from tests.store.catalog_rows import row

ROWS, LONG = 600, "x" * 8000  # more than SQLite sorts in memory
READ = f"""
import resource, signal, sys
from pathlib import Path
from indexerd.store.catalog import Catalog
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
held = Catalog.open(Path(sys.argv[1]), readonly=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
listed = [one["sessionId"] for one in held.list(limit={ROWS}).rows]
of_project = [one["sessionId"] for one in held.list(limit={ROWS}, cwd="/w").rows]
in_file = [one["sessionId"] for one in held.by_file("/all.db")]
print(listed[0], len(listed), listed == of_project == sorted(in_file, reverse=True))
"""


def test_long_lists_need_no_file(tmp_path: Path) -> None:
    """A3: no file may grow, as on a full disk; hundreds of long rows are listed, in their order."""
    assert hasattr(signal, "SIGXFSZ")
    path = tmp_path / "catalog.sqlite"
    held = Catalog.open(path)
    made = [
        row(f"s{n:03}", n, description=LONG, cwd="/w", sessionFile="/all.db") for n in range(ROWS)
    ]
    held.put([(one, SearchText()) for one in made])
    held.close()
    told = subprocess.run(
        [sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=False
    )
    assert (told.stdout.split(), told.stderr) == ([f"s{ROWS - 1}", str(ROWS), "True"], "")
