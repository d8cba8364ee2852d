"""Everything of a request to Ollama that is not a message, in plain words and back.

A request from another API refuses truncation, and says whether it is streamed: the server's own defaults
would drop its first messages, and stream. Options of the sampler and the runner are named, not guessed at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.core.values import Head
from lamina.dialects.ollama.fields import named, plain
from lamina.dialects.port import OwnHead, PlainHead, Tool, number, texts
from lamina.errors import BadInput

_SILENT = frozenset(("keep_alive", "truncate", "shift", "logprobs", "top_logprobs"))
"""What says how a request is run, and nothing to the model: not missed elsewhere."""

_READ = frozenset(("model", "format", "options", "think", "stream"))
_OPTIONS = frozenset(("num_predict", "temperature", "top_p", "stop"))
_RUNNER = frozenset(
    """num_ctx num_batch num_gpu num_thread num_keep numa main_gpu low_vram f16_kv use_mmap use_mlock
    seed""".split()
)
_LEVELS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}


def plain_head(head: Head) -> PlainHead:
    """What tools and parameters mean; `left` names those that only this API has."""
    given = {name: value for name, value in head.parameters.items() if value is not None}
    options = {name: value for name, value in _object(given.get("options")).items() if value is not None}
    tools = [_tool(tool) for tool in head.tools]
    output, answer = number(options.get("num_predict")), given.get("format")
    unlimited = output is not None and output < 0
    return PlainHead(
        model=str(given.get("model", "")),
        tools=tuple(tool for tool in tools if tool is not None),
        output=None if unlimited else output,
        temperature=number(options.get("temperature")),
        top_p=number(options.get("top_p")),
        stop=texts(options.get("stop")),
        answer=answer if isinstance(answer, dict) else None,
        effort=_effort(given.get("think")),
        stream=bool(given["stream"]) if "stream" in given else None,
        left=tuple(name for name in given if name not in _READ and name not in _SILENT)
        + tuple(f"options.{name}" for name in options if name not in _OPTIONS and name not in _RUNNER)
        + tuple(f"tools[{i}]" for i, tool in enumerate(tools) if tool is None)
        + (("format",) if answer and not isinstance(answer, dict) else ()),
    )


def own_head(plain_: PlainHead) -> OwnHead:
    """The same in the words of this API. No tool may be called where no tool is defined."""
    options = {
        "num_predict": plain_.output,
        "temperature": plain_.temperature,
        "top_p": plain_.top_p,
        "stop": list(plain_.stop) or None,
    }
    options = {name: value for name, value in options.items() if value is not None}
    think = False if plain_.effort == "none" else _LEVELS.get(plain_.effort)
    parameters: dict[str, Any] = {"model": plain_.model} if plain_.model else {}
    parameters |= {"options": options} if options else {}
    parameters |= {"format": plain_.answer} if plain_.answer is not None else {}
    parameters |= {"think": think} if think is not None else {}
    parameters |= {"stream": plain_.stream is True, "truncate": False}
    tools = () if plain_.choice == "none" else tuple(map(_own_tool, plain_.tools))
    left = ["choice"] if plain_.choice not in ("", "auto", "none") and plain_.tools else []
    left += ["effort"] if plain_.effort and think is None else []
    return OwnHead(head=Head(tools=tools, parameters=parameters), left=tuple(left))


def _effort(think: Any) -> str:
    """A switch as an effort: off is none, on is what lies in the middle."""
    if isinstance(think, bool):
        return "medium" if think else "none"
    return think if isinstance(think, str) else ""


def _tool(tool: Mapping[str, Any]) -> Tool | None:
    function = _object(tool.get("function"))
    name, schema = function.get("name"), function.get("parameters")
    if not isinstance(name, str) or not name:
        return None
    return Tool(
        name=name,
        description=str(function.get("description") or ""),
        schema=schema if isinstance(schema, dict) else {},
    )


def _own_tool(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": named(tool.name)}
    function |= {"description": tool.description} if tool.description else {}
    return {"type": "function", "function": function | ({"parameters": tool.schema} if tool.schema else {})}


def _object(value: Any) -> Mapping[str, Any]:
    try:
        return plain(value)
    except BadInput:
        return {}
