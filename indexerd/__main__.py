"""The `indexerd` command.

What agents' hooks call runs on the least of the standard library (`cli/hook.py`); everything else
is click's, and of the commands only the module is imported that is asked for.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; never returns."""
    from indexerd.cli.streams import guarded, prepare

    prepare()
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
