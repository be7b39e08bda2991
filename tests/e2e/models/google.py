"""A fake Gemini as the configured provider."""

from __future__ import annotations

import json

from tests.e2e.world import World
from tests.fakes.gemini_server import GeminiServer

KEY = "AIza" + "Sy-this-key-must-stay-here-012345"


def google(world: World, server: GeminiServer, *keys: str) -> None:
    world.env["INDEXERD_GOOGLE_API_KEY"] = KEY
    world.env["INDEXERD_MODEL_KEYS"] = json.dumps(["google/gemini-3.5-flash-lite", *keys])
    world.env["INDEXERD_PROVIDERS__GOOGLE__BASE_URL"] = json.dumps(server.url)
    world.env["INDEXERD_MODEL__TIMEOUT_SECONDS"] = "20"  # loading the SDK is part of a first call
    # What merely lies in the environment is not used (M23).
    world.env["GOOGLE_GEMINI_BASE_URL"] = "http://127.0.0.1:9"
    world.env["HTTPS_PROXY"] = world.env["HTTP_PROXY"] = "http://127.0.0.1:9"
