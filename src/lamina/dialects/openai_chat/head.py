"""Everything of a Chat Completions request that is not a message, in plain words and back.

Fields that only this API has are named, not guessed at: whoever sends the request elsewhere learns what
is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.core.values import Head
from lamina.dialects.heads import (
    list_untranslated,
    read_function,
    read_stream_switch,
    read_tools,
    write_function,
)
from lamina.dialects.json_values import (
    drop_nulls,
    mapping_or_empty,
    number_or_none,
    read_texts,
)
from lamina.dialects.openai_chat.calls import make_safe_name
from lamina.dialects.port import OwnHead, PlainHead, Tool

_READ_FIELDS = frozenset(
    """model max_tokens max_completion_tokens temperature top_p stop tool_choice stream response_format
    reasoning_effort""".split()
)
"""Fields that `plain_head` reads."""

_SILENT_FIELDS = frozenset(
    """metadata user safety_identifier store stream_options prompt_cache_key prompt_cache_options n seed
    prompt_cache_retention parallel_tool_calls service_tier""".split()
)
"""Fields that say how a request is sent, stored or paid for, and nothing to the model: no loss elsewhere."""

_PLAIN_CHOICES = {"auto": "auto", "none": "none", "required": "any"}
_OWN_CHOICES = {plain_choice: own_choice for own_choice, plain_choice in _PLAIN_CHOICES.items()}


def plain_head(head: Head) -> PlainHead:
    """What tools and parameters mean; `left` names those that only this API has.

    `{"max_tokens": 5, "logit_bias": {…}}` is the output 5, and `logit_bias` is left.
    """
    parameters = drop_nulls(head.parameters)
    left = list_untranslated(parameters, _READ_FIELDS, _SILENT_FIELDS)
    tools, unread_places = read_tools(head.tools, _read_tool)
    left += unread_places
    choice = _read_choice(parameters.get("tool_choice"))
    if choice is None:
        left.append("tool_choice")
    answer_schema = _read_answer_schema(parameters.get("response_format"))
    if answer_schema is None and "response_format" in parameters:
        left.append("response_format")
    output_limit = parameters.get("max_completion_tokens", parameters.get("max_tokens"))
    return PlainHead(
        model=str(parameters.get("model", "")),
        tools=tools,
        output=number_or_none(output_limit),
        temperature=number_or_none(parameters.get("temperature")),
        top_p=number_or_none(parameters.get("top_p")),
        stop=read_texts(parameters.get("stop")),
        choice=choice or "",
        answer=answer_schema,
        effort=str(parameters.get("reasoning_effort", "")),
        stream=read_stream_switch(parameters),
        left=tuple(left),
    )


def takes_tool(head: Head) -> bool:
    """Whether lamina may add a function. Of several choices, one may call it while another has answered."""
    return (number_or_none(head.parameters.get("n")) or 1) <= 1


def own_head(plain: PlainHead) -> OwnHead:
    """The same in the fields of this API, which has one for everything.

    An answer schema becomes `{"type": "json_schema", "json_schema": {"name": "answer", "schema": {…}}}`.
    """
    answer_format = None
    if plain.answer is not None:
        answer_format = {"type": "json_schema", "json_schema": {"name": "answer", "schema": plain.answer}}
    fields: dict[str, Any] = {
        "model": plain.model or None,
        "max_completion_tokens": plain.output,
        "temperature": plain.temperature,
        "top_p": plain.top_p,
        "stop": list(plain.stop) or None,
        "tool_choice": _write_choice(plain),
        "response_format": answer_format,
        "reasoning_effort": plain.effort or None,
        "stream": plain.stream,
    }
    tools = tuple(map(_write_tool, plain.tools))
    return OwnHead(head=Head(tools=tools, parameters=drop_nulls(fields)))


def _read_tool(definition: Mapping[str, Any]) -> Tool | None:
    """A function that the model may call; None for a tool that is not a function."""
    if "custom" in definition:
        return None
    function = definition.get("function", definition)  # from before tools: the function itself
    return read_function(mapping_or_empty(function))


def _write_tool(tool: Tool) -> dict[str, Any]:
    """A definition: `{"type": "function", "function": {"name": "read", …}}`."""
    return write_function(tool, make_safe_name(tool.name))


def _read_choice(tool_choice: Any) -> str | None:
    """The plain choice; "" if there is none, and None for a choice that only this API has.

    `"required"` is a plain choice. `{"type": "allowed_tools", …}` is one that only this API has.
    """
    match tool_choice:
        case None:
            return ""
        case str():
            return _PLAIN_CHOICES.get(tool_choice)
        case {"function": {"name": str(name)}}:
            return f"tool:{name}"
    return None


def _write_choice(plain: PlainHead) -> Any:
    """The choice of a tool; None if there is none to choose.

    "tool:read" becomes `{"type": "function", "function": {"name": "read"}}`.
    """
    if not plain.choice or not plain.tools:
        return None
    if plain.choice.startswith("tool:"):
        name = make_safe_name(plain.choice.removeprefix("tool:"))
        return {"type": "function", "function": {"name": name}}
    return _OWN_CHOICES[plain.choice]


def _read_answer_schema(response_format: Any) -> dict[str, Any] | None:
    """The JSON Schema that the answer must have; None if there is none."""
    match response_format:
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return schema
    return None
