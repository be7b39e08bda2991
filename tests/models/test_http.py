"""What an HTTP answer means, whatever its headers and body hold."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from indexerd.errors import (
    ModelError,
    ProviderError,
)
from indexerd.models import http

ODD = [None, [], "x", 7, {"error": []}, {"error": {"details": {}}}, {"error": {"details": [[], 1]}}]


@given(st.integers(100, 599), st.text(max_size=40), st.sampled_from(ODD))
def test_any_error_answer_becomes_one_of_ours(status: int, wish: str, body: Any) -> None:
    """M3, M6: no header or body can raise, and a wish is within 0 and one hour."""
    found = http.failure("who", status, {"retry-after": wish}, body)
    assert isinstance(found, ModelError)
    if isinstance(found, ProviderError):
        assert found.retry_after is None or 0 <= found.retry_after <= http.RETRY_AFTER_MAX
        assert found.throttled == (status == 429)
