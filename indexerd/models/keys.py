"""Where a provider's API key comes from: only from where the user said so.

Order: our own variable (`INDEXERD_GOOGLE_API_KEY`, `INDEXERD_OPENAI_API_KEY`), then the variable
that `api_key_env` names, then `api_key_file`. A `GEMINI_API_KEY` that happens to be in the
environment is never used: sending transcripts out is the user's explicit choice. A key never
appears in an error: a value of the wrong form is named by its source only.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Mapping

from indexerd.errors import ConfigError
from indexerd.settings import Provider

FILE_BYTES_MAX = 4096
_FORM = re.compile(r"[\x21-\x7e]{1,1024}")  # what an HTTP header takes, without spaces
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def variable(provider: str) -> str:
    """Name our own variable for a provider."""
    return f"INDEXERD_{provider.upper()}_API_KEY"


def find(provider: str, settings: Provider, env: Mapping[str, str]) -> str | None:
    """Find the provider's key; ConfigError where one is named that cannot be used."""
    place, key = settings.api_key_file, "api_key_file"
    message, hint = "does not hold a key: one word of plain ASCII", ""
    secret = ""
    for name in filter(None, (variable(provider), settings.api_key_env)):
        if secret := env.get(name, "").strip():
            place, key = name, "api_key_env"
            break
    else:
        if not place:
            return None
        try:
            secret = _read(place, env)
        except PermissionError as bad:
            message, hint = str(bad.strerror), "chmod 600 it"
        except (OSError, ValueError) as bad:
            link = isinstance(bad, OSError) and bad.errno == errno.ELOOP
            message = "is a symbolic link" if link else getattr(bad, "strerror", "") or str(bad)
    if _FORM.fullmatch(secret):
        return secret
    where = {"file": place, "key": f"providers.{provider}.{key}", "message": message}
    hint = hint or "name a private file or a variable that holds the key alone"
    raise ConfigError([where | {"hint": hint}])


def _read(named: str, env: Mapping[str, str]) -> str:
    """Read a small private file; what it is, is asked of the open file, not of its name."""
    path = env.get("HOME", "~") + named[1:] if named.startswith("~/") else named
    if not path.startswith("/"):
        raise ValueError("must be an absolute path, or begin with ~/")
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("is not a regular file")
        if found.st_mode & _OTHERS:
            raise PermissionError(errno.EPERM, "may be used by group or others")
        if found.st_uid not in (os.geteuid(), 0):
            raise ValueError("belongs to another user")
        if found.st_size > FILE_BYTES_MAX:
            raise ValueError(f"is larger than {FILE_BYTES_MAX} bytes")
        return os.read(fd, FILE_BYTES_MAX).strip().decode("ascii", "replace")
    finally:
        os.close(fd)
