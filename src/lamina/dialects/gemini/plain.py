"""Translates a head into the words that every dialect has, and such a head into the fields of the SDK.

Fields that only this API has are named, not guessed at: whoever sends the request elsewhere learns what
is lost.

A schema in this API's own words, a subset of OpenAPI, becomes JSON Schema. The other way is not needed: the
API takes JSON Schema as it is, in another field.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lamina.core.text.characters import is_digits, lower_ascii, upper_ascii
from lamina.core.values import RequestHead
from lamina.dialects.gemini.head import choose_spelling, find_rest_name, read_declarations, read_settings
from lamina.dialects.gemini.wire import (
    find_spelling,
    get_enum_word,
    get_field,
    get_object,
    get_text,
    make_safe_name,
    read_version,
    read_word,
    to_camel_case,
    to_dict_or_empty,
    to_dict_or_none,
    to_snake_case,
)
from lamina.dialects.json_values import Json, drop_nulls, number_or_none, read_texts, text_or_empty
from lamina.dialects.port import OwnHead, PlainHead, Tool

_READ_FIELDS = frozenset(
    """systemInstruction tools toolConfig maxOutputTokens temperature topP stopSequences responseMimeType
    responseSchema responseJsonSchema thinkingConfig generationConfig model config""".split()
)
"""Fields that `plain_head` reads, or that another module does."""

_SILENT_FIELDS = frozenset(
    """httpOptions shouldReturnHttpResponse labels serviceTier candidateCount seed responseLogprobs logprobs
    automaticFunctionCalling safetySettings store cachedContent modelSelectionConfig routingConfig
    modelArmorConfig""".split()
)
"""Fields that say how a request is sent, stored, paid for or filtered, and nothing to the model."""

_FIELDS_WITHOUT_LOSS = _READ_FIELDS | _SILENT_FIELDS

_FUNCTIONS = "functionDeclarations"

_PLAIN_CHOICES = {"AUTO": "auto", "NONE": "none", "ANY": "any", "VALIDATED": "auto"}
_THINKING_LEVELS = {
    "none": "MINIMAL",
    "minimal": "MINIMAL",
    "low": "LOW",
    "medium": "MEDIUM",
    "high": "HIGH",
    "xhigh": "HIGH",
    "max": "HIGH",
}
_FIRST_VERSION_WITH_LEVELS = 3
"""Models before it take a budget of tokens, not a level."""

_DEEPEST_LEVEL = 64
"""Levels of a schema that are translated; below them, the schema allows anything."""

_COUNT_FIELDS = frozenset("minItems maxItems minLength maxLength minProperties maxProperties".split())
_JSON_SCHEMA_NAMES = {
    **{to_snake_case(name): name for name in (*_COUNT_FIELDS, "anyOf", "additionalProperties")},
    "ref": "$ref",
    "defs": "$defs",
}
"""The names in JSON Schema of fields that the SDK spells otherwise."""

_DROPPED_FIELDS = frozenset(("propertyOrdering", "property_ordering", "nullable"))


def plain_head(head: RequestHead) -> PlainHead:
    """What tools and parameters mean; `left` names those that only this API has.

    Tools of the API itself, such as a search, have no plain meaning, and neither has a budget for thinking.
    """
    settings = read_settings(head.parameters)
    thinking = to_dict_or_empty(settings.get("thinkingConfig"))
    choice = _read_choice(settings.get("toolConfig"))
    answer_schema = _read_answer_schema(settings)
    left = [to_snake_case(name) for name in settings if name not in _FIELDS_WITHOUT_LOSS]
    tools = []
    for place, sort, declaration in read_declarations(head.tools):
        if sort == "function":
            tools.append(_read_function(declaration))
        else:
            left.append(f"tools{place}")
    asks_for_any_json = settings.get("responseMimeType") == "application/json" and answer_schema is None
    lost_parameters = {
        "tool_config": choice is None,
        "thinking_config": get_field(thinking, "thinkingBudget") is not None,
        "response_mime_type": asks_for_any_json,
    }
    left += [name for name, is_lost in lost_parameters.items() if is_lost]
    return PlainHead(
        model=get_text(head.parameters, "model"),
        tools=tuple(tools),
        output=number_or_none(settings.get("maxOutputTokens")),
        temperature=number_or_none(settings.get("temperature")),
        top_p=number_or_none(settings.get("topP")),
        stop=read_texts(settings.get("stopSequences")),
        choice=choice or "",
        answer=answer_schema,
        effort=lower_ascii(read_word(get_field(thinking, "thinkingLevel"))),
        left=tuple(left),
    )


def takes_tool(head: RequestHead) -> bool:
    """Whether lamina may add a function. The API takes none beside tools of its own, such as its search.

    Nor does it take one beside a cached content, which has its tools already. Of several candidates, one may
    call the function while another one has answered.
    """
    settings = read_settings(head.parameters)
    candidate_count = number_or_none(settings.get("candidateCount")) or 1
    if settings.get("cachedContent") or candidate_count > 1:
        return False
    sorts = {sort for _, sort, _ in read_declarations(head.tools)}
    return not sorts or "function" in sorts


def add_tools(head: RequestHead, added: Sequence[Json]) -> tuple[Json, ...]:
    """The tools of a head, with these functions in the last object that declares some, spelled as it is.

    Vertex refuses a second object with functions, and there are proxies that read one spelling only.
    """
    tools = list(head.tools)
    place = len(tools)
    declaring: Json = {}
    spell = choose_spelling(head.parameters)
    for index, tool in enumerate(tools):
        field = find_spelling(tool, _FUNCTIONS)
        if field:
            place = index
            declaring = tool
            spell = to_camel_case if field == _FUNCTIONS else to_snake_case
    functions = list(declaring.get(spell(_FUNCTIONS), ()))
    for _, _, function in read_declarations(added):
        functions.append({spell(find_rest_name(name)): value for name, value in function.items()})
    tools[place:] = [{**declaring, spell(_FUNCTIONS): functions}, *tools[place + 1 :]]
    return tuple(tools)


def own_head(plain: PlainHead) -> OwnHead:
    """The same in the fields of the SDK. `left` names what this API cannot say."""
    thinking = _write_effort(plain)
    functions = _write_functions(plain.tools)
    lost_fields = {
        "effort": plain.effort != "" and thinking is None,
        "stream": bool(plain.stream),  # another method of the SDK streams
        "tools": len(functions) < len(plain.tools),
    }
    tools: tuple[Json, ...] = ()
    if functions:
        tools = ({"function_declarations": functions},)
    answer_type = None
    if plain.answer is not None:
        answer_type = "application/json"
    config = {
        "max_output_tokens": plain.output,
        "temperature": plain.temperature,
        "top_p": plain.top_p,
        "stop_sequences": list(plain.stop) or None,
        "tool_config": _write_choice(plain),
        "response_mime_type": answer_type,
        "response_json_schema": plain.answer,
        "thinking_config": thinking,
    }
    parameters: Json = {}
    if plain.model:
        parameters["model"] = plain.model
    parameters["config"] = drop_nulls(config)
    left = tuple(name for name, is_lost in lost_fields.items() if is_lost)
    return OwnHead(head=RequestHead(tools=tools, parameters=parameters), left=left)


def _write_effort(plain: PlainHead) -> Json | None:
    """The level of thinking; None if there is none, or for a model that takes a budget of tokens instead."""
    level = _THINKING_LEVELS.get(plain.effort)
    takes_budget = 0 < read_version(plain.model) < _FIRST_VERSION_WITH_LEVELS
    if level is None or takes_budget:
        return None
    return {"thinking_level": level}


def _read_function(declaration: Json) -> Tool:
    """A function. Its schema is JSON Schema already, or in the words of this API."""
    schema = get_field(declaration, "parametersJsonSchema")
    if not isinstance(schema, dict):
        schema = to_json_schema(declaration.get("parameters"))
    return Tool(
        name=get_text(declaration, "name"),
        description=get_text(declaration, "description"),
        schema=schema,
    )


def _write_functions(tools: tuple[Tool, ...]) -> list[Json]:
    """The declarations. If tools get the same name here, the first is sent, in the place of the last.

    `fs read` and `fs_read` are both `fs_read` here, and the API takes a name once.
    """
    functions: dict[str, Json] = {}
    for tool in tools:
        name = make_safe_name(tool.name)
        function: Json = {"name": name}
        if tool.description:
            function["description"] = tool.description
        if tool.schema:
            function["parameters_json_schema"] = tool.schema
        functions[name] = functions.pop(name, function)
    return list(functions.values())


def _read_choice(tool_config: Any) -> str | None:
    """The plain choice; "" if there is none, and None for a choice that only this API has.

    `{"function_calling_config": {"mode": "ANY", "allowed_function_names": ["read"]}}` is "tool:read".
    """
    calling_config = get_object(to_dict_or_empty(tool_config), "functionCallingConfig")
    mode = upper_ascii(read_word(calling_config.get("mode")))
    match mode, get_field(calling_config, "allowedFunctionNames"):
        case (("" | "MODE_UNSPECIFIED"), _):
            return ""
        case _, (None | []):
            return _PLAIN_CHOICES.get(mode)
        case "ANY", [name]:
            return f"tool:{name}"
    return None


def _write_choice(plain: PlainHead) -> Json | None:
    """The choice of a tool; None if there is none to choose.

    "tool:read" becomes the mode ANY with `read` as the only allowed name.
    """
    if not plain.choice or not plain.tools:
        return None
    if plain.choice.startswith("tool:"):
        name = make_safe_name(plain.choice.removeprefix("tool:"))
        return {"function_calling_config": {"mode": "ANY", "allowed_function_names": [name]}}
    return {"function_calling_config": {"mode": upper_ascii(plain.choice)}}


def _read_answer_schema(settings: Json) -> Json | None:
    """The JSON Schema of the answer, which the API takes as it is or in its own words.

    `responseSchema` has types in capitals, such as `STRING`. It is translated.
    """
    schema = settings.get("responseJsonSchema")
    if isinstance(schema, dict):
        return schema
    own_schema = settings.get("responseSchema")
    if isinstance(own_schema, dict):
        return to_json_schema(own_schema)
    return None


def to_json_schema(schema: Any, *, level: int = 0) -> Json:
    """The same as JSON Schema; empty for a value that is no schema.

    `{"type": "STRING", "nullable": true, "min_length": "3"}` becomes `{"type": ["string", "null"],
    "minLength": 3}`.
    """
    own_schema = to_dict_or_none(schema)
    if own_schema is None or level > _DEEPEST_LEVEL:
        return {}
    json_schema: Json = {}
    for own_name, value in own_schema.items():
        if own_name in _DROPPED_FIELDS or value is None:
            continue
        name = _JSON_SCHEMA_NAMES.get(own_name, own_name)
        json_schema[name] = _translate_value(name, value, level)
    if own_schema.get("nullable") is True:
        return _allow_null(json_schema)
    return json_schema


def _translate_value(name: str, value: Any, level: int) -> Any:
    """The value of a field, with the schemas inside it translated too.

    Only fields that hold schemas are looked into: a property named `type` is not taken for a type.
    """
    match name:
        case "type":
            word = text_or_empty(get_enum_word(value))
            return lower_ascii(word) or value
        case "properties" | "$defs" if isinstance(value, dict):
            return {key: to_json_schema(schema, level=level + 1) for key, schema in value.items()}
        case "items" | "additionalProperties" if to_dict_or_none(value) is not None:
            return to_json_schema(value, level=level + 1)
        case "anyOf" if isinstance(value, list):
            return [to_json_schema(schema, level=level + 1) for schema in value]
    if name in _COUNT_FIELDS and isinstance(value, str) and is_digits(value):
        return int(value[:18])  # 64-bit numbers are text on the wire
    return value


def _allow_null(schema: Json) -> Json:
    """A schema that also allows null: JSON Schema has a type for it, and no field.

    `{"type": "string"}` becomes `{"type": ["string", "null"]}`. A schema without a type allows null already.
    """
    if isinstance(schema.get("type"), str):
        return {**schema, "type": [schema["type"], "null"]}
    if isinstance(schema.get("anyOf"), list):
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    return schema
