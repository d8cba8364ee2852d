"""Everything of a request to Ollama that is not a message, in plain words and back.

A request from another API refuses truncation, and says whether it is streamed: by default the server would
drop its first messages, and stream. Options of the sampler and the runner are named, not guessed at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.core.values import Head
from lamina.dialects.json_values import number_or_none, read_texts
from lamina.dialects.ollama.fields import name_or_unnamed, to_dict_or_empty
from lamina.dialects.port import OwnHead, PlainHead, Tool

_READ_FIELDS = frozenset(("model", "format", "options", "think", "stream"))
"""Fields that `plain_head` reads."""

_SILENT_FIELDS = frozenset(("keep_alive", "truncate", "shift", "logprobs", "top_logprobs"))
"""Fields that say how a request is run, and nothing to the model: no loss elsewhere."""

_FIELDS_WITHOUT_LOSS = _READ_FIELDS | _SILENT_FIELDS

_READ_OPTIONS = frozenset(("num_predict", "temperature", "top_p", "stop"))
_RUNNER_OPTIONS = frozenset(
    """num_ctx num_batch num_gpu num_thread num_keep numa main_gpu low_vram f16_kv use_mmap use_mlock
    seed""".split()
)
"""Options of the machine that runs the model: no loss elsewhere."""

_OPTIONS_WITHOUT_LOSS = _READ_OPTIONS | _RUNNER_OPTIONS

_THINKING_LEVELS: dict[str, str | bool] = {
    "none": False,
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}


def plain_head(head: Head) -> PlainHead:
    """What tools and parameters mean; `left` names those that only this API has."""
    parameters = _without_nulls(head.parameters)
    options = _without_nulls(to_dict_or_empty(parameters.get("options")))
    left = [name for name in parameters if name not in _FIELDS_WITHOUT_LOSS]
    left += [f"options.{name}" for name in options if name not in _OPTIONS_WITHOUT_LOSS]
    tools = []
    for i, definition in enumerate(head.tools):
        tool = _read_tool(definition)
        if tool is None:
            left.append(f"tools[{i}]")
        else:
            tools.append(tool)
    answer_schema = parameters.get("format")
    if not isinstance(answer_schema, dict):
        if answer_schema:
            left.append("format")
        answer_schema = None
    return PlainHead(
        model=str(parameters.get("model", "")),
        tools=tuple(tools),
        output=_read_output_limit(options),
        temperature=number_or_none(options.get("temperature")),
        top_p=number_or_none(options.get("top_p")),
        stop=read_texts(options.get("stop")),
        answer=answer_schema,
        effort=_read_effort(parameters.get("think")),
        stream=bool(parameters["stream"]) if "stream" in parameters else None,
        left=tuple(left),
    )


def own_head(plain: PlainHead) -> OwnHead:
    """The same in the fields of this API. If no tool may be called, no tool is defined."""
    parameters: dict[str, Any] = {}
    if plain.model:
        parameters["model"] = plain.model
    options = _write_options(plain)
    if options:
        parameters["options"] = options
    if plain.answer is not None:
        parameters["format"] = plain.answer
    think = _THINKING_LEVELS.get(plain.effort)
    if think is not None:
        parameters["think"] = think
    parameters["stream"] = plain.stream is True
    parameters["truncate"] = False
    tools: tuple[dict[str, Any], ...] = ()
    if plain.choice != "none":
        tools = tuple(map(_write_tool, plain.tools))
    left = []
    if plain.tools and plain.choice not in ("", "auto", "none"):
        left.append("choice")
    if plain.effort and think is None:
        left.append("effort")
    return OwnHead(head=Head(tools=tools, parameters=parameters), left=tuple(left))


def _read_output_limit(options: Mapping[str, Any]) -> Any:
    """The limit of the answer; None if there is none. A negative number means no limit."""
    limit = number_or_none(options.get("num_predict"))
    if limit is not None and limit < 0:
        return None
    return limit


def _write_options(plain: PlainHead) -> dict[str, Any]:
    options = {
        "num_predict": plain.output,
        "temperature": plain.temperature,
        "top_p": plain.top_p,
        "stop": list(plain.stop) or None,
    }
    return _without_nulls(options)


def _read_effort(think: Any) -> str:
    """The effort of thinking. A switch that is off is "none"; one that is on is "medium"."""
    if think is True:
        return "medium"
    if think is False:
        return "none"
    if isinstance(think, str):
        return think
    return ""


def _read_tool(definition: Mapping[str, Any]) -> Tool | None:
    """A function that the model may call; None for a definition without a name."""
    function = to_dict_or_empty(definition.get("function"))
    name = function.get("name")
    if not isinstance(name, str) or not name:
        return None
    schema = function.get("parameters")
    return Tool(
        name=name,
        description=str(function.get("description") or ""),
        schema=schema if isinstance(schema, dict) else {},
    )


def _write_tool(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": name_or_unnamed(tool.name)}
    if tool.description:
        function["description"] = tool.description
    if tool.schema:
        function["parameters"] = tool.schema
    return {"type": "function", "function": function}


def _without_nulls(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
