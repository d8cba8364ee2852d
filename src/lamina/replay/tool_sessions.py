"""Reads what recorded sessions say about their tools: definitions, calls, and the first use of each tool."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from lamina.caches import rates, rules_for
from lamina.core.deferred_tools import is_deferred
from lamina.core.tokens import Counter
from lamina.core.tool_definitions import definition_texts
from lamina.dialects.json_values import list_or_empty, mapping_or_empty
from lamina.errors import BadInput, LaminaError
from lamina.models.counters import counter_for
from lamina.models.counters.openai import o200k
from lamina.models.facts import model_or_none
from lamina.replay.message_sizes import MessageSizes
from lamina.replay.model_calls import RecordedConversation, read_conversation, read_tool_calls
from lamina.replay.values import Trace, UnreadableLine

SEARCH_TOKENS = 150
"""Tokens that a search leaves in the conversation: the model's question and a block with what was found.

Lamina counts 111 (Claude 4.6) and 147 (Claude 5.5) for the two blocks of Anthropic's API without references.
"""

QUERY_TOKENS = 40
"""How many of them the model writes, which are paid as output."""

OUTPUT_SHARE = 5.0
"""What a token of output costs in tokens of input, for a model whose prices are not known."""


def find_definitions(request: Mapping[str, Any], place: str) -> list[Mapping[str, Any]]:
    """The definitions of tools in a request, for `advise_tools`. Raises BadInput if it has none."""
    tools = [tool for tool in list_or_empty(request.get("tools")) if isinstance(tool, Mapping)]
    if next(_names_of(tools), None) is None:
        hint = "give a request with tools, as the client sends it"
        raise BadInput("it has no definitions of tools", place=place, hint=hint)
    return tools


def read_tool_sessions(
    traces: Iterable[Trace | UnreadableLine],
    *,
    definitions: Sequence[Mapping[str, Any]] = (),
    model: str = "",
) -> tuple[list[ToolSession], int]:
    """What the sessions say about tools, and how many of them are damaged; as in `advise_tools`."""
    sessions: list[ToolSession] = []
    damaged = 0
    for trace in traces:
        if isinstance(trace, UnreadableLine):
            damaged += not trace.foreign
            continue
        try:
            session = _read_session(trace, definitions, model)
        except (LaminaError, RecursionError):
            damaged += 1
            continue
        if session is not None:
            sessions.append(session)
    return sessions, damaged


class ToolSession(msgspec.Struct, frozen=True, kw_only=True):
    """One session: its definitions in order, and where each tool is called for the first time.

    `first_uses` has, for each request that calls tools which were not called before, its number, its tokens
    and these tools.
    """

    requests: int
    tokens: dict[str, int]
    texts: dict[str, str]
    calls: Tally[str]
    first_uses: tuple[tuple[int, int, frozenset[str]], ...]
    already_deferred: frozenset[str]
    write: float
    read: float
    output: float

    @property
    def used_names(self) -> frozenset[str]:
        return frozenset(name for _, _, names in self.first_uses for name in names)

    def price_from(self, request: int) -> float:
        """The price of a token that stands in every request from this one on."""
        return self.write + self.read * (self.requests - 1 - request)

    def search_price(self, request: int, prompt_tokens: int) -> float:
        """The price of one search in a request: it is read again, and what was found stays."""
        result = SEARCH_TOKENS * self.price_from(request)
        return self.read * prompt_tokens + QUERY_TOKENS * self.output + result


def _read_session(trace: Trace, definitions: Sequence[Mapping[str, Any]], model: str) -> ToolSession | None:
    """What a trace says about tools; None if it has no requests."""
    conversation = read_conversation(trace)
    if not conversation.calls:
        return None
    priced_model = model or trace.model
    counter: Counter = o200k()
    if priced_model:
        counter = counter_for(priced_model)
    deferred = frozenset(_names_of(filter(is_deferred, list_or_empty(trace.head.get("tools")))))
    tokens: dict[str, int] = {}
    texts: dict[str, str] = {}
    for tool in conversation.tools or definitions:
        for name, text in _read_definitions(tool):
            if name not in deferred:
                texts[name] = text
                tokens[name] = counter.count(text)
    price = rates(rules_for(priced_model, dialect=trace.dialect), priced_model)
    return ToolSession(
        requests=len(conversation.calls),
        tokens=tokens,
        texts=texts,
        calls=_count_calls(conversation),
        first_uses=tuple(_find_first_uses(conversation, counter)),
        already_deferred=deferred,
        write=price.write,
        read=price.read,
        output=_output_share(priced_model),
    )


def _read_definitions(tool: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The name and the text of each function that a definition has, in any provider's shape."""
    match tool:
        case {"functionDeclarations": [*functions]} | {"function_declarations": [*functions]}:
            for function in functions:
                yield from _read_definitions(mapping_or_empty(function))
        case {"function": {"name": str(name)}} | {"name": str(name)} if name:
            # without the switch, a tool has one text whether or not a session defers it
            yield name, "".join(definition_texts({**tool, "defer_loading": None}))


def _names_of(tools: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for tool in tools:
        for name, _ in _read_definitions(tool):
            yield name


def _called_names(messages: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The tools that the answer at the beginning of these messages calls.

    All messages of the assistant in a row are one answer.
    """
    for message in messages:
        if message.get("role") != "assistant":
            return
        for call in read_tool_calls(message):
            if call.name:
                yield call.name


def _count_calls(conversation: RecordedConversation) -> Tally[str]:
    """How often each tool is called in the answers to these requests."""
    calls: Tally[str] = Tally()
    for call in conversation.calls:
        calls.update(_called_names(conversation.messages[call.end :]))
    return calls


def _find_first_uses(
    conversation: RecordedConversation, counter: Counter
) -> Iterator[tuple[int, int, frozenset[str]]]:
    """The requests whose answers call tools for the first time: number, tokens, and these tools."""
    sizes = MessageSizes(counter, conversation.tools)
    used: set[str] = set()
    for number, call in enumerate(conversation.calls):
        called = set(_called_names(conversation.messages[call.end :]))
        # a recording may begin in the middle: what was called before it has to be there in its first request
        if number == 0:
            for message in conversation.messages[: call.end]:
                called.update(_called_names([message]))
        new = frozenset(called - used)
        if not new:
            continue
        used |= new
        prompt_tokens = call.sent or sizes.count_tokens(conversation.messages[: call.end])
        yield number, prompt_tokens, new


def _output_share(model: str) -> float:
    """What a token of output costs, in tokens of input."""
    facts = model_or_none(model)
    if facts is None or not facts.prices.input or not facts.prices.output:
        return OUTPUT_SHARE
    return facts.prices.output / facts.prices.input
