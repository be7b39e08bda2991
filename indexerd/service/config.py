"""Reading the configuration file: the one place that opens it."""

from __future__ import annotations

from collections.abc import Mapping

from indexerd.paths import Places
from indexerd.settings import Loaded, load


def read_config(places: Places, env: Mapping[str, str]) -> Loaded:
    """Read the configuration; a missing file is a problem only where it was asked for (Q5)."""
    path = places.config_file
    try:
        return load(path.read_bytes(), str(path), env)
    except FileNotFoundError:
        loaded = load(None, str(path), env)
        why = "no such file"
        if not places.config_explicit:
            return loaded
    except OSError as bad:
        loaded = load(None, str(path), env)
        why = bad.strerror or "unreadable"
    problem = {"file": str(path), "key": "", "message": why, "hint": "check --config"}
    return Loaded(loaded.settings, loaded.sources, (problem,))
