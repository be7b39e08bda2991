"""Secrets in texts that are kept to the letter: told of, and never shown (S2.21).

In: an item of a context set, or another line of a sidecar. Out: a warning that names its place
and the kind of the secret; or the text as a warning or an error may quote it.

Such a text is a path or a command: with a part taken out it would be another one, so that it is
stored as it is given or refused. Who gave it hears where it goes.
"""

from __future__ import annotations

from indexerd.privacy.redact import redact
from indexerd.privacy.sanitize import escape_path


def suspected(text: str, what: str) -> tuple[str, ...]:
    """A warning where a text looks like it holds a secret; `what` names the text."""
    kinds = ", ".join(sorted(redact(text).counts))
    told = f"{what} looks like it holds a secret ({kinds}); it goes into prompts at a resume"
    return (told,) if kinds else ()


def without(text: str) -> str:
    """A text to be quoted: its secrets are marked, and what does not show is."""
    return escape_path(redact(text).text)
