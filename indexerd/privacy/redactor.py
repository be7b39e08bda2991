"""The redaction that the settings ask for, as one function."""

from __future__ import annotations

from collections.abc import Callable

from indexerd.privacy.patterns import compile_patterns
from indexerd.privacy.redact import redact
from indexerd.settings import Settings

Redactor = Callable[[str], tuple[str, dict[str, int]]]  # the redacted text, and counts by kind


def redactor(settings: Settings) -> Redactor:
    """Build the redaction of these settings; the user's own patterns are compiled once."""
    if not settings.redact.enabled:
        return lambda text: (text, {})
    extra = compile_patterns(settings.redact.extra_patterns)

    def clean(text: str) -> tuple[str, dict[str, int]]:
        found = redact(text, extra)
        return found.text, found.counts

    return clean
