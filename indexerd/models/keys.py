"""Where a provider's API key comes from: only from where the user said so.

In: a provider's name and settings, and the environment. Out: a `Key` that does not show itself,
or None. Order: our own variable (`INDEXERD_GOOGLE_API_KEY`, `INDEXERD_OPENAI_API_KEY`), then the
variable that `api_key_env` names, then `api_key_file`. A `GEMINI_API_KEY` that merely lies in the
environment is never used: sending transcripts out is the user's explicit choice.

A key file that others may read, a symlink, anything but a regular file, or one too large is
refused with a `ConfigError` (C4). A key never stands in an error: a value of the wrong form is
refused by its place, as it would otherwise be quoted by an HTTP library.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from indexerd.errors import ConfigError
from indexerd.settings import Provider

FILE_BYTES_MAX = 4096
_FORM = re.compile(r"[\x21-\x7e]{1,1024}")  # what an HTTP header takes, without spaces
_FORM_TEXT = "does not hold a key: one word of plain ASCII"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class Key:
    """A secret and where it was found; printing it shows the place only."""

    secret: str = field(repr=False)
    source: str  # the variable's or the file's name


def variable(provider: str) -> str:
    """Name our own variable for a provider."""
    return f"INDEXERD_{provider.upper()}_API_KEY"


def find(provider: str, settings: Provider, env: Mapping[str, str]) -> Key | None:
    """Find the provider's key, or None; ConfigError where one is named that cannot be used."""
    for name in (variable(provider), settings.api_key_env):
        secret = env.get(name, "").strip() if name else ""
        if secret:
            return Key(_checked(secret, _problem(provider, name, "api_key_env", _FORM_TEXT)), name)
    if settings.api_key_file:
        return _from_file(provider, settings.api_key_file, env)
    return None


def _from_file(provider: str, named: str, env: Mapping[str, str]) -> Key:
    def problem(message: str, hint: str = "") -> ConfigError:
        return _problem(provider, named, "api_key_file", message, hint)

    path = env.get("HOME", "~") + named[1:] if named.startswith("~/") else named
    if not path.startswith("/"):
        raise problem("must be an absolute path, or begin with ~/")
    try:
        data = _read(path, problem)
    except OSError as bad:
        link = bad.errno == errno.ELOOP
        raise problem("is a symbolic link" if link else f"{bad.strerror}") from None
    secret = data.strip().decode("ascii", "replace")
    return Key(_checked(secret, problem(_FORM_TEXT)), named)


def _read(path: str, problem: Callable[..., ConfigError]) -> bytes:
    """Read a small private file; what it is, is asked of the open file, not of its name."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise problem("is not a regular file")
        if found.st_mode & _OTHERS:
            raise problem("may be used by group or others", "chmod 600 it")
        if found.st_uid not in (os.geteuid(), 0):
            raise problem("belongs to another user")
        if found.st_size > FILE_BYTES_MAX:
            raise problem(f"is larger than {FILE_BYTES_MAX} bytes")
        return os.read(fd, FILE_BYTES_MAX)
    finally:
        os.close(fd)


def _checked(secret: str, problem: ConfigError) -> str:
    if _FORM.fullmatch(secret) is None:
        raise problem
    return secret


def _problem(provider: str, place: str, key: str, message: str, hint: str = "") -> ConfigError:
    return ConfigError(
        [
            {
                "file": place,
                "key": f"providers.{provider}.{key}",
                "message": message,
                "hint": hint or "name a private file or a variable that holds the key alone",
            }
        ]
    )
