"""The parameters of the MCP server's tools, and how strictly they are taken.

A parameter is of the type that its schema says, or the call is refused: `"3"` is no number, and
"yes" no truth. So is one that no tool has: `merge: true` for `mode: "merge"` would replace what
its caller wanted to keep. Two leniences stay: a number may be written `10.0`, which is a whole
number to JSON's schemas, and a list may come as JSON in a string, as some hosts send it.
"""

from __future__ import annotations

from typing import Annotated, Any

from mcp.server.mcpserver.tools import Tool
from pydantic import BeforeValidator, ConfigDict, Field

from indexerd.mcp.trees import NODES_MAX
from indexerd.meta import context_sets as sets

FOCUS_MAX = 4000  # characters, and
KEEP_MAX = 1_000_000  # tokens: as the daemon has it, whose modules are slow to import


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole)  # behind the bounds: before them it keeps them from the schema

Session = Annotated[
    str,
    Field(
        min_length=1,
        max_length=400,
        description="The past session: its id, an id's beginning (6 characters or more), its"
        " name, or nearly its name.",
    ),
]
Own = Annotated[
    str,
    Field(
        max_length=400,
        description="Which session: id or name. Leave it out to mean the one you are running in;"
        " where that cannot be told for certain you get an error with the candidates.",
    ),
]
Cwd = Annotated[
    str,
    Field(
        max_length=4096,
        description="The project: a directory, its sub-directories included. Leave it out to"
        " mean the one this server was started in.",
    ),
]
Everywhere = Annotated[bool, Field(description="True: look in every project at once.")]
Agent = Annotated[
    str,
    Field(max_length=64, description="Only sessions of this agent: pi, claude, codex, opencode."),
]
Since = Annotated[
    str,
    Field(max_length=64, description="Only sessions active since then: an ISO-8601 date or time."),
]
Limit = Annotated[int, Field(ge=1, le=50, description="How many at most."), WHOLE]
Nodes = Annotated[int, Field(ge=1, le=NODES_MAX, description="How many at most."), WHOLE]
Offset = Annotated[int, Field(ge=0, le=1_000_000, description="Leave out so many."), WHOLE]
SetName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=sets.NAME_MAX,
        description="files, endpoints, ports or applet; other names work too, with a warning.",
    ),
]
Items = Annotated[
    list[str],
    Field(
        description="At most 10 strings; files as absolute paths. With replace, [] clears the set.",
        json_schema_extra={"maxItems": 10},
    ),
]
Asked = Annotated[
    str,
    Field(min_length=1, max_length=4000, description="One self-contained question."),
]
Leaf = Annotated[
    str,
    Field(max_length=200, description="Another branch: the id of its last entry (list_branches)."),
]
Focus = Annotated[str, Field(max_length=FOCUS_MAX, description="What the summary should dwell on.")]
Kept = Annotated[
    int,
    Field(ge=0, le=KEEP_MAX, description="Tokens of the newest messages that pi's rules keep."),
    WHOLE,
]
Before = Annotated[
    int,
    Field(ge=0, le=100_000_000, description="nextBefore of the page before; 0 for the newest."),
    WHOLE,
]
Turn = Annotated[
    str,
    Field(
        max_length=200,
        description="For hosts and plugins: their name of the user's turn. Questions of one turn"
        " are counted together, and limited. Leave it out if you know of none.",
    ),
]


def strict(tool: Tool) -> Tool:
    """The same tool, which takes its own parameters only, and those as its schema says."""
    held = tool.fn_metadata
    rules = {"model_config": ConfigDict(extra="forbid", strict=True), "__module__": __name__}
    model = type(held.arg_model.__name__, (held.arg_model,), rules)
    exact = held.model_copy(update={"arg_model": model})
    schema = exact.arg_model.model_json_schema(by_alias=True)
    return tool.model_copy(update={"fn_metadata": exact, "parameters": schema})
