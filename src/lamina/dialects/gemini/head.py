"""Finds the fields of a request, in a REST body or in the SDK's `config`, and writes them back there.

A REST body has its fields beside `contents`; arguments of the SDK have them in `config`. System text and
tools are taken out, and None keeps their place, so that rendering gives back the shape that came. What was
parsed by another dialect is written in the SDK's shape: `{"model", "contents", "config"}`. What the fields
mean is read in `plain`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lamina.core.text.characters import is_blank, upper_ascii
from lamina.core.values import RequestHead
from lamina.dialects.gemini.contents import holds_parts
from lamina.dialects.gemini.parts import Spelling
from lamina.dialects.gemini.wire import (
    find_spelling,
    get_object,
    to_camel_case,
    to_dict,
    to_dict_or_empty,
    to_dicts,
    to_snake_case,
)
from lamina.dialects.json_values import (
    LIST_TYPES,
    Json,
    drop_field,
    drop_fields,
    drop_nulls,
    name_value,
    read_each,
)
from lamina.dialects.port import Request
from lamina.errors import BadInput

_SYSTEM_FIELD = "systemInstruction"
_SYSTEM_SPELLINGS = ("systemInstruction", "system_instruction")

_FIELDS_OF_REST_BODY = frozenset(
    """systemInstruction system_instruction tools toolConfig tool_config generationConfig generation_config
    safetySettings safety_settings cachedContent cached_content serviceTier service_tier labels
    store""".split()
)
"""Fields that stand beside the contents in a REST body, and nowhere in arguments of the SDK."""

_FIELDS_NOT_SETTINGS = ("generationConfig", "contents", "model")


class ParsedGeminiHead(NamedTuple):
    """The head of a request, its system text as it came (None without any), and the place of that."""

    head: RequestHead
    system: Any
    system_place: str


def read_head(request: Request) -> ParsedGeminiHead:
    """The fields of a request besides its contents; None keeps the places of system text and tools.

    System text that says nothing stays where it is.
    """
    fields = drop_field(dict(request), "contents")
    prefix = find_prefix(request)
    holder = _get_holder(fields)
    system = None
    system_field = find_spelling(holder, _SYSTEM_FIELD)
    if system_field and not _is_blank_system(holder[system_field]):
        system = holder[system_field]
        holder[system_field] = None
    tools = _read_tools(holder.get("tools"), f"{prefix}tools")
    if tools:
        holder["tools"] = None
    parameters = holder
    if prefix:
        parameters = {**fields, "config": holder}
    head = RequestHead(tools=tools, parameters=parameters)
    return ParsedGeminiHead(head, system, f"{prefix}{system_field}")


def find_prefix(request: Mapping[str, Any]) -> str:
    """What stands before the name of a setting in a place: "config." where the SDK puts settings there."""
    if request.get("config") is None:
        return ""
    return "config."


def write_request(head: RequestHead, contents: Any, system: Any) -> Json:
    """The request: its fields in the shape, order and spelling in which they came.

    The contents come after the model, where a reader looks for them.
    """
    parameters = dict(head.parameters)
    if uses_config(parameters):
        config = _read_config(parameters.get("config") or {})
        _put_system_and_tools(config, head, system)
        if config or "config" in parameters:
            parameters["config"] = config
    else:
        _put_system_and_tools(parameters, head, system)
    beginning: Json = {}
    if "model" in parameters:
        beginning["model"] = parameters["model"]
    return {**beginning, "contents": contents, **parameters}


def _put_system_and_tools(fields: Json, head: RequestHead, system: Any) -> None:
    """Put system text and tools into their places. A place that stays empty is removed.

    The field of the system text is spelled as the request had it, else like its other fields.

    Parsing left None in their places, so that they stand where they stood.
    """
    if system is not None:
        spell = choose_spelling(head.parameters)
        present = filter(fields.__contains__, _SYSTEM_SPELLINGS)
        fields[next(present, spell(_SYSTEM_FIELD))] = system
    if head.tools:
        fields["tools"] = list(head.tools)
    for name in (*_SYSTEM_SPELLINGS, "tools"):
        if fields.get(name) is None:
            fields.pop(name, None)


def uses_config(parameters: Mapping[str, Any]) -> bool:
    """Whether fields stand in `config`, as the SDK has them; also if nothing says where they stand.

    A REST body has the fields of a config beside its contents.
    """
    return "config" in parameters or _FIELDS_OF_REST_BODY.isdisjoint(parameters)


def choose_spelling(parameters: Mapping[str, Any]) -> Spelling:
    """How names of fields are to be written: `function_call` as the SDK has it, or `functionCall` of REST.

    A request with a `config` is the SDK's.
    """
    if uses_config(parameters):
        return to_snake_case
    return to_camel_case


def read_settings(request: Mapping[str, Any]) -> Json:
    """All fields of a request, or of a head's parameters, under their names in a REST body, in one object.

    `{"config": {"max_output_tokens": 5}}` and `{"generationConfig": {"maxOutputTokens": 5}}` give the same.
    """
    fields = _get_holder(request)
    fields = get_object(fields, "generationConfig") | fields
    settings = {find_rest_name(spelling): value for spelling, value in drop_nulls(fields).items()}
    return drop_fields(settings, _FIELDS_NOT_SETTINGS)


def find_system_field(request: Mapping[str, Any]) -> str:
    """How a request spells the field of its system text."""
    return find_spelling(_get_holder(request), _SYSTEM_FIELD)


def split_system_parts(system: Any, place: str = "") -> list[tuple[str, Any]]:
    """The parts of a system text, each with its place. It may be a text, a part, a list or a content.

    `"Be brief."` is one part, at the place of the system text itself.
    """
    parts = get_system_parts(system)
    if not isinstance(parts, LIST_TYPES):
        return [(place, parts)]
    if parts is not system:
        place = f"{place}.parts"
    return [(f"{place}[{i}]", part) for i, part in enumerate(parts)]


def get_system_parts(system: Any) -> Any:
    """The parts of a system text that is a content. Any other system text is its own part, or a list of them.

    `{"parts": [A]}` holds `[A]`. `"Be brief."` is its own part.
    """
    if holds_parts(system):
        return to_dict_or_empty(system).get("parts")
    return system


def read_declarations(tools: Sequence[Any]) -> Iterator[tuple[str, str, Json]]:
    """Each declaration in a list of tools: its place in the list, its sort, and the object itself.

    The sort is "function", or the field that holds a tool of another kind, such as "googleSearch".
    """
    for i, value in enumerate(tools):
        tool = to_dict_or_empty(value)
        functions_field = find_spelling(tool, "functionDeclarations")
        for j, function in enumerate(to_dicts(tool.get(functions_field))):
            yield f"[{i}].{functions_field}[{j}]", "function", function
        for name, content in tool.items():
            if name != functions_field and content is not None:
                yield f"[{i}].{name}", name, {name: content}


def _get_holder(request: Mapping[str, Any]) -> Json:
    """The object that has the fields: the config if there is one, else the request."""
    config = request.get("config")
    if config is None:
        return dict(request)
    return _read_config(config)


def _read_config(config: Any) -> Json:
    """A config as a dict, one level deep: the values in it stay the objects that they are.

    The config of the SDK is a pydantic model, which gives its fields one by one.
    """
    if isinstance(config, Mapping):
        return dict(config)
    if isinstance(config, type) or not hasattr(config, "model_dump"):
        raise BadInput(f"config is {name_value(config)}", place="config", hint="give an object")
    return drop_nulls(dict(config))


def _is_blank_system(system: Any) -> bool:
    """Whether system text says nothing; then it stays where it is.

    `""`, `[]` and `{"parts": []}` say nothing.
    """
    if isinstance(system, str):
        return is_blank(system)
    if isinstance(system, LIST_TYPES):
        return not system
    return holds_parts(system) and not to_dict_or_empty(system).get("parts")


def _read_tools(tools: Any, place: str) -> tuple[Json, ...]:
    """The definitions of tools as dicts. The SDK's objects are read; functions of Python are refused.

    The SDK would describe a function of Python itself, and call it. Here nobody calls it.
    """
    if not tools:
        return ()
    if not isinstance(tools, LIST_TYPES):
        raise BadInput(f"tools is {name_value(tools)}", place=place, hint="give a list")
    hint = "give an object, for a function its declaration"
    return tuple(read_each(tools, place, lambda tool, _: to_dict(tool, "a tool", hint=hint)))


def find_rest_name(name: str) -> str:
    """The spelling of REST bodies: `function_call` becomes `functionCall`."""
    first_word, *words = name.split("_")
    return first_word + "".join(upper_ascii(word[:1]) + word[1:] for word in words)
