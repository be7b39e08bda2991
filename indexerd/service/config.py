"""Reading the configuration file: the one place that opens it."""

from __future__ import annotations

from collections.abc import Mapping

from indexerd.io import kept
from indexerd.paths import Places
from indexerd.settings import Loaded, Privacy, Redact, load


def read_config(places: Places, env: Mapping[str, str]) -> Loaded:
    """Read the configuration; a missing file is a problem only where it was asked for (Q5).

    With problems the settings are the defaults, but for what was excluded and redacted: there
    the last good configuration holds, and whatever of the present one can be read.
    """
    loaded = _read(places, env)
    before = kept.load(places.state_dir) if loaded.problems else None
    return _guarded(loaded, *before) if before else loaded


def _guarded(loaded: Loaded, privacy: Privacy, redact: Redact) -> Loaded:
    """Settings with all exclusions and patterns of two configurations."""
    now = loaded.settings
    globs = [*privacy.exclude, *now.privacy.exclude]
    patterns = [*redact.extra_patterns, *now.redact.extra_patterns]
    both = {
        "privacy": Privacy.model_construct(exclude=list(dict.fromkeys(globs))),
        "redact": Redact.model_construct(
            enabled=redact.enabled or now.redact.enabled,
            extra_patterns=list(dict.fromkeys(patterns)),
        ),
    }
    return Loaded(now.model_copy(update=both), loaded.sources, loaded.problems)


def _read(places: Places, env: Mapping[str, str]) -> Loaded:
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
