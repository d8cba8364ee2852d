"""Translates everything of a request to Ollama that is not a message: to a plain head, and back.

A request from another API refuses truncation, and says whether it is streamed: by default the server would
drop its first messages, and stream. Options of the sampler and the runner are named, not guessed at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from lamina.dialects.head_table import HeadField, HeadTable, read_function, write_function
from lamina.dialects.json_values import number_or_none, read_texts, text_or_empty
from lamina.dialects.ollama.fields import fields_or_empty, name_or_unnamed
from lamina.dialects.port import OwnHead, PlainHead, Tool

_THINKING_LEVELS: dict[str, str | bool] = {
    "none": False,
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}


def write_head(plain: PlainHead) -> OwnHead:
    """Say a plain head in the fields of this API, which has none for the choice of a tool.

    If no tool may be called, no tool is defined. A choice of one tool is named in `left`.
    """
    if plain.choice == "none":
        plain = msgspec.structs.replace(plain, tools=())
    if plain.choice == "auto":
        plain = msgspec.structs.replace(plain, choice="")
    return HEAD.write(plain)


def _read_limit(num_predict: Any) -> int | None:
    """The limit of the answer. A negative one means that there is none."""
    limit = number_or_none(num_predict)
    if limit is None or limit < 0:
        return None
    return int(limit)


def _read_effort(think: Any) -> str:
    """The effort of thinking: `"think": "high"` is "high", `true` is "medium", and `false` is "none"."""
    if think is True:
        return "medium"
    if think is False:
        return "none"
    return text_or_empty(think)


def _read_format(answer_format: Any) -> dict[str, Any] | None:
    """The JSON Schema of the answer. `"json"` asks for any JSON, which has no plain meaning."""
    if isinstance(answer_format, dict):
        return answer_format
    return None


def _read_tool(definition: Mapping[str, Any]) -> Tool | None:
    return read_function(fields_or_empty(definition.get("function")))


def _write_tool(tool: Tool) -> dict[str, Any]:
    return write_function(tool, name_or_unnamed(tool.name))


HEAD = HeadTable(
    fields=(
        HeadField("model", "model", str),
        HeadField("output", "options.num_predict", _read_limit, means_nothing=-1),
        HeadField("temperature", "options.temperature", number_or_none),
        HeadField("top_p", "options.top_p", number_or_none),
        HeadField("stop", "options.stop", read_texts, list),
        HeadField("answer", "format", _read_format, means_nothing=""),
        HeadField("effort", "think", _read_effort, _THINKING_LEVELS.get),
        HeadField("stream", "stream", bool),
    ),
    silent=frozenset(
        """keep_alive truncate shift logprobs top_logprobs options.num_ctx options.num_batch options.num_gpu
        options.num_thread options.num_keep options.numa options.main_gpu options.low_vram options.f16_kv
        options.use_mmap options.use_mlock options.seed""".split()
    ),
    read_tool=_read_tool,
    write_tool=_write_tool,
    # The API streams unless it is told not to; all others do not.
    defaults={"stream": False},
    # Else the server drops messages from the front until the prompt fits, and tells nobody (2026-08-21).
    constants={"truncate": False},
)
