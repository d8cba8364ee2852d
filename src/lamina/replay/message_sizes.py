"""Messages as a cache, a counter and a provider see them, each looked at once however often it is sent.

Tokens are counted apart from the library's own arithmetic: text by a tokenizer, four for each message. A
message that was weighed is not changed after that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from lamina.caches.stream import Stream, StreamBlock
from lamina.core.hashing import canonical
from lamina.core.tokens import Counter
from lamina.dialects import DIALECTS
from lamina.replay.model_calls import CHAT, text

Message = dict[str, Any]

FRAMING = 4
_encode = msgspec.json.Encoder().encode


class Weighed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One message: its tokens, its blocks, and its words with the arguments of its calls."""

    tokens: int
    blocks: tuple[StreamBlock, ...]
    words: str


class Scales:
    """Weighs messages; one for each conversation."""

    def __init__(self, counter: Counter, tools: list[dict[str, Any]]) -> None:
        self.counter = counter
        self.known: dict[bytes, Weighed] = {}
        self._held: dict[int, tuple[Message, Weighed]] = {}  # by id, which nothing else gets while it is held
        self._refused: dict[tuple[int, ...], bool] = {}
        self.tools = self._tools(tools)
        self.tool_tokens = sum(block.tokens for block in self.tools)

    def message(self, message: Message) -> Weighed:
        held = self._held.get(id(message))
        if held is not None:
            return held[1]
        shape = _encode(message)
        found = self.known.get(shape)
        if found is None:
            found = self.known[shape] = self._weigh(message)
            self._held[id(message)] = message, found  # one object of each shape, not every copy of it
        return found

    def tokens(self, messages: list[Message]) -> int:
        """What these messages take, with the tools that go along."""
        return self.tool_tokens + sum(self.message(m).tokens for m in messages)

    def refused(self, messages: list[Message]) -> bool:
        """Whether the provider would refuse them. No rule looks at more than a call with its results."""
        return not messages or any(map(self._group_refused, _groups(messages)))

    def stream(self, messages: list[Message], model: str) -> Stream:
        blocks = [block for message in messages for block in self.message(message).blocks]
        return Stream(dialect=CHAT, model=model, blocks=(*self.tools, *blocks))

    def _group_refused(self, group: list[Message]) -> bool:
        shape = tuple(id(self.message(message)) for message in group)
        found = self._refused.get(shape)
        if found is None:
            found = bool(DIALECTS[CHAT].check({"model": "gpt-5.5", "messages": group}))
            self._refused[shape] = found
        return found

    def _weigh(self, message: Message) -> Weighed:
        calls = [call.get("function") or {} for call in message.get("tool_calls") or ()]
        asked = [f"{call.get('name')} {call.get('arguments')}" for call in calls]
        words = text(message)
        tokens = FRAMING + self._count(words) + sum(self._count(each) for each in asked)
        blocks = DIALECTS[CHAT].stream({"messages": [message]}).blocks
        return Weighed(tokens=tokens, blocks=_shared(blocks, tokens), words="\n".join((words, *asked)))

    def _count(self, words: str) -> int:
        return self.counter.count(words) if words else 0

    def _tools(self, tools: list[dict[str, Any]]) -> tuple[StreamBlock, ...]:
        blocks = DIALECTS[CHAT].stream({"messages": [], "tools": tools}).blocks if tools else ()
        counts = (self._count(canonical(tool).decode()) for tool in tools)
        return tuple(msgspec.structs.replace(b, tokens=n) for b, n in zip(blocks, counts, strict=True))


def _groups(messages: list[Message]) -> Iterator[list[Message]]:
    """What a rule can look at together: a message, with the results that follow it."""
    group: list[Message] = []
    for message in messages:
        if group and message.get("role") not in ("tool", "function"):
            yield group
            group = []
        group.append(message)
    if group:
        yield group


def _shared(blocks: tuple[StreamBlock, ...], tokens: int) -> tuple[StreamBlock, ...]:
    """The blocks with the message's tokens shared out by their length."""
    length, left, result = sum(len(b.data) for b in blocks), tokens, []
    for block in blocks[:-1]:
        part = tokens * len(block.data) // max(length, 1)
        result.append(msgspec.structs.replace(block, tokens=part))
        left -= part
    return (*result, *(msgspec.structs.replace(block, tokens=left) for block in blocks[-1:]))
