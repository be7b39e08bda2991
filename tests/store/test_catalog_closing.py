"""The catalog is closed while another thread asks it: nothing ends but the question."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ASKED = """
import sys, threading
from pathlib import Path
from indexerd.errors import StateError
from indexerd.store.catalog import Catalog

catalog = Catalog.open(Path(sys.argv[1]))
begun = threading.Event()
MANY = '''SELECT begun(), (WITH RECURSIVE one (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM one
    WHERE n < 10000000) SELECT count(*) FROM one)'''


def ask(db):
    db.create_function("begun", 0, lambda: begun.set() or 0)
    return db.execute(MANY).fetchone()


def asked():
    try:
        print("answered", catalog._ask(ask))
    except StateError as told:
        print(told)


thread = threading.Thread(target=asked)
thread.start()
assert begun.wait(20)
catalog.close()
thread.join()
print("ended")
"""


def test_what_is_asked_as_the_catalog_is_closed_is_cut_short(tmp_path: Path) -> None:
    """A3: a search, or names that are put together, do not end the daemon by a segmentation fault.

    In a process of its own: a connection that is closed under a question takes all with it.
    """
    command = [sys.executable, "-c", ASKED, str(tmp_path / "catalog.sqlite")]
    here = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.PIPE
    done = subprocess.run(
        command, check=False, stdout=told, stderr=told, text=True, env=here, timeout=50
    )
    assert (done.returncode, done.stdout.split("\n")[:2]) == (0, ["the catalog is closed", "ended"])
