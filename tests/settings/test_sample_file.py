"""The sample configuration documents the settings: every key, its default, one comment."""

import re
import tomllib
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from indexerd.integrations import service
from indexerd.settings import Settings, load

TEXT = service.read_text("config/indexerd.toml")


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from keys(kind, f"{prefix}{name}.")
        else:
            yield prefix + name, field


def comments(text: str) -> dict[str, str]:
    found, table = {}, ""
    for line in text.splitlines():
        if header := re.fullmatch(r"\[([a-z.]+)\]", line):
            table = header[1] + "."
        elif pair := re.match(r'([a-z_]+) = (?:"[^"]*"|\[[^\]]*\]|[^#"\[]*?) # (.+)', line):
            found[table + pair[1]] = pair[2]
    return found


KEYS = dict(keys(Settings))
COMMENTS = comments(TEXT)


def test_the_file_equals_the_defaults() -> None:
    """It parses to exactly the defaults, without a problem."""
    loaded = load(TEXT.encode(), "indexerd.toml", {})

    assert loaded.problems == ()
    assert loaded.settings == Settings()


def test_every_key_is_there_once_with_a_comment() -> None:
    """No key is missing or invented, and each has one line of explanation."""
    assert list(COMMENTS) == list(KEYS)
    assert set(load(TEXT.encode(), "indexerd.toml", {}).sources) | {"providers.openai.prices"} == (
        set(KEYS)
    )


def test_examples_in_comments_are_valid() -> None:
    example = re.search(r"^# (prices = .+)$", TEXT, re.MULTILINE)
    assert example is not None
    prices = tomllib.loads(example[1])["prices"]
    text = TEXT.replace("prices = {} #", f"{example[1]} #")
    loaded = load(text.encode(), "indexerd.toml", {})

    assert loaded.problems == ()
    assert loaded.settings.providers.openai.model_dump()["prices"] == prices
