"""Which of the configured models can be used, in the user's order, and where API keys come from.

Models are built when first asked for, and their modules imported only then. A `GEMINI_API_KEY` that
happens to be in the environment is never used: sending transcripts out is the user's own choice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from indexerd.errors import ConfigError, ModelUnavailableError
from indexerd.models.base import Model
from indexerd.settings import Provider, Settings

SCRIPT_VARIABLE = "INDEXERD_SCRIPTED"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")  # a key put there by mistake is not echoed
_KEY = re.compile(r"[\x21-\x7e]{1,1024}")  # what an HTTP header takes, without spaces


class Models:
    """The models of one configuration; a reload builds a new one."""

    def __init__(self, settings: Settings, env: Mapping[str, str]) -> None:
        self._settings = settings
        self._env = env
        self._found: dict[str, Model | str] = {}  # a text says why there is none

    @property
    def missing(self) -> dict[str, str]:
        """Say why each key of `model_keys` without a usable model is not usable."""
        found = {key: self._find(key) for key in self._settings.model_keys}
        return {key: why for key, why in found.items() if isinstance(why, str)}

    def available(self) -> list[Model]:
        """List the usable models in the order of `model_keys`."""
        found = map(self._find, dict.fromkeys(self._settings.model_keys))
        return [model for model in found if not isinstance(model, str)]

    def get(self, key: str) -> Model:
        """Give the model of any key, in `model_keys` or not; ModelUnavailableError with why."""
        model = self._find(key)
        if isinstance(model, str):
            raise ModelUnavailableError(f"{key}: {model}")
        return model

    def _find(self, key: str) -> Model | str:
        if key not in self._found:
            try:
                self._found[key] = self._build(key)
            except (ConfigError, ModelUnavailableError) as bad:
                self._found[key] = str(bad)
        return self._found[key]

    def _build(self, key: str) -> Model | str:
        provider, _, name = key.partition("/")
        if not name:
            return "a model key is written provider/model"
        if provider in ("google", "openai"):
            return self._remote(provider, name)
        if provider == "scripted":
            script = self._env.get(SCRIPT_VARIABLE, "")
            if not script:
                return f"only for tests: {SCRIPT_VARIABLE} names no script"
            from indexerd.models.scripted import Scripted  # noqa: PLC0415 - for tests only

            return Scripted(script, key)
        if key == "local/extractive":
            from indexerd.models.extractive import Extractive  # noqa: PLC0415 - when first used

            return Extractive()
        return "no such provider; there are google/*, openai/* and local/extractive"

    def _remote(self, provider: str, name: str) -> Model | str:
        google, settings = provider == "google", self._settings.providers
        own = settings.google if google else settings.openai
        if not google and not own.base_url:
            return "no server: set [providers.openai] base_url"
        secret = find_key(provider, own, self._env)
        if not secret and (google or urlsplit(own.base_url).hostname not in _LOOPBACK):
            place, named = variable(provider), own.api_key_env
            if not named:
                return f"no key: set {place}, or [providers.{provider}] api_key_env or api_key_file"
            shown = named if _VARIABLE.fullmatch(named) else "the variable that api_key_env names"
            return f"no key: neither {place} nor {shown} is set"
        limits = self._settings.model
        if google:
            from indexerd.models.gemini import Gemini  # noqa: PLC0415 - httpx2, when first used

            return Gemini(name, secret, own.base_url, limits)
        from indexerd.models.openai import OpenAICompat  # noqa: PLC0415 - as above

        return OpenAICompat(name, secret, own.base_url, limits)


def variable(provider: str) -> str:
    """Name our own variable for a provider's key."""
    return f"INDEXERD_{provider.upper()}_API_KEY"


def find_key(provider: str, settings: Provider, env: Mapping[str, str]) -> str:
    """Find the provider's key, "" for none; ModelUnavailableError where the one named is no key.

    It comes from our own variable, the one that `api_key_env` names, or `api_key_file`.
    """
    for place in filter(None, (variable(provider), settings.api_key_env)):
        if secret := env.get(place, "").strip():
            break
    else:
        place = settings.api_key_file
        if not place:
            return ""
        try:
            secret = _read(Path(place), env)
        except OSError as bad:
            raise ModelUnavailableError(f"{place} {bad.strerror or bad}") from None
    if not _KEY.fullmatch(secret):
        raise ModelUnavailableError(f"{place} does not hold a key: one word of plain ASCII")
    return secret


def _read(path: Path, env: Mapping[str, str]) -> str:
    if path.parts[0] == "~":
        path = Path(env.get("HOME", "~"), *path.parts[1:])
    if not path.is_absolute():
        raise OSError("must be an absolute path, or begin with ~/")
    if path.stat().st_mode & 0o077:
        raise OSError("may be used by group or others")
    return path.read_bytes().strip().decode("ascii", "replace")
