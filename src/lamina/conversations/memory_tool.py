"""The memory tool as one of lamina's own: whose request has it, and how its calls are answered.

Anthropic's API has a tool of this kind (`memory_20250818`), which a client declares and has to serve itself.
For other APIs `MEMORY` declares the same commands as a function. With `Policy(memory_tool="lamina")` lamina
serves both, from its store, at every door. The client never sees the calls.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from lamina.conversations.memory_commands import ROOT, MemoryAnswer
from lamina.core.values import RequestHead, Segment, ToolCall
from lamina.dialects.json_values import text_or_empty, to_dict_or_empty
from lamina.dialects.port import Dialect, Tool
from lamina.errors import LaminaError
from lamina.fitting.fitted import Fitted
from lamina.fitting.own_tools import OwnTool, ToolSituation
from lamina.fitting.policy import Policy
from lamina.segments import result

MEMORY_TYPE = "memory_20250818"
"""The type of the tool in Anthropic's API."""

RunMemory = Callable[[Mapping[str, Any]], MemoryAnswer]
"""Carries out one command in a store, and waits until it is done."""

_UNREACHABLE = "The memory cannot be reached now. Go on without it."

_TEXT = {"type": "string"}

MEMORY = Tool(
    name="memory",
    description=(
        f"Files that stay from one conversation to the next, in the directory {ROOT}. Look there before you "
        "begin, and write down what you will need later. Commands: view (path, view_range), create (path, "
        "file_text), str_replace (path, old_str, new_str), insert (path, insert_line, insert_text), delete "
        "(path), rename (old_path, new_path)."
    ),
    schema={
        "type": "object",
        "properties": {
            "command": {
                "type": "string",
                "enum": ["view", "create", "str_replace", "insert", "delete", "rename"],
            },
            "path": {"type": "string", "description": f"A file or directory, such as {ROOT}/notes.md."},
            "view_range": {"type": "array", "items": {"type": "integer"}},
            "file_text": _TEXT,
            "old_str": _TEXT,
            "new_str": _TEXT,
            "insert_line": {
                "type": "integer",
                "description": "The line after which to insert; 0 is the top.",
            },
            "insert_text": _TEXT,
            "old_path": _TEXT,
            "new_path": _TEXT,
        },
        "required": ["command"],
    },
)
"""The memory tool for APIs that have none of their own."""


def find_memory_tool(head: RequestHead, dialect: Dialect) -> str:
    """The name of the memory tool that a head declares, "" if it has none."""
    for definition in map(to_dict_or_empty, head.tools):
        if definition.get("type") == MEMORY_TYPE:
            return text_or_empty(definition.get("name"))
    for tool in dialect.head.read(head).tools:
        if tool.name == MEMORY.name and tool.description == MEMORY.description:
            return tool.name
    return ""


def serves_memory(policy: Policy, head: RequestHead, dialect: Dialect) -> bool:
    """Whether lamina answers calls of a memory tool in the answer to a request with this head."""
    return policy.memory_tool == "lamina" and find_memory_tool(head, dialect) != ""


def serve_memory(fitted: Fitted, policy: Policy, run: RunMemory) -> Fitted:
    """The request with the memory tool among lamina's own, if it has one and the policy says so."""
    if policy.memory_tool != "lamina" or fitted.dialect is None:
        return fitted
    name = find_memory_tool(fitted.envelope.head, fitted.dialect)
    if not name:
        return fitted
    own_tools = (*fitted.own_tools, make_memory_tool(name, run))
    return msgspec.structs.replace(fitted, own_tools=own_tools)


def make_memory_tool(name: str, run: RunMemory) -> OwnTool:
    """The row of the memory tool. Its definition is the client's."""

    def answer(call: ToolCall, _: ToolSituation) -> Segment:
        arguments = read_arguments(call)
        if isinstance(arguments, MemoryAnswer):
            return write_result(call, arguments)
        try:
            memory_answer = run(arguments)
        except LaminaError as error:
            memory_answer = note_failure(error)
        return write_result(call, memory_answer)

    return OwnTool(name=name, answer=answer)


def read_arguments(call: ToolCall) -> Mapping[str, Any] | MemoryAnswer:
    """The arguments of a call, or the answer to one that has none."""
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if isinstance(arguments, dict):
        return arguments
    return MemoryAnswer(text="The arguments are not a JSON object. Send the call again.", error=True)


def note_failure(error: LaminaError) -> MemoryAnswer:
    """The answer to a call that the store has failed. The log says why, and quotes no content."""
    logging.getLogger("lamina").warning("the memory tool could not be served: %s", type(error).__name__)
    return MemoryAnswer(text=_UNREACHABLE, error=True)


def write_result(call: ToolCall, answer: MemoryAnswer) -> Segment:
    """An answer as the result of a call."""
    return result(answer.text, id=call.id, name=call.name, error=answer.error)
