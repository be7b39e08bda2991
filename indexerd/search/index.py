"""The text index: all searchable text, in one tantivy directory that may be deleted at any time.

A document is a session's own texts ("about": names, tags, summary, files …), one message, or a
mark of how far the session's messages were read. All three are in the same commit: after a crash
the index is as of its last commit, and its marks show what is missing. The original text is stored
(field `held`), its folded form (`query.indexable`) is indexed. Deleting a document leaves its words
in tantivy's files: `rebuild` copies the rest into a new directory. One thread writes, any thread
may commit, and any thread searches what was committed.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any, NamedTuple

import msgspec
import tantivy
from tantivy import Document, FieldType, Query, Searcher

from indexerd.errors import DamagedError, IndexerdError, WriteError
from indexerd.privacy.redact import for_people
from indexerd.privacy.sanitize import replace_surrogates
from indexerd.search.query import humps, indexable, storable, without_references
from indexerd.store.store import Named, StateStore, hashed, named

VERSION = 7  # of the schema, and of the rules by which texts are indexed
TEXT_MAX = 65_536  # characters of a message or another text that are indexed
_COPY_SECONDS = 0.01  # one step of a rebuild
_HEAP = 15_000_000  # bytes, the least that tantivy takes
_WORD_MAX = 100  # bytes
# Errors if a file of the index is gone, or something else is in its place.
_DAMAGE = {errno.ENOENT, errno.ENODEV, errno.EISDIR, errno.ENOTDIR, errno.ELOOP}
# In tantivy's messages for a full disk and the like; an error in its thread kills a writer.
_OS_ERROR = re.compile(r"\(os error (\d+)\)|Os \{ code: (\d+)|LockBusy|writer was killed")
_KINDS = ("about", "mark", "message")
PULLED = "pulled"  # notes: how far other machines' records were read into store and index


class Message(NamedTuple):
    """A searchable message. `row` is its row in the session."""

    row: int
    entry: str
    role: str
    at: str
    text: str


class About(msgspec.Struct, frozen=True, array_like=True):
    """A session's searchable texts, apart from its id and its messages."""

    name: str
    tags: str
    description: str
    summary: str
    files: str
    cwd: str
    named: bool  # else its name is only a message


_encode = msgspec.msgpack.Encoder().encode
_about = msgspec.msgpack.Decoder(About).decode
_message = msgspec.msgpack.Decoder(Message).decode


class TextIndex:
    """The documents of all sessions."""

    def __init__(
        self,
        directory: Path,
        store: StateStore,
        report: Callable[[Path, str], None] = lambda _path, _why: None,
        *,
        readonly: bool = False,
    ) -> None:
        """Create it; `report(path, why)` is called once if the index is damaged."""
        self.store = store
        self.damaged = False
        self.failures = 0  # each may have lost what was not committed
        self.patterns = ""  # digest of the patterns of secrets that texts were redacted with
        self._directory = directory
        self._report = report
        self._readonly = readonly
        self._lock = Lock()  # for the writer and the uncommitted changes
        self.close()

    def close(self) -> None:
        """Close the index; uncommitted changes are lost."""
        self._index: tantivy.Index | None = None
        self.path: Path | None = None  # of the index that is used
        self._writer: tantivy.IndexWriter | None = None
        self._abouts: dict[str, About] = {}  # for the next commit
        self.uncommitted: dict[str, bytes | None] = {}  # marks of sessions
        self._copying: Iterator[None] | None = None  # a rebuild's next step
        self.behind: set[str] = set()  # sessions whose own texts are missing or outdated
        self.lost: set[str] = set()  # sessions whose messages a failed commit lost
        self.owes_rebuild = False  # the directory still has words of purged sessions

    def open(self, patterns: str = "") -> None:
        """Open the index that the store names, or start a new one.

        If it was built with other `patterns` of secrets, a new one is started and everything is
        read again. A read-only index is used as it is.
        """
        kind = f"{VERSION}." if self._readonly else f"{VERSION}.{patterns}."
        name = self.store.noted("index", "name", bytes.decode) or ""
        exists = False
        with suppress(OSError):
            if not self._readonly:
                self._directory.chmod(0o700)  # no other mode keeps the daemon from starting
        with suppress(OSError):
            exists = name.startswith(kind) and (self._directory / name / "meta.json").is_file()
        if self._readonly:
            self._index = self._make(name) if exists else None
            self.path = self._directory / name if exists else None
            return
        have: dict[int, int] = {}
        with self._lock:
            if self._writer is not None:
                self._writer.wait_merging_threads()  # they write into its directory
            self.close()
            self.owes_rebuild = self.store.noted("index", "rebuild", bytes) is not None
            self.patterns = patterns
            with suppress(DamagedError, WriteError), self._guard():
                if exists:
                    _verify(self._directory / name)
                    self._index = self._make(name)
                    have = self.signs("about")
            if self._index is None or self.damaged:
                name, self.damaged = self._new_name(), False
                if not self._directory.is_dir():
                    self._directory.unlink(missing_ok=True)
                with self._guard():
                    self._index = self._make(name)
                self.store.note("index", "name", name.encode())
                self.store.run("DELETE FROM note WHERE topic = ?", PULLED)
            self.path = self._directory / name
            self._sweep(name)
            hashes = self.store.text_hashes()
            self.behind = {key for key, sign in hashes.items() if have.get(number(key)) != sign}

    def _new_name(self) -> str:
        return f"{VERSION}.{self.patterns}.{os.urandom(4).hex()}"

    def _make(self, name: str) -> tantivy.Index:
        path = self._directory / name
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        index = tantivy.Index(SCHEMA, path=str(path))  # opens an existing one
        simple = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
        words = simple.filter(tantivy.Filter.remove_long(_WORD_MAX)).build()
        index.register_tokenizer("words", words)
        index.reload()
        return index

    def _sweep(self, name: str) -> None:
        for path in self._directory.iterdir():
            if path.name != name:
                shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Turn tantivy's errors into WriteError (a full disk or the like) or DamagedError."""
        try:
            yield
        except BaseException as bad:  # a panic in tantivy is not an Exception
            if isinstance(bad, IndexerdError | KeyboardInterrupt | SystemExit | GeneratorExit):
                raise
            error = _OS_ERROR.search(str(bad))
            code = int((error and (error[1] or error[2])) or 0)
            if error and code not in _DAMAGE:
                self._writer = None  # useless after a failure
                self.failures += 1
                self.lost |= self.uncommitted.keys()
                self.uncommitted.clear()
                why = os.strerror(code) if code else "a write failed, or another process writes"
                raise WriteError(f"the index cannot be used now: {why}") from bad
            if not self.damaged:
                self.damaged = True
                self._report(self._directory, type(bad).__name__)
            raise DamagedError("the index is damaged") from bad

    def put_rows(self, rows: Iterable[tuple[Mapping[str, Any], str, tuple[str, ...]]]) -> None:
        """Write rows to the store (SQLite), and index them with their summaries and all names."""
        items = {}
        for row, summary, aliases in rows:
            names = named(row, aliases)
            texts = _texts_of(row, names, summary)
            items[replace_surrogates(names.session_id)] = row, names, texts
        changed = self.store.put((row, names, _sign(texts)) for row, names, texts in items.values())
        for session_id in {*changed, *(self.behind & items.keys())}:
            self._abouts[session_id] = items[session_id][2]
        self.behind -= items.keys()

    def add_messages(
        self, session_id: str, items: Sequence[Message], mark: bytes, sign: int, *, replace: bool
    ) -> None:
        """Add messages, with `replace` instead of all old ones; `mark`: how far they were read.

        `sign` is what `signs` returns for the session afterwards.
        """
        if not items and not replace and mark == self.mark(session_id):
            return  # nothing new: a dry run must leave nothing to commit
        with self._lock, self._guard():
            self.uncommitted[session_id] = mark
            self._ready().delete_documents_by_query(_of(session_id, "mark"))
            if replace:
                self._ready().delete_documents_by_query(_of(session_id, "message"))
            self._add(session_id, items)
            self._ready().add_document(_document(session_id, "mark", mark, sign))
        if replace:
            self.store.replaced(session_id)

    def _add(self, session_id: str, items: Iterable[Message]) -> None:
        for row, *words, text in items:
            if text.strip():
                content = (row, *map(replace_surrogates, words), storable(text[:TEXT_MAX]))
                self._ready().add_document(_document(session_id, "message", _encode(content)))

    def put_messages(self, session_id: str, items: Iterable[Message], replaced: int | None) -> None:
        """Add messages of another machine's session, instead of those from row `replaced` on."""
        with self._lock, self._guard():
            self.uncommitted[session_id] = None
            if replaced is not None:
                self._ready().delete_documents_by_query(_messages(session_id, replaced))
            self._add(session_id, items)

    def messages(self, session_id: str, first: int) -> list[Message]:
        """Return the committed messages of a session from a row on."""
        found = map(message_in, self._stored(_messages(session_id, first)))
        return sorted(found, key=lambda message: message.row)

    def forget(self, session_id: str, *, wholly: bool = False) -> None:
        """Drop a session; `wholly`: also wipe its words from the files, by a later `rebuild`."""
        if self.store.forget(session_id):
            self._copying = None  # the copy may already contain it
            if wholly:
                self.owe_rebuild()
        with self._lock, self._guard():
            self._abouts.pop(session_id, None)
            self.uncommitted[session_id] = None
            self._ready().delete_documents_by_query(_of(session_id))

    def mark(self, session_id: str) -> bytes | None:
        """Return a session's last mark, committed or not."""
        if (mark := self.uncommitted.get(session_id, b"")) != b"":
            return mark
        with self._guard():
            return next(map(_held, self._stored(_of(session_id, "mark"), 1)), None)

    def signs(self, kind: str) -> dict[int, int]:
        """Return the sign of every session's document of a kind, by the session's `number`."""
        with self.searcher() as searcher:
            query = Query.const_score_query(having("kind", kind), 0.0)
            hits = searcher.search(query, max(1, searcher.num_docs), count=False).hits
            places = [at for _, at in hits]
            owners, signs = (searcher.fast_field_values(f, places) for f in ("owner", "sign"))
            return dict(zip(owners, signs, strict=True))  # type: ignore[arg-type]  # integers

    @property
    def busy(self) -> bool:
        """Whether a rebuild runs or waits; until it ends, nothing should be added."""
        return self._copying is not None or self.owes_rebuild

    @property
    def pending(self) -> bool:
        """Whether a commit would make something searchable now."""
        return self._copying is None and bool(self._abouts or self.uncommitted)

    def commit(self) -> None:
        """Make all additions searchable, in about 20 ms; during a rebuild, do nothing."""
        with self._lock, self._guard():
            if not self.pending:
                return
            taken: dict[str, About] = {}
            try:
                while self._abouts:  # `put_rows`, which does not wait for the lock, may add some
                    session_id, taken[session_id] = self._abouts.popitem()
                    self._ready().delete_documents_by_query(_of(session_id, "about"))
                    content = _encode(taken[session_id])
                    self._ready().add_document(_document(session_id, "about", content))
                self._ready().commit()
            except BaseException:
                self._abouts = taken | self._abouts
                raise
            self._opened().reload()
            self.uncommitted.clear()

    def _opened(self) -> tantivy.Index:
        if self._index is None or (self.damaged and not self._readonly):
            raise DamagedError("the index is being rebuilt")
        return self._index

    def _ready(self) -> tantivy.IndexWriter:
        if self._writer is None:
            self._writer = self._opened().writer(_HEAP, 1)
        return self._writer

    def owe_rebuild(self) -> None:
        """Store that the index must be rebuilt, in case this process ends first."""
        self.store.note("index", "rebuild", b"")
        self.owes_rebuild = True

    def rebuild(self) -> bool:
        """Copy some documents into a new index; return whether there are more.

        30,000 sessions take 30 s, and appends must not wait. Nothing is committed until the end.
        """
        if self._copying is None and self.owes_rebuild:
            self.commit()
            self._copying = self._copied()
        for _ in self._copying or ():
            return True
        self._copying = None
        return self.owes_rebuild

    def _copied(self) -> Iterator[None]:
        name, rest_at = self._new_name(), 0.0
        with self._guard():
            new = self._make(name)
            writer = new.writer(_HEAP, 1)
            for session_id, kind in product(self.store.ids(), _KINDS):
                for document in self._stored(_of(session_id, kind)):
                    if monotonic() > rest_at:
                        yield
                        rest_at = monotonic() + _COPY_SECONDS
                    sign = document.get_first("sign") or 0
                    writer.add_document(_document(session_id, kind, _held(document), sign))
            writer.commit()
            new.reload()
            with self.store.batch():
                self.store.note("index", "name", name.encode())
                self.store.note("index", "rebuild", None)
        self.owes_rebuild = False
        with self._lock:
            old, self._index, self._writer = self._writer, new, writer
            self.path = self._directory / name
        if old is not None:
            old.wait_merging_threads()  # they write into the old directory
        self._sweep(name)
        self.store.fold()

    @contextmanager
    def searcher(self) -> Iterator[Searcher]:
        with self._guard():
            yield self._opened().searcher()

    @property
    def is_there(self) -> bool:
        return self._index is not None

    def _stored(self, query: Query, most: int | None = None) -> Iterator[Document]:
        searcher = self._opened().searcher()
        limit = most or max(1, searcher.num_docs)
        for _, at in searcher.search(query, limit, count=False).hits:
            yield searcher.doc(at)


def _verify(directory: Path) -> None:
    """Compare each file of an index with the checksum at its end.

    tantivy itself does not: a flipped byte could appear in an answer or end the process.
    """
    segments = json.loads((directory / "meta.json").read_bytes())["segments"]
    deletes = {
        segment["segment_id"].replace("-", ""): (segment["deletes"] or {}).get("opstamp")
        for segment in segments
    }
    for path in directory.iterdir():
        segment, _, rest = path.name.partition(".")
        if segment not in deletes or (
            path.suffix == ".del" and rest != f"{deletes[segment]}.del"  # of an unfinished commit
        ):
            continue
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
            memoryview(data) as view,
        ):
            end = len(data) - 8  # of the JSON footer; its length and a constant follow
            begin = end - int.from_bytes(data[end : end + 4], "little")
            if json.loads(data[begin:end])["crc"] != zlib.crc32(view[:begin]):
                raise ValueError("a file does not match its checksum")


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("session", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("kind", tokenizer_name="raw", index_option="basic")
    builder.add_unsigned_field("owner", indexed=True, fast=True)
    builder.add_unsigned_field("sign", stored=True, fast=True)
    builder.add_unsigned_field("row", stored=True, indexed=True, fast=True)
    builder.add_unsigned_field("copy", indexed=True)
    builder.add_bytes_field("held", stored=True)
    for name in ("text", "name", "tags", "place"):  # `text`: of a message, or all but the places
        builder.add_text_field(name, tokenizer_name="words", index_option="position")
    return builder.build()


SCHEMA = _schema()


def _document(session_id: str, kind: str, content: bytes, sign: Any = 0) -> Document:
    """Make a document from its stored bytes, which determine what is indexed."""
    own, texts = replace_surrogates(session_id), dict[str, str]()
    fields: dict[str, Any] = {"session": own, "kind": kind, "owner": number(own), "held": content}
    if kind == "message":
        message = _message(content)
        texts["text"] = message.text
        fields |= {"row": message.row, "copy": copy_of(session_id, message)}
    elif kind == "about":
        about = _about(content)
        texts = {"name": without_references(about.name) if about.named else "", "tags": about.tags}
        texts["text"] = "\n".join((*texts.values(), about.description, about.summary))
        texts["place"] = f"{own}\n{about.files}\n{about.cwd}"
        sign = _sign(about)
    fields |= {name: indexable(f"{text}\n{humps(text)}") for name, text in texts.items()}
    return Document.from_dict(fields | {"sign": sign}, SCHEMA)


def _held(document: Document) -> bytes:
    return document.get_first("held")  # type: ignore[return-value]  # the schema says so


def about_in(document: Document) -> About:
    return _about(_held(document))


def message_in(document: Document) -> Message:
    return _message(_held(document))


def number(*texts: str) -> int:
    """Hash texts to 63 bits: SQLite's integers are signed."""
    return int.from_bytes(hashed(*texts)) >> 1


def copy_of(session_id: str, message: Message) -> int:
    """Hash a message's entry id and text: the same number in every session that has a copy."""
    entry = message.entry or f"{session_id}\0{message.row}"
    return number(entry, storable(message.text[:TEXT_MAX]))


def _texts_of(row: Mapping[str, Any], names: Named, summary: str) -> About:
    shown = for_people(row)
    cwd, place = str(shown.get("cwd") or ""), str(shown.get("project") or "")
    above = cwd.rstrip("/") + "/"
    paths = [path for key in ("filesModified", "filesRead") for path in row.get(key) or ()]
    files = dict.fromkeys(path.removeprefix(above) for path in paths)
    return About(
        name=storable("\n".join(names.aliases)[:TEXT_MAX]),
        tags=storable(", ".join(row.get("tags") or ())[:TEXT_MAX]),
        description=storable((row.get("description") or "")[:TEXT_MAX]),
        summary=storable(summary[:TEXT_MAX]),
        files=storable("\n".join(files)[:TEXT_MAX]),
        cwd=storable("\n".join(dict.fromkeys((place, cwd))).strip()[:TEXT_MAX]),
        named=names.named,
    )


def _sign(texts: About) -> int:
    return number(*map(str, msgspec.structs.astuple(texts)))


def having(field: str, value: str | int) -> Query:
    return Query.term_query(SCHEMA, field, value)


def both(*queries: Query) -> Query:
    return Query.boolean_query([(tantivy.Occur.Must, query) for query in queries])


def either(queries: Iterable[Query]) -> Query:
    clauses = [(tantivy.Occur.Should, query) for query in queries]
    return clauses[0][1] if len(clauses) == 1 else Query.boolean_query(clauses)


def _messages(session_id: str, first: int) -> Query:
    """Match a session's messages from a row on."""
    own = _of(session_id, "message")
    if not first:
        return own
    return both(own, Query.range_query(SCHEMA, "row", FieldType.Unsigned, first))


def _of(session_id: str, kind: str | None = None) -> Query:
    own = having("session", replace_surrogates(session_id))
    return both(own, having("kind", kind)) if kind else own
