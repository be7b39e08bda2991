"""Every fuzz target by name: a function of bytes in which only documented errors may occur.

Bytes that are no UTF-8 become lone surrogates, as Python keeps such file names. A target of two
texts splits its bytes at 0x00.
"""

import json
import re
import tempfile
import unicodedata
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from indexerd import settings
from indexerd.errors import InvalidMetaError, SessionUnreadableError, UsageError
from indexerd.indexing.prompt import validate
from indexerd.meta import model as metas
from indexerd.meta.model import META_BYTES_MAX, parse_meta, parse_user
from indexerd.models.attempts import Rejected
from indexerd.privacy import sanitize as cleaning
from indexerd.privacy.redact import Redactor
from indexerd.privacy.redact import redact as redacted
from indexerd.protocol import wire
from indexerd.protocol.limits import NAME_MAX, SUMMARY_MAX, TAGS_MAX, TAGS_MIN
from indexerd.references.parse import FOUND_MAX, UP_MAX, find, without_code
from indexerd.search import query as asking
from indexerd.sources.source import ZST
from indexerd.web.session_page import embedded
from tests.fuzz import sessions

CORPUS = Path(__file__).parent / "corpus"
FILE_MAX = 4096  # limit of a corpus file, in bytes
_GONE = frozenset({"Cc", "Cs", "Co", "Zl", "Zp"})
_DEEP = 100  # nesting of a value; real documents have a few levels


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def two_of(data: bytes) -> tuple[str, str]:
    first, _, second = data.partition(b"\0")
    return text_of(first), text_of(second)


def as_json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return text_of(data)


def shows(text: str) -> None:
    text.encode()
    assert not _GONE & {unicodedata.category(char) for char in text if char not in "\n\t"}


def references(data: bytes) -> None:
    """References are in the text verbatim, in order, within limits and outside code."""
    text = text_of(data)
    plain, found = without_code(text), find(text)
    assert len(plain) == len(text)
    assert len(found) <= FOUND_MAX
    assert [reference.start for reference in found] == sorted(
        {reference.start for reference in found}
    )
    for reference in found:
        assert text.startswith(reference.raw, reference.start)
        assert plain.startswith("@@", reference.start)
        assert 0 <= reference.up <= UP_MAX
        assert "\n" not in (reference.question or "")


def check(data: bytes) -> None:
    """A model's answer is accepted, clean and within limits, or rejected in words; never cut."""
    said = validate(text_of(data), cut=False, redact=lambda text: redacted(text).text)
    if isinstance(said, Rejected):
        assert said.error.encode()
        return
    assert TAGS_MIN <= len(said.tags) <= TAGS_MAX
    assert 0 < len(said.name) <= NAME_MAX
    assert 0 < len(said.summary) <= SUMMARY_MAX
    for text in (said.name, said.description, said.summary, *said.tags):
        shows(text)


def query(data: bytes) -> None:
    """A query is an error, a problem, a pattern or terms, and its snippets are short."""
    typed, text = two_of(data)
    try:
        asked = asking.parse(typed)
    except UsageError:  # of a pattern
        return
    assert not (asked.terms and asked.find)
    assert asked.terms or asked.find or asked.problem
    assert len(asked.terms) <= asking.TERMS_MAX
    stored = asking.storable(text)
    if asked.find is not None:
        span = asked.find(stored)
        assert span is None or 0 <= span[0] < span[1] <= len(stored)
    if asked.terms:
        shown = asking.snippet(stored, asking.Finder(asked.terms).spans, markdown=True)
        assert len(shown) <= asking.SNIPPET_MAX
        assert not re.search(r"[\x00-\x1f\x7f\u200b\u202e\u2066]", shown)


def redact(data: bytes) -> None:
    """The result has no secret and has not grown beyond its limit."""
    text = cleaning.replace_surrogates(text_of(data))  # as for every text of a session
    once = redacted(text)
    again = redacted(once.text)
    assert (again.text, bool(again.counts)) == (once.text, False)
    assert len(once.text) <= 6 * len(text) + 64
    plain = redacted(cleaning.bare(text))
    if plain.counts == once.counts:  # invisible characters have hidden no part of a secret
        assert len(cleaning.bare(once.text)) <= len(plain.text)


def extra(data: bytes) -> None:
    """A user's pattern is refused with a ValueError or works on any text."""
    pattern, text = two_of(data)
    with suppress(ValueError):
        Redactor((pattern[:120],))(text[:200])


def sidecar_round_trip(parse: Callable[[bytes, str], Any], data: bytes) -> None:
    """A meta file or sidecar can be written and read again, or is an InvalidMetaError."""
    try:
        found = parse(data, "x")
    except InvalidMetaError:
        return
    written = found.to_json()
    assert len(written) <= META_BYTES_MAX
    assert parse(written, "x") == found


def digest(data: bytes) -> None:
    """Segments are JSON objects that can be written again; other lines are dropped."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.digest.jsonl"
        path.write_bytes(data)
        for segment in metas.read_digest(path):
            assert isinstance(segment, dict)
            json.dumps(segment, ensure_ascii=False, allow_nan=False).encode()


def config(name: str, data: bytes) -> None:
    """A configuration gives settings, or the defaults and every problem in words."""
    env = {"INDEXERD_INDEX__QUIET_SECONDS": data[:40].decode("latin-1")}
    for variables in ({}, env):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # from re, for `extra_patterns`
            found = settings.load(data, name, variables)
        for problem in found.problems:
            assert set(problem) == {"file", "key", "message", "hint"}
            assert all(text.isprintable() and len(text) <= 300 for text in problem.values())


def compressed(data: bytes) -> None:
    """Compressed input yields lines or a SessionUnreadableError."""
    with tempfile.TemporaryDirectory() as folder, suppress(SessionUnreadableError):
        path = Path(folder) / "a.jsonl.zst"
        path.write_bytes(data)
        whole = b"".join([piece.data for piece in ZST.tail().read(str(path)).lines])
        with ZST.lines(str(path)) as lines:
            assert lines(0, len(whole)) == whole


def request(data: bytes) -> None:
    """A line is a request or a failure, and any answer is one line of strict JSON."""
    for line in (data, data.replace(b"\n", b" ")):
        asked = wire.parse(line)
        if isinstance(asked, wire.Failure):
            answered = asked.to_line()
        else:
            try:
                answered = wire.result(asked.id, asked.params)
            except RecursionError:  # allowed for endless nesting
                continue
        assert answered.count(b"\n") == answered.endswith(b"\n") == 1
        json.loads(answered, parse_constant=refuse)


def refuse(word: str) -> None:
    raise AssertionError(word)


def embedded_json(data: bytes) -> None:
    """Data in a page is JSON, and cannot end its element."""
    if data.count(b"[") + data.count(b"{") <= _DEEP:
        text = embedded(as_json(data))
        assert not set(text) & set("<>&\u2028\u2029\0\x1b")
        json.loads(text, parse_constant=refuse)


TARGETS: dict[str, Callable[[bytes], None]] = {
    **sessions.TARGETS,
    "references": references,
    "check": check,
    "query": query,
    "redact": redact,
    "extra": extra,
    "meta": partial(sidecar_round_trip, parse_meta),
    "user": partial(sidecar_round_trip, parse_user),
    "digest": digest,
    "config-toml": partial(config, "/etc/indexerd.toml"),
    "config-json": partial(config, "/etc/indexerd.json"),
    "zst": compressed,
    "wire": request,
    "embedded-json": embedded_json,
}
