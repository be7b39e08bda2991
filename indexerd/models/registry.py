"""Which of the configured models can be used, in the user's order (S0.27, S0.28).

In: the settings and the environment. Out: models, and for every key without one the reason, in
words that name variables and settings but no secret. Models are built when first asked for, and
each provider's module is imported only then. Nothing here opens a connection.

`google/*` needs a key; `openai/*` a base URL, and a key unless that is on loopback;
`local/extractive` is always there; `scripted/*` only while `INDEXERD_SCRIPTED` names a script.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from indexerd.errors import ConfigError, ModelUnavailableError
from indexerd.models import keys
from indexerd.models.base import Model
from indexerd.settings import Provider, Settings

SCRIPT_VARIABLE = "INDEXERD_SCRIPTED"
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")  # a key put there by mistake is not echoed


class Models:
    """The models of one configuration; a reload builds a new one and closes this."""

    def __init__(self, settings: Settings, env: Mapping[str, str]) -> None:
        self._settings = settings
        self._env = env
        self._built: dict[str, Model] = {}
        self._missing: dict[str, str] = {}

    @property
    def missing(self) -> dict[str, str]:
        """Say why each key of `model_keys` without a usable model is not usable."""
        self.available()
        return {key: self._missing[key] for key in self._keys() if key in self._missing}

    def available(self) -> list[Model]:
        """List the usable models in the order of `model_keys`."""
        return [model for key in self._keys() if (model := self._find(key)) is not None]

    def get(self, key: str) -> Model:
        """Give the model of any key, in `model_keys` or not; ModelUnavailableError with why."""
        model = self._find(key)
        if model is None:
            raise ModelUnavailableError(f"{key}: {self._missing[key]}")
        return model

    async def aclose(self) -> None:
        """Close every model that was built."""
        built, self._built = self._built, {}
        for model in built.values():
            await model.aclose()

    def _keys(self) -> list[str]:
        return list(dict.fromkeys(self._settings.model_keys))

    def _find(self, key: str) -> Model | None:
        if key not in self._built and key not in self._missing:
            try:
                made = self._build(key)
            except ConfigError as bad:
                made = "; ".join(f"{one['file']} {one['message']}" for one in bad.problems)
            if isinstance(made, str):
                self._missing[key] = made
            else:
                self._built[key] = made
        return self._built.get(key)

    def _build(self, key: str) -> Model | str:
        """Build the model of a key, or say why it cannot be."""
        provider, _, name = key.partition("/")
        if not name:
            return "a model key is written provider/model"
        if provider == "google":
            return self._google(name)
        if provider == "openai":
            return self._openai(name)
        if provider == "scripted":
            return self._scripted(key)
        if key == "local/extractive":
            from indexerd.models.extractive import Extractive  # noqa: PLC0415 - when first used

            return Extractive()
        return "no such provider; there are google/*, openai/* and local/extractive"

    def _google(self, name: str) -> Model | str:
        settings = self._settings.providers.google
        key = keys.find("google", settings, self._env)
        if key is None:
            return _no_key("google", settings)
        from indexerd.models.gemini import Gemini  # noqa: PLC0415 - httpx2, when first used

        return Gemini(name, key.secret, settings.base_url, self._settings.model)

    def _openai(self, name: str) -> Model | str:
        settings = self._settings.providers.openai
        if not settings.base_url:
            return "no server: set [providers.openai] base_url"
        key = keys.find("openai", settings, self._env)
        if key is None and urlsplit(settings.base_url).hostname not in _LOOPBACK:
            return _no_key("openai", settings)
        from indexerd.models.openai import OpenAICompat  # noqa: PLC0415 - as for google

        secret = key.secret if key else ""
        return OpenAICompat(name, secret, settings.base_url, self._settings.model)

    def _scripted(self, key: str) -> Model | str:
        script = self._env.get(SCRIPT_VARIABLE, "")
        if not script:
            return f"only for tests: {SCRIPT_VARIABLE} names no script"
        from indexerd.models.scripted import load  # noqa: PLC0415 - for tests only

        return load(script, key)


def _no_key(provider: str, settings: Provider) -> str:
    own = keys.variable(provider)
    named = settings.api_key_env
    if not named:
        return f"no key: set {own}, or [providers.{provider}] api_key_env or api_key_file"
    shown = named if _VARIABLE.fullmatch(named) else "the variable that api_key_env names"
    return f"no key: neither {own} nor {shown} is set"
