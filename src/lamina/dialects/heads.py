"""What the translations of heads have in common, whatever the dialect."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

from lamina.dialects.json_values import mapping_or_empty, text_or_empty
from lamina.dialects.port import Tool

ReadTool = Callable[[Mapping[str, Any]], Tool | None]
"""Reads one definition; None if the tool has no plain meaning, since the API itself runs it."""


def read_tools(
    definitions: Iterable[Mapping[str, Any]], read_tool: ReadTool
) -> tuple[tuple[Tool, ...], list[str]]:
    """The plain tools of some definitions, and the places of those that have no plain meaning.

    A web search that the API itself runs has no plain meaning: it gives the place `tools[2]`, for example.
    """
    tools: list[Tool] = []
    unread_places: list[str] = []
    for position, definition in enumerate(definitions):
        tool = read_tool(definition)
        if tool is None:
            unread_places.append(f"tools[{position}]")
        else:
            tools.append(tool)
    return tuple(tools), unread_places


def read_function(function: Mapping[str, Any]) -> Tool | None:
    """A function as the APIs of OpenAI and of Ollama define it; None for one without a name.

    `{"name": "read", "description": "Reads a file", "parameters": {…}}` has its schema in `parameters`.
    """
    name = text_or_empty(function.get("name"))
    if not name:
        return None
    schema = dict(mapping_or_empty(function.get("parameters")))
    return Tool(name=name, description=str(function.get("description") or ""), schema=schema)


def write_function(tool: Tool, name: str) -> dict[str, Any]:
    """The definition of a function under a name that the API takes. What is empty is left out.

    `{"type": "function", "function": {"name": "now"}}` takes no arguments.
    """
    function: dict[str, Any] = {"name": name}
    if tool.description:
        function["description"] = tool.description
    if tool.schema:
        function["parameters"] = tool.schema
    return {"type": "function", "function": function}


def read_stream_switch(parameters: Mapping[str, Any]) -> bool | None:
    """Whether the answer is streamed; None if the request does not say.

    Null means no, since the request does say something.
    """
    if "stream" not in parameters:
        return None
    return bool(parameters["stream"])


def list_untranslated(
    parameters: Iterable[str], translated: Container[str], not_for_the_model: Container[str]
) -> list[str]:
    """The names of parameters that mean something to the model, and that a plain head has no field for.

    `logit_bias` of Chat Completions is one: other APIs have no such parameter.
    """
    return [name for name in parameters if name not in translated and name not in not_for_the_model]
