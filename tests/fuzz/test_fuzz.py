"""Issue 8: no bytes make a reader do more than it promises, nor less (F4, M12, X8, C2).

Every file of the corpora goes through its target, those included that once made one fail; and so
do mutations of them, few by default and many under HYPOTHESIS_PROFILE=thorough. What is a failure
is said by the targets: an error that was not promised, or what must hold and does not.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import CORPUS, FILE_MAX, FILES_MAX, TARGETS, corpus

FEW, MANY = 20, 1000
EXAMPLES = MANY if settings().max_examples >= MANY else FEW
WORDS = st.sampled_from(
    [
        *(
            b"\0",
            b"\n",
            b"\r\n",
            b'"',
            b"\\",
            b"{",
            b"}",
            b"[",
            b"]",
            b"`",
            b"@@",
            b":",
            b"%",
            b"&",
        ),
        *(
            b"\\ud800",
            b"\\udc00",
            b"\xff",
            b"\xed\xa0\x80",
            "\u202e\u200d".encode(),
            b"\x1b]0;",
            b"<",
        ),
        *(b"null", b"true", b"-1", b"1e999", b"9" * 30, b"[]", b"{}", b'""', b"[" * 70, b"re:"),
    ]
)
STEPS = st.lists(
    st.tuples(
        st.integers(0, FILE_MAX), st.integers(0, 80), WORDS | st.binary(max_size=8), st.booleans()
    ),
    max_size=6,
)


def mutated(data: bytes, steps: list[tuple[int, int, bytes, bool]]) -> bytes:
    """Bytes in which at each place so many were replaced, or put there once more elsewhere."""
    for place, count, new, twice in steps:
        at = place % (len(data) + 1)
        taken = data[at : at + count]
        data = data[:at] + new + (taken * 2 if twice else b"") + data[at + count :]
    return data


@pytest.mark.parametrize("name", TARGETS)
def test_what_was_kept_goes_through(name: str) -> None:
    """Files that reached much of the code, and those that once made it fail."""
    held = corpus(name)
    assert 0 < len(held) <= FILES_MAX
    for path in held:
        data = path.read_bytes()
        assert len(data) <= FILE_MAX, path
        try:
            TARGETS[name](data)
        except Exception as error:
            error.add_note(f"the input is {path}")
            raise


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", TARGETS)
def test_no_bytes_make_it_fail(name: str) -> None:
    """C2, F4, M12, S7, X9, X12: mutations of what was kept, and bytes that nobody thought of."""
    seeds = [path.read_bytes() for path in corpus(name)]
    changed = st.builds(mutated, st.sampled_from(seeds), STEPS)

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(changed | st.binary(max_size=300))
    def run(data: bytes) -> None:
        TARGETS[name](data)

    run()


def test_every_corpus_has_a_target() -> None:
    """A corpus that nothing reads would be forgotten."""
    assert {path.name for path in CORPUS.iterdir() if path.is_dir()} == set(TARGETS)
