"""Everything of a request that is not a content: where it stands, what it means, and back.

A REST body has its fields beside `contents`; arguments of the SDK have them in `config`. System text and
tools are taken out, and None keeps their place, so that rendering gives back the shape that came. What was
parsed by another dialect is written in the SDK's shape: `{"model", "contents", "config"}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lamina.core.text.characters import is_blank, lower_ascii, upper_ascii
from lamina.core.values import Head
from lamina.dialects.gemini.contents import holds_parts
from lamina.dialects.gemini.parts import Spelling
from lamina.dialects.gemini.schema import json_schema
from lamina.dialects.gemini.wire import (
    LISTS,
    Json,
    camel,
    field,
    model_of,
    objects,
    plain,
    safe_name,
    shown,
    snake,
    spelled,
    text_at,
    version,
)
from lamina.dialects.port import OwnHead, PlainHead, Request, Tool, number, texts
from lamina.errors import BadInput

SYSTEM = ("systemInstruction", "system_instruction")

_BODY = frozenset(
    """systemInstruction system_instruction tools toolConfig tool_config generationConfig generation_config
    safetySettings safety_settings cachedContent cached_content serviceTier service_tier labels
    store""".split()
)
"""Fields that stand beside the contents in a REST body, and nowhere in arguments of the SDK."""

_SILENT = frozenset(
    """httpOptions shouldReturnHttpResponse labels serviceTier candidateCount seed responseLogprobs logprobs
    automaticFunctionCalling safetySettings store cachedContent modelSelectionConfig routingConfig
    modelArmorConfig""".split()
)
"""What says how a request is sent, kept, paid for or filtered, and nothing to the model: not missed."""

_READ = frozenset(
    """systemInstruction tools toolConfig maxOutputTokens temperature topP stopSequences responseMimeType
    responseSchema responseJsonSchema thinkingConfig generationConfig model config""".split()
)
_CHOICES = {"AUTO": "auto", "NONE": "none", "ANY": "any", "VALIDATED": "auto"}
_LEVELS = {"none": "MINIMAL", "minimal": "MINIMAL", "low": "LOW", "medium": "MEDIUM", "high": "HIGH"}
_LEVELS |= {"xhigh": "HIGH", "max": "HIGH"}
_LEVELS_SINCE = 3
"""Models before it take a budget of tokens, not a level."""


def head_of(request: Request) -> tuple[Head, Any, str]:
    """The head of a request, and its system text as it came, with its place."""
    fields = {name: value for name, value in request.items() if name != "contents"}
    inside = fields.get("config") is not None
    holder = _config(fields["config"]) if inside else fields
    where = "config." if inside else ""
    named, tools_at = spelled(holder, SYSTEM[0]), f"{where}tools"
    system = holder[named] if named and not _blank(holder[named]) else None
    tools = _tools(holder.get("tools"), tools_at)
    taken = ({named} if system is not None else set()) | ({"tools"} if tools else set())
    kept = {name: None if name in taken else value for name, value in holder.items()}
    head = Head(tools=tools, parameters=fields | {"config": kept} if inside else kept)
    return head, system, f"{where}{named}"


def request_of(head: Head, contents: Any, system: Any) -> Json:
    """The request: its fields in the shape, order and spelling in which they came."""
    inside = in_config(head.parameters)
    fields = dict(head.parameters)
    given = _config(fields.get("config") or {}) if inside else fields
    named = next((name for name in SYSTEM if name in given), spelling(head.parameters)(SYSTEM[0]))
    put = {named: system, "tools": list(head.tools) or None}
    put = {name: value for name, value in put.items() if value is not None}
    whole = {name: put.get(name, value) for name, value in given.items()} | put
    for name in (*SYSTEM, "tools"):
        if whole.get(name, "") is None:
            del whole[name]
    if not inside:
        return _with(whole, contents)
    config = {"config": whole} if whole or "config" in fields else {}
    return _with(fields, contents) | config


def in_config(parameters: Mapping[str, Any]) -> bool:
    """Whether fields stand in `config`, as the SDK has them; so where nothing says."""
    return "config" in parameters or _BODY.isdisjoint(parameters)


def spelling(parameters: Mapping[str, Any]) -> Spelling:
    """How names of fields are to be written."""
    return snake if in_config(parameters) else camel


def settings(request: Mapping[str, Any]) -> Json:
    """All fields of a request, or of a head's parameters, under their names in a REST body, in one object."""
    config = request.get("config")
    holder = _config(config) if config is not None else dict(request)
    inner = plain(field(holder, "generationConfig")) or {}
    found = {_camel(name): value for name, value in (inner | holder).items() if value is not None}
    return {
        name: value for name, value in found.items() if name not in ("generationConfig", "contents", "model")
    }


def system_field(request: Mapping[str, Any]) -> str:
    """How a request spells the field of its system text."""
    config = request.get("config")
    return spelled(_config(config) if config is not None else request, SYSTEM[0])


def declarations(tools: Sequence[Any]) -> Iterator[tuple[str, str, Json]]:
    """Each function, or tool of another kind, of a list of tools: its place in the list, its sort, itself."""
    for i, tool in enumerate(tools):
        given = plain(tool) or {}
        named = spelled(given, "functionDeclarations")
        for j, function in enumerate(objects(given.get(named))):
            yield f"[{i}].{named}[{j}]", "function", function
        for name, value in given.items():
            if name != named and value is not None:
                yield f"[{i}].{name}", name, {name: value}


def plain_head(head: Head) -> PlainHead:
    """What tools and parameters mean; `left` names those that only this API has."""
    given = settings(head.parameters)
    found = list(declarations(head.tools))
    choice, answer = _choice(given.get("toolConfig")), _answer(given)
    thinking = plain(given.get("thinkingConfig")) or {}
    left = [snake(name) for name in given if name not in _READ and name not in _SILENT]
    left += [f"tools{place}" for place, sort, _ in found if sort != "function"]
    left += ["tool_config"] if choice is None else []
    left += ["thinking_config"] if field(thinking, "thinkingBudget") is not None else []
    left += ["response_mime_type"] if answer is None and _wants_json(given) else []
    return PlainHead(
        model=model_of(head.parameters),
        tools=tuple(_tool(f) for _, sort, f in found if sort == "function"),
        output=number(given.get("maxOutputTokens")),
        temperature=number(given.get("temperature")),
        top_p=number(given.get("topP")),
        stop=texts(given.get("stopSequences")),
        choice=choice or "",
        answer=answer,
        effort=lower_ascii(_word(field(thinking, "thinkingLevel"))),
        left=tuple(left),
    )


def own_head(plain_: PlainHead) -> OwnHead:
    """The same in the words of the SDK."""
    functions = {safe_name(tool.name): _own_tool(tool) for tool in reversed(plain_.tools)}
    tools = tuple(functions[name] for name in reversed(functions))
    level = _LEVELS.get(plain_.effort)
    budgeted = 0 < version(plain_.model) < _LEVELS_SINCE
    said: Json = {
        "max_output_tokens": plain_.output,
        "temperature": plain_.temperature,
        "top_p": plain_.top_p,
        "stop_sequences": list(plain_.stop) or None,
        "tool_config": _own_choice(plain_),
        "response_mime_type": "application/json" if plain_.answer is not None else None,
        "response_json_schema": plain_.answer,
        "thinking_config": {"thinking_level": level} if level and not budgeted else None,
    }
    left = ["effort"] if plain_.effort and (level is None or budgeted) else []
    left += ["stream"] if plain_.stream else []
    left += ["tools"] if len(tools) < len(plain_.tools) else []
    config = {name: value for name, value in said.items() if value is not None}
    parameters: Json = ({"model": plain_.model} if plain_.model else {}) | {"config": config}
    own = ({"function_declarations": list(tools)},) if tools else ()
    return OwnHead(head=Head(tools=own, parameters=parameters), left=tuple(left))


def _config(config: Any) -> Json:
    """A config as a dict, one level deep: what the SDK's user put in it stays what it is."""
    if isinstance(config, Mapping):
        return dict(config)
    if callable(getattr(config, "model_dump", None)) and not isinstance(config, type):
        return {name: value for name, value in config if value is not None}
    raise BadInput(f"config is {shown(config)}", place="config", hint="give an object")


def _with(fields: Json, contents: Any) -> Json:
    """Fields with the contents behind the model, where a reader looks for them."""
    model = {"model": fields["model"]} if "model" in fields else {}
    return {**model, "contents": contents, **fields}


def _blank(system: Any) -> bool:
    """Whether system text says nothing; then it stays where it is."""
    if isinstance(system, str):
        return is_blank(system)
    if isinstance(system, LISTS):
        return not system
    return holds_parts(system) and not (plain(system) or {}).get("parts")


def _tools(tools: Any, place: str) -> tuple[Json, ...]:
    if not tools:
        return ()
    if not isinstance(tools, LISTS):
        raise BadInput(f"tools is {shown(tools)}", place=place, hint="give a list")
    found = []
    for i, tool in enumerate(tools):
        definition = plain(tool)
        if definition is None:
            hint = "give an object, for a function its declaration"
            raise BadInput(f"a tool is {shown(tool)}", place=f"{place}[{i}]", hint=hint)
        found.append(definition)
    return tuple(found)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(upper_ascii(word[:1]) + word[1:] for word in rest)


def _tool(function: Json) -> Tool:
    schema = field(function, "parametersJsonSchema")
    if not isinstance(schema, dict):
        schema = json_schema(function.get("parameters"))
    return Tool(name=text_at(function, "name"), description=text_at(function, "description"), schema=schema)


def _own_tool(tool: Tool) -> Json:
    described = {"description": tool.description} if tool.description else {}
    schema = {"parameters_json_schema": tool.schema} if tool.schema else {}
    return {"name": safe_name(tool.name), **described, **schema}


def _choice(config: Any) -> str | None:
    """The plain choice, "" without one, None for one that only this API has."""
    calling = plain(field(plain(config) or {}, "functionCallingConfig")) or {}
    mode, allowed = upper_ascii(_word(calling.get("mode"))), field(calling, "allowedFunctionNames")
    if not mode or mode == "MODE_UNSPECIFIED":
        return ""
    if allowed:
        return (
            f"tool:{allowed[0]}"
            if mode == "ANY" and isinstance(allowed, LISTS) and len(allowed) == 1
            else None
        )
    return _CHOICES.get(mode)


def _own_choice(plain_: PlainHead) -> Json | None:
    if not plain_.choice or not plain_.tools:
        return None
    named = plain_.choice.removeprefix("tool:")
    if named == plain_.choice:
        return {"function_calling_config": {"mode": upper_ascii(plain_.choice)}}
    return {"function_calling_config": {"mode": "ANY", "allowed_function_names": [safe_name(named)]}}


def _wants_json(given: Json) -> bool:
    return given.get("responseMimeType") == "application/json"


def _answer(given: Json) -> Json | None:
    schema = given.get("responseJsonSchema")
    if isinstance(schema, dict):
        return schema
    return json_schema(given["responseSchema"]) if isinstance(given.get("responseSchema"), dict) else None


def _word(value: Any) -> str:
    """A word of a closed set, whether it came as text or as the SDK's enumeration."""
    return str(getattr(value, "value", value) or "")
