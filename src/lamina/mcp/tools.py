"""The tools, as a server of the Model Context Protocol.

A wrong argument, an unknown key or a store that fails is a result with `isError`: the model reads what was
wrong and what to do. Only a tool that does not exist is an error of the protocol.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Annotated, Any, NamedTuple

import mcp_types as types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from lamina.errors import BadInput, LaminaError
from lamina.fitting.recalls import RECALL
from lamina.mcp.library import MOST_HITS, ConversationLibrary

INSTRUCTIONS = (
    "lamina keeps what was shortened or left out of long conversations. A mark such as "
    'recall("k1f2e3d4c5b6") names a text that is kept: call recall with that key. search finds texts in '
    "kept conversations, explain says what the last request of one had in it, and why."
)

_PLACES = {"minimum": 1, "maximum": MOST_HITS}
_Conversation = Annotated[
    str, msgspec.Meta(description="The name of a conversation; all of them if left out.")
]


class RecallArguments(msgspec.Struct, forbid_unknown_fields=True):
    key: Annotated[str, msgspec.Meta(description="The key, such as k1f2e3d4c5b6.")]
    conversation: _Conversation = ""
    start: Annotated[int, msgspec.Meta(ge=0, description="The character to begin with; 0 if left out.")] = 0
    find: Annotated[str, msgspec.Meta(description="A text to look for, whatever its case.")] = ""


class ExplainArguments(msgspec.Struct, forbid_unknown_fields=True):
    conversation: Annotated[str, msgspec.Meta(description="The name of a conversation.")] = ""
    key: Annotated[str, msgspec.Meta(description="The key of one segment.")] = ""


class LibrarySearchArguments(msgspec.Struct, forbid_unknown_fields=True):
    text: Annotated[str, msgspec.Meta(description="Words to look for.")]
    conversation: _Conversation = ""
    most: Annotated[
        int,
        msgspec.Meta(description="How many places at most; 10 if left out.", extra_json_schema=_PLACES),
    ] = 10


class LibraryTool(NamedTuple):
    """A tool over a library: what a client sees of it, and the method that answers with its arguments."""

    title: str
    description: str
    arguments: type[msgspec.Struct]
    answer: Callable[..., Awaitable[str]]


_TOOLS = {
    "recall": LibraryTool("Recall", RECALL.description, RecallArguments, ConversationLibrary.recall),
    "explain": LibraryTool(
        "Explain",
        "Says what the last request of a conversation had in it: every segment with its layer, form, tokens "
        "and reason. With a key it says why one segment was shortened or left out. Without a conversation it "
        "lists the conversations.",
        ExplainArguments,
        ConversationLibrary.explain,
    ),
    "search": LibraryTool(
        "Search",
        "Finds places in kept conversations by their words, best first, each with the key that recall takes.",
        LibrarySearchArguments,
        ConversationLibrary.search,
    ),
}


def _describe_tool(name: str, tool: LibraryTool) -> types.Tool:
    _, schemas = msgspec.json.schema_components([tool.arguments])
    schema = schemas[tool.arguments.__name__]
    del schema["title"]  # the name of the class
    return types.Tool(
        name=name,
        title=tool.title,
        description=tool.description,
        input_schema=schema,
        annotations=types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
    )


TOOLS = [_describe_tool(name, tool) for name, tool in _TOOLS.items()]


def make_server(library: ConversationLibrary) -> Server[Any]:
    """A server with the tools over a library."""

    async def list_tools(
        _context: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=TOOLS)

    async def call_tool(
        _context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        return await answer_call(library, params.name, params.arguments or {})

    return Server(
        "lamina",
        version=version("lamina-context"),
        title="lamina",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def answer_call(library: ConversationLibrary, name: str, arguments: Any) -> types.CallToolResult:
    """The result of one call. Raises MCPError for a tool that does not exist."""
    if name not in _TOOLS:
        message = f"there is no tool {name!r}; the tools are {', '.join(_TOOLS)}"
        raise MCPError(types.INVALID_PARAMS, message)
    tool = _TOOLS[name]
    try:
        values = _read_arguments(arguments, tool.arguments)
        text = await tool.answer(library, **msgspec.structs.asdict(values))
    except LaminaError as error:
        return _report_error(error)
    return types.CallToolResult(content=[types.TextContent(text=text)])


def _read_arguments(arguments: Any, kind: type[msgspec.Struct]) -> msgspec.Struct:
    try:
        return msgspec.convert(arguments, kind)
    except msgspec.ValidationError as error:
        hint = f"the arguments are {', '.join(kind.__struct_fields__)}"
        raise BadInput(str(error), place="arguments", hint=hint) from None


def _report_error(error: LaminaError) -> types.CallToolResult:
    """An error as the model and a program can read it."""
    facts = {"error": {"kind": type(error).__name__, "message": str(error)}}
    content = types.TextContent(text=f"{type(error).__name__}: {error}")
    return types.CallToolResult(content=[content], structured_content=facts, is_error=True)
