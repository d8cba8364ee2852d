"""Small changes to requests of the Messages and Chat Completions APIs, for the catalogue of faults.

A request whose contents are lists of blocks is changed in place. Nothing here knows which change costs what.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

Json = dict[str, Any]


class Pair(NamedTuple):
    """Two requests of a session. `place` is where they part, as a path or its beginning; "" is all of it."""

    before: Json
    after: Json
    place: str = ""
    gap: float = 0.0


Spot = tuple[str, Json]
"""A path into a request, and the block or call that stands there."""


def in_blocks(request: Json) -> Json:
    """The request with every content as a list of blocks."""
    for message in request["messages"]:
        if isinstance(message.get("content"), str):
            text = message["content"]
            message["content"] = [{"type": "text", "text": text}] if text else []
    if isinstance(request.get("system"), str):
        request["system"] = [{"type": "text", "text": request["system"]}]
    return request


def is_claude(request: Json) -> bool:
    return "claude" in request["model"]


def spots(request: Json) -> Iterator[Spot]:
    """Every block and call of the messages, with its place in the stream."""
    for i, message in enumerate(request["messages"]):
        for j, block in enumerate(message.get("content") or ()):
            yield f"messages[{i}].content[{j}]", block
        for j, call in enumerate(message.get("tool_calls") or ()):
            yield f"messages[{i}].tool_calls[{j}]", call


def role_at(request: Json, place: str) -> str:
    return str(request["messages"][int(place[9 : place.index("]")])]["role"])


def pick_pair(before: Json, after: Json, rng: Random, wanted: Callable[[Json, Json], bool]) -> Any:
    """A place of both, with its block in each."""
    now = dict(spots(after))
    found = [
        (place, block, now[place])
        for place, block in spots(before)
        if place in now
        and wanted({"role": role_at(before, place), "place": place}, block)
        and now[place] == block
    ]
    return rng.choice(found) if found else None


def pick(before: Json, after: Json, rng: Random, wanted: Callable[[Json, Json], bool]) -> Spot | None:
    found = pick_pair(before, after, rng, wanted)
    return (found[0], found[2]) if found else None


# what a block is


def is_text(message: Json, block: Json) -> bool:
    return message["role"] in ("user", "assistant") and len(block.get("text") or "") > 8


def is_user_text(message: Json, block: Json) -> bool:
    return message["role"] == "user" and is_text(message, block)


def is_assistant_text(message: Json, block: Json) -> bool:
    return message["role"] == "assistant" and is_text(message, block)


def is_result(message: Json, block: Json) -> bool:
    return bool(_result_text(message, block))


def is_long_result(message: Json, block: Json) -> bool:
    return len(_result_text(message, block)) > 200


def is_call(_: Json, block: Json) -> bool:
    return block.get("type") == "tool_use" or "function" in block


def is_chat_call(_: Json, block: Json) -> bool:
    return "function" in block and len(block["function"]["arguments"]) > 2


def is_wide_call(message: Json, block: Json) -> bool:
    return is_chat_call(message, block) and len(_parsed(block)) > 1


def is_image(_: Json, block: Json) -> bool:
    return block.get("type") in ("image", "image_url")


def is_document(_: Json, block: Json) -> bool:
    return block.get("type") in ("document", "file")


def is_thinking(_: Json, block: Json) -> bool:
    return block.get("type") == "thinking"


def _result_text(message: Json, block: Json) -> str:
    if message["role"] == "tool":
        return str(block.get("text") or "")
    content = block.get("content") if block.get("type") == "tool_result" else ""
    return content if isinstance(content, str) else str(content[0].get("text") or "") if content else ""


# changes of one block


def edit(block: Json, rng: Random) -> None:
    """One word in the middle becomes another."""
    words = block["text"].split(" ")
    at = rng.randrange(len(words))
    words[at] = "somewhat" if words[at] != "somewhat" else "rather"
    block["text"] = " ".join(words)


def _set_result(block: Json, change: Callable[[str], str]) -> None:
    if "text" in block:
        block["text"] = change(block["text"])
    elif isinstance(block["content"], str):
        block["content"] = change(block["content"])
    else:
        block["content"] = [{**block["content"][0], "text": change(block["content"][0]["text"])}]


def edit_result(block: Json, rng: Random) -> None:
    del rng
    _set_result(block, lambda text: f"{text[: len(text) // 2]} but not{text[len(text) // 2 :]}")


def halve_result(block: Json, rng: Random) -> None:
    share = rng.choice([3, 4, 8])
    _set_result(block, lambda text: f"{text[: len(text) // share]}\n[... output truncated]")


def stub_result(block: Json, rng: Random) -> None:
    _set_result(
        block,
        lambda text: f'[trimmed: read_file · {len(text):,} bytes · recall("k{rng.getrandbits(48):012x}")]',
    )


def edit_call(block: Json, rng: Random) -> None:
    del rng
    if "function" in block:
        block["function"]["arguments"] = json.dumps({**_parsed(block), "really": True})
    else:
        block["input"] = {**block["input"], "really": True}


def _parsed(block: Json) -> Json:
    found = json.loads(block["function"]["arguments"])
    return found if isinstance(found, dict) else {}


def arguments_with(dump: Callable[..., str], **options: Any) -> Callable[[Json, Random], None]:
    def change(block: Json, _: Random) -> None:
        block["function"]["arguments"] = dump(json.loads(block["function"]["arguments"]), **options)

    return change


def arguments_reversed(block: Json, _: Random) -> None:
    block["function"]["arguments"] = json.dumps(dict(reversed(_parsed(block).items())))


def is_wide_input(_: Json, block: Json) -> bool:
    return block.get("type") == "tool_use" and len(block["input"]) > 1


def input_reversed(block: Json, _: Random) -> None:
    block["input"] = dict(reversed(block["input"].items()))


def schema_reversed(pair: Pair, rng: Random) -> Pair | None:
    """The schema of a tool with its keys in another order, as some languages write a map."""
    at = _tool(pair, rng)
    if at is None:
        return None
    tool = definitions(pair.after)[at]
    name = "parameters" if "parameters" in tool else "input_schema"
    tool[name] = dict(reversed(tool[name].items()))
    return pair._replace(place=f"tools[{at}]")


def reencode(block: Json, _: Random) -> None:
    """Other bytes of the same picture or document."""
    source = block.get("source") or block.get("image_url") or block.get("file")
    for name in ("data", "url", "file_data"):
        if isinstance(source, dict) and isinstance(source.get(name), str):
            source[name] = f"{source[name][:-8]}AAAA{source[name][-8:]}"
            return


def resign(block: Json, rng: Random) -> None:
    block["signature"] = f"{rng.getrandbits(128):032x}"


# changes of the whole request


def other_model(pair: Pair, _: Random) -> Pair:
    pair.after["model"] += "-preview"
    return pair


def definitions(request: Json) -> list[Json]:
    """What describes each tool: the definition, or the function inside it."""
    return [tool.get("function", tool) for tool in request.get("tools") or ()]


def _tool(pair: Pair, rng: Random) -> int | None:
    tools = definitions(pair.after)
    return rng.randrange(len(tools)) if tools else None


def describe(pair: Pair, rng: Random) -> Pair | None:
    at = _tool(pair, rng)
    if at is None:
        return None
    add_to_tool(pair.after, at, " Use it with care.")
    return pair._replace(place=f"tools[{at}]")


def schema(pair: Pair, rng: Random) -> Pair | None:
    at = _tool(pair, rng)
    if at is None:
        return None
    tool = definitions(pair.after)[at]
    name = "parameters" if "parameters" in tool else "input_schema"
    tool[name] = {**(tool.get(name) or {}), "additionalProperties": False}
    return pair._replace(place=f"tools[{at}]")


def tool_added(pair: Pair, rng: Random) -> Pair | None:
    tools = pair.after.get("tools") or []
    at = rng.randint(0, len(tools))
    shape = {"type": "object", "properties": {"where": {"type": "string"}}}
    extra: Json = {"name": "weather_now", "description": "The weather.", "input_schema": shape}
    if not is_claude(pair.after):
        extra = {"type": "function", "function": {"name": "weather_now", "parameters": shape}}
    pair.after["tools"] = [*tools[:at], extra, *tools[at:]]
    return pair._replace(place=f"tools[{at}]")


def tool_removed(pair: Pair, rng: Random) -> Pair | None:
    at = _tool(pair, rng)
    if at is None:
        return None
    del pair.after["tools"][at]
    return pair._replace(place=f"tools[{at}]")


def tools_shuffled(pair: Pair, rng: Random) -> Pair | None:
    tools = pair.after.get("tools") or []
    if len(tools) < 2:
        return None
    one = rng.randrange(len(tools) - 1)
    tools[one], tools[one + 1] = tools[one + 1], tools[one]
    return pair._replace(place=f"tools[{one}]")


def web_search(pair: Pair, _: Random) -> Pair | None:
    tools = pair.after.get("tools") or []
    pair.after["tools"] = [*tools, {"type": "web_search_20250305", "name": "web_search"}]
    return pair._replace(place=f"tools[{len(tools)}]")


def add_to_tool(request: Json, at: int, text: str) -> str:
    tool = definitions(request)[at]
    tool["description"] = f"{tool.get('description') or ''}{text}"
    return f"tools[{at}]"


def _system(request: Json) -> tuple[str, list[Json]]:
    """Where the system text stands, and its blocks; an empty one is made where there is none."""
    if is_claude(request):
        request.setdefault("system", [{"type": "text", "text": "Work with care."}])
        return "system", request["system"]
    if request["messages"][0]["role"] != "system":
        text = [{"type": "text", "text": "Work with care."}]
        request["messages"].insert(0, {"role": "system", "content": text})
    return "messages[0].content", request["messages"][0]["content"]


def add_to_system(request: Json, text: str, *, first: bool) -> str:
    place, blocks = _system(request)
    at = 0 if first else len(blocks) - 1
    blocks[at]["text"] = f"{text}\n{blocks[at]['text']}" if first else f"{blocks[at]['text']}\n{text}"
    return f"{place}[{at}]"


def _both_systems(pair: Pair) -> tuple[str, list[Json]]:
    _system(pair.before)
    return _system(pair.after)


def system_word(pair: Pair, rng: Random) -> Pair | None:
    place, blocks = _both_systems(pair)
    at = rng.randrange(len(blocks))
    edit(blocks[at], rng)
    return pair._replace(place=f"{place}[{at}]")


def system_more(pair: Pair, _: Random) -> Pair | None:
    place, blocks = _both_systems(pair)
    blocks[-1]["text"] += "\n\n# Memory\n\nThe user prefers short answers."
    return pair._replace(place=f"{place}[{len(blocks) - 1}]")


def system_less(pair: Pair, _: Random) -> Pair | None:
    place, blocks = _both_systems(pair)
    text = blocks[-1]["text"]
    blocks[-1]["text"] = text[: len(text) // 2].rstrip()
    return pair._replace(place=f"{place}[{len(blocks) - 1}]")


def system_block(pair: Pair, _: Random) -> Pair | None:
    place, blocks = _both_systems(pair)
    blocks.append({"type": "text", "text": "The user prefers short answers."})
    return pair._replace(place=f"{place}[{len(blocks) - 1}]" if is_claude(pair.after) else "messages[")


def developer(pair: Pair, _: Random) -> Pair | None:
    _both_systems(pair)
    pair.after["messages"][0]["role"] = "developer"
    return pair._replace(place="messages[0]")


def add_to_first_user(request: Json, text: str) -> str:
    for i, message in enumerate(request["messages"]):
        if message["role"] == "user" and message["content"] and "text" in message["content"][0]:
            message["content"][0]["text"] = text + message["content"][0]["text"]
            return f"messages[{i}].content[0]"
    return "messages["


def escaped(pair: Pair, rng: Random) -> Pair | None:
    """Arguments with a letter that is not ASCII, escaped in the later request."""
    found = pick_pair(pair.before, pair.after, rng, is_chat_call)
    if found is None:
        return None
    place, was, now = found
    arguments = {**_parsed(was), "note": "café"}
    was["function"]["arguments"] = json.dumps(arguments, ensure_ascii=False)
    now["function"]["arguments"] = json.dumps(arguments)
    return pair._replace(place=place)


def attachment(pair: Pair, rng: Random) -> Pair | None:
    """A file in a tag in both, changed in the later request."""
    found = pick_pair(pair.before, pair.after, rng, is_user_text)
    if found is None:
        return None
    place, was, now = found
    for block, line in ((was, "Version one of it."), (now, "A second version, longer.")):
        block["text"] = f'<file_context path="docs/plan.md">\n# Plan\n\n{line}\n</file_context>'
    return pair._replace(place=place)
