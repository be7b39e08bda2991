"""Build the configured models, and find their API keys.

Models are built, and their modules imported, when first needed. A `GEMINI_API_KEY` that happens to
be in the environment is never used: sending transcripts to a provider is the user's choice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from indexerd.errors import ConfigError, ModelUnavailableError
from indexerd.models.base import Model
from indexerd.settings import Provider, Settings, is_loopback

SCRIPT_VARIABLE = "INDEXERD_SCRIPTED"
_KEY = re.compile(r"[\x21-\x7e]{1,1024}")  # valid in an HTTP header


class Models:
    """The models of one configuration; a reload builds a new one."""

    def __init__(self, settings: Settings, env: Mapping[str, str]) -> None:
        self._settings = settings
        self._env = env
        self._found: dict[str, Model | str] = {}  # a string is the reason why there is no model

    @property
    def missing(self) -> dict[str, str]:
        """Return the reasons why models of `model_keys` cannot be used, by key."""
        models = {key: self._find(key) for key in self._settings.model_keys}
        return {key: why for key, why in models.items() if isinstance(why, str)}

    def available(self) -> list[Model]:
        """List the usable models in the order of `model_keys`."""
        models = map(self._find, dict.fromkeys(self._settings.model_keys))
        return [model for model in models if not isinstance(model, str)]

    def get(self, key: str) -> Model:
        """Return the model of any key; ModelUnavailableError if it is unusable."""
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

    def _build(self, key: str) -> Model:
        provider, _, name = key.partition("/")
        if provider in ("google", "openai"):
            return self._remote(provider, name)
        if provider == "scripted":
            script = self._env.get(SCRIPT_VARIABLE, "")
            if not script:
                raise ModelUnavailableError(f"only for tests: {SCRIPT_VARIABLE} names no script")
            from indexerd.models.scripted import Scripted  # noqa: PLC0415 - for tests only

            return Scripted(script, key)
        from indexerd.models.extractive import Extractive  # noqa: PLC0415 - when first used

        return Extractive()

    def _remote(self, provider: str, name: str) -> Model:
        google, settings = provider == "google", self._settings.providers
        own = settings.google if google else settings.openai
        if not google and not own.base_url:
            raise ModelUnavailableError("no server: set [providers.openai] base_url")
        secret = find_key(provider, own, self._env)
        if not secret and (google or not is_loopback(urlsplit(own.base_url).hostname)):
            ways = f"{_variable(provider)}, or [providers.{provider}] api_key_env or api_key_file"
            unset = "; the variable that api_key_env names is empty" if own.api_key_env else ""
            raise ModelUnavailableError(f"no key: set {ways}{unset}")
        if google:
            from indexerd.models.gemini import Gemini  # noqa: PLC0415 - httpx2, when first used

            return Gemini(name, secret, own.base_url, self._settings.model)
        from indexerd.models.openai import OpenAICompat  # noqa: PLC0415 - as above

        return OpenAICompat(name, secret, own.base_url, self._settings.model)


def _variable(provider: str) -> str:
    return f"INDEXERD_{provider.upper()}_API_KEY"


def find_key(provider: str, settings: Provider, env: Mapping[str, str]) -> str:
    """Return the provider's key, "" if there is none; ModelUnavailableError for an invalid one.

    It is read from our own variable, the variable named by `api_key_env`, or `api_key_file`.
    """
    for place in filter(None, (_variable(provider), settings.api_key_env)):
        if secret := env.get(place, "").strip():
            break
    else:
        place = settings.api_key_file
        if not place:
            return ""
        try:
            path = Path(place).expanduser()
            mode, secret = path.stat().st_mode, path.read_bytes().strip().decode("ascii", "replace")
        except OSError as bad:
            raise ModelUnavailableError(f"{place} {bad.strerror}") from None
        if mode & 0o077:
            raise ModelUnavailableError(f"{place} is accessible to group or others: chmod 600")
    if not _KEY.fullmatch(secret):
        raise ModelUnavailableError(f"{place} has no valid key: a key is one word of ASCII")
    return secret
