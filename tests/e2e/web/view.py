"""Configure the web view, and read where it listens."""

import json
import socket
from pathlib import Path
from typing import Any

from tests.e2e.world import World


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def config(world: World, listen: str) -> None:
    path = Path(world.env["XDG_CONFIG_HOME"]) / "indexerd" / "indexerd.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'[web]\nlisten = "{listen}"\n')


def announced(world: World) -> dict[str, Any] | None:
    found = sorted(world.state.glob("web-*.json"), key=lambda path: path.stat().st_mtime_ns)
    try:
        view: dict[str, Any] = json.loads(found[-1].read_bytes())
    except (IndexError, FileNotFoundError, ValueError):
        return None
    return view


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
