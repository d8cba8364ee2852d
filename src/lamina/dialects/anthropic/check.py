"""Checks a request against the rules of the Messages API that can be verified without calling it.

Each rule is a function from a `RequestReading` to its breaches, and one row of `RULES`. The docstring of
most begins with a number, by which tests cite it. A request that cannot be parsed breaks
`readable` (or `roles`), and no other rule is tried. Sizes, prices and what a tool's schema allows are not
checked.

The rules stand in groups: about whole messages, about calls and results, about thinking, and about cache
markers. `RequestReading` reads the request for them once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from operator import attrgetter
from typing import Any, NamedTuple

from lamina.core.text.characters import is_blank
from lamina.dialects.anthropic.markers import (
    PlacedMarker,
    find_markers,
    find_markers_on_block,
    may_hold_markers,
)
from lamina.dialects.anthropic.model import (
    LONG_LIFETIME,
    MARKER_LIMIT,
    SERVER_CALL_TYPES,
    THINKING_TYPES,
    begins_with_compaction,
    continues_thread,
    is_safe_name,
    is_server_result,
    read_blocks,
    read_model,
    refuses_system_messages,
    rejects_prefill,
)
from lamina.dialects.anthropic.parse import parse
from lamina.dialects.json_values import (
    LIST_TYPES,
    Json,
    find_repeats,
    list_or_empty,
    text_or_empty,
    text_or_none,
    to_dict_or_empty,
)
from lamina.dialects.memos import CheckMemo
from lamina.dialects.port import Request, Violation
from lamina.dialects.rules import Faults, check_growing, name_rules, report_unreadable
from lamina.errors import BadInput


def check(request: Request, *, memo: CheckMemo | None = None) -> list[Violation]:
    """What the API would refuse, in the order of the rules.

    `{"messages": [{"role": "tool", …}]}` breaks `roles`, and no other rule is tried.
    """
    if memo is None:  # else it was parsed or rendered here
        try:
            parse(request)
        except BadInput as error:
            return [report_unreadable(error)]
    return check_growing(
        request,
        request["messages"],
        memo,
        rules=RULES,
        view=MessageReading,
        past=EarlierMessages,
        reading=RequestReading,
        basis=read_model(request),
        ends_a_step=lambda message: message.role == "user",
    )


_READ_CALL_ID: Callable[[BlockReading], str | None] = attrgetter("call_id")


def has_limit(reading: RequestReading) -> Faults:
    """A request says how long the answer may be.

    Broken by requests that were written for another API: everywhere else the limit is optional.
    """
    # 0 is allowed: it warms the cache and answers nothing (documentation of 2026-09-26).
    limit = reading.request.get("max_tokens")
    if not isinstance(limit, int) or limit < 0:
        yield "max_tokens", "max_tokens: field required, as a number"


def begins_with_user(reading: RequestReading) -> Faults:
    """A1: the first message is the user's, or a compaction.

    A compaction replaces what the user said before it. A system message may come first too, as far as this
    rule is concerned; A11 says more about those.

    Broken if a client cut off the front of its history.
    """
    if not reading.past.is_empty:
        return
    if not reading.messages:
        yield "messages", "at least one message is required"
    for first in reading.messages[:1]:
        if first.role == "assistant" and not begins_with_compaction(first.blocks):
            yield "messages[0].role", "the first message must use the user role"


def ends_with_user(reading: RequestReading) -> Faults:
    """A2: models from 4.6 on take no assistant prefill.

    A prefill is an assistant message at the end, which the model would have continued.

    `{"role": "assistant", "content": "{"}` at the end was a way to get JSON.
    """
    if not rejects_prefill(read_model(reading.request)):
        return
    for last in reading.messages[-1:]:
        # An answer that stopped with "pause_turn" is sent back as it came, and the server's tools go on.
        was_paused = any(block.get("type") in SERVER_CALL_TYPES for block in last.blocks)
        if last.role == "assistant" and not was_paused:
            yield last.place, "this model does not support assistant message prefill; end with a user message"


def nothing_is_empty(reading: RequestReading) -> Faults:
    """A8: no blank text, and no message without content.

    Texts are looked for in messages, inside tool results, and in the system text. A directive, which is a
    system message with an empty list of blocks, is allowed.

    Broken by `{"type": "text", "text": ""}`, which an answer may have before a call.
    """
    for message in reading.messages:
        if not message.blocks and not message.is_directive:
            yield message.place, "messages must have non-empty content"
        for index, block in enumerate(message.blocks):
            for inner_place in _find_blank_texts(block):
                place = f"{message.place}.content[{index}]{inner_place}"
                yield place, "text content blocks must be non-empty"
    for position, system_block in enumerate(list_or_empty(reading.request.get("system"))):
        for inner_place in _find_blank_texts(to_dict_or_empty(system_block)):
            yield f"system[{position}]{inner_place}", "system: text content blocks must be non-empty"


def _find_blank_texts(block: Json) -> Sequence[str]:
    """The places of blank texts in a block: "" for its own, ".content[0]" for one inside a result.

    Of `{"type": "tool_result", "content": [{"type": "text", "text": " "}]}` it is `.content[0]`.
    """
    block_type = block.get("type")
    if block_type == "text" and is_blank(str(block.get("text"))):
        return ("",)
    if block_type != "tool_result":
        return ()
    places: list[str] = []
    for position, piece in enumerate(list_or_empty(block.get("content"))):
        inner = to_dict_or_empty(piece)
        if inner.get("type") == "text" and is_blank(str(inner.get("text"))):
            places.append(f".content[{position}]")
    return places


def system_messages_stand_right(reading: RequestReading) -> Faults:
    """A11: after the user, or a server tool's result; last, or before the assistant.

    A directive (a system message without words) may stand before the user too. So the neighbours of a system
    message are looked for past it.
    """
    previous: MessageReading | None = None
    for message in reading.messages:
        is_system = message.role == "system"
        if is_system and not _may_follow(previous, message):
            yield message.place, "a system message must follow a user message"
        if message.is_directive:
            continue
        if previous is not None and previous.role == "system" and message.role != "assistant":
            yield previous.place, "a system message must be last, or stand before an assistant message"
        previous = message


def _may_follow(previous: MessageReading | None, system_message: MessageReading) -> bool:
    """Whether a system message may stand here. A directive may also stand after another system message.

    It may after "user", and after an assistant whose last block is the result of a web search, say.
    """
    if previous is None:
        return False
    if previous.role == "assistant":
        return bool(previous.blocks) and is_server_result(previous.blocks[-1])
    return previous.role == "user" or system_message.is_directive


def system_messages_are_taken(reading: RequestReading) -> Faults:
    """A11: models before 4.8 have no system messages, only `system`.

    Broken by clients that put a reminder into the conversation, as the APIs of OpenAI allow.
    """
    if not refuses_system_messages(read_model(reading.request)):
        return
    for message in reading.messages:
        if message.role == "system":
            yield message.place, 'this model takes no messages with the role "system"'


def calls_are_answered(reading: RequestReading) -> Faults:
    """A3: every tool_use has its tool_result in the next message.

    Broken if the user interrupted a call and the client sent only "go on" after it.
    """
    for message, next_message in zip_longest(reading.messages, reading.messages[1:]):
        if not message.calls:
            continue
        answered_ids: set[str | None] = set()
        if next_message is not None:
            answered_ids = {result.call_id for result in next_message.results}
        for call in message.calls:
            if call.call_id not in answered_ids:
                yield call.place, f"`tool_use` id {call.call_id!r} without a `tool_result` immediately after"


def results_have_their_call(reading: RequestReading) -> Faults:
    """A4: every tool_result answers a tool_use of the message before it.

    Results at the beginning may answer calls that only the server has, if it has what came before.

    Broken if a client cut off the front of its history between a call and its result.
    """
    call_ids: set[str | None] = set()
    messages = reading.messages
    if reading.past.is_empty and continues_thread(reading.request):
        messages = messages[1:]
    for message in messages:
        for result in message.results:
            if result.call_id not in call_ids:
                problem = f"unexpected `tool_use_id` {result.call_id!r}: no such call just before"
                yield result.place, problem
        call_ids = {call.call_id for call in message.calls}


def results_come_once(reading: RequestReading) -> Faults:
    """A4: a call has one result.

    Broken by a client that sends the result of a call again after it was interrupted.
    """
    for message in reading.messages:
        if len(message.results) < 2:
            continue
        for result, call_id in find_repeats(message.results, _READ_CALL_ID):
            yield result.place, f"a second result for {call_id!r}"


def call_ids_are_unique(reading: RequestReading) -> Faults:
    """A5: no two tool_use blocks share an id, in the whole conversation.

    Broken by clients that count calls from 1 in each turn.
    """
    for call, call_id in find_repeats(reading.calls, _READ_CALL_ID, reading.past.call_ids):
        yield call.place, f"`tool_use` ids must be unique: {call_id!r}"


def results_come_first(reading: RequestReading) -> Faults:
    """A6: in a user message, results come before everything else.

    Broken by a user message that says "here is the result:" before it.
    """
    for message in reading.messages:
        # If the first result stands at 0, the second at 1, and so on, nothing else comes before them.
        for number, result in enumerate(message.results):
            if result.block_index != number:
                yield result.place, "`tool_result` blocks must come before other content"


def names_are_allowed(reading: RequestReading) -> Faults:
    """A16: names of tools and ids of calls have letters, digits, `_` and `-`, at most 128.

    Broken by names with a dot, such as `fs.read`, and by ids of other APIs that have one.
    """
    for position, tool in enumerate(reading.request.get("tools") or ()):
        # A toolset of an MCP server has no name of its own.
        if "name" in tool and not is_safe_name(text_or_empty(tool["name"])):
            yield f"tools[{position}].name", "tool names should match '^[a-zA-Z0-9_-]{1,128}$'"
    for call in reading.calls:
        for field in ("name", "id"):
            if not is_safe_name(text_or_empty(call.block.get(field))):
                problem = f"tool_use.{field} should match '^[a-zA-Z0-9_-]{{1,128}}$'"
                yield f"{call.place}.{field}", problem


_FIELD_OF_THOUGHT = {"thinking": "signature", "redacted_thinking": "data"}
"""The field without which the API does not take a thought back."""


def thinking_is_whole(reading: RequestReading) -> Faults:
    """A9, by shape: thinking has its signature, redacted thinking its data.

    Broken by a history in which somebody shortened or dropped signatures.
    """
    for thought in reading.thoughts:
        block_type = thought.block["type"]
        field = _FIELD_OF_THOUGHT[block_type]
        if not text_or_empty(thought.block.get(field)):
            yield thought.place, f"`{block_type}` blocks cannot be modified: {field} is missing"


def marks_are_few(reading: RequestReading) -> Faults:
    """A12: at most four cache markers, the one for the whole request included.

    Broken by a client that marks each new message and takes no marker off.
    """
    count = len(reading.markers)
    if count > MARKER_LIMIT:
        first_too_many = reading.markers[MARKER_LIMIT]
        yield first_too_many.place, f"at most {MARKER_LIMIT} blocks may have cache_control; found {count}"


def long_marks_come_first(reading: RequestReading) -> Faults:
    """A12: markers with ttl 1h come before those with 5m.

    5m, 1h breaks the rule; 1h, 5m and 1h, 1h do not.
    """
    short_seen = False
    for marker in reading.markers:
        if marker.lifetime != LONG_LIFETIME:
            short_seen = True
        elif short_seen:
            yield marker.place, "a ttl='1h' cache_control block must not come after a ttl='5m' one"


def marks_are_allowed(reading: RequestReading) -> Faults:
    """A12: no marker on thinking, nor on the few other blocks that take none.

    Broken by a client that marks the last block of each message, whatever it is.
    """
    for marker in reading.markers:
        if marker.is_refused:
            yield marker.place, "cache_control cannot be set for blocks of this type"


RULES = name_rules(
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
    system_messages_stand_right,
    system_messages_are_taken,
    marks_are_few,
    long_marks_come_first,
    marks_are_allowed,
    names_are_allowed,
)
"""All rules, in the order in which they are reported."""


class BlockReading(NamedTuple):
    """A block of a message, with the positions of both.

    `call_id` is the id of a call, or of the call that a result answers; None if it is not a text.
    """

    message_index: int
    block_index: int
    block: Json
    call_id: str | None = None

    @property
    def place(self) -> str:
        return f"messages[{self.message_index}].content[{self.block_index}]"


class MessageReading:
    """A message as the rules look at it: its blocks, and apart from them its calls, results and thoughts.

    `is_directive` says that it is a system message without words, which only sets something: its content is
    an empty list.
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
        """Read a message once for all rules. The position is that in the whole request."""
        mapping = to_dict_or_empty(message)
        self.position = position
        self.message = message
        self.role = str(mapping.get("role"))
        self.blocks = read_blocks(mapping)
        has_no_words = not self.blocks and isinstance(mapping.get("content"), LIST_TYPES)
        self.is_directive = has_no_words and self.role == "system"
        self.markers: list[PlacedMarker] = []
        self.calls: list[BlockReading] = []
        self.results: list[BlockReading] = []
        self.thoughts: list[BlockReading] = []
        for index, block in enumerate(self.blocks):
            self._read_block(block, index)

    def _read_block(self, block: Json, index: int) -> None:
        block_type = block.get("type")
        if block_type == "tool_use":
            self.calls.append(BlockReading(self.position, index, block, text_or_none(block.get("id"))))
        elif block_type == "tool_result":
            call_id = text_or_none(block.get("tool_use_id"))
            self.results.append(BlockReading(self.position, index, block, call_id))
        elif block_type in THINKING_TYPES:
            self.thoughts.append(BlockReading(self.position, index, block))
        # Most blocks have no marker, and long requests have many blocks. So markers are looked for only
        # where one may be.
        if may_hold_markers(block):
            self.markers += find_markers_on_block(block, f"{self.place}.content[{index}]")

    @property
    def place(self) -> str:
        return f"messages[{self.position}]"

    @property
    def speaks(self) -> bool:
        return self.role == "assistant"


class EarlierMessages:
    """What the rules need to know of messages that were checked before: the ids of calls, and the markers.

    `is_empty` says that there are no such messages.
    """

    def __init__(self) -> None:
        self.is_empty = True
        self.call_ids: set[str | None] = set()
        self.markers: list[PlacedMarker] = []

    def add(self, message: MessageReading) -> None:
        """Remember a message that was checked."""
        self.is_empty = False
        self.call_ids.update(call.call_id for call in message.calls)
        self.markers += message.markers


class RequestReading:
    """A request as the rules look at it, read once for all of them.

    `messages` are those to look at, with their `calls` and `thoughts`; `past` is what is known of those
    before. `markers` are those of the whole request.
    """

    def __init__(self, request: Request, messages: Sequence[MessageReading], past: EarlierMessages) -> None:
        """Collect calls, thoughts and markers, so that a rule looks only at those it is about.

        Markers of messages that were checked before still count: the API takes four in the whole request.
        """
        self.request = request
        self.messages = messages
        self.past = past
        self.calls: list[BlockReading] = []
        self.thoughts: list[BlockReading] = []
        message_markers = list(past.markers)
        for message in messages:
            self.calls += message.calls
            self.thoughts += message.thoughts
            message_markers += message.markers
        self.markers = find_markers(request, message_markers)
