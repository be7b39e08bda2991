"""Settings from file and environment: each problem is named, each value's source known."""

import json
from pathlib import Path

import pytest

from indexerd.paths import Places
from indexerd.settings import LAST_GOOD, Loaded, Settings, load, read_config, remember

FILE = "/home/ada/.config/indexerd/indexerd.toml"


def toml(text: str, **env: str) -> Loaded:
    return load(text.encode(), FILE, env)


def faults(loaded: Loaded) -> dict[str, str]:
    """Key and message of each problem; any problem makes the settings the defaults (S0.26)."""
    assert loaded.settings == Settings()
    assert loaded.problems
    for problem in loaded.problems:
        assert set(problem) == {"file", "key", "message", "hint"}
        assert problem["file"]
        assert problem["message"]
        assert problem["hint"]
    return {problem["key"]: problem["message"] for problem in loaded.problems}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("min_new_user_messages = 5.0", "min_new_user_messages"),
        ("min_new_user_messages = true", "min_new_user_messages"),
        ("min_new_user_messages = 0", "min_new_user_messages"),
        ("min_new_user_messages = 99999999999999999999", "min_new_user_messages"),
        ("command_name = 1979-05-27", "command_name"),
        ('command_name = ""', "command_name"),
        ("index = 5", "index"),
        ("[index]\nmerge_previous_summary = 1", "index.merge_previous_summary"),
        ("[index]\nquiet_seconds.x = 1", "index.quiet_seconds"),
        ("[index]\nconcurrency = 17", "index.concurrency"),
        ('[watch]\nmode = "magic"', "watch.mode"),
        ('[references]\nscope = "team"', "references.scope"),
        ('[agents.pi]\nroots = "~/.pi/agent"', "agents.pi.roots"),
        ("[agents.cursor]\nroots = []", "agents.cursor"),
        ("[providers.openai.prices.m]\ninput = -1\noutput = 1", "providers.openai.prices.m.input"),
        ("[providers.openai.prices.m]\ninput = 1", "providers.openai.prices.m.output"),
        ("[query]\nmax_calls_per_turn = 3", "query.max_calls_per_turn"),
        ("[index]\nquiet_seconds = nan", "index.quiet_seconds"),
        ("[budget]\ndaily_usd = inf", "budget.daily_usd"),
        ("[digest]\ntarget_compression = -inf", "digest.target_compression"),
        ('[redact]\nextra_patterns = ["a{9999}"]', "redact.extra_patterns"),
        ('[redact]\nextra_patterns = ["(?<=a)b"]', "redact.extra_patterns"),
    ],
)
def test_wrong_type_or_range(text: str, key: str) -> None:
    assert list(faults(toml(text))) == [key]


def test_camel_case_in_toml_and_json() -> None:
    held = {
        "minNewUserMessages": 7,
        "providers": {"google": {"apiKeyEnv": "GEMINI_API_KEY"}},
        "index": {"quietSeconds": 1.5},
    }
    as_json = load(json.dumps(held).encode(), "/x/indexerd.json", {})
    as_toml = toml(
        "minNewUserMessages = 7\n[providers.google]\napiKeyEnv = 'GEMINI_API_KEY'\n"
        "[index]\nquietSeconds = 1.5"
    )
    assert as_json.problems == as_toml.problems == ()
    assert as_json.settings == as_toml.settings
    assert as_toml.settings.min_new_user_messages == 7
    assert as_toml.settings.providers.google.api_key_env == "GEMINI_API_KEY"
    assert as_toml.sources["index.quiet_seconds"] == FILE


@pytest.mark.parametrize(
    ("variable", "value", "key"),
    [
        ("INDEXERD_INDEX__QUIET_SECONDS", "soon", "index.quiet_seconds"),
        ("INDEXERD_MODEL_KEYS", '["gemini"]', "model_keys.0"),
        ("INDEXERD_INDEX__NOPE", "1", "index.nope"),
        ("INDEXERD_INDXE__QUIET_SECONDS", "1", "indxe"),
        ("INDEXERD_INDEX", "5", "index"),
        ("INDEXERD_MODEL_KEYS", "[" * 50_000, "model_keys"),
    ],
)
def test_a_faulty_variable_is_named_as_the_source(variable: str, value: str, key: str) -> None:
    found = load(b"", FILE, {variable: value})
    assert list(faults(found)) == [key]
    assert [problem["file"] for problem in found.problems] == [variable]


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (b"[index", FILE),
        (b"a = 1\na = 2", FILE),
        (b"\xff\xfe", FILE),
        (b"a = " + b"[" * 50_000, FILE),
        (b"{", "/x/indexerd.json"),
        (b"[1]", "/x/indexerd.json"),
        (b"null", "/x/indexerd.json"),
        (b'{"a":' * 50_000, "/x/indexerd.json"),
    ],
)
def test_a_file_that_cannot_be_read_at_all(data: bytes, path: str) -> None:
    found = load(data, path, {})
    assert list(faults(found)) == [""]
    assert found.problems[0]["file"] == path


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com",
        "http://localhost.example.com",
        "http://localhost@example.com",
        "http://192.168.1.5:11434",
        "http://[::1",
        "http://",
        "https://",
        "ftp://localhost",
        "//localhost",
        "localhost:11434",
        "http://localhost:99999",
        "http://localhost:0",
    ],
)
@pytest.mark.parametrize("provider", ["google", "openai"])
def test_remote_urls_must_be_encrypted(provider: str, url: str) -> None:
    found = toml(f"[providers.{provider}]\nbase_url = {json.dumps(url)}")
    assert list(faults(found)) == [f"providers.{provider}.base_url"]


def test_a_damaged_copy_of_the_last_good_settings_is_ignored(tmp_path: Path) -> None:
    """S0.26: the copy is private; e2e/privacy/test_exclusions.py tests what it is for."""
    path, copy = tmp_path / "indexerd.toml", tmp_path / LAST_GOOD
    env = {"INDEXERD_CONFIG": str(path), "INDEXERD_STATE_DIR": str(tmp_path)}
    places = Places(env, home=tmp_path)
    path.write_text('[privacy]\nexclude = ["/a"]\n')
    remember(good := read_config(places, env), tmp_path)
    path.write_text("bogus = 1\n")
    found = read_config(places, env)
    assert found.settings == good.settings
    remember(found, tmp_path)  # in vain, as it has problems
    assert copy.stat().st_mode & 0o777 == 0o600
    copy.write_text("{")
    assert read_config(places, env).settings == Settings()
