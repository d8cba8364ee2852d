"""Finds the fields of a request, in a REST body or in the SDK's `config`, and says what they mean.

A REST body has its fields beside `contents`; arguments of the SDK have them in `config`. System text and
tools are taken out, and None keeps their place, so that rendering gives back the shape that came. What was
parsed by another dialect is written in the SDK's shape: `{"model", "contents", "config"}`.

`plain_head` and `own_head` translate a head into the words that every dialect has, and back. Fields that only
this API has are named, not guessed at: whoever sends the request elsewhere learns what is lost. A schema in
this API's own words, a subset of OpenAPI, becomes JSON Schema. The other way is not needed: the API takes
JSON Schema as it is, in another field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from lamina.core.text.characters import is_blank, is_digits, lower_ascii, upper_ascii
from lamina.core.values import RequestHead
from lamina.dialects.gemini.contents import holds_parts
from lamina.dialects.gemini.parts import Spelling
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
    to_dict,
    to_dict_or_empty,
    to_dict_or_none,
    to_dicts,
    to_snake_case,
)
from lamina.dialects.head_table import HeadField, HeadTable, PlainField, name_choice
from lamina.dialects.json_values import (
    LIST_TYPES,
    Json,
    drop_field,
    drop_fields,
    drop_nulls,
    name_value,
    number_or_none,
    read_each,
    read_texts,
    text_or_empty,
)
from lamina.dialects.port import OwnHead, PlainHead, Request, Tool
from lamina.errors import BadInput

_ANSWER_FIELD = "responseJsonSchema"
_SYSTEM_FIELD = "systemInstruction"
_SYSTEM_SPELLINGS = ("systemInstruction", "system_instruction")

_FIELDS_OF_REST_BODY = frozenset(
    """systemInstruction system_instruction tools toolConfig tool_config generationConfig generation_config
    safetySettings safety_settings cachedContent cached_content serviceTier service_tier labels
    store""".split()
)
"""Fields that stand beside the contents in a REST body, and nowhere in arguments of the SDK."""

_FIELDS_NOT_SETTINGS = ("generationConfig", "contents", "model")

_SILENT_FIELDS = frozenset(
    """httpOptions shouldReturnHttpResponse labels serviceTier candidateCount seed responseLogprobs logprobs
    automaticFunctionCalling safetySettings store cachedContent modelSelectionConfig routingConfig
    modelArmorConfig systemInstruction tools responseMimeType responseSchema""".split()
)
"""Fields that say how a request is sent, stored, paid for or filtered, or that are read elsewhere."""

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


def plain_head(head: RequestHead) -> PlainHead:
    """What tools and parameters mean; `left` names those that only this API has.

    Tools of the API itself, such as a search, have no plain meaning, and neither has a budget for thinking.
    """
    settings = read_settings(head.parameters)
    settings["model"] = get_text(head.parameters, "model")
    settings[_ANSWER_FIELD] = _read_answer_schema(settings)
    plain = _HEAD.read(RequestHead(parameters=settings))
    left = list(map(to_snake_case, plain.left))
    tools: list[Tool] = []
    for place, sort, declaration in read_declarations(head.tools):
        if sort == "function":
            tools.append(_read_function(declaration))
        else:
            left.append(f"tools{place}")
    if settings.get("responseMimeType") == "application/json" and plain.answer is None:
        left.append("response_mime_type")
    return msgspec.structs.replace(plain, tools=tuple(tools), left=tuple(left))


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
    own = _HEAD.write(msgspec.structs.replace(plain, stream=plain.stream or None))
    parameters: Json = {}
    config: Json = {}
    for name, value in own.head.parameters.items():
        if name == "model":
            parameters[name] = value
            continue
        if name == _ANSWER_FIELD:
            config["response_mime_type"] = "application/json"
        config[to_snake_case(name)] = value
    parameters["config"] = config
    tools: tuple[Json, ...] = ()
    if own.head.tools:
        tools = ({"function_declarations": list(own.head.tools)},)
    return OwnHead(head=RequestHead(tools=tools, parameters=parameters), left=own.left)


def _read_effort(thinking_config: Any) -> str | None:
    """The level of thinking; None for a budget of tokens."""
    thinking = to_dict_or_empty(thinking_config)
    if get_field(thinking, "thinkingBudget") is not None:
        return None
    return lower_ascii(read_word(get_field(thinking, "thinkingLevel")))


def _write_effort(effort: str) -> Json | None:
    if effort not in _THINKING_LEVELS:
        return None
    return {"thinking_level": _THINKING_LEVELS[effort]}


def _list_refused(plain: PlainHead) -> list[PlainField]:
    """What the model of a head does not take: older ones have a budget of tokens in place of a level."""
    if 0 < read_version(plain.model) < _FIRST_VERSION_WITH_LEVELS:
        return ["effort"]
    return []


def _read_function(declaration: Mapping[str, Any]) -> Tool:
    """A function. Its schema is JSON Schema already, or in the words of this API."""
    schema = get_field(declaration, "parametersJsonSchema")
    if not isinstance(schema, dict):
        schema = to_json_schema(declaration.get("parameters"))
    return Tool(
        name=get_text(declaration, "name"),
        description=get_text(declaration, "description"),
        schema=schema,
    )


def _write_function(tool: Tool) -> Json:
    function: Json = {"name": make_safe_name(tool.name)}
    if tool.description:
        function["description"] = tool.description
    if tool.schema:
        function["parameters_json_schema"] = tool.schema
    return function


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


def _write_choice(choice: str) -> Json:
    """The choice of a tool: "tool:read" becomes the mode ANY with `read` as the only allowed name."""
    tool_name = name_choice(choice)
    if tool_name is None:
        return {"function_calling_config": {"mode": upper_ascii(choice)}}
    name = make_safe_name(tool_name)
    return {"function_calling_config": {"mode": "ANY", "allowed_function_names": [name]}}


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


_HEAD = HeadTable(
    fields=(
        HeadField("model", "model", str),
        HeadField("output", "maxOutputTokens", number_or_none),
        HeadField("temperature", "temperature", number_or_none),
        HeadField("top_p", "topP", number_or_none),
        HeadField("stop", "stopSequences", read_texts, list),
        HeadField("choice", "toolConfig", _read_choice, _write_choice),
        HeadField("answer", _ANSWER_FIELD, dict),
        HeadField("effort", "thinkingConfig", _read_effort, _write_effort),
    ),
    silent=_SILENT_FIELDS,
    read_tool=_read_function,
    write_tool=_write_function,
    refuses=_list_refused,
)
