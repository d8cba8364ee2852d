"""Measures messages as a cache, a counter and a provider see them.

Each message is measured once, however often it is sent.

Tokens are counted apart from the library's own arithmetic: text by a tokenizer, and four for each message. A
message must not be changed after it was measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from lamina.caches.stream import Stream, StreamBlock
from lamina.core.hashing import canonical_json
from lamina.core.tokens import Counter
from lamina.costs.logs.model_calls import CHAT, message_text, read_tool_calls
from lamina.dialects import DIALECTS

Message = dict[str, Any]

FRAMING = 4
"""Tokens that every message takes besides its text."""

_encode = msgspec.json.Encoder().encode


class MessageSize(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One message: its tokens, its blocks, and its words with the arguments of its calls."""

    tokens: int
    blocks: tuple[StreamBlock, ...]
    words: str


class MessageSizes:
    """Measures the messages of one conversation, and remembers what it measured.

    `unrecorded` are tokens at the beginning of every request that the records do not hold.
    """

    def __init__(self, counter: Counter, tools: list[dict[str, Any]], *, unrecorded: int = 0) -> None:
        self.counter = counter
        self._by_shape: dict[bytes, MessageSize] = {}
        # By id. The message is held too, so that no other object can get its id.
        self._by_id: dict[int, tuple[Message, MessageSize]] = {}
        self._refusals: dict[tuple[int, ...], bool] = {}
        self.unrecorded = unrecorded
        self.tools = self._measure_tools(tools)
        if unrecorded:
            head = StreamBlock(sort="tool", role="", data=b"not recorded", place="tools", tokens=unrecorded)
            self.tools = (head, *self.tools)
        self.tool_tokens = sum(block.tokens for block in self.tools)

    def measure(self, message: Message) -> MessageSize:
        """The size of a message, measured once for each shape.

        Sessions repeat their messages in each call, most often as the same objects.
        """
        held = self._by_id.get(id(message))
        if held is not None:
            return held[1]
        shape = _encode(message)
        size = self._by_shape.get(shape)
        if size is None:
            size = self._measure(message)
            self._by_shape[shape] = size
            self._by_id[id(message)] = (message, size)  # one object of each shape, not every copy of it
        return size

    def count_tokens(self, messages: list[Message]) -> int:
        """What these messages take, with the tools that go along."""
        return self.tool_tokens + sum(self.measure(message).tokens for message in messages)

    def is_refused(self, messages: list[Message]) -> bool:
        """Whether the provider would refuse them. No rule looks at more than a call with its results.

        So groups are checked by themselves, and one that was checked before is not checked again.
        """
        if not messages:
            return True
        return any(self._is_group_refused(group) for group in _groups_of_rules(messages))

    def stream(self, messages: list[Message], model: str) -> Stream:
        """The messages as a cache sees them, with the tools before them."""
        blocks = list(self.tools)
        for message in messages:
            blocks += self.measure(message).blocks
        return Stream(dialect=CHAT, model=model, blocks=tuple(blocks))

    def _is_group_refused(self, group: list[Message]) -> bool:
        """Whether a message with its results breaks a rule of this API, asked once for each group.

        Messages of one shape have one size object, so its id stands for the shape.
        """
        shape = tuple(id(self.measure(message)) for message in group)
        refused = self._refusals.get(shape)
        if refused is None:
            violations = DIALECTS[CHAT].wire.check({"model": "gpt-5.5", "messages": group})
            refused = bool(violations)
            self._refusals[shape] = refused
        return refused

    def _measure(self, message: Message) -> MessageSize:
        """The size of a message: its words and the names and arguments of its calls are counted.

        The tokens are shared out among the blocks that a cache would see.
        """
        words = message_text(message)
        calls = [f"{call.name} {call.arguments}" for call in read_tool_calls(message)]
        tokens = FRAMING + self._count(words) + sum(self._count(call) for call in calls)
        blocks = DIALECTS[CHAT].cache.stream({"messages": [message]}).blocks
        return MessageSize(
            tokens=tokens, blocks=_share_out_tokens(blocks, tokens), words="\n".join((words, *calls))
        )

    def _count(self, words: str) -> int:
        """The tokens of some words. No words are no call of a tokenizer."""
        if not words:
            return 0
        return self.counter.count(words)

    def _measure_tools(self, tools: list[dict[str, Any]]) -> tuple[StreamBlock, ...]:
        """The definitions of tools as blocks with their tokens, each counted as canonical JSON."""
        if not tools:
            return ()
        blocks = DIALECTS[CHAT].cache.stream({"messages": [], "tools": tools}).blocks
        measured = []
        for block, tool in zip(blocks, tools, strict=True):
            tokens = self._count(canonical_json(tool).decode())
            measured.append(msgspec.structs.replace(block, tokens=tokens))
        return tuple(measured)


def find_group_start(messages: list[Message], at: int) -> int:
    """The first message of the group that a message belongs to, as `is_refused` groups them."""
    while at > 0 and _is_result(messages[at]):
        at -= 1
    return at


def _groups_of_rules(messages: list[Message]) -> Iterator[list[Message]]:
    """What a rule can look at together: a message, with the results that follow it.

    Of assistant, tool, tool, user the groups are the first three, and the last.
    """
    group: list[Message] = []
    for message in messages:
        if group and not _is_result(message):
            yield group
            group = []
        group.append(message)
    if group:
        yield group


def _is_result(message: Message) -> bool:
    return message.get("role") in ("tool", "function")


def _share_out_tokens(blocks: tuple[StreamBlock, ...], tokens: int) -> tuple[StreamBlock, ...]:
    """The blocks with the message's tokens shared out by their length. The last takes what is left.

    10 tokens over blocks of 30 and 70 bytes are 3 and 7.
    """
    if not blocks:
        return ()
    length = sum(len(block.data) for block in blocks)
    tokens_left = tokens
    shared = []
    for block in blocks[:-1]:
        share = tokens * len(block.data) // max(length, 1)
        tokens_left -= share
        shared.append(msgspec.structs.replace(block, tokens=share))
    shared.append(msgspec.structs.replace(blocks[-1], tokens=tokens_left))
    return tuple(shared)
