"""What lets a browser in: one-time tokens, cookies, and proofs of who listens.

In: keys, values and `now` (seconds since the epoch). Out: short texts of letters, digits and
`._-`, and whether one that came back is good. Three purposes, and no text made for one is good
for another: each MAC begins with its purpose and its fields cannot run into each other.

    token   <nonce>.<expiry>.<mac>   the key of one start; names the server's own address
    cookie  v1.<issued>.<mac>        the same key; names the port, which browsers do not heed
    proof   <mac>                    the same key, over a stranger's challenge

There is no key that outlives a start: whoever listens on the port while the view is down is shown
cookies by browsers, and those must be good for nothing later. That a token is used once is its
server's business: see `nonce_of`. What comes back is any text, also what cannot be encoded; each
good text is written in one way. No text here is ever logged.
"""

from __future__ import annotations

import hmac
import re
from hashlib import sha256

KEY_BYTES = 32
NONCE_BYTES = 16
TOKEN_SECONDS = 300  # at most, from now
COOKIE_SECONDS = 30 * 86_400  # at most, should one server live so long

_TOKEN = re.compile(r"([0-9a-f]{32})\.([1-9][0-9]{0,11})\.([0-9a-f]{64})")
_COOKIE = re.compile(r"v1\.([1-9][0-9]{0,11})\.([0-9a-f]{64})")
_PROOF = re.compile(r"[0-9a-f]{64}")
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{16,128}")
_SKEW = 60  # seconds by which a clock may be set back


def make_token(key: bytes, nonce: bytes, origin: str, now: float) -> str:
    """A token for the server at `origin`, good for `TOKEN_SECONDS`.

    ValueError for a nonce of another length than `NONCE_BYTES`.
    """
    if len(nonce) != NONCE_BYTES:
        raise ValueError("a nonce of another length")
    told, expiry = nonce.hex(), str(int(now) + TOKEN_SECONDS)
    return f"{told}.{expiry}.{_mac(key, 'token', told, expiry, origin)}"


def nonce_of(token: str, key: bytes, origin: str, now: float) -> tuple[str, int] | None:
    """A good token's nonce, and until when it must not be used again; None for any other text."""
    found = _TOKEN.fullmatch(token)
    if found is None:
        return None
    told, expiry, mac = found.groups()
    if not hmac.compare_digest(mac, _mac(key, "token", told, expiry, origin)):
        return None
    until = int(expiry)
    return (told, until) if now < until <= now + TOKEN_SECONDS + _SKEW else None


def make_cookie(key: bytes, port: int, now: float) -> str:
    """A cookie's value, good for `COOKIE_SECONDS` with the server on that port."""
    issued = str(int(now))
    return f"v1.{issued}.{_mac(key, 'cookie', issued, str(port))}"


def good_cookie(value: str, key: bytes, port: int, now: float) -> bool:
    """Say whether a value is one that `make_cookie` made, and still good."""
    found = _COOKIE.fullmatch(value)
    if found is None:
        return False
    issued, mac = found.groups()
    if not hmac.compare_digest(mac, _mac(key, "cookie", issued, str(port))):
        return False
    return now - COOKIE_SECONDS < int(issued) <= now + _SKEW


def make_proof(key: bytes, challenge: str, origin: str) -> str | None:
    """What only the server at `origin` can answer; None for what is no challenge."""
    if _CHALLENGE.fullmatch(challenge) is None:
        return None
    return _mac(key, "proof", challenge, origin)


def good_proof(proof: str, key: bytes, challenge: str, origin: str) -> bool:
    """Say whether an answer is the one that the server at `origin` would give."""
    expected = make_proof(key, challenge, origin)
    if expected is None or _PROOF.fullmatch(proof) is None:
        return False
    return hmac.compare_digest(proof, expected)


def _mac(key: bytes, *fields: str) -> str:
    """A MAC over fields, as hex. ValueError for a key that is too short to be one."""
    if len(key) < KEY_BYTES:
        raise ValueError("a key that is too short")
    return hmac.new(key, "\n".join(fields).encode("utf-8", "surrogatepass"), sha256).hexdigest()
