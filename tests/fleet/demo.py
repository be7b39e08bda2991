"""`make fleet-demo`: two machines, each with a home of its own, and a PostgreSQL server."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.demo import CACHE, LIVE, say, until, write_session
from tests.fleet.postgres import Postgres, programs


class Machine:
    """A home directory with sessions, and its daemon."""

    def __init__(self, name: str, folder: Path, cwd: str, talk: str) -> None:
        self.name = name
        self.env = {key: value for key, value in os.environ.items() if "INDEXERD" not in key}
        self.env |= {f"XDG_{kind}_HOME": f"{folder}/{kind}" for kind in ("CONFIG", "STATE", "DATA")}
        self.env |= {
            "HOME": str(folder),
            "PI_CODING_AGENT_DIR": f"{folder}/.pi/agent",
            "INDEXERD_SOCKET": f"{folder}/s",
            "INDEXERD_FLEET__NAME": name,
            "INDEXERD_LOG__LEVEL": "warning",
            "INDEXERD_MODEL_KEYS": '["local/extractive"]',
            "INDEXERD_INDEX__QUIET_SECONDS": "0.5",
        }
        self.session = write_session(folder, cwd, talk)
        self.process = subprocess.Popen([sys.executable, "-m", "indexerd", "run"], env=self.env)
        until("the daemon's start", Path(folder, "s").exists)

    def run(self, *argv: str, quiet: bool = False) -> str:
        if not quiet:
            say(f"{self.name}$ indexerd {shlex.join(argv)}")
        command = [sys.executable, "-m", "indexerd", *argv]
        text = subprocess.run(command, env=self.env, check=True, stdout=subprocess.PIPE).stdout
        if not quiet:
            say(text.decode())
        return text.decode()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)


def show(server: Postgres, laptop: Machine, workstation: Machine) -> None:
    say("# On the first machine: the address of the server. The last line is the code.")
    code = laptop.run("fleet", "init", server.url).strip()
    say("# On every other machine: the code. That is all.")
    workstation.run("fleet", "join", code)

    def known() -> bool:
        return "machine" in workstation.run("--json", "list", "--all", quiet=True)

    until("the other machine's session", known)
    workstation.run("list", "--all")
    until("its text", lambda: workstation.run("search", "eviction", quiet=True))
    workstation.run("search", "eviction")
    workstation.run("resume", laptop.session)
    workstation.run("fleet", "status")
    (readable,) = server.query(
        "SELECT count(*) FILTER (WHERE position('evict'::bytea in body) > 0), count(*)"
        " FROM indexerd.log"
    )
    say(f"# On the server: {readable[1]} records, of which {readable[0]} have a readable word.")


def main() -> int:
    found = programs()
    if found is None:
        say("PostgreSQL is not installed (Debian: apt install postgresql)")
        return 1
    with ExitStack() as stack:
        place = tempfile.TemporaryDirectory(prefix="indexerd-fleet-", ignore_cleanup_errors=True)
        folder = Path(stack.enter_context(place))
        (folder / "server").mkdir()
        folder.chmod(0o711)  # the server may run as another user
        server = Postgres(folder / "server", found)
        server.start()
        stack.callback(server.stop)
        machines = []
        for name, cwd, talk in (
            ("laptop", "/work/weather", CACHE),
            ("workstation", "/work/shop", LIVE),
        ):
            (folder / name).mkdir()
            machines.append(Machine(name, folder / name, cwd, talk))
            stack.callback(machines[-1].stop)
        show(server, *machines)
    say("# Everything is removed.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
