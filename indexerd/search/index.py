"""The text index: what is searched, in one tantivy directory that may be deleted at any time.

A document is a session's own texts (names, tags, description, summary, files, directory) or one
message. What is stored is the text as it was said; what is indexed is its folded form
(`query.indexable`). The store says which directory below `search/` is the index, so that another
one takes its place in one transaction, and how far the index has come with each session: that is
written after a commit, and the first time that a process adds to a session, what a crash left
behind that place is dropped. One thread writes; any thread searches what was last committed.

Deleting from tantivy leaves the words in its files. Where they must go (a purge, patterns of
secrets), `rebuild` copies what stays into a new directory, and the old one is deleted. Every file
of tantivy's ends with a checksum and never changes: each start compares them. An index that is
damaged, or raises anything but trouble of its place, is deleted and made anew.
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
from contextlib import suppress
from pathlib import Path
from threading import Lock
from traceback import clear_frames
from typing import Any, NamedTuple, TypeVar

import msgspec
import tantivy
from tantivy import Document, Query, Searcher

from indexerd.errors import DamagedError, IndexerdError, StateError, WriteError
from indexerd.privacy.redact import shown_path
from indexerd.privacy.sanitize import replace_surrogates
from indexerd.search.names import known, without_references
from indexerd.search.query import indexable, storable
from indexerd.store.integrity import named
from indexerd.store.store import Named, StateStore, hashed

VERSION = 2  # of the schema, and of what is indexed of a text
TEXT_MAX = 65_536  # characters of a message, or of a summary, that are indexed
_SWEEPS = 5  # times that an old directory is deleted
_HEAP = 15_000_000  # bytes, the least that tantivy takes
_WORD_MAX = 100  # bytes
_SESSION_MAX = 1_000_000  # messages of one session that are copied
# What tantivy raises for trouble of its place; a writer is killed by what its thread met.
_OS_ERROR = re.compile(r"\(os error (\d+)\)|Os \{ code: (\d+)|LockBusy|writer was (killed)")
_FOOTER = 8  # bytes: the length of a file's footer, and a number that ends all of them

_T = TypeVar("_T")
Redact = Callable[[str], str]


class Message(NamedTuple):
    """One message as it is to be found. `row` is its place in the session."""

    row: int
    entry: str
    role: str
    at: str
    text: str


class About(msgspec.Struct, frozen=True, array_like=True):
    """What a session is found by, beside its id and its messages."""

    name: str
    tags: str
    description: str
    summary: str
    files: str
    cwd: str


_encode = msgspec.msgpack.Encoder().encode
_texts = msgspec.msgpack.Decoder(About).decode
_message = msgspec.msgpack.Decoder(Message).decode


class TextIndex:
    """Texts in, by the thread that writes; out, what finds them."""

    def __init__(
        self,
        directory: Path,
        store: StateStore,
        report: Callable[[Path, str], None] = lambda _path, _why: None,
        *,
        readonly: bool = False,
    ) -> None:
        """`report(path, why)` is called once where the index is damaged."""
        self.store = store
        self.damaged = False
        self._directory = directory
        self._report = report
        self._readonly = readonly
        self._name = ""
        self._lock = Lock()  # of the writer, which refuses two calls at a time
        self.close()

    # -- opening, damage and closing -----------------------------------------------------

    def close(self) -> None:
        """Let go of it; what was not committed is lost."""
        self._index: tantivy.Index | None = None
        self._writer: tantivy.IndexWriter | None = None
        self._hashes: dict[str, bytes] = {}  # not committed yet
        self._marks: dict[str, str | None] = {}  # likewise
        self._flushing = (self._hashes, self._marks)  # of the commit under way
        self._failure: StateError | None = None  # of its flush
        self._dirty = False
        self._fresh = False  # begun by this process
        self._added: set[tuple[str, str]] = set()  # (session, kind) that this process added to
        self._rebuilding: Iterator[bool] | None = None
        self._changed: set[str] | None = None  # sessions, while all are copied

    def open(self) -> bool:
        """Open the index that the store names, or begin one; whether it is a new one."""
        name = self.store.noted("index", "name", bytes.decode) or ""
        found = name.startswith(f"{VERSION}-") and (self._directory / name / "meta.json").is_file()
        if self._readonly:
            self._index = self._make(name) if found else None
            return False
        if self._index is not None and not self.damaged:
            return False
        self.close()
        if found and not self.damaged:
            try:
                self._guarded(lambda: verify(self._directory / name))
                self._index = self._guarded(lambda: self._make(name))
            except DamagedError:
                found = False
        if new := not found or self.damaged:
            name = _fresh_name()
            self._index = self._guarded(lambda: self._make(name))
            self.store.begin_index(name)
        self._name, self._fresh, self.damaged = name, new, False
        self._sweep()
        return new

    def _make(self, name: str) -> tantivy.Index:
        """Open an index, or begin it."""
        path = self._directory / name
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        index = tantivy.Index(SCHEMA, path=str(path))  # as it is, if it is there
        index.register_tokenizer("words", _tokenizer())
        index.reload()
        return index

    def _sweep(self) -> None:
        """Delete whatever else is in the directory."""
        for one in self._directory.iterdir():
            for _ in range(_SWEEPS):  # a file may be made in it while it is deleted
                if one.name != self._name and one.exists():
                    shutil.rmtree(one, ignore_errors=True)

    def _guarded(self, work: Callable[[], _T]) -> _T:
        """Do something with tantivy; what it raises is trouble of the place, or damage."""
        try:
            return work()
        except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
            raise
        except OSError as bad:
            raise WriteError(f"the index cannot be used now: {bad.strerror}") from bad
        except BaseException as bad:  # a panic of tantivy's is no Exception
            if isinstance(bad, IndexerdError) and not isinstance(bad, DamagedError):
                raise
            error = _OS_ERROR.search(str(bad))
            code = error and (error[1] or error[2])
            if error and code != str(errno.ENOENT):
                self._lose()
                clear_frames(bad.__traceback__)  # whoever keeps the error must not keep the writer
                why = "a write failed" if error[3] else "another process writes to it"
                why = os.strerror(int(code)) if code else why
                raise WriteError(f"the index cannot be used now: {why}") from bad
            if not self.damaged:
                self.damaged = True
                self._report(self._directory, named(bad))
            raise DamagedError("the index is damaged", hint="the daemon rebuilds it") from bad

    # -- writing: one thread -------------------------------------------------------------

    def put(self, rows: Iterable[tuple[Mapping[str, Any], str, tuple[str, ...]]]) -> None:
        """Take over rows, with their summaries and all names that they answer to."""
        with self.store.batch():
            items = {}
            for row, summary, aliases in rows:
                names = known(row, aliases)
                items[replace_surrogates(names.session_id)] = (
                    row,
                    names,
                    _texts_of(row, names, summary),
                )
            given = ((row, names, _hash(texts)) for row, names, texts in items.values())
            for session_id in self.store.put(given):
                texts = items[session_id][2]
                if self._hashes.get(session_id) != (held := _hash(texts)):
                    if not self._is_first(session_id, "about") or not self._fresh:
                        self._delete(session_id, "about")
                    self._add(session_id, _about_document(session_id, texts))
                    self._hashes[session_id] = held

    def add_messages(
        self, session_id: str, since: int, items: Sequence[Message], mark: str | None
    ) -> bool:
        """Add messages behind row `since`; `mark` says how far the session was read then.

        False where it says nothing new: then nothing is left to commit (after a dry run).
        """
        if not items and mark is not None and mark == self.mark(session_id):
            return False
        if self._is_first(session_id, "message") and not self._fresh:
            self._delete(session_id, "message", since)  # what a crash left unaccounted for
        for one in items:
            if one.text.strip():
                self._add(session_id, _message_document(session_id, one))
        self._marks[session_id] = mark
        return True

    def drop_messages(self, session_id: str) -> None:
        """Drop a session's messages."""
        self._delete(session_id, "message")
        self._is_first(session_id, "message")
        self._marks[session_id] = None

    def forget(self, session_id: str, *, wholly: bool = False) -> None:
        """Drop a session; `wholly`: its words are to be wiped, too, which `rebuild` does."""
        with self.store.batch():
            if self.store.forget(session_id) and wholly:
                self.owe_rebuild()
            self._delete(session_id)
        self._hashes.pop(session_id, None)
        self._marks.pop(session_id, None)

    def mark(self, session_id: str) -> str | None:
        """Say how far a session was read; what is not committed counts."""
        for marks in (self._marks, self._flushing[1]):
            if session_id in marks:
                return marks[session_id]
        return self.store.mark(session_id)

    @property
    def pending(self) -> bool:
        """Whether something was added that is not found yet."""
        return bool(self._marks or self._hashes or self._dirty)

    def commit(self) -> None:
        """Have all be found that was added."""
        self.begin_commit()
        self.flush()
        self.end_commit()

    def begin_commit(self) -> None:
        """Begin the first of three steps, of which the second may be another thread's."""
        hashes, marks = self._flushing
        self._flushing = (hashes | self._hashes, marks | self._marks)
        self._hashes, self._marks = {}, {}

    def flush(self) -> None:
        """Bring to the disk what was added; some 20 ms, in which nobody else needs to wait."""

        def work() -> None:
            self._ready().commit()
            _sync(self._directory / self._name)  # before the store says so
            self._opened().reload()

        with self._lock:
            if self._dirty:
                self._dirty = False
                try:
                    self._guarded(work)
                except StateError as bad:
                    self._failure = bad

    def end_commit(self) -> None:
        """Have the store say what is found; StateError where flushing failed, and all is lost."""
        failure, self._failure = self._failure, None
        if failure is not None:
            self._lose()
            raise failure
        hashes, marks = self._flushing
        self.store.indexed(hashes, marks)
        self._flushing = ({}, {})

    def _lose(self) -> None:
        """Drop the writer, with all that was not committed: it takes nothing after a failure."""
        self._writer = None
        self._hashes, self._marks, self._flushing = {}, {}, ({}, {})

    def _is_first(self, session_id: str, kind: str) -> bool:
        """Note that documents are added; say whether this process does so for the first time."""
        known = (session_id, kind) in self._added
        self._added.add((session_id, kind))
        return not known

    def _opened(self) -> tantivy.Index:
        if self._index is None or (self.damaged and not self._readonly):
            raise StateError("the index is being rebuilt", hint="ask again in a moment")
        return self._index

    def _ready(self) -> tantivy.IndexWriter:
        if self._writer is None:
            self._writer = self._opened().writer(_HEAP, 1)
        return self._writer

    def _delete(self, session_id: str, kind: str | None = None, row: int | None = None) -> None:
        self._change(
            session_id, lambda to: to.delete_documents_by_query(_of(session_id, kind, row))
        )

    def _add(self, session_id: str, document: Document) -> None:
        self._change(session_id, lambda to: to.add_document(document))

    def _change(self, session_id: str, work: Callable[[tantivy.IndexWriter], object]) -> None:
        with self._lock:
            self._dirty = True
            if self._changed is not None:
                self._changed.add(session_id)
            self._guarded(lambda: work(self._ready()))

    # -- wiping: what stays is copied ----------------------------------------------------

    @property
    def owes_rebuild(self) -> bool:
        """Whether words were dropped that are in the directory until it is rebuilt."""
        return self.store.noted("index", "rebuild") is not None

    def owe_rebuild(self) -> None:
        """Note that the index is to be rebuilt, whatever becomes of this process."""
        self.store.note("index", "rebuild", b"")

    def rebuild(self, redact: Redact = str) -> bool:
        """Copy what stays into a new index, a session at a time; whether there is more to do.

        `redact` changes the texts of messages.
        """
        self._rebuilding = self._rebuilding or self._rebuilt(redact)
        more = False
        try:
            more = next(self._rebuilding)
        finally:
            if not more:
                self._rebuilding = self._changed = None
        return more or self.owes_rebuild

    def _rebuilt(self, redact: Redact) -> Iterator[bool]:
        self.commit()
        self.store.note("index", "rebuild", b"begun")  # what is dropped from now on is owed anew
        name = _fresh_name()
        new = self._guarded(lambda: self._make(name))
        writer = new.writer(_HEAP, 1)
        self._changed = set()
        for session_id in self.store.mark_signs().keys() | set(self.store.ids()):
            self._copy(session_id, writer, redact)
            yield True
        self.commit()
        for session_id in self._changed:
            writer.delete_documents_by_query(_of(session_id))
            self._copy(session_id, writer, redact)
        self._guarded(writer.commit)
        _sync(self._directory / name)
        _sync(self._directory)
        with self.store.batch():
            self.store.note("index", "name", name.encode())
            if self.store.noted("index", "rebuild") == b"begun":
                self.store.note("index", "rebuild", None)
        new.reload()
        with self._lock:
            old, self._index, self._writer, self._name = self._writer, new, writer, name
            if old is not None:
                old.wait_merging_threads()  # which write into the old directory
            del old
        self._sweep()
        self.store.fold()
        yield False

    def _copy(self, session_id: str, writer: tantivy.IndexWriter, redact: Redact) -> None:
        def work(searcher: Searcher) -> None:
            for _, at in searcher.search(
                _of(session_id), max(1, searcher.num_docs), count=False
            ).hits:
                document = searcher.doc(at)
                if document.get_first("row") is None:
                    writer.add_document(_about_document(session_id, about_in(document)))
                    continue
                one = message_in(document)
                if (text := redact(one.text)).strip():
                    writer.add_document(_message_document(session_id, one._replace(text=text)))

        self.ask(work)

    # -- reading: any thread -------------------------------------------------------------

    def ask(self, ask: Callable[[Searcher], _T]) -> _T:
        """Ask the index as it is at one moment."""
        return self._guarded(lambda: ask(self._opened().searcher()))

    @property
    def is_there(self) -> bool:
        """Whether there is an index."""
        return self._index is not None

    def messages(
        self, session_id: str, most: int = _SESSION_MAX, *, last: bool = False
    ) -> list[Message]:
        """Give messages of a session in its order: its first ones, or its `last`."""
        order = tantivy.Order.Desc if last else tantivy.Order.Asc
        query = _of(session_id, "message")

        def ask(searcher: Searcher) -> list[Message]:
            limit = min(most, max(1, searcher.num_docs))
            found = searcher.search(query, limit, count=False, order_by_field="row", order=order)
            return [message_in(searcher.doc(at)) for _, at in found.hits]

        return self.ask(ask)

    def carry_on(self, pairs: Iterable[tuple[str, str]]) -> dict[str, bool | None]:
        """Say whether the child of each pair goes on where its parent ended; None: not known."""
        return {child: self._carries_on(parent, child) for parent, child in pairs}

    def _carries_on(self, parent: str, child: str) -> bool | None:
        last, begun = self.messages(parent, 1, last=True), self.messages(child, 1)
        if not last or not begun:
            return None
        first = self.messages(parent, 1)[0].row
        if self._has(child, last[0], last[0].row - first + begun[0].row):
            return True
        return False if self._has(parent, begun[0], first) else None

    def _has(self, session_id: str, message: Message, row: int) -> bool:
        """Say whether a session has a copy of a message.

        It has the entry's id with pi, Claude Code and Codex; with opencode its place and text.
        """
        own = _of(session_id, "message")

        def ask(searcher: Searcher) -> bool:
            copy = both(own, term("copy", copy_of(session_id, message)))
            if searcher.search(copy, 1, count=False).hits:
                return True
            there = searcher.search(both(own, term("row", row)), 1, count=False).hits
            held = [message_in(searcher.doc(at)) for _, at in there]
            return [(one.role, one.text) for one in held] == [(message.role, message.text)]

        return self.ask(ask)


# -- documents -------------------------------------------------------------------------------


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("session", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("kind", tokenizer_name="raw", index_option="basic")
    builder.add_unsigned_field("owner", indexed=True, fast=True)
    builder.add_unsigned_field("row", stored=True, indexed=True, fast=True)
    builder.add_unsigned_field("copy", stored=True, indexed=True)
    builder.add_bytes_field("held", stored=True)
    for name in ("message", "id", *About.__struct_fields__):
        builder.add_text_field(name, tokenizer_name="words", index_option="position")
    return builder.build()


SCHEMA = _schema()


def _tokenizer() -> tantivy.TextAnalyzer:
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    return builder.filter(tantivy.Filter.remove_long(_WORD_MAX)).build()


def _document(session_id: str, kind: str, held: About | Message) -> Document:
    document = Document()
    document.add_text("session", session_id)
    document.add_unsigned("owner", int.from_bytes(hashed(session_id, size=8)))
    document.add_text("kind", kind)
    document.add_bytes("held", _encode(held))
    return document


def _about_document(session_id: str, texts: About) -> Document:
    document = _document(session_id, "about", texts)
    document.add_text("id", indexable(session_id))
    for name in texts.__struct_fields__:
        text = getattr(texts, name)
        document.add_text(name, indexable(without_references(text) if name == "name" else text))
    return document


def _message_document(session_id: str, message: Message) -> Document:
    clean = (
        replace_surrogates(message.entry),
        replace_surrogates(message.role),
        replace_surrogates(message.at),
    )
    held = Message(message.row, *clean, storable(message.text[:TEXT_MAX]))
    document = _document(session_id, "message", held)
    document.add_unsigned("row", message.row)
    document.add_unsigned("copy", copy_of(session_id, message))
    document.add_text("message", indexable(held.text))
    return document


def about_in(document: Document) -> About:
    """Give the texts of a session's document."""
    return _texts(document.get_first("held"))  # type: ignore[arg-type]  # the schema says so


def message_in(document: Document) -> Message:
    """Give the message of a document."""
    return _message(document.get_first("held"))  # type: ignore[arg-type]  # as above


def copy_of(session_id: str, message: Message) -> int:
    """Give the same number for the same entry and text in any session."""
    text = storable(message.text[:TEXT_MAX])
    entry = message.entry or f"{session_id}\0{message.row}"
    return int.from_bytes(hashed(entry, text, size=8))


def _texts_of(row: Mapping[str, Any], names: Named, summary: str) -> About:
    tags = row.get("tags")
    cwd = shown_path(names.cwd)
    above = cwd.rstrip("/") + "/"
    paths = [str(one) for key in ("filesModified", "filesRead") for one in row.get(key) or ()]
    texts = (
        "\n".join(names.aliases),
        ", ".join(map(str, tags)) if isinstance(tags, list | tuple) else "",
        str(row.get("description") or ""),
        summary,
        "\n".join(dict.fromkeys(one.removeprefix(above) for one in paths)),
        cwd,
    )
    return About(*(storable(one[:TEXT_MAX]) for one in texts))


def _hash(texts: About) -> bytes:
    return hashed(*msgspec.structs.astuple(texts))


# -- queries ---------------------------------------------------------------------------------


def term(field: str, value: str | int) -> Query:
    """Ask for a value of a field."""
    return Query.term_query(SCHEMA, field, value)


def both(*queries: Query) -> Query:
    """Ask for what fits all of these."""
    return Query.boolean_query([(tantivy.Occur.Must, one) for one in queries])


def either(queries: Iterable[Query]) -> Query:
    """Ask for what fits any of these; the more, the better."""
    return Query.boolean_query([(tantivy.Occur.Should, one) for one in queries])


def _of(session_id: str, kind: str | None = None, row: int | None = None) -> Query:
    """Ask for a session's documents, or those of a kind; of messages those at `row` and behind."""
    own = [term("session", replace_surrogates(session_id))]
    if kind is not None:
        own.append(term("kind", kind))
    if row is not None:
        own.append(Query.range_query(SCHEMA, "row", tantivy.FieldType.Unsigned, row, None))
    return both(*own)


# -- files -----------------------------------------------------------------------------------


def _sync(directory: Path) -> None:
    """Bring names in a directory to the disk, which tantivy leaves to the system."""
    folder = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _fresh_name() -> str:
    return f"{VERSION}-{os.urandom(4).hex()}"


def verify(directory: Path) -> None:
    """Raise DamagedError where a file of an index is not as it was written."""
    try:
        meta = json.loads((directory / "meta.json").read_text("utf-8"))
        kept = {one["segment_id"].replace("-", "") for one in meta["segments"]}
    except (KeyError, TypeError, ValueError, AttributeError, FileNotFoundError):
        raise DamagedError("its list of files is damaged") from None
    files = [(path, path.name.partition(".")[0]) for path in directory.iterdir()]
    if {segment for _, segment in files} & kept != kept:
        raise DamagedError("some of its files are missing")
    for path, segment in files:
        if segment in kept and not _is_whole(path):
            raise DamagedError("one of its files is not as it was written")


def _is_whole(path: Path) -> bool:
    """Compare a file with its footer: JSON with the checksum, its length, a number."""
    with (
        suppress(ValueError, KeyError, TypeError, OSError),
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        memoryview(data) as view,
    ):
        end = len(data) - _FOOTER
        begin = end - int.from_bytes(data[end : end + 4], "little")
        return bool(json.loads(data[begin:end])["crc"] == zlib.crc32(view[:begin]))
    return False
