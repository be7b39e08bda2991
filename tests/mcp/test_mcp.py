"""The MCP server: tools, foreign text, which session is meant, errors and hosts."""

import json
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from mcp import Client

from indexerd.mcp import hosts
from indexerd.mcp.rendering import BYTES_MAX, size
from indexerd.privacy.sanitize import escape_path, harmless
from tests.fakes.daemon import Acting, Refusal, acting
from tests.mcp.mcp_world import (
    ARGUMENTS,
    HOSTILE,
    ID,
    KEY,
    answers,
    call,
    desk,
    error_of,
    hit,
    nodes,
    row,
    rows,
    strings,
    talk,
    text_of,
)

TOOLS = set(ARGUMENTS)
WRITE = {"set_relevant_context", "summarize_branch", "digest_session"}
SUM = {"compact_session", "summarize_branch", "digest_session"}
ASK_MODELS = {"query_session", "expand_references"} | SUM


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Acting]:
    with acting(tmp_path / "s", **answers()) as daemon:
        yield daemon


def test_tools_are_described_and_annotated(daemon: Acting) -> None:
    """S1.34: each tool has a description, described parameters and true hints."""
    listed = talk(desk(daemon), lambda client: client.list_tools()).tools
    assert {tool.name for tool in listed} == TOOLS
    for tool in listed:
        assert len(tool.description) > 120
        assert "Call it" in tool.description
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        jsonschema.Draft202012Validator.check_schema(tool.output_schema)
        assert "title" not in json.dumps(tool.input_schema)
        assert tool.input_schema["additionalProperties"] is False
        assert all(field["description"] for field in tool.input_schema["properties"].values())
        hints = tool.annotations
        assert hints.read_only_hint is (tool.name not in WRITE)
        assert hints.destructive_hint is False
        assert hints.open_world_hint is (tool.name in ASK_MODELS)
        assert hints.idempotent_hint is (tool.name not in ASK_MODELS)
        assert ("cost money" in tool.description) is (tool.name in SUM)
    tree = next(tool for tool in listed if tool.name == "get_tree")
    assert set(tree.input_schema["properties"]["show"]["enum"]) == {
        "default",
        "no-tools",
        "user-only",
        "labeled-only",
        "all",
    }


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_hostile_text_stays_quoted_data(daemon: Acting, mode: str) -> None:
    """No line of it starts a line of its own; tags, templates, references and secrets go."""

    async def scene(client: Client) -> None:
        for tool in (await client.list_tools()).tools:
            found = await client.call_tool(tool.name, ARGUMENTS[tool.name])
            assert not found.is_error, text_of(found)
            jsonschema.validate(found.structured_content, tool.output_schema)
            if not tool.name.endswith("relevant_context"):
                assert json.loads(text_of(found)) == found.structured_content
            _check_hostile(tool.name, found.structured_content, text_of(found))

    talk(desk(daemon), scene, mode=mode)


def _check_hostile(name: str, data: dict[str, Any], words: str) -> None:
    for text in [*strings(data), words]:
        plain = text.replace(f"@@{ID}", "")  # the caller's own reference
        for bad in ("<system>", "</indexerd>", "[INST]", "@@", "\x1b", "\u202e", KEY):
            assert bad not in plain, name
        lines = text.split("\n")
        assert not [line for line in lines if line.startswith(("Human:", "System:"))]
    if name not in ("resolve_session", "set_relevant_context", "resume_command"):
        assert "not instructions" in data["provenance"]
        assert data["provenance"] in words
    if name.endswith(("_history", "_stats", "_branches")) or name in SUM or name == "get_tree":
        assert f"From session {ID}, written by agent pi" in words
    if name == "query_session":
        assert "; answered by m/x:" in words
    if name in {"get_session"} | SUM:
        assert "; summarised by m/x:" in words


ODD = [
    "/w/my@@file.py",
    "/w/a<b>.py",
    "/w/[INST]/x.py",
    "/w/  two  spaces.py",
    "/w/\u202edaeh\x1b[31m\n.py",
]


def test_paths_keep_every_character_but_marks(daemon: Acting) -> None:
    shown = [harmless(escape_path(path)) for path in ODD]
    daemon.answers |= rows(row(cwd=ODD[3], filesModified=ODD, filesRead=ODD))
    daemon.answers["get_relevant_context"] = {"context": {"a<b>": ODD, "k": [KEY]}}
    session = call(desk(daemon), "get_session", session=ID)
    context = call(desk(daemon), "get_relevant_context", session=ID)
    data = session.structured_content
    assert data["filesModified"] == data["filesRead"] == shown
    assert data["cwd"] == ODD[3]
    sets = {"a&lt;b>": shown, "k": ["[redacted:aws-key-id]"]}
    assert context.structured_content["context"] == sets
    for found in (text_of(context), text_of(session)):
        assert not [bad for bad in ("@@", "a<b>", "[INST]", "\u202e", "\x1b", KEY) if bad in found]


def test_own_patterns_and_cut_secrets(daemon: Acting, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text('[redact]\nextra_patterns = ["hush-[0-9]+"]\n')
    where = desk(daemon, INDEXERD_CONFIG=str(config))
    long = ("some words " * 17) + "sk-ant-api03-abc"
    daemon.answers["tree"] = {
        "sessionId": ID,
        "leafId": None,
        "nodes": nodes(1, "say hush-123 now") + nodes(1, long),
    }
    found = call(where, "get_tree", session=ID)
    first, second = (node["text"] for node in found.structured_content["nodes"])
    assert first == "say [redacted:custom] now"
    assert second == "some words " * 17 + "…"


def test_large_answers_are_cut_and_say_so(daemon: Acting) -> None:
    daemon.answers |= rows(*[row(f"{ID}-{n}") for n in range(60)])
    daemon.answers["tree"] = {"sessionId": ID, "leafId": "e1", "nodes": nodes(5000, "x" * 150)}
    tree = call(desk(daemon), "get_tree", session=ID, limit=200, offset=10)
    listed = call(desk(daemon), "list_sessions", limit=50)
    for found in (tree, listed):
        assert len(found.model_dump_json().encode()) < 42_000
        assert size(found.structured_content) <= BYTES_MAX
    assert tree.structured_content["truncated"] == ["nodes"]
    assert tree.structured_content["total"] == 5000
    assert tree.structured_content["nodes"][0]["id"] == "e10"
    shown = len(listed.structured_content["sessions"])
    assert 1 < shown < 50
    assert (
        daemon.params("list")[-1]["limit"] == shown
    )  # asked again, so the cursor matches the rows shown


def test_a_very_long_message_is_cut_and_not_left_out(daemon: Acting) -> None:
    """The next page begins before it."""
    texts = ["One.", "Two.", "long words " * 4000]
    recent = [{"n": n, "role": "user", "text": text} for n, text in enumerate(texts)]
    known = {"sessionId": ID, "leafId": "e1", "segments": [], "recent": recent}
    daemon.answers["history"] = known | {"fullMessageCount": 3, "foldedMessages": 0}
    found = call(desk(daemon), "session_history", session=ID, full=True).structured_content
    (last,) = found["recent"]
    assert last["n"] == found["nextBefore"] == 2
    assert last["content"].startswith("> long words long words")
    assert 0.8 * BYTES_MAX < size(found) <= BYTES_MAX
    found = call(desk(daemon), "session_history", session=ID, full=True, before=2)
    assert [message["n"] for message in found.structured_content["recent"]] == [0, 1]


def test_the_project_is_the_servers_directory_unless_said(daemon: Acting) -> None:
    daemon.answers["search"] = lambda params: {"hits": [] if "cwd" in params else [hit()]}
    found = call(desk(daemon), "search_sessions", query="x")
    call(desk(daemon), "list_sessions", cwd="/other")
    call(desk(daemon), "list_sessions", all_projects=True)
    call(desk(daemon, cwd=None), "list_sessions")
    assert found.structured_content["scope"] == "all"
    assert [params.get("cwd") for params in daemon.params("search")] == ["/w", None]
    assert [params.get("cwd") for params in daemon.params("list")] == ["/other", None, None]
    assert daemon.asked[0][1]["limit"] == 10


def test_the_current_session_is_used_only_if_it_is_certain(daemon: Acting) -> None:
    """S4.9: the only session of the host's agent in use here is meant, with a note."""
    arguments = {"setName": "files", "items": ["/w/a.py"]}
    late = "2999-01-01T00:00:00.000Z"
    where = desk(daemon)
    daemon.answers |= rows(row(modifiedAt=late), row("old"))
    found = call(where, "set_relevant_context", "claude-code", **arguments)
    unknown = call(where, "set_relevant_context", "some-editor", **arguments)
    daemon.answers |= rows(row(modifiedAt=late), row("other", modifiedAt=late))
    several = call(where, "set_relevant_context", "claude-code", **arguments)
    daemon.answers |= rows(row("old"))
    none = call(where, "set_relevant_context", "claude-code", **arguments)
    assert found.structured_content["sessionId"] == ID
    listed = daemon.params("list")[0]
    assert {"agent": "claude", "cwd": "/w", "hidden": True}.items() <= listed.items()
    told = error_of(several)
    assert told["code"] == "ambiguous_reference"
    assert [candidate["sessionId"] for candidate in told["candidates"]] == [ID, "other"]
    assert error_of(unknown)["code"] == "usage"
    assert error_of(none)["code"] == "not_found"
    assert daemon.methods.count("set_relevant_context") == 1


def test_a_name_never_means_the_session_that_asks(daemon: Acting) -> None:
    daemon.answers |= rows(row("mine", modifiedAt="2999-01-01T00:00:00.000Z"))
    call(desk(daemon), "resolve_session", "codex-mcp-client", ref="the button")
    assert daemon.asked[-1] == (
        "resolve",
        {"ref": "the button", "cwd": "/w", "scope": "project", "exclude": "mine"},
    )


def test_a_resume_command_is_exact_or_not_given(daemon: Acting) -> None:
    exact = call(desk(daemon), "resume_command", session=ID)
    daemon.answers |= rows(row(resume="cd '/w/\x1b]0;pwn\x07' && pi"))
    odd = call(desk(daemon), "resume_command", session=ID)
    daemon.answers |= rows(
        row(resume="cd /w/ghp_x && pi", shown={"resume": f"indexerd resume {ID}"})
    )
    secret = call(desk(daemon), "resume_command", session=ID)
    daemon.answers |= rows(row(gone=True))
    gone = call(desk(daemon), "resume_command", session=ID)
    assert exact.structured_content["command"] == f"cd /w && pi --session {ID}"
    for one in (odd, secret):
        assert one.structured_content["command"] is None
        assert f"indexerd resume {ID}" in one.structured_content["note"]
    assert gone.structured_content["command"] is None


def test_errors_of_the_socket_are_tool_errors(daemon: Acting) -> None:
    """S0.64: isError, and JSON with code, message, hint, retryable, candidates and upstream."""
    data = {"hint": "use the id", "retryable": False, "upstream": "ambiguous"}
    near = [{"sessionId": ID, "name": HOSTILE}]
    daemon.answers["resolve"] = Refusal("ambiguous_reference", HOSTILE, candidates=near, **data)
    told = error_of(call(desk(daemon), "resolve_session", ref="b"))
    assert told["code"] == "ambiguous_reference"
    assert told.items() >= data.items()
    assert told["candidates"][0]["sessionId"] == ID
    assert not [text for text in strings(told) if "<system>" in text or "\n" in text]


def test_a_failed_question_keeps_the_daemons_code(daemon: Acting) -> None:
    """S0.64: it tells a deleted file from an unknown session; without one, the kind decides."""
    for told, code in (
        ({"upstream": "SESSION_FILE_MISSING"}, "SESSION_FILE_MISSING"),
        ({}, "SESSION_NOT_FOUND"),
    ):
        daemon.answers["query_session"] = Refusal("not_found", "gone", **told)
        failed = error_of(call(desk(daemon), "query_session", session=ID, question="Why?"))
        assert failed["upstream"] == code


def test_wrong_arguments_are_usage_errors(daemon: Acting) -> None:
    for name, secret in (
        ("limit", {"query": "hush", "limit": 0}),
        ("query", {"query": {"k": "hush"}}),
        ("merge", {"query": "hush", "merge": True}),
    ):
        told = error_of(call(desk(daemon), "search_sessions", **secret))
        assert told["code"] == "usage"
        assert name in told["message"]
        assert "hush" not in json.dumps(told)
    assert error_of(call(desk(daemon), "drop_tables"))["code"] == "usage"


def test_an_internal_error_reveals_nothing_of_a_session(daemon: Acting) -> None:
    daemon.answers["get"] = {"session": [HOSTILE]}
    told = error_of(call(desk(daemon), "get_session", session=ID))
    assert told["code"] == "internal"
    assert told["message"] == "get_session failed"


def test_the_prompt_is_the_instruction_text(daemon: Acting) -> None:
    """S4.27: agents get the text that says when to store context."""

    async def scene(client: Client) -> tuple[str, str]:
        listed = (await client.list_prompts()).prompts
        got = await client.get_prompt(listed[0].name)
        return listed[0].name, got.messages[0].content.text

    name, text = talk(desk(daemon), scene)
    assert name == "relevant-context-guide"
    assert text == (files("indexerd") / "integrations/instructions.md").read_text()
    assert "set_relevant_context" in text


@pytest.mark.parametrize("host", hosts.HOSTS)
def test_snippets_have_the_hosts_format(host: str) -> None:
    command, env = ["/opt/my tools/indexerd", "mcp"], {"INDEXERD_SOCKET": '/r/"s'}
    found = hosts.snippet(host, command, env)
    held = tomllib.loads(found) if host == "codex" else json.loads(found)
    table = {"codex": "mcp_servers", "opencode": "mcp", "vscode": "servers"}
    entry = held[table.get(host, "mcpServers")]["indexerd"]
    if host == "opencode":
        wanted = {"type": "local", "command": command, "environment": env}
    else:
        kind = {} if host in ("cursor", "codex") else {"type": "stdio"}
        wanted = {"command": command[0], "args": command[1:], "env": env} | kind
    assert entry.items() >= wanted.items()
