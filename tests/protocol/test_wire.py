"""The wire protocol: any input is answered, and any output is one line of JSON."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd import errors
from indexerd.protocol import wire
from indexerd.protocol.methods import METHODS

ROOT = Path(__file__).parents[2]
PLAIN_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=20),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(), below, max_size=4),
    max_leaves=20,
)
IDS = st.none() | st.integers(-(2**60), 2**60) | st.text(max_size=wire.ID_MAX)


def refuse(word: str) -> float:
    raise AssertionError(f"{word} is not JSON")


def read(line: bytes) -> dict[str, Any]:
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    held: dict[str, Any] = json.loads(line.decode("utf-8"), parse_constant=refuse)
    assert held["jsonrpc"] == "2.0"
    return held


def fault(line: bytes) -> tuple[int, Any]:
    found = wire.parse(line)
    assert isinstance(found, wire.Failure)
    told = read(found.to_line())
    assert told["error"]["data"]["kind"] == "usage"
    assert told["error"]["data"]["hint"]
    return told["error"]["code"], told["id"]


@given(IDS, st.text(min_size=1), st.dictionaries(st.text(), PLAIN_JSON, max_size=4))
def test_a_request_arrives_as_it_was_sent(asked: Any, method: str, params: Any) -> None:
    sent = {"jsonrpc": "2.0", "id": asked, "method": method, "params": params}
    for ascii_only in (True, False):
        line = json.dumps(sent, ensure_ascii=ascii_only).encode() + b"\r\n"
        assert wire.parse(line) == wire.Request(asked, method, params)


def test_a_request_without_id_is_a_notification_and_one_with_null_is_not() -> None:
    silent = wire.parse(b'{"jsonrpc":"2.0","method":"status"}')
    asking = wire.parse(b'{"jsonrpc":"2.0","method":"status","id":null,"params":null}')
    assert silent == wire.Request(None, "status", {}, is_notification=True)
    assert asking == wire.Request(None, "status", {}, is_notification=False)


@pytest.mark.parametrize(
    ("line", "code", "asked"),
    [
        (b"", -32700, None),
        (b'{"jsonrpc":"2.0"', -32700, None),
        (b"[" * 100_000, -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":NaN}}', -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1e999}}', -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"\xed\xa0\x80"}', -32700, None),
        (b"null", -32600, None),
        (b'[{"jsonrpc":"2.0","id":1,"method":"status"}]', -32600, None),
        (b"{}", -32600, None),
        (b'{"id":1,"method":"status"}', -32600, 1),
        (b'{"jsonrpc":"3.0","id":"a","method":"status"}', -32600, "a"),
        (b'{"jsonrpc":"2.0","id":1}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":true,"method":"status"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":"%b","method":"status"}' % (b"i" * 257), -32600, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":["a"]}', -32602, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":0}', -32602, 1),
        (b" " * (wire.LINE_MAX + 2), -32600, None),
    ],
)
def test_each_fault_has_its_code(line: bytes, code: int, asked: Any) -> None:
    assert fault(line) == (code, asked)


def test_escaped_lone_surrogates_become_replacement_characters() -> None:
    """Agents write an escaped U+D800; msgspec refuses it, and UTF-8 cannot encode it."""
    line = (
        rb'{"jsonrpc":"2.0","id":"\udc00","method":"m","params":{"\ud800":["a\ud800\ud83d\ude00"]}}'
    )
    found = wire.parse(line)
    assert found == wire.Request("\ufffd", "m", {"\ufffd": ["a\ufffd\U0001f600"]})


def tree(root: type[errors.IndexerdError]) -> list[type[errors.IndexerdError]]:
    return [root, *(one for below in root.__subclasses__() for one in tree(below))]


def test_every_error_is_in_the_protocol_document() -> None:
    text = (ROOT / "docs" / "PROTOCOL.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (-?\d+) \| (\d+)", text, re.MULTILINE)
    found = {kind: (int(code), int(exit_code)) for kind, code, exit_code in rows}
    exits = {one.kind: one.exit_code for one in reversed(tree(errors.IndexerdError))}
    assert set(exits) == set(errors.RPC_CODES)
    codes = errors.RPC_CODES | {"usage": int(wire.Fault.INVALID_PARAMS)}
    assert found == {kind: (codes[kind], exits[kind]) for kind in errors.RPC_CODES}
    for fault in wire.Fault:
        assert f"`{fault.value}`" in text, fault.name


def test_every_method_is_in_the_protocol_document() -> None:
    text = (ROOT / "docs" / "PROTOCOL.md").read_text("utf-8")
    assert set(METHODS) <= set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))


def test_every_limit_is_in_the_protocol_document() -> None:
    text = (ROOT / "docs" / "PROTOCOL.md").read_text("utf-8")
    limits = wire.LIMITS
    assert limits.line_bytes == 1024 * 1024
    assert limits.connections >= 512
    for words in (
        "1 MiB",
        f"{limits.half_line_seconds:g} s",
        f"| open connections | {limits.connections} |",
        f"{limits.stall_seconds:g} s",
        f"{limits.unsent_bytes >> 20} MiB",
    ):
        assert words in text, words
