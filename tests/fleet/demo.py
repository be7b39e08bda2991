"""`make fleet-demo`: two machines, each with a home of its own, and a PostgreSQL server."""

import shlex
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.demo import CACHE, LIVE, say, write_session
from tests.e2e.world import hit_by, until
from tests.fleet.machines import Home
from tests.fleet.postgres import Postgres, programs


class Machine(Home):
    """A home directory with sessions, and its daemon."""

    def __init__(self, name: str, folder: Path, cwd: str, talk: str) -> None:
        super().__init__(folder, name)
        self.session_id = write_session(self, cwd, talk)
        self.name = name
        self.start()

    def show(self, *argv: str) -> str:
        say(f"{self.name}$ indexerd {shlex.join(argv)}")
        say(text := str(self.run(*argv)))
        return text


def show(server: Postgres, laptop: Machine, workstation: Machine) -> None:
    say("# On the first machine: the address of the server. The last line is the code.")
    code = laptop.show("fleet", "init", server.url).splitlines()[-1]
    say("# On every other machine: the code. That is all.")
    workstation.show("fleet", "join", code)
    until(lambda: workstation.row(laptop.session_id), "the other machine's session")
    workstation.show("list", "--all")
    until(lambda: hit_by(workstation, "eviction"), "its text")
    workstation.show("search", "eviction")
    workstation.show("resume", laptop.session_id)
    workstation.show("fleet", "status")
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
            machines.append(Machine(name, folder / name, cwd, talk))
            stack.callback(machines[-1].stop)
        show(server, *machines)
    say("# Everything is removed.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
