"""Translates everything of a Responses request that is not an item: to a plain head, and back.

Fields and tools that only this API has are named in `left`, and not guessed at: whoever sends the request
elsewhere learns what stays behind. A custom tool takes one free text, so elsewhere it is a function with one
argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.core.values import Head
from lamina.dialects.heads import list_untranslated, read_function, read_stream_switch, read_tools
from lamina.dialects.json_values import drop_nulls, mapping_or_empty, number_or_none, text_or_empty
from lamina.dialects.openai_chat.calls import make_safe_name
from lamina.dialects.port import OwnHead, PlainHead, Tool

_NOT_FOR_THE_MODEL = frozenset(
    """metadata user safety_identifier store stream_options prompt_cache_key prompt_cache_options include
    prompt_cache_retention parallel_tool_calls service_tier background truncation input
    instructions""".split()
)
"""Parameters about sending, storing or paying. The model does not read them, so `left` does not name them."""

_TRANSLATED = frozenset("model max_output_tokens temperature top_p tool_choice stream text reasoning".split())
"""Parameters that a plain head has a field for."""

_PLAIN_CHOICES = {"auto": "auto", "none": "none", "required": "any"}
_OWN_CHOICES = {plain: own for own, plain in _PLAIN_CHOICES.items()}
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_TEXT_FORMAT = {"type": "text"}
_ONE_TEXT_SCHEMA = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
_EMPTY_SCHEMA = {"type": "object", "properties": {}}


def plain_head(head: Head) -> PlainHead:
    """Translates tools and parameters. `left` names those that only this API has.

    `{"max_output_tokens": 5, "reasoning": {"effort": "low"}}` is the output 5 and the effort "low".
    """
    parameters = drop_nulls(head.parameters)
    left = list_untranslated(parameters, _TRANSLATED, _NOT_FOR_THE_MODEL)
    tools, unread_places = read_tools(head.tools, _read_tool)
    left += unread_places
    choice = _read_choice(parameters.get("tool_choice"))
    if choice is None:
        left.append("tool_choice")

    text = mapping_or_empty(parameters.get("text"))
    answer = _read_answer_schema(text.get("format"))
    if answer is None and text.get("format") not in (None, _TEXT_FORMAT):
        left.append("text.format")
    left += [f"text.{name}" for name in text if name != "format"]

    reasoning = mapping_or_empty(parameters.get("reasoning"))
    left += [f"reasoning.{name}" for name in reasoning if name != "effort"]

    return PlainHead(
        model=str(parameters.get("model", "")),
        tools=tools,
        output=number_or_none(parameters.get("max_output_tokens")),
        temperature=number_or_none(parameters.get("temperature")),
        top_p=number_or_none(parameters.get("top_p")),
        choice=choice or "",
        answer=answer,
        effort=text_or_empty(reasoning.get("effort")),
        stream=read_stream_switch(parameters),
        left=tuple(left),
    )


def own_head(plain: PlainHead) -> OwnHead:
    """Translates a plain head into this API's words. It has no stop sequences.

    A stop sequence, and an effort that the API does not know, are named in `left`.
    """
    left: list[str] = []
    if plain.stop:
        left.append("stop")
    text = None
    if plain.answer is not None:
        answer_format = {"type": "json_schema", "name": "answer", "schema": plain.answer, "strict": False}
        text = {"format": answer_format}
    reasoning = None
    if plain.effort in _EFFORTS:
        reasoning = {"effort": plain.effort}
    elif plain.effort:
        left.append("effort")
    parameters = {
        "model": plain.model or None,
        "max_output_tokens": plain.output,
        "temperature": plain.temperature,
        "top_p": plain.top_p,
        "tool_choice": _write_choice(plain),
        "text": text,
        "reasoning": reasoning,
        "stream": plain.stream,
    }
    tools = tuple(map(_write_tool, plain.tools))
    return OwnHead(head=Head(tools=tools, parameters=drop_nulls(parameters)), left=tuple(left))


def _read_tool(definition: Mapping[str, Any]) -> Tool | None:
    """The tool of a definition; None for tools that the API itself runs.

    A custom tool takes free text. Elsewhere it is a function with one argument, `input`.
    """
    match definition.get("type"):
        case "function":
            return read_function(definition)
        case "custom":
            return read_function({**definition, "parameters": _ONE_TEXT_SCHEMA})
    return None


def _write_tool(tool: Tool) -> dict[str, Any]:
    """A definition of a function.

    `strict` is set to false: if it is left out, this API asks more of the schema than others do.
    """
    definition: dict[str, Any] = {"type": "function", "name": make_safe_name(tool.name)}
    if tool.description:
        definition["description"] = tool.description
    definition["parameters"] = tool.schema or _EMPTY_SCHEMA
    definition["strict"] = False
    return definition


def _read_choice(tool_choice: Any) -> str | None:
    """The plain choice: "" if there is none, None for a choice that only this API has.

    `"required"` is a plain choice. `{"type": "file_search"}` is one that only this API has.
    """
    match tool_choice:
        case None:
            return ""
        case str():
            return _PLAIN_CHOICES.get(tool_choice)
        case {"type": "function" | "custom", "name": str(name)}:
            return f"tool:{name}"
    return None


def _write_choice(plain: PlainHead) -> Any:
    """The choice of a tool in this API's words; None if there is none to choose.

    "tool:read" becomes `{"type": "function", "name": "read"}`.
    """
    if not plain.choice or not plain.tools:
        return None
    if plain.choice.startswith("tool:"):
        return {"type": "function", "name": make_safe_name(plain.choice.removeprefix("tool:"))}
    return _OWN_CHOICES[plain.choice]


def _read_answer_schema(text_format: Any) -> dict[str, Any] | None:
    """The JSON Schema that the answer must have; None if there is none."""
    match text_format:
        case {"type": "json_schema", "schema": dict(schema)}:
            return schema
    return None
