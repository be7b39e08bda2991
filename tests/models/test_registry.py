"""Which models are usable, in which order, and which are asked after a failure; API keys."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from indexerd import errors
from indexerd.models.attempts import first_usable
from indexerd.models.base import Model
from indexerd.models.registry import Models, find_key
from indexerd.settings import Provider, Settings
from tests.fakes.scripted import Scripted

SECRET = "AIza-secret-canary"


def models(*names: str, env: dict[str, str] | None = None, **providers: Any) -> Models:
    tree = {"model_keys": list(names), "providers": providers}
    return Models(Settings.model_validate(tree), env or {})


def test_every_unusable_key_has_its_reason() -> None:
    """S0.28: the reason names what is missing, and no secret."""
    wanted = ["google/a", "openai/b", "scripted/c"]
    found = models(*wanted, env={"GEMINI_API_KEY": SECRET})
    assert found.available() == []
    reasons = ["INDEXERD_GOOGLE_API_KEY", "base_url", "INDEXERD_SCRIPTED"]
    for key, why in zip(wanted, reasons, strict=True):
        assert why in found.missing[key]
    assert SECRET not in str(found.missing)


def test_only_loopback_servers_need_no_key() -> None:
    """A key is required whenever text leaves the machine."""
    for url in ("http://127.0.0.1:8080/v1", "http://[::1]:8080/v1"):
        assert models("openai/a", openai={"base_url": url}).available()
    for url in ("https://openrouter.ai/api/v1", "https://localhost.example.org/v1"):
        assert not models("openai/a", openai={"base_url": url}).available()


def key_file(directory: Path, content: bytes = SECRET.encode(), mode: int = 0o600) -> Path:
    path = directory / "key"
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_the_order_of_api_key_sources(tmp_path: Path) -> None:
    """First its own variable, then the configured one, the file; no other variable is used."""
    file = key_file(tmp_path, b"from-file\n")
    named = Provider(api_key_env="MY_KEY", api_key_file=str(file))
    ours = "INDEXERD_GOOGLE_API_KEY"
    envs = ({ours: "a", "MY_KEY": "b"}, {ours: " ", "MY_KEY": "b"}, {"MY_KEY": ""})
    assert [find_key("google", named, env) for env in envs] == ["a", "b", "from-file"]
    env = {"GEMINI_API_KEY": SECRET, "GOOGLE_API_KEY": SECRET, "OPENAI_API_KEY": SECRET}
    assert find_key("google", Provider(), env) == find_key("openai", Provider(), env) == ""


def test_bad_key_files_are_refused(tmp_path: Path) -> None:
    """A directory, a file that others may read, or no file."""
    directory = tmp_path / "directory"
    directory.mkdir(mode=0o700)
    wanted = {
        directory: "Is a directory",
        key_file(tmp_path, mode=0o640): "group or others",
        tmp_path / "nothing": "No such file",
    }
    for path, message in wanted.items():
        with pytest.raises(errors.ModelUnavailableError, match=message) as caught:
            find_key("google", Provider(api_key_file=str(path)), {})
        assert str(path) in str(caught.value)


ONE, TWO = Scripted(key="google/one"), Scripted(key="openai/two")
LOCAL = Scripted(key="local/extractive", remote=False)


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (errors.ModelUnavailableError("no key"), [ONE, TWO, LOCAL]),
        (errors.ProviderDeniedError("401"), [ONE, TWO, LOCAL]),
        (errors.RefusedError("declined"), [ONE, LOCAL]),
        (errors.ContextTooLargeError("too large"), [ONE, LOCAL]),
        (errors.BudgetError("spent"), [ONE, LOCAL]),
        (errors.ProviderError("503"), [ONE]),
        (errors.DeadlineError("late"), [ONE]),
        (errors.OutputInvalidError("prose"), [ONE]),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("awaited", [False, True])
def test_which_models_are_asked_after_a_failure(
    error: errors.IndexerdError, asked: list[Any], *, awaited: bool
) -> None:
    """S0.27: an unavailable model is skipped; a temporary failure is waited for, but by no user."""
    tried: list[Model] = []

    async def fails(model: Model) -> str:
        tried.append(model)
        raise error

    with pytest.raises(type(error)):
        asyncio.run(first_usable([ONE, TWO, LOCAL], fails, awaited=awaited))
    passing = awaited and isinstance(error, errors.ProviderError)
    assert tried == ([ONE, LOCAL] if passing else asked)
