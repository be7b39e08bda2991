"""Which of the configured models can be used, in the user's order.

`google/*` needs a key; `openai/*` a base URL, and a key unless that is on loopback;
`local/extractive` is always there; `scripted/*` only while `INDEXERD_SCRIPTED` names a script. For
every other key there is a reason, in words that name variables and settings but no secret. Models
are built when first asked for, and their modules imported only then.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from indexerd.errors import ConfigError, ModelUnavailableError
from indexerd.models import keys
from indexerd.models.base import Model
from indexerd.settings import Settings

SCRIPT_VARIABLE = "INDEXERD_SCRIPTED"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")  # a key put there by mistake is not echoed


class Models:
    """The models of one configuration; a reload builds a new one and closes this."""

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

    async def aclose(self) -> None:
        """Close every model that was built."""
        built, self._found = self._found, {}
        for model in built.values():
            if not isinstance(model, str):
                await model.aclose()

    def _find(self, key: str) -> Model | str:
        if key not in self._found:
            try:
                self._found[key] = self._build(key)
            except ConfigError as bad:
                said = (f"{one['file']} {one['message']}" for one in bad.problems)
                self._found[key] = "; ".join(said)
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
        secret = keys.find(provider, own, self._env)
        if not secret and (google or urlsplit(own.base_url).hostname not in _LOOPBACK):
            place, named = keys.variable(provider), own.api_key_env
            if not named:
                return f"no key: set {place}, or [providers.{provider}] api_key_env or api_key_file"
            shown = named if _VARIABLE.fullmatch(named) else "the variable that api_key_env names"
            return f"no key: neither {place} nor {shown} is set"
        limits = self._settings.model
        if google:
            from indexerd.models.gemini import Gemini  # noqa: PLC0415 - httpx2, when first used

            return Gemini(name, secret or "", own.base_url, limits)
        from indexerd.models.openai import OpenAICompat  # noqa: PLC0415 - as above

        return OpenAICompat(name, secret or "", own.base_url, limits)
