"""Readers keep their promises for any bytes."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import CORPUS, FILE_MAX, TARGETS

FEW, MANY = 20, 1000
EXAMPLES = MANY if settings().max_examples >= MANY else FEW
PIECES = (
    *(b"\0", b"\n", b"\r\n", b'"', b"\\", b"{", b"}", b"[", b"]", b"`", b"@@", b":", b"%", b"&"),
    *(b"\\ud800", b"\\udc00", b"\xff", b"\xed\xa0\x80", "\u202e\u200d".encode(), b"\x1b]0;", b"<"),
    *(b"null", b"true", b"-1", b"1e999", b"9" * 30, b"[]", b"{}", b'""', b"[" * 70, b"re:"),
)
STEP = st.tuples(
    st.integers(0, FILE_MAX),
    st.integers(0, 80),
    st.sampled_from(PIECES) | st.binary(max_size=8),
    st.booleans(),
)


def corpus(name: str) -> list[Path]:
    """The files of a target's corpus, always in the same order."""
    return sorted(path for path in (CORPUS / name).glob("*") if path.is_file())


def mutated(data: bytes, steps: list[tuple[int, int, bytes, bool]]) -> bytes:
    """Bytes with some replaced at each place, or repeated elsewhere."""
    for place, count, new, twice in steps:
        at = place % (len(data) + 1)
        taken = data[at : at + count]
        data = data[:at] + new + (taken * 2 if twice else b"") + data[at + count :]
    return data


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", TARGETS)
def test_no_bytes_make_it_fail(name: str) -> None:
    """S1.2, S3.9: corpus files, mutations of them, and random bytes."""
    seeds = [path.read_bytes() for path in corpus(name)]
    assert seeds
    for seed in seeds:
        TARGETS[name](seed)
    changed = st.builds(mutated, st.sampled_from(seeds), st.lists(STEP, max_size=6))

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(changed | st.binary(max_size=300))
    def run(data: bytes) -> None:
        TARGETS[name](data)

    run()
