"""The `indexerd` command: what hooks and shells ask needs the standard library only, else click."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line; never returns."""
    from indexerd.cli.backend import guarded

    sys.exit(guarded(_run))


def _run() -> int:
    if "_INDEXERD_COMPLETE" in os.environ:
        from indexerd.cli import completion

        if completion.attempt(os.environ):
            return 0
    from indexerd.cli.hook import attempt

    code = attempt(sys.argv[1:])
    if code is None:
        from indexerd.cli.main import run

        code = run(sys.argv[1:])
    return code


if __name__ == "__main__":
    main()
