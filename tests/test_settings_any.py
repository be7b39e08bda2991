"""Settings of any shape: nothing raises, and what is closed stays closed beside what is broken."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.settings import Settings, load
from indexerd.settings.parsing import SIZE_MAX

FILE = "/home/ada/.config/indexerd/indexerd.toml"
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
names = st.sampled_from([*Settings.model_fields, "quietSeconds", "x"]) | st.text(max_size=6)
trees = st.recursive(
    leaves, lambda below: st.lists(below, max_size=3) | st.dictionaries(names, below, max_size=4)
)


@given(st.dictionaries(names, trees, max_size=5), st.dictionaries(names, leaves, max_size=3))
def test_no_configuration_raises(tree: dict[str, Any], variables: dict[str, Any]) -> None:
    """Whatever a file and the environment hold, the answer is settings or problems (C2)."""
    env = {f"INDEXERD_{name.upper()}__X": str(value) for name, value in variables.items()}
    found = load(json.dumps(tree).encode(), "/x/indexerd.json", env)

    assert isinstance(found.settings, Settings)
    assert not found.problems or found.settings == Settings()


@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    """Nor do arbitrary bytes."""
    assert isinstance(load(data, FILE, {}).settings, Settings)


GUARDED = '[privacy]\nexclude = ["/a"]\n[redact]\nextraPatterns = ["ACME-[0-9]{8}", "(a|a)*b"]\n'


@pytest.mark.parametrize(
    "broken",
    [
        "[log\n",  # no table
        "x = \n",  # no value
        'command_name = "a"\ncommandName = "b"\n',  # one key, twice
        "[log]\n[log]\n",  # one table, twice
        "log = 3\n",
        "[[privacy]]\n",
        '[log]\nlevel = "unended\n',
        "\x00\n",
    ],
)
@pytest.mark.parametrize("text", [GUARDED, ""], ids=["in the file", "in variables"])
def test_what_is_closed_stays_closed_beside_anything_broken(broken: str, text: str) -> None:
    """S0.26, S2.21: exclusions and rules for secrets hold, however little of the rest is read."""
    env = {
        "INDEXERD_PRIVACY__EXCLUDE": '["/a"]',
        "INDEXERD_REDACT__EXTRA_PATTERNS": '["ACME-[0-9]{8}"]',
    }
    for whole in (broken + text, f"{text}[web]\n{broken}"):
        loaded = load(whole.encode(), FILE, {} if text else env)

        assert loaded.problems
        assert loaded.settings.privacy.exclude == ["/a"]
        assert loaded.settings.redact.extra_patterns == ["ACME-[0-9]{8}"]
        assert loaded.settings.redact.enabled
        assert loaded.settings.log == Settings().log


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"INDEXERD_PRIVACY": "3", "INDEXERD_PRIVACY__EXCLUDE": '["/a"]'}, ""),
        ({"INDEXERD_PRIVACY__EXCLUDE": "/a"}, ""),
        ({"INDEXERD_PRIVACY__EXCLUDE": '["/a", 3, ""]'}, ""),
        ({"INDEXERD_PRIVACY__EXCLUDE": '["/a"]'}, "privacy = 3\n"),
        ({"INDEXERD_PRIVACY__EXCLUDE": '["/a"]'}, "[privacy]\nexclude = 3\n[log]\nlevel = 3\n"),
        ({"INDEXERD_LOG__LEVEL": "loud"}, 'privacy.exclude = ["/a"]\n'),
        ({"INDEXERD_PRIVACY__EXCLUDE": "3"}, '[privacy]\nexclude = ["/a"]\n'),
        ({"INDEXERD_PRIVACY__EXCLUDE": "[3]"}, '[privacy]\nexclude = ["/a"]\n'),
        ({"INDEXERD_PRIVACY__EXCLUDE": ""}, '[privacy]\nexclude = ["/a"]\n'),
        ({"INDEXERD_PRIVACY": "3"}, '[privacy]\nexclude = ["/a"]\n'),
        ({"INDEXERD_PRIVACY": '{exclude = ["/a"]}'}, "x = = 1\n"),
        ({}, 'x = = 1\n  [privacy]\n  exclude = ["/a"]\n'),
        ({}, '\t[log]\n\tx = = 1\n\t[privacy]\n\texclude = ["/a"]\n'),
    ],
)
def test_faulty_neighbours_open_nothing(variables: dict[str, str], text: str) -> None:
    """S2.21: whatever is wrong around it, what a variable or a file says is closed is closed."""
    loaded = load(text.encode(), FILE, variables)

    assert loaded.problems
    assert loaded.settings.privacy.exclude == ["/a"]


def test_a_broken_file_is_not_read_for_ever() -> None:
    """C2: tables that are read by themselves are bounded, too."""
    for odd in (b"[redact]\n", b"[privacy]\n" + b"a." * 900 + b"a = 1\n", b"[", b"\n"):
        data = (odd * (SIZE_MAX // len(odd)))[: SIZE_MAX - 4] + b"\n[x\n"
        assert load(data, FILE, {}).problems
