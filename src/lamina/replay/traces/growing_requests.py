"""Requests of one conversation become one trace: each sends again what the one before sent, and more.

A request that has the items of an earlier one at its beginning continues it. One that has many of them, and
among them the last, or a long beginning, continues it after its client shortened or rewrote the history. Any
other begins a trace. A few conversations are held at a time, since logs interleave them; the one that was
continued least recently ends first. Cache markers, and whether a text stands alone or in a block, make no
difference. It reads no file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import msgspec

from lamina.replay.traces.lines import LONGEST
from lamina.replay.traces.requests import RecordedCall
from lamina.replay.values import RecordedUsage, Trace

OPEN = 8
"""Conversations that are held at a time."""

LONG = 8
"""Items at the beginning that two requests of one conversation share, if the later was rewritten."""


class GrowingConversations:
    """State: the conversations that may still go on, the one that went on last at the end."""

    def __init__(self) -> None:
        self.open: list[_Conversation] = []

    def take(self, call: RecordedCall) -> Iterator[Trace]:
        """Adds a call; gives the traces that are held no longer."""
        prints = [fingerprint(item) for item in call.trace.items]
        found = self._continued(call, prints)
        if found is None:
            found = _Conversation(call, prints)
        else:
            self.open.remove(found)
            found.add(call, prints)
        self.open.append(found)
        while len(self.open) > OPEN or (len(self.open) > 1 and sum(c.size for c in self.open) > LONGEST):
            yield self.open.pop(0).trace()

    def end(self) -> Iterator[Trace]:
        yield from (conversation.trace() for conversation in self.open)
        self.open.clear()

    def _continued(self, call: RecordedCall, prints: list[bytes]) -> _Conversation | None:
        alike = [c for c in reversed(self.open) if c.first.dialect == call.trace.dialect]
        if call.previous:
            return next((c for c in alike if c.response == call.previous), None)
        going_on = [c for c in alike if c.goes_on(prints)]
        if going_on:
            return max(going_on, key=lambda c: len(c.sent))
        return next((c for c in alike if c.rewritten(prints)), None)


class _Conversation:
    """One conversation: all items so far, and of the last request what was sent and answered."""

    def __init__(self, call: RecordedCall, prints: list[bytes]) -> None:
        self.first = call.trace
        self.items = list(call.trace.items)
        self.used: dict[int, RecordedUsage] = {}
        self.compacted: list[int] = []
        self._sent(call, prints)

    def goes_on(self, prints: list[bytes]) -> bool:
        """Whether a request begins with all of the last; the same once more is a retry of one under way."""
        if prints[: len(self.sent)] != self.sent:
            return False
        return len(prints) > len(self.sent) or any(map(is_answer, self.items))

    def rewritten(self, prints: list[bytes]) -> bool:
        both = set(self.sent) & set(prints)
        if len(both) > 2 and self.sent[-1] in both and len(both) * 2 >= min(len(prints), len(self.sent)):
            return True
        pairs = enumerate(zip(self.sent, prints, strict=False))
        same = next((at for at, (old, new) in pairs if old != new), min(len(self.sent), len(prints)))
        return same >= LONG and same * 2 >= len(self.sent)

    def add(self, call: RecordedCall, prints: list[bytes]) -> None:
        items = call.trace.items
        if call.previous:
            self._append(items, answered=False)
            prints = [*self.sent, *map(fingerprint, self.answer), *prints]
        elif prints[: len(self.sent)] == self.sent:
            self._append(items[len(self.sent) :], answered=True)
        else:
            self._rewrite(items, prints)
        self._sent(call, prints)

    def _append(self, items: list[dict[str, Any]], *, answered: bool) -> None:
        """What is new. Where a request holds the answers itself, they count as it has them."""
        self.items += items if answered else [*self.answer, *items]

    def _rewrite(self, items: list[dict[str, Any]], prints: list[bytes]) -> None:
        """What is new after a rewrite: a summary, say, and what follows the last item that is known."""
        known = set(self.sent)
        last = max(at for at, each in enumerate(prints) if each in known)
        self.compacted.append(len(self.items))
        told = (items[at] for at in range(last) if prints[at] not in known)
        self.items += [item for item in told if _is_said(item)] + items[last + 1 :]

    def _sent(self, call: RecordedCall, prints: list[bytes]) -> None:
        self.sent, self.answer, self.response = prints, call.answer, call.response
        self.last, self.size = call.trace, call.size
        if call.used is not None:
            at = len(self.items)
            self.used[at] = _both(self.used.get(at), call.used)

    def trace(self) -> Trace:
        return msgspec.structs.replace(
            self.first,
            items=[*self.items, *self.answer],
            head=self.last.head,
            model=self.last.model or self.first.model,
            used=self.used,
            compacted=tuple(dict.fromkeys(self.compacted)),
        )


def fingerprint(item: dict[str, Any]) -> bytes:
    """Equal for items that a model reads alike."""
    content = item.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if isinstance(blocks, list):
        blocks = [_unmarked(block) for block in blocks]
    plain = {**_unmarked(item), "content": blocks}
    try:
        data = msgspec.json.encode(plain, order="deterministic")
    except OverflowError:  # a number of more than 64 bits
        data = json.dumps(plain, sort_keys=True).encode()
    return hashlib.blake2b(data, digest_size=16).digest()


def _unmarked(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: each for name, each in value.items() if each is not None and name != "cache_control"}


def is_answer(item: dict[str, Any]) -> bool:
    """Whether a model wrote it."""
    if "role" in item:
        return bool(item["role"] == "assistant")
    sort = str(item.get("type"))
    return sort == "reasoning" or sort.endswith("_call")


def _is_said(item: dict[str, Any]) -> bool:
    """Whether it stands by itself: text of the user, and no result of a call."""
    content = item.get("content")
    blocks = content if isinstance(content, list) else ()
    return item.get("role") == "user" and not any(
        isinstance(block, dict) and block.get("type") == "tool_result" for block in blocks
    )


def _both(one: RecordedUsage | None, other: RecordedUsage) -> RecordedUsage:
    """Two calls with the same request."""
    if one is None:
        return other
    amounts = ("uncached", "read", "written", "written_long", "output")
    sums = {name: getattr(one, name) + getattr(other, name) for name in amounts}
    return RecordedUsage(**sums, at=other.at if one.at is None else one.at, model=other.model or one.model)
