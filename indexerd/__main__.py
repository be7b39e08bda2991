"""The `indexerd` command: commands for hooks import only the standard library, the rest click."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; never returns."""
    from indexerd.cli.backend import guarded

    sys.exit(guarded(_run))


def _run() -> int:
    from indexerd.cli.hook import attempt

    code = attempt(sys.argv[1:])
    if code is None:
        from indexerd.cli.main import run

        code = run(sys.argv[1:])
    return code


if __name__ == "__main__":
    main()
