"""Compaction by the provider, on demand: one call makes a block that stands for the beginning of a history.

Anthropic's API answers a request with `compaction` with one signed block, and OpenAI's `responses/compact`
returns the user's messages and one encrypted item. Only that provider can read or make them, so they are sent
back as they came. The client keeps its whole history: lamina puts the block in the place of what it covers
each time, as long as that is unchanged, and what it covers can be recalled from the client's own messages.

    call = plan_compaction(request, dialect="anthropic")
    answer = client.beta.messages.create(**call.request, betas=[ON_DEMAND_BETA])
    compaction = read_compaction(call, answer)
    fitted = fit_request(apply_compaction(request, compaction), ...)     # from now on

A compaction costs a call of the model, which reads the whole history and writes the summary. A cut of
lamina's own costs none. `price_compaction` says how much that is. Nothing is sent here. Shapes: anthropic
2.8, openai 3.49.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from lamina.caches import CacheRules
from lamina.core.hashing import digest
from lamina.core.recall import recall
from lamina.core.values import Segment
from lamina.dialects import DIALECTS
from lamina.dialects.anthropic.server import BETAS
from lamina.dialects.json_values import list_or_empty, mapping_or_empty, read_field, to_dict_or_empty
from lamina.dialects.usage import Usage, find_usage
from lamina.errors import BadInput
from lamina.models.facts import model_or_none, price_of

ON_DEMAND_BETA = "compact-2026-09-04"
"""The beta of Anthropic's API that a call for a compaction has to name."""

LEAST_KEPT = 4
"""Messages at the end of a history that are never compacted."""

_NOT_WITH_COMPACTION = ("stream", "context_management", "stop_sequences", "diagnostics", "metadata")
"""Fields of the Messages API that are refused beside `compaction`, or mean nothing there."""

_COMPACT_FIELDS = frozenset(
    ("model", "input", "instructions", "previous_response_id", "prompt_cache_key", "prompt_cache_options")
)
"""The fields that `responses/compact` takes."""


class CompactionCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that makes a compaction: where to send it, and how many messages it `covers`, from the first."""

    dialect: str
    path: str
    request: dict[str, Any]
    headers: dict[str, str] = {}
    covers: int
    covered: str


class ServerCompaction(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider made of the beginning of a history. It is plain JSON, and can be stored.

    `items` stand in the place of the first `covers` messages, whose digest is `covered`. `usage` is what the
    call took.
    """

    dialect: str
    items: tuple[dict[str, Any], ...]
    covers: int
    covered: str
    usage: Usage = Usage()


def plan_compaction(
    request: Mapping[str, Any], *, dialect: str, instructions: str = ""
) -> CompactionCall | None:
    """The call that compacts all but the newest messages of a request; None if nothing can be.

    The current turn stays. In a long tool loop, which is one turn, the last steps stay. `instructions`
    replace the provider's own for the summary, where it takes any.
    """
    if dialect not in _APIS:
        hint = f"use one of {', '.join(_APIS)}"
        raise BadInput(f"{dialect} has no compaction", place="plan_compaction", hint=hint)
    api = _APIS[dialect]
    history = list_or_empty(request.get(api.history))
    covers = _find_boundary(history, api)
    if not covers:
        return None
    covered = list(history[:covers])
    return CompactionCall(
        dialect=dialect,
        path=api.path,
        request=api.write_call(request, covered, instructions),
        headers=dict(api.headers),
        covers=covers,
        covered=digest(covered),
    )


def plan_next_compaction(
    request: Mapping[str, Any], applied: Mapping[str, Any], *, dialect: str
) -> CompactionCall | None:
    """The call that compacts a history once more. `applied` is the request with its last compaction.

    The provider gets that, and what it makes then covers the client's own messages.
    """
    call = plan_compaction(applied, dialect=dialect)
    if call is None:
        return None
    field = _APIS[dialect].history
    history = list_or_empty(request.get(field))
    covers = call.covers + len(history) - len(list_or_empty(applied.get(field)))
    return msgspec.structs.replace(call, covers=covers, covered=digest(list(history[:covers])))


def _write_messages_call(request: Mapping[str, Any], covered: list[Any], instructions: str) -> dict[str, Any]:
    """The request of the Messages API that asks for a compaction of these messages.

    A forced tool and a format of the answer are refused beside it.
    """
    sent = {name: value for name, value in request.items() if name not in _NOT_WITH_COMPACTION}
    if mapping_or_empty(sent.get("tool_choice")).get("type") in ("any", "tool"):
        del sent["tool_choice"]
    output_config = mapping_or_empty(sent.get("output_config"))
    if "format" in output_config:
        sent["output_config"] = {name: value for name, value in output_config.items() if name != "format"}
    compaction: dict[str, Any] = {"type": "summarize"}
    if instructions:
        compaction["instructions"] = instructions
    return {**sent, "messages": covered, "compaction": compaction}


def _write_responses_call(
    request: Mapping[str, Any], covered: list[Any], _instructions: str
) -> dict[str, Any]:
    """The request to `responses/compact`, which takes no instructions for the summary."""
    sent = {name: value for name, value in request.items() if name in _COMPACT_FIELDS}
    return {**sent, "input": covered}


def _find_boundary(history: Sequence[Any], api: _CompactingApi) -> int:
    """How many messages may be compacted: up to the last place where a turn, or a step, begins.

    Every call before that place has its result before it, too.
    """
    for place in range(len(history) - 1, LEAST_KEPT - 1, -1):
        if api.begins_turn(history[place]):
            return place
    for place in range(len(history) - LEAST_KEPT, 1, -1):
        if api.begins_step(history, place):
            return place
    return 0


def _begins_message_turn(message: Any) -> bool:
    """Whether the user says something new: a message without results."""
    if read_field(message, "role") != "user":
        return False
    blocks = list_or_empty(read_field(message, "content"))
    return all(read_field(block, "type") != "tool_result" for block in blocks)


def _begins_message_step(messages: Sequence[Any], place: int) -> bool:
    """Whether the assistant begins after all results of its earlier calls."""
    roles = [read_field(message, "role") for message in messages[place - 1 : place + 1]]
    return roles == ["user", "assistant"]


def _is_user_item(item: Any) -> bool:
    return bool(read_field(item, "role") == "user")


def _begins_item_step(items: Sequence[Any], place: int) -> bool:
    """Whether a step of the model begins right after the results of the one before it."""
    was_result = _is_result_item(items[place - 1])
    return was_result and not _is_result_item(items[place])


def _is_result_item(item: Any) -> bool:
    return str(read_field(item, "type")).endswith("_call_output")


def read_compaction(call: CompactionCall, answer: Any) -> ServerCompaction:
    """What the provider made. Raises BadInput if the answer has no compaction that can be used."""
    items = _APIS[call.dialect].read_items(answer)
    if not items:
        raise BadInput(
            "the answer has no compaction",
            place="read_compaction",
            hint="send the history as it is: the provider could not summarise it",
        )
    return ServerCompaction(
        dialect=call.dialect,
        items=tuple(items),
        covers=call.covers,
        covered=call.covered,
        usage=find_usage(answer),
    )


def _read_messages_answer(answer: Any) -> list[dict[str, Any]]:
    """The blocks of a Messages answer that are a compaction. One without content could not be made."""
    blocks = [_read_item(block) for block in list_or_empty(read_field(answer, "content"))]
    return [block for block in blocks if _is_compaction(block, "content")]


def _read_responses_answer(answer: Any) -> list[dict[str, Any]]:
    """All items of an answer of `responses/compact`, if one of them is a compaction.

    The others are the user's messages, which are sent back beside it.
    """
    items = [_read_item(item) for item in list_or_empty(read_field(answer, "output"))]
    if any(_is_compaction(item, "encrypted_content") for item in items):
        return items
    return []


def _is_compaction(item: Mapping[str, Any], content_field: str) -> bool:
    return item.get("type") == "compaction" and bool(item.get(content_field))


def _read_item(item: Any) -> dict[str, Any]:
    """A block or an item as it came.

    The SDK of Anthropic knows compactions in its beta types only. Elsewhere it reads one as a block of
    another type, with all of its fields, and would warn about that.
    """
    dump = getattr(item, "model_dump", None)
    if dump is None:
        return to_dict_or_empty(item)
    fields: dict[str, Any] = dump(mode="json", exclude_unset=True, warnings=False)
    return fields


def apply_compaction(request: Mapping[str, Any], compaction: ServerCompaction) -> dict[str, Any]:
    """The request with the compaction in the place of what it covers.

    If the client has changed any of that, the request is returned as it is: a summary of what is no longer
    there would say what the user took back.
    """
    api = _APIS[compaction.dialect]
    history = list_or_empty(request.get(api.history))
    covered = list(history[: compaction.covers])
    rest = list(history[compaction.covers :])
    if not rest or digest(covered) != compaction.covered:
        return request if isinstance(request, dict) else dict(request)
    return {**request, api.history: api.put_first(compaction.items, rest)}


def _put_items_first(items: Sequence[dict[str, Any]], rest: list[Any]) -> list[Any]:
    return [*items, *rest]


def _put_blocks_first(blocks: Sequence[dict[str, Any]], messages: list[Any]) -> list[Any]:
    """The messages with the compaction as the first block of the conversation.

    If the assistant speaks first, the block stands in its message; else in one of its own.
    """
    first = to_dict_or_empty(messages[0])
    if first.get("role") != "assistant":
        return [{"role": "assistant", "content": list(blocks)}, *messages]
    content = first.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    return [{**first, "content": [*blocks, *list_or_empty(content)]}, *messages[1:]]


class _CompactingApi(msgspec.Struct, frozen=True, kw_only=True):
    """How one API compacts a history, which it has in the field `history`.

    `write_call` writes the call for these messages with these instructions, and `read_items` reads what the
    answer has to stand in their place. `put_first` puts that before the rest of a history. `begins_turn` and
    `begins_step` say where a history may be divided.
    """

    history: str
    path: str
    headers: Mapping[str, str] = {}
    write_call: Callable[[Mapping[str, Any], list[Any], str], dict[str, Any]]
    read_items: Callable[[Any], list[dict[str, Any]]]
    put_first: Callable[[Sequence[dict[str, Any]], list[Any]], list[Any]]
    begins_turn: Callable[[Any], bool]
    begins_step: Callable[[Sequence[Any], int], bool]


_APIS = {
    "anthropic": _CompactingApi(
        history="messages",
        path="/v1/messages",
        headers={BETAS: ON_DEMAND_BETA},
        write_call=_write_messages_call,
        read_items=_read_messages_answer,
        put_first=_put_blocks_first,
        begins_turn=_begins_message_turn,
        begins_step=_begins_message_step,
    ),
    "openai_responses": _CompactingApi(
        history="input",
        path="/v1/responses/compact",
        write_call=_write_responses_call,
        read_items=_read_responses_answer,
        put_first=_put_items_first,
        begins_turn=_is_user_item,
        begins_step=_begins_item_step,
    ),
}
COMPACTING_DIALECTS = frozenset(_APIS)
"""The APIs that compact a history on demand."""


def recall_covered(request: Mapping[str, Any], key: str, *, dialect: str) -> tuple[Segment, ...]:
    """What a compaction covers, by its key, from the client's whole request."""
    return recall(DIALECTS[dialect].wire.parse(request).log, key)


class CompactionPrice(msgspec.Struct, frozen=True, kw_only=True):
    """What a compaction costs in input tokens at full price: the call itself, and the first request after it.

    `call` reads the history, from the cache if it is there, and writes the summary. `first` writes the
    summary and what follows it into the cache.
    """

    call: float
    first: float

    @property
    def total(self) -> float:
        return self.call + self.first


def price_compaction(
    rules: CacheRules, model: str, *, covered: int, rest: int, summary: int, is_cached: bool = True
) -> CompactionPrice:
    """Price a compaction of `covered` tokens to `summary` tokens. The `rest` of the history stays.

    `is_cached`: the history is in the provider's cache when it is compacted.
    """
    facts = model_or_none(model)
    prices = None
    if facts is not None:
        prices = price_of(facts)
    if prices is None or not prices.input or not prices.output:
        hint = "give a model whose prices of input and output are known"
        raise BadInput(f"no price of {model!r} is known", place="price_compaction", hint=hint)
    read = 1.0
    if is_cached:
        read = rules.read_share(model)
    return CompactionPrice(
        call=covered * read + summary * prices.output / prices.input,
        first=(summary + rest) * rules.write,
    )
