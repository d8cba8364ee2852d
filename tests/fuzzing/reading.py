"""A request of any of the four APIs as one list of blocks, in the order in which a model reads them.

This is the canonical stream: tools, system text, blocks of messages; without cache markers; a string is one
text block. It is read here from the wire, apart from how lamina reads it, so that the two can disagree.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

Json = Mapping[str, Any]
Role = Literal["system", "user", "assistant", "tool"]
Sort = Literal["definition", "text", "call", "result", "thinking", "image", "document", "other"]

MARKERS = ("cache_control", "prompt_cache_breakpoint")
AUTHORITY: Mapping[Role, int] = {"tool": 0, "assistant": 1, "user": 2, "system": 3}
"""Whose word counts more."""


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """One block. `data` is its canonical JSON; `texts` is what it says, `message` the number of its message.

    `opens`: it begins a message, where the API tells two messages of one role from one. `id` and `name` are
    those of a call, or of what a result answers.
    """

    role: Role
    sort: Sort
    data: str
    texts: tuple[str, ...] = ()
    message: int = -1
    opens: bool = False
    id: str = ""
    name: str = ""

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


def read(request: Json, dialect: str) -> list[Block]:
    """The canonical stream of a request."""
    return list(_READERS[dialect](request))


def stream(blocks: Iterable[Block]) -> list[str]:
    """One string for each block: two requests agree as far as these do."""
    return [f"{'+' if block.opens else '~'}{block.role}:{block.data}" for block in blocks]


def canonical(value: Any) -> str:
    return json.dumps(_unmarked(value), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _unmarked(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _unmarked(inner) for name, inner in value.items() if name not in MARKERS}
    if isinstance(value, list | tuple):
        return [_unmarked(inner) for inner in value]
    return value


def _text_block(text: str, role: Role, message: int, *, opens: bool) -> Block:
    return Block(role=role, sort="text", data=f"text:{text}", texts=(text,), message=message, opens=opens)


def _definitions(tools: Any) -> Iterator[Block]:
    for tool in tools or ():
        texts = tuple(_definition(function) for function in _functions(tool))
        yield Block(role="system", sort="definition", data=canonical(tool), texts=texts, opens=True)


def _functions(tool: Json) -> list[Json]:
    """The functions that one entry of a list of tools defines."""
    declared: list[Json] | None = tool.get("functionDeclarations")
    return declared if declared is not None else [tool.get("function") or tool]


def _definition(function: Json) -> str:
    """Name, description and schema of a function."""
    schemas = ("input_schema", "parameters", "parametersJsonSchema")
    schema: Any = next((function[name] for name in schemas if name in function), {})
    return f"{function.get('name', '')}{function.get('description', '')}{canonical(schema)}"


def _anthropic(request: Json) -> Iterator[Block]:
    yield from _definitions(request.get("tools"))
    before = "system"
    for block in _listed(request.get("system")):
        yield _anthropic_block(block, "system", -1, opens=False)
    for number, message in enumerate(request["messages"]):
        role = message["role"]
        for block in _listed(message["content"]):
            yield _anthropic_block(block, role, number, opens=role != before)
            before = role


def _listed(content: Any) -> list[Any]:
    """Content as a list of blocks, whichever way it is written."""
    if content is None:
        return []
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _anthropic_block(block: Json, role: Role, number: int, *, opens: bool) -> Block:
    sort = block.get("type")
    if sort == "text" and set(block) <= {"type", "text", *MARKERS}:
        return _text_block(block["text"], role, number, opens=opens)
    facts = _ANTHROPIC_FACTS.get(str(sort), _other_facts)(block)
    facts.setdefault("role", role)
    facts.setdefault("data", canonical(block))
    return Block(message=number, opens=opens, **facts)


Facts = dict[str, Any]


def _other_facts(block: Json) -> Facts:
    return {"sort": "other", "texts": (canonical(block),)}


def _result_facts(block: Json) -> Facts:
    inner = _listed(block.get("content"))
    return {
        "role": "tool",
        "sort": "result",
        "data": canonical({**block, "content": inner}),
        "texts": tuple(piece["text"] for piece in inner if piece.get("type") == "text"),
        "id": block["tool_use_id"],
    }


def _call_facts(block: Json) -> Facts:
    arguments = json.dumps(block["input"], ensure_ascii=False)
    return {"sort": "call", "texts": (arguments,), "id": block["id"], "name": block["name"]}


def _document_facts(block: Json) -> Facts:
    source = block["source"]
    return {"sort": "document", "texts": (source["data"],) if source.get("type") == "text" else ()}


_ANTHROPIC_FACTS: Mapping[str, Callable[[Json], Facts]] = {
    "text": lambda block: {"sort": "text", "texts": (block["text"],)},
    "thinking": lambda block: {"sort": "thinking", "texts": (block["thinking"],), "id": block["signature"]},
    "redacted_thinking": lambda block: {"sort": "thinking", "id": block["data"]},
    "tool_use": _call_facts,
    "tool_result": _result_facts,
    "image": lambda _: {"sort": "image"},
    "document": _document_facts,
}


def _openai_chat(request: Json) -> Iterator[Block]:
    yield from _definitions(request.get("tools"))
    for number, message in enumerate(request["messages"]):
        opens = True
        for block in _chat_message(message, number):
            yield msgspec.structs.replace(block, opens=opens)
            opens = False


_CHAT_FIELDS = frozenset(("role", "content", "tool_calls", "tool_call_id"))


def _chat_message(message: Json, number: int) -> Iterator[Block]:
    role: Role = "system" if message["role"] in ("system", "developer") else message["role"]
    facts: dict[str, Any] = {"role": role, "message": number}
    if role == "tool":
        parts = _listed(message["content"])
        texts = tuple(part["text"] for part in parts if part.get("type") == "text")
        data = canonical([message["tool_call_id"], parts])
        yield Block(sort="result", data=data, texts=texts, id=message["tool_call_id"], **facts)
        return
    others = {name: value for name, value in message.items() if name not in _CHAT_FIELDS and value}
    if others:
        yield Block(sort="other", data=canonical(others), texts=tuple(_strings(others)), **facts)
    for part in _listed(message.get("content")):
        yield _chat_part(part, role, number)
    for call in message.get("tool_calls") or ():
        function = call["function"]
        yield Block(
            sort="call",
            data=canonical(call),
            texts=(function["arguments"],),
            id=call["id"],
            name=function["name"],
            **facts,
        )


def _chat_part(part: Json, role: Role, number: int) -> Block:
    match part.get("type"):
        case "text":
            return _text_block(part["text"], role, number, opens=False)
        case "image_url":
            return Block(role=role, sort="image", data=canonical(part), message=number)
        case "file":
            return Block(role=role, sort="document", data=canonical(part), message=number)
    return Block(role=role, sort="other", data=canonical(part), texts=tuple(_strings(part)), message=number)


def _openai_responses(request: Json) -> Iterator[Block]:
    yield from _definitions(request.get("tools"))
    if request.get("instructions"):
        yield _text_block(request["instructions"], "system", -1, opens=True)
    given = request["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    for number, item in enumerate(items):
        opens = True
        for block in _item(item, number):
            yield msgspec.structs.replace(block, opens=opens)
            opens = False


def _item(item: Json, number: int) -> Iterator[Block]:
    facts: dict[str, Any] = {"data": canonical(item), "message": number}
    match item.get("type", "message"):
        case "message":
            role: Role = "system" if item["role"] in ("system", "developer") else item["role"]
            for part in _listed(item["content"]):
                yield _responses_part(part, role, number)
        case "function_call":
            yield Block(
                role="assistant",
                sort="call",
                texts=(item["arguments"],),
                id=item["call_id"],
                name=item["name"],
                **facts,
            )
        case "function_call_output":
            texts = tuple(part["text"] for part in _listed(item["output"]) if "text" in part)
            output = [_plain_text(part) for part in _listed(item["output"])]
            facts["data"] = canonical([item["call_id"], output])
            yield Block(role="tool", sort="result", texts=texts, id=item["call_id"], **facts)
        case "reasoning":
            yield Block(
                role="assistant",
                sort="thinking",
                texts=tuple(part["text"] for part in item.get("summary") or ()),
                id=item["id"],
                **facts,
            )
        case _:
            yield Block(role="assistant", sort="other", texts=tuple(_strings(item)), **facts)


def _responses_part(part: Json, role: Role, number: int) -> Block:
    match part.get("type"):
        case "text" | "input_text" | "output_text":
            return _text_block(part["text"], role, number, opens=False)
        case "input_image":
            return Block(role=role, sort="image", data=canonical(part), message=number)
        case "input_file":
            return Block(role=role, sort="document", data=canonical(part), message=number)
    return Block(role=role, sort="other", data=canonical(part), texts=tuple(_strings(part)), message=number)


def _plain_text(part: Json) -> Any:
    return part.get("text", part)


def in_camel_case(value: Any) -> Any:
    """A Gemini request with the names of a REST body; users of the SDK write them with underscores.

    Arguments of calls and what tools answered are left alone, and so is a schema.
    """
    if isinstance(value, Mapping):
        return {
            _camel(name): inner if name in _DATA else in_camel_case(inner) for name, inner in value.items()
        }
    return [in_camel_case(inner) for inner in value] if isinstance(value, list | tuple) else value


_DATA = frozenset(("args", "response", "parametersJsonSchema", "parameters_json_schema"))


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _gemini(request: Json) -> Iterator[Block]:
    request = in_camel_case(request)
    config = request.get("config") or request
    yield from _definitions(config.get("tools"))
    for part in _gemini_system(config):
        yield _text_block(part["text"], "system", -1, opens=False)
    for number, content in enumerate(request["contents"]):
        role: Role = "assistant" if content["role"] == "model" else content["role"]
        for i, part in enumerate(content["parts"]):
            yield _gemini_part(part, role, number, opens=i == 0)


def _gemini_system(config: Json) -> list[Json]:
    system = config.get("systemInstruction") or ()
    if isinstance(system, str):
        return [{"text": system}]
    parts: list[Json] = list(system["parts"]) if system else []
    return parts


def _gemini_part(part: Json, role: Role, number: int, *, opens: bool) -> Block:
    facts: dict[str, Any] = {"data": canonical(part), "message": number, "opens": opens}
    if set(part) == {"text"}:
        return _text_block(part["text"], role, number, opens=opens)
    if part.get("thought"):
        return Block(
            role=role, sort="thinking", texts=(part["text"],), id=part.get("thoughtSignature", ""), **facts
        )
    if "text" in part:
        return Block(role=role, sort="text", texts=(part["text"],), **facts)
    call = part.get("functionCall")
    if call:
        arguments = json.dumps(call.get("args") or {}, ensure_ascii=False)
        return Block(
            role=role, sort="call", texts=(arguments,), id=call.get("id", ""), name=call["name"], **facts
        )
    result = part.get("functionResponse")
    if result:
        texts = tuple(_strings(result["response"]))
        return Block(
            role="tool", sort="result", texts=texts, id=result.get("id", ""), name=result["name"], **facts
        )
    sort: Sort = "image" if '"image/' in canonical(part) else "document"
    return Block(role=role, sort=sort, **facts)


def _strings(value: Any) -> Iterator[str]:
    """Every text inside a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _strings(inner)


_READERS = {
    "anthropic": _anthropic,
    "openai_chat": _openai_chat,
    "openai_responses": _openai_responses,
    "gemini": _gemini,
}
