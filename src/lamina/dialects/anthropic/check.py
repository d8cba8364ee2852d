"""Checks a request against the rules of the Messages API that can be verified without calling it.

Each rule is a function from a `MessagesReading` to its breaches, and one row of `RULES`. The docstring of a
rule begins with its number, by which documents and tests cite it. A request that cannot be parsed breaks
`readable` (or `roles`), and no other rule is tried. Sizes, prices and what a tool's schema allows are not
checked.

Below, the rules stand in groups: about whole messages, about calls and results, about thinking, and about
cache markers, with the functions that find the markers of a request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lamina.core.bound_thinking import is_thinking
from lamina.core.build import build
from lamina.core.hashing import stem_of
from lamina.core.text.characters import is_blank
from lamina.core.values import Digest, Head, Ledger, Segment
from lamina.dialects.anthropic.model import (
    DEFAULT_LIFETIME,
    LONG_LIFETIME,
    MARKER,
    MARKER_LIMIT,
    THINKING_TYPES,
    is_safe_name,
    read_model,
    refuses_system_messages,
    rejects_prefill,
)
from lamina.dialects.anthropic.parse import begins_with_compaction, is_server_result, parse, read_blocks
from lamina.dialects.json_values import (
    LIST_TYPES,
    Json,
    list_or_empty,
    text_or_empty,
    to_dict_or_empty,
    to_dict_or_none,
)
from lamina.dialects.memos import CheckMemo, recheck
from lamina.dialects.origins import read_origin
from lamina.dialects.port import Request, Violation
from lamina.dialects.words import OPENING
from lamina.errors import BadInput

OPENING_MESSAGE = {"role": "user", "content": OPENING}
"""What `render` puts first where the assistant would begin: the API wants the user first."""


def check(request: Request, *, ledger: Ledger | None = None) -> list[Violation]:
    """What the API would refuse, in the order of the rules. With a ledger, bound thinking is verified too."""
    try:
        parse(request)
    except BadInput as error:
        rule = "readable"
        if error.place.endswith(".role"):
            rule = "roles"
        return [Violation(rule=rule, place=error.place, message=f"{error.problem}; {error.hint}")]
    return check_again(request, ledger=ledger)


def check_again(
    request: Request, memo: CheckMemo | None = None, *, ledger: Ledger | None = None
) -> list[Violation]:
    """Like `check`, for a request that was parsed or rendered here: it is not parsed again."""

    def apply_rules(
        past: EarlierMessages, past_count: int, messages: list[MessageReading]
    ) -> list[Violation]:
        markers = [*find_markers_before_messages(request), *past.markers]
        for message in messages:
            markers += message.markers
        markers += find_request_marker(request)
        reading = MessagesReading(request, messages, markers, past, past_count > 0, ledger)
        violations: list[Violation] = []
        for name, rule in RULES.items():
            for place, problem in rule(reading):
                violations.append(Violation(rule=name, place=place, message=problem))
        return violations

    def answers_user(previous: MessageReading, message: MessageReading) -> bool:
        return message.role == "assistant" and previous.role == "user"

    return recheck(
        request["messages"],
        memo,
        basis=read_model(request),
        past=EarlierMessages,
        view=MessageReading,
        seam=answers_user,
        rules=apply_rules,
    )


PlacedBlock = tuple[int, Json]
"""A block with its position in its message."""


class MessageReading:
    """A message as the rules look at it: its blocks, and apart from them its calls, results and thoughts.

    `block_place` turns the position of a block into a path into the request. `is_directive` says that it is a
    system message without words, which only sets something: its content is an empty list.
    """

    __slots__ = (
        "blocks",
        "calls",
        "is_directive",
        "markers",
        "message",
        "position",
        "results",
        "role",
        "thoughts",
    )

    def __init__(self, message: Any, position: int) -> None:
        mapping = to_dict_or_empty(message)
        self.position = position
        self.message = message
        self.role = str(mapping.get("role"))
        self.blocks = read_blocks(mapping)
        self.is_directive = (
            self.role == "system" and not self.blocks and isinstance(mapping.get("content"), LIST_TYPES)
        )
        self.calls: list[PlacedBlock] = []
        self.results: list[PlacedBlock] = []
        self.thoughts: list[PlacedBlock] = []
        self.markers: list[PlacedMarker] = []
        for block_index, block in enumerate(self.blocks):
            block_type = block.get("type")
            if block_type == "tool_use":
                self.calls.append((block_index, block))
            elif block_type == "tool_result":
                self.results.append((block_index, block))
            elif block_type in THINKING_TYPES:
                self.thoughts.append((block_index, block))
            # Most blocks have no marker, and long requests have many blocks: look only where one can be.
            may_hold_markers = block_type == "tool_result" and not isinstance(block.get("content"), str)
            if MARKER in block or may_hold_markers:
                self.markers += find_markers_on_block(block, self.block_place(block_index))

    @property
    def place(self) -> str:
        return f"messages[{self.position}]"

    def block_place(self, block_index: int) -> str:
        return f"messages[{self.position}].content[{block_index}]"


class EarlierMessages:
    """What the rules need to know of messages that were checked before: the ids of calls, and the markers."""

    def __init__(self) -> None:
        self.call_ids: set[str] = set()
        self.markers: list[PlacedMarker] = []

    def add(self, message: MessageReading) -> None:
        self.call_ids |= _collect_ids(message.calls, "id")
        self.markers += message.markers


LocatedBlock = tuple[MessageReading, int, Json]
"""A block with its message and its position in that."""


class MessagesReading(NamedTuple):
    """A request as the rules look at it, read once for all of them.

    `messages` are those to look at, `markers` those of the whole request. `has_earlier_messages` says that
    other messages come before those to look at; `past` is what is known of them.
    """

    request: Request
    messages: Sequence[MessageReading]
    markers: Sequence[PlacedMarker]
    past: EarlierMessages
    has_earlier_messages: bool
    ledger: Ledger | None = None

    def calls(self) -> Iterator[LocatedBlock]:
        """The calls of all messages to look at."""
        for message in self.messages:
            for block_index, block in message.calls:
                yield message, block_index, block

    def thoughts(self) -> Iterator[LocatedBlock]:
        """The thinking blocks of all messages to look at."""
        for message in self.messages:
            for block_index, block in message.thoughts:
                yield message, block_index, block


Breaches = Iterator[tuple[str, str]]
"""Places, each with what is wrong there."""

Rule = Callable[[MessagesReading], Breaches]


def has_limit(reading: MessagesReading) -> Breaches:
    """A request says how long the answer may be."""
    limit = reading.request.get("max_tokens")
    if not isinstance(limit, int) or limit < 0:
        yield "max_tokens", "max_tokens: field required, as a number"


def begins_with_user(reading: MessagesReading) -> Breaches:
    """A1: the first message is the user's, or a compaction.

    A compaction replaces what the user said before it. A system message may come first too, as far as this
    rule is concerned; A11 says more about those.
    """
    if reading.has_earlier_messages:
        return
    if not reading.messages:
        yield "messages", "at least one message is required"
        return
    first = reading.messages[0]
    if first.role == "assistant" and not begins_with_compaction(first.blocks):
        yield "messages[0].role", "the first message must use the user role"


def ends_with_user(reading: MessagesReading) -> Breaches:
    """A2: models from 4.6 on take no assistant prefill.

    A prefill is an assistant message at the end, which the model would have continued.
    """
    if not reading.messages:
        return
    last = reading.messages[-1]
    if last.role == "assistant" and rejects_prefill(read_model(reading.request)):
        yield last.place, "this model does not support assistant message prefill; end with a user message"


def nothing_is_empty(reading: MessagesReading) -> Breaches:
    """A8: no blank text, and no message without content.

    Texts are looked for in messages, inside tool results, and in the system text. A directive, which is a
    system message with an empty list of blocks, is allowed.
    """
    for message in reading.messages:
        if not message.blocks and not message.is_directive:
            yield message.place, "messages must have non-empty content"
        for block_index, block in enumerate(message.blocks):
            for inner_place in _find_blank_texts(block):
                place = f"{message.block_place(block_index)}{inner_place}"
                yield place, "text content blocks must be non-empty"
    for position, system_block in enumerate(list_or_empty(reading.request.get("system"))):
        for inner_place in _find_blank_texts(to_dict_or_empty(system_block)):
            yield f"system[{position}]{inner_place}", "system: text content blocks must be non-empty"


def _find_blank_texts(block: Json) -> Iterator[str]:
    """The places of blank texts in a block: "" for its own, ".content[0]" for one inside a result."""
    block_type = block.get("type")
    if block_type == "text":
        if is_blank(str(block.get("text"))):
            yield ""
    elif block_type == "tool_result":
        for position, piece in enumerate(list_or_empty(block.get("content"))):
            inner = to_dict_or_empty(piece)
            if inner.get("type") == "text" and is_blank(str(inner.get("text"))):
                yield f".content[{position}]"


def system_messages_stand_right(reading: MessagesReading) -> Breaches:
    """A11: after the user, or a server tool's result; last, or before the assistant.

    A directive (a system message without words) may stand before the user too. So the neighbours of a system
    message are looked for past it.
    """
    previous: MessageReading | None = None
    unfollowed: MessageReading | None = None  # a system message whose next neighbour was not seen yet
    for message in reading.messages:
        if unfollowed is not None and not message.is_directive:
            if message.role != "assistant":
                problem = "a system message must be last, or stand before an assistant message"
                yield unfollowed.place, problem
            unfollowed = None
        if message.role == "system" and not _may_follow(previous, message):
            yield message.place, "a system message must follow a user message"
        if message.is_directive:
            continue
        previous = message
        if message.role == "system":
            unfollowed = message


def _may_follow(previous: MessageReading | None, system_message: MessageReading) -> bool:
    if previous is None:
        return False
    if previous.role == "assistant":
        return bool(previous.blocks) and is_server_result(previous.blocks[-1])
    return previous.role == "user" or system_message.is_directive


def system_messages_are_taken(reading: MessagesReading) -> Breaches:
    """A11: models before 4.8 have no system messages, only `system`."""
    if not refuses_system_messages(read_model(reading.request)):
        return
    for message in reading.messages:
        if message.role == "system":
            yield message.place, 'this model takes no messages with the role "system"'


def calls_are_answered(reading: MessagesReading) -> Breaches:
    """A3: every tool_use has its tool_result in the next message.

    Broken if the user interrupted a call and the client sent only "go on" after it.
    """
    for position, message in enumerate(reading.messages):
        if not message.calls:
            continue
        results: Sequence[PlacedBlock] = ()
        if position + 1 < len(reading.messages):
            results = reading.messages[position + 1].results
        answered_ids = _collect_ids(results, "tool_use_id")
        for block_index, call in message.calls:
            call_id = call.get("id")
            if call_id not in answered_ids:
                problem = f"`tool_use` id {call_id!r} without a `tool_result` immediately after"
                yield message.block_place(block_index), problem


def results_have_their_call(reading: MessagesReading) -> Breaches:
    """A4: every tool_result answers a tool_use of the message before it.

    Broken if a client cut off the front of its history between a call and its result.
    """
    calls_before: Sequence[PlacedBlock] = ()
    for message in reading.messages:
        if message.results:
            call_ids = _collect_ids(calls_before, "id")
            for block_index, result in message.results:
                call_id = result.get("tool_use_id")
                if call_id not in call_ids:
                    problem = f"unexpected `tool_use_id` {call_id!r}: no such call just before"
                    yield message.block_place(block_index), problem
        calls_before = message.calls


def _collect_ids(blocks: Sequence[PlacedBlock], field: str) -> set[str]:
    """The ids that some blocks have in this field."""
    ids: set[str] = set()
    for _, block in blocks:
        block_id = block.get(field)
        if isinstance(block_id, str):
            ids.add(block_id)
    return ids


def results_come_once(reading: MessagesReading) -> Breaches:
    """A4: a call has one result."""
    for message in reading.messages:
        if len(message.results) < 2:
            continue
        results = [(message, block_index, block) for block_index, block in message.results]
        yield from _find_repeated_ids(results, "tool_use_id", "a second result for")


def call_ids_are_unique(reading: MessagesReading) -> Breaches:
    """A5: no two tool_use blocks share an id, in the whole conversation.

    Broken by clients that count calls from 1 in each turn.
    """
    problem = "`tool_use` ids must be unique:"
    yield from _find_repeated_ids(reading.calls(), "id", problem, earlier_ids=reading.past.call_ids)


def _find_repeated_ids(
    blocks: Iterable[LocatedBlock], field: str, problem: str, *, earlier_ids: Collection[str] = ()
) -> Breaches:
    """Reports blocks whose id an earlier one has, among these blocks or before them."""
    seen_ids: set[str] = set()
    for message, block_index, block in blocks:
        block_id = block.get(field)
        if not isinstance(block_id, str):
            continue
        if block_id in seen_ids or block_id in earlier_ids:
            yield message.block_place(block_index), f"{problem} {block_id!r}"
        seen_ids.add(block_id)


def results_come_first(reading: MessagesReading) -> Breaches:
    """A6: in a user message, results come before everything else.

    The results of one message are numbered 0, 1, 2 …; if each stands at the position of its number, nothing
    else comes before it.
    """
    for message in reading.messages:
        for rank, (block_index, _) in enumerate(message.results):
            if block_index != rank:
                place = message.block_place(block_index)
                yield place, "`tool_result` blocks must come before other content"


def names_are_allowed(reading: MessagesReading) -> Breaches:
    """A16: names of tools and ids of calls have letters, digits, `_` and `-`, at most 128."""
    for position, tool in enumerate(reading.request.get("tools") or ()):
        if "name" in tool and not is_safe_name(text_or_empty(tool["name"])):
            yield f"tools[{position}].name", "tool names should match '^[a-zA-Z0-9_-]{1,128}$'"
    for message, block_index, call in reading.calls():
        for field in ("name", "id"):
            if not is_safe_name(text_or_empty(call.get(field))):
                problem = f"tool_use.{field} should match '^[a-zA-Z0-9_-]{{1,128}}$'"
                yield f"{message.block_place(block_index)}.{field}", problem


def thinking_is_whole(reading: MessagesReading) -> Breaches:
    """A9, by shape: thinking has its signature, redacted thinking its data."""
    for message, block_index, block in reading.thoughts():
        block_type = block["type"]
        field = "data"
        if block_type == "thinking":
            field = "signature"
        if not text_or_empty(block.get(field)):
            problem = f"`{block_type}` blocks cannot be modified: {field} is missing"
            yield message.block_place(block_index), problem


def thinking_is_bound(reading: MessagesReading) -> Breaches:
    """A10: what comes before bound thinking is what came before it when it was first sent.

    The request is hashed again and compared with the ledger. `render` may have put a user message first, so
    the request is also tried without it. Some requests cannot be judged, and nothing is reported for them: if
    there are system messages, which `render` may have moved; if the ledger has repairs, since then the
    messages are not those that were hashed; and equal thoughts, which cannot be told apart.
    """
    ledger = reading.ledger
    if ledger is None or not ledger.bound or ledger.repairs:
        return
    if any(message.role == "system" for message in reading.messages):
        return
    parsed = parse(reading.request)
    unbound = _find_unbound_thoughts(parsed.log, parsed.head, ledger)
    if unbound and reading.messages and reading.messages[0].message == OPENING_MESSAGE:
        rest = _drop_message(parsed.log, reading.messages[0].message)
        unbound &= _find_unbound_thoughts(rest, parsed.head, ledger)
    places = [message.block_place(block_index) for message, block_index, _ in reading.thoughts()]
    for number in sorted(unbound):
        yield places[number], "invalid `signature` in `thinking` block: bound to a different conversation"


def _drop_message(log: Iterable[Segment], message: Any) -> list[Segment]:
    """The log without the segments that came from this message."""
    rest: list[Segment] = []
    for segment in log:
        origin = read_origin(segment)
        if origin is None or origin.message is not message:
            rest.append(segment)
    return rest


def _find_unbound_thoughts(log: Sequence[Segment], head: Head, ledger: Ledger) -> set[int]:
    """The numbers of thoughts, counted from 0, that do not come after what the ledger says."""
    recorded_prefixes: dict[str, list[Digest]] = {}
    for ref, prefix in ledger.bound.items():
        recorded_prefixes.setdefault(stem_of(ref), []).append(prefix)

    unbound: set[int] = set()
    envelope = build(log, head=head)
    number = 0
    prefix = envelope.root
    for entry in envelope.entries:
        if is_thinking(entry):
            recorded = recorded_prefixes.get(stem_of(entry.ref), [])
            if len(recorded) == 1 and recorded[0] != prefix:
                unbound.add(number)
            number += 1
        prefix = entry.prefix
    return unbound


def marks_are_few(reading: MessagesReading) -> Breaches:
    """A12: at most four cache markers, the one for the whole request included."""
    count = len(reading.markers)
    if count > MARKER_LIMIT:
        first_too_many = reading.markers[MARKER_LIMIT]
        yield first_too_many.place, f"at most {MARKER_LIMIT} blocks may have cache_control; found {count}"


def long_marks_come_first(reading: MessagesReading) -> Breaches:
    """A12: markers with ttl 1h come before those with 5m.

    5m, 1h breaks the rule; 1h, 5m and 1h, 1h do not.
    """
    short_seen = False
    for marker in reading.markers:
        if marker.lifetime != LONG_LIFETIME:
            short_seen = True
        elif short_seen:
            yield marker.place, "a ttl='1h' cache_control block must not come after a ttl='5m' one"


def marks_are_allowed(reading: MessagesReading) -> Breaches:
    """A12: no marker on thinking."""
    for marker in reading.markers:
        if marker.is_refused:
            yield marker.place, "cache_control cannot be set for thinking blocks"


class PlacedMarker(NamedTuple):
    """A marker in a request: on which block, for how long, and whether the API refuses it on such a block."""

    place: str
    lifetime: str
    is_refused: bool = False


def find_markers(request: Request) -> Iterator[PlacedMarker]:
    """The markers of a request in the order in which the API reads it, that of the whole request last."""
    yield from find_markers_before_messages(request)
    for message_index, message in enumerate(list_or_empty(request.get("messages"))):
        content = to_dict_or_empty(message).get("content")
        for block_index, block in enumerate(list_or_empty(content)):
            yield from find_markers_on_block(block, f"messages[{message_index}].content[{block_index}]")
    yield from find_request_marker(request)


def find_markers_before_messages(request: Request) -> Iterator[PlacedMarker]:
    """The markers on tools and on the system text."""
    for name in ("tools", "system"):
        for position, block in enumerate(list_or_empty(request.get(name))):
            yield from find_markers_on_block(block, f"{name}[{position}]")


def find_request_marker(request: Request) -> Iterator[PlacedMarker]:
    """The marker for the whole request."""
    lifetime = read_lifetime(request)
    if lifetime is not None:
        yield PlacedMarker(MARKER, lifetime)


def find_markers_on_block(block: Any, place: str) -> Iterator[PlacedMarker]:
    """The markers inside a tool result, then the block's own."""
    mapping = to_dict_or_none(block)
    if mapping is None:
        return
    block_type = mapping.get("type")
    if block_type == "tool_result":
        for position, piece in enumerate(list_or_empty(mapping.get("content"))):
            yield from find_markers_on_block(piece, f"{place}.content[{position}]")
    lifetime = read_lifetime(mapping)
    if lifetime is not None:
        yield PlacedMarker(place, lifetime, is_refused=block_type in THINKING_TYPES)


def read_lifetime(holder: Mapping[str, Any]) -> str | None:
    """The lifetime that the marker of a block or request asks for; None if it has no marker, or a null."""
    marker = holder.get(MARKER)
    if marker is None:
        return None
    lifetime = to_dict_or_empty(marker).get("ttl")
    if isinstance(lifetime, str):
        return lifetime
    return DEFAULT_LIFETIME


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        has_limit,
        begins_with_user,
        ends_with_user,
        calls_are_answered,
        results_have_their_call,
        results_come_once,
        call_ids_are_unique,
        results_come_first,
        nothing_is_empty,
        thinking_is_whole,
        thinking_is_bound,
        system_messages_stand_right,
        system_messages_are_taken,
        marks_are_few,
        long_marks_come_first,
        marks_are_allowed,
        names_are_allowed,
    )
}
"""All rules, in the order in which they are reported."""
