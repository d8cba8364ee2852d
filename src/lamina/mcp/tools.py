"""The tools, as a server of the Model Context Protocol.

A wrong argument, an unknown key or a store that fails is a result with `isError`: the model reads what was
wrong and what to do. Only a tool that does not exist is an error of the protocol.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Annotated, Any

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

_CONVERSATION = {"type": "string", "description": "The name of a conversation; all of them if left out."}
_NUMBER = {"type": "integer", "minimum": 0}


class RecallArguments(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    conversation: str = ""
    start: Annotated[int, msgspec.Meta(ge=0)] = 0
    find: str = ""


class ExplainArguments(msgspec.Struct, forbid_unknown_fields=True):
    conversation: str = ""
    key: str = ""


class LibrarySearchArguments(msgspec.Struct, forbid_unknown_fields=True):
    text: str
    conversation: str = ""
    most: int = 10


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
    if name not in _ANSWERS:
        message = f"there is no tool {name!r}; the tools are {', '.join(_ANSWERS)}"
        raise MCPError(types.INVALID_PARAMS, message)
    try:
        text = await _ANSWERS[name](library, arguments)
    except LaminaError as error:
        return _report_error(error)
    return types.CallToolResult(content=[types.TextContent(text=text)])


async def _recall(library: ConversationLibrary, arguments: Any) -> str:
    values = _read_arguments(arguments, RecallArguments)
    return await library.recall(
        values.key, conversation=values.conversation, start=values.start, find=values.find
    )


async def _explain(library: ConversationLibrary, arguments: Any) -> str:
    values = _read_arguments(arguments, ExplainArguments)
    return await library.explain(conversation=values.conversation, key=values.key)


async def _search(library: ConversationLibrary, arguments: Any) -> str:
    values = _read_arguments(arguments, LibrarySearchArguments)
    return await library.search(values.text, conversation=values.conversation, most=values.most)


def _read_arguments(arguments: Any, kind: type[Any]) -> Any:
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


def _tool(name: str, title: str, description: str, **properties: dict[str, Any]) -> types.Tool:
    required = [key for key, schema in properties.items() if schema.pop("required", False)]
    return types.Tool(
        name=name,
        title=title,
        description=description,
        input_schema={
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        },
        annotations=types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
    )


TOOLS = [
    _tool(
        "recall",
        "Recall",
        RECALL.description,
        key={"type": "string", "description": "The key, such as k1f2e3d4c5b6.", "required": True},
        conversation=_CONVERSATION,
        start=_NUMBER | {"description": "The character to begin with; 0 if left out."},
        find={"type": "string", "description": "A text to look for, whatever its case."},
    ),
    _tool(
        "explain",
        "Explain",
        "Says what the last request of a conversation had in it: every segment with its layer, form, tokens "
        "and reason. With a key it says why one segment was shortened or left out. Without a conversation it "
        "lists the conversations.",
        conversation={"type": "string", "description": "The name of a conversation."},
        key={"type": "string", "description": "The key of one segment."},
    ),
    _tool(
        "search",
        "Search",
        "Finds places in kept conversations by their words, best first, each with the key that recall takes.",
        text={"type": "string", "description": "Words to look for.", "required": True},
        conversation=_CONVERSATION,
        most={
            "type": "integer",
            "minimum": 1,
            "maximum": MOST_HITS,
            "description": "How many places at most; 10 if left out.",
        },
    ),
]

_ANSWERS: dict[str, Callable[[ConversationLibrary, Any], Awaitable[str]]] = {
    "recall": _recall,
    "explain": _explain,
    "search": _search,
}
