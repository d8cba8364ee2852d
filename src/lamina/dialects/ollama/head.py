"""Everything of a request to Ollama that is not a message, in plain words and back.

A request from another API refuses truncation, and says whether it is streamed: by default the server would
drop its first messages, and stream. Options of the sampler and the runner are named, not guessed at.
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
    number_or_none,
    read_texts,
    text_or_empty,
)
from lamina.dialects.ollama.fields import fields_or_empty, name_or_unnamed
from lamina.dialects.port import OwnHead, PlainHead, Tool

_READ_FIELDS = frozenset(("model", "format", "options", "think", "stream"))
"""Fields that `plain_head` reads."""

_SILENT_FIELDS = frozenset(("keep_alive", "truncate", "shift", "logprobs", "top_logprobs"))
"""Fields that say how a request is run, and nothing to the model: no loss elsewhere."""

_READ_OPTIONS = frozenset(("num_predict", "temperature", "top_p", "stop"))
_RUNNER_OPTIONS = frozenset(
    """num_ctx num_batch num_gpu num_thread num_keep numa main_gpu low_vram f16_kv use_mmap use_mlock
    seed""".split()
)
"""Options of the machine that runs the model: no loss elsewhere."""

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
    """What tools and parameters mean; `left` names those that only this API has.

    A negative limit of the answer means that there is none.
    """
    parameters = drop_nulls(head.parameters)
    options = drop_nulls(fields_or_empty(parameters.get("options")))
    left = list_untranslated(parameters, _READ_FIELDS, _SILENT_FIELDS)
    left += [f"options.{name}" for name in list_untranslated(options, _READ_OPTIONS, _RUNNER_OPTIONS)]
    tools, unread_places = read_tools(head.tools, _read_tool)
    left += unread_places
    answer_schema = parameters.get("format")
    if not isinstance(answer_schema, dict):
        if answer_schema:
            left.append("format")
        answer_schema = None
    output_limit = number_or_none(options.get("num_predict"))
    if output_limit is not None and output_limit < 0:
        output_limit = None
    return PlainHead(
        model=str(parameters.get("model", "")),
        tools=tools,
        output=output_limit,
        temperature=number_or_none(options.get("temperature")),
        top_p=number_or_none(options.get("top_p")),
        stop=read_texts(options.get("stop")),
        answer=answer_schema,
        effort=_read_effort(parameters.get("think")),
        stream=read_stream_switch(parameters),
        left=tuple(left),
    )


def own_head(plain: PlainHead) -> OwnHead:
    """The same in the fields of this API. If no tool may be called, no tool is defined.

    A request that names a tool to call cannot say so here, and `left` has the choice.
    """
    options = {
        "num_predict": plain.output,
        "temperature": plain.temperature,
        "top_p": plain.top_p,
        "stop": list(plain.stop) or None,
    }
    think = _THINKING_LEVELS.get(plain.effort)
    parameters = {
        "model": plain.model or None,
        "options": drop_nulls(options) or None,
        "format": plain.answer,
        "think": think,
        "stream": plain.stream is True,
        "truncate": False,
    }
    tools: tuple[dict[str, Any], ...] = ()
    if plain.choice != "none":
        tools = tuple(map(_write_tool, plain.tools))
    left: list[str] = []
    if plain.tools and plain.choice not in ("", "auto", "none"):
        left.append("choice")
    if plain.effort and think is None:
        left.append("effort")
    return OwnHead(head=Head(tools=tools, parameters=drop_nulls(parameters)), left=tuple(left))


def _read_effort(think: Any) -> str:
    """The effort of thinking. A switch that is off is "none"; one that is on is "medium".

    `"think": "high"` is "high", and `"think": true` is "medium".
    """
    if think is True:
        return "medium"
    if think is False:
        return "none"
    return text_or_empty(think)


def _read_tool(definition: Mapping[str, Any]) -> Tool | None:
    """A function that the model may call; None for a definition without a name."""
    return read_function(fields_or_empty(definition.get("function")))


def _write_tool(tool: Tool) -> dict[str, Any]:
    """A definition: `{"type": "function", "function": {"name": "read", …}}`."""
    return write_function(tool, name_or_unnamed(tool.name))
