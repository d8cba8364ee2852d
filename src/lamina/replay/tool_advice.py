"""Advises which tools to load, which to defer, and in which order, from recorded sessions.

A loaded tool stands in the prompt from the first request on: its definition is written to the cache once and
read with every later request. A deferred one takes nothing until an answer calls it. Then the model searches
for it, so the request is read once more, and its definition is read from there on. Both are priced for each
recorded session, in tokens of input at full price. A tool is deferred if that saves more than its searches
cost. A search that finds several tools is shared out evenly among them. On 199 sessions of tau-bench the best
set of all, found by a minimal cut, was the same.

Sessions are taken as they were recorded. They do not say whether a model searches for a tool that it does not
see: the price is what deferral saves if it does.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from lamina.caches import rates, rules_for
from lamina.core.tokens import Counter
from lamina.core.tool_definitions import definition_texts, is_deferred
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


class ToolRow(msgspec.Struct, frozen=True, kw_only=True):
    """One tool. `sessions` had it, `used_in` of them called it, `calls` times together.

    `tokens` are those of its largest definition, 0 if no session has one. `steady` is the share of all
    sessions that have its most common definition. `saves` is what deferring it would save, in tokens of
    input at full price over all sessions; below 0 it would cost so much.
    """

    name: str
    tokens: int
    sessions: int
    used_in: int
    calls: int
    definitions: int
    steady: float
    load: bool
    saves: int


class ToolAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """What recorded sessions say about their tools.

    `tools` has those to load first, in the order to give them in. `loaded_price` is what all definitions took
    as recorded, `deferred_price` what they and the `searches` take under the advice, in tokens of input at
    full price. `unknown` are tools that were called and that no session defines.
    """

    sessions: int = 0
    requests: int = 0
    tools: tuple[ToolRow, ...] = ()
    unknown: tuple[str, ...] = ()
    already_deferred: tuple[str, ...] = ()
    loaded_price: int = 0
    deferred_price: int = 0
    searches: int = 0
    first_tokens: int = 0
    first_tokens_advised: int = 0
    damaged: int = 0

    @property
    def load(self) -> tuple[str, ...]:
        return tuple(tool.name for tool in self.tools if tool.load)

    @property
    def defer(self) -> tuple[str, ...]:
        return tuple(tool.name for tool in self.tools if not tool.load)


def advise_tools(
    traces: Iterable[Trace | UnreadableLine],
    *,
    definitions: Sequence[Mapping[str, Any]] = (),
    model: str = "",
) -> ToolAdvice:
    """The advice for the tools of these sessions.

    `definitions` are the tools of sessions whose records have none, in any provider's shape. `model` is the
    one whose tokens and prices count; by default, each session's own.
    """
    sessions, damaged = read_tool_sessions(traces, definitions=definitions, model=model)
    return msgspec.structs.replace(advise_sessions(sessions), damaged=damaged)


def price_deferral(sessions: Sequence[ToolSession], deferred: Iterable[str]) -> tuple[int, int]:
    """What definitions and searches take if these tools are deferred, and the number of searches."""
    names = frozenset(deferred)
    price = sum(sum(session.tokens.values()) * session.price_from(0) for session in sessions)
    gains = _sum_gains(sessions)
    price -= sum(gain for name, gain in gains.items() if name in names)
    for tools, search_price in _sum_searches(sessions, gains.keys()).items():
        if tools & names:
            price += search_price
    return round(price), _count_searches(sessions, names)


def advise_sessions(sessions: Sequence[ToolSession]) -> ToolAdvice:
    """Choose what to defer over all sessions, and add up what that changes."""
    gains = _sum_gains(sessions)
    searches = _sum_searches(sessions, gains.keys())
    rows = [_make_row(name, sessions, gains, searches) for name in gains]
    # What most sessions begin with in the same words stands first: a cache keeps it from one to the next.
    rows.sort(key=lambda row: (not row.load, -row.steady, row.definitions, -row.calls, row.name))
    order = [row.name for row in rows if row.load]
    called = frozenset[str]().union(*(session.used_names for session in sessions))
    already_deferred = frozenset[str]().union(*(session.already_deferred for session in sessions))
    first_tokens_advised = 0
    for session in sessions:
        first_tokens_advised += sum(session.tokens.get(name, 0) for name in order)
    loaded_price, _ = price_deferral(sessions, ())
    deferred_price, search_count = price_deferral(sessions, [row.name for row in rows if not row.load])
    return ToolAdvice(
        sessions=len(sessions),
        requests=sum(session.requests for session in sessions),
        tools=tuple(rows),
        unknown=tuple(sorted(called - gains.keys() - already_deferred)),
        already_deferred=tuple(sorted(already_deferred)),
        loaded_price=loaded_price,
        deferred_price=deferred_price,
        searches=search_count,
        first_tokens=sum(sum(session.tokens.values()) for session in sessions),
        first_tokens_advised=first_tokens_advised,
    )


def _sum_gains(sessions: Sequence[ToolSession]) -> dict[str, float]:
    """What each tool saves if it is deferred, without the searches for it.

    It is the definition in the requests before the tool's first use. In a session without one, these are all.
    """
    gains: dict[str, float] = {}
    for session in sessions:
        first_uses = {name: number for number, _, names in session.first_uses for name in names}
        for name, tokens in session.tokens.items():
            gain = tokens * session.price_from(0)
            if name in first_uses:
                gain -= tokens * session.price_from(first_uses[name])
            gains[name] = gains.get(name, 0.0) + gain
    return gains


def _sum_searches(sessions: Sequence[ToolSession], names: Iterable[str]) -> dict[frozenset[str], float]:
    """What searches cost, by the tools that an answer calls for the first time together."""
    defined = frozenset(names)
    searches: dict[frozenset[str], float] = {}
    for session in sessions:
        for number, prompt_tokens, first_used in session.first_uses:
            tools = first_used & defined & frozenset(session.tokens)
            if tools:
                searches[tools] = searches.get(tools, 0.0) + session.search_price(number, prompt_tokens)
    return searches


def _count_searches(sessions: Sequence[ToolSession], deferred: frozenset[str]) -> int:
    count = 0
    for session in sessions:
        for _, _, first_used in session.first_uses:
            count += not (first_used & deferred).isdisjoint(session.tokens)
    return count


def _make_row(
    name: str,
    sessions: Sequence[ToolSession],
    gains: Mapping[str, float],
    searches: Mapping[frozenset[str], float],
) -> ToolRow:
    having = [session for session in sessions if name in session.tokens]
    texts = Tally(session.texts[name] for session in having)
    search_price = sum(price / len(tools) for tools, price in searches.items() if name in tools)
    saves = round(gains[name] - search_price)
    return ToolRow(
        name=name,
        tokens=max(session.tokens[name] for session in having),
        sessions=len(having),
        used_in=sum(name in session.used_names for session in having),
        calls=sum(session.calls[name] for session in having),
        definitions=len(texts),
        steady=max(texts.values()) / len(sessions),
        load=saves <= 0,
        saves=saves,
    )


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
    """What a trace says about tools; None if it has no requests, or if their texts are not kept."""
    if not trace.items:
        return None
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
