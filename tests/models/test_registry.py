"""Which models can be used, in what order, and why not."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from indexerd.models.registry import Models
from indexerd.settings import Settings, load

SECRET = "key-canary"


def settings(*keys: str, **providers: Any) -> Settings:
    """Build settings with these model keys."""
    tree = {"model_keys": list(keys), "providers": providers}
    loaded = load(json.dumps(tree).encode(), "config.json", {})
    assert not loaded.problems
    return loaded.settings


def test_models_come_in_the_order_of_their_keys(tmp_path: Path) -> None:
    """S0.27: every usable model in the user's order, each once."""
    script = tmp_path / "script"
    script.write_text("")
    env = {"INDEXERD_GOOGLE_API_KEY": SECRET, "INDEXERD_SCRIPTED": str(script)}
    wanted = ["scripted/a", "google/b", "openai/vendor/c", "google/d"]
    chosen = settings(*wanted, "google/b", openai={"base_url": "http://localhost:11434/v1"})

    models = Models(chosen, env)

    assert [model.key for model in models.available()] == wanted
    assert [model.remote for model in models.available()] == [True] * 4
    assert models.available()[0] is models.available()[0]
    assert models.missing == {}
    asyncio.run(models.aclose())


def test_every_unusable_key_has_its_reason() -> None:
    """S0.28: what is missing is named, and no secret is."""
    chosen = settings("google/a", "openai/b", "scripted/c", "local/other", "acme/d")

    models = Models(chosen, {"GEMINI_API_KEY": SECRET})

    assert models.available() == []
    assert list(models.missing) == chosen.model_keys
    assert "INDEXERD_GOOGLE_API_KEY" in models.missing["google/a"]
    assert "base_url" in models.missing["openai/b"]
    assert "INDEXERD_SCRIPTED" in models.missing["scripted/c"]
    assert "no such provider" in models.missing["local/other"]
    assert "no such provider" in models.missing["acme/d"]
    assert SECRET not in str(models.missing)


def test_a_key_in_the_place_of_a_variable_is_a_problem() -> None:
    """C2: a key pasted into `api_key_env` is refused, and not shown."""
    tree = {"providers": {"google": {"api_key_env": SECRET}}}

    (problem,) = load(json.dumps(tree).encode(), "config.json", {}).problems

    assert problem["key"] == "providers.google.api_key_env"
    assert SECRET not in str(problem)


def test_a_refused_key_file_is_a_reason(tmp_path: Path) -> None:
    """C4: a key that others may read leaves the model unusable, and says why."""
    path = tmp_path / "key"
    path.write_text(SECRET)
    path.chmod(0o644)

    models = Models(settings("google/a", google={"api_key_file": str(path)}), {})

    assert "group or others" in models.missing["google/a"]
    assert SECRET not in str(models.missing)


@pytest.mark.parametrize(
    ("url", "usable"),
    [
        ("http://127.0.0.1:8080/v1", True),
        ("http://[::1]:8080/v1", True),
        ("https://openrouter.ai/api/v1", False),
        ("https://localhost.example.org/v1", False),
    ],
)
def test_only_loopback_servers_need_no_key(url: str, usable: bool) -> None:
    """A key is asked for wherever text leaves the machine."""
    models = Models(settings("openai/a", openai={"base_url": url}), {})

    assert bool(models.available()) is usable
    assert ("openai/a" in models.missing) is not usable
