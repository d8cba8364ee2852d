"""Joins requests of one conversation to a trace: each sends again what the one before sent, and more.

A request that has the items of an earlier one at its beginning continues it. One that has many of them, and
among them the last, or a long beginning, continues it after its client shortened or rewrote the history. Any
other begins a trace. A few conversations are held at a time, since logs interleave them; the one that was
continued least recently ends first. Cache markers, and whether a text stands alone or in a block, make no
difference. No file is read here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import msgspec

from lamina.caches.prefix_path import count_common_items
from lamina.costs.logs.json_fields import json_field, list_field
from lamina.costs.logs.lines import LONGEST
from lamina.costs.logs.requests import LoggedCall
from lamina.costs.logs.values import RecordedUsage, Trace
from lamina.dialects.json_values import drop_nulls

OPEN = 8
"""Conversations that are held at a time."""

LONG = 8
"""Items at the beginning that two requests of one conversation share, if the later was rewritten."""


class GrowingConversations:
    """State: the conversations that may still go on, the one that went on last at the end."""

    def __init__(self) -> None:
        self.open: list[_GrowingConversation] = []

    def take(self, call: LoggedCall) -> Iterator[Trace]:
        """Add a call; give the traces that are held no longer.

        There may not be too many conversations, nor too many bytes in more than one.
        """
        fingerprints = self._fingerprint_items(call.trace.items)
        conversation = self._find_continued(call, fingerprints)
        if conversation is None:
            conversation = _GrowingConversation(call, fingerprints)
        else:
            self.open.remove(conversation)
            conversation.add(call, fingerprints)
        self.open.append(conversation)
        held_bytes = sum(each.size for each in self.open)
        while len(self.open) > OPEN or (len(self.open) > 1 and held_bytes > LONGEST):
            held_bytes -= self.open[0].size
            yield self.open.pop(0).trace()

    def end(self) -> Iterator[Trace]:
        """All conversations that are still held, as traces."""
        for conversation in self.open:
            yield conversation.trace()
        self.open.clear()

    def _fingerprint_items(self, items: list[dict[str, Any]]) -> list[bytes]:
        """The fingerprint of each item. Items that a conversation sent last are not hashed again."""
        same = 0
        fingerprints: list[bytes] = []
        for conversation in self.open:
            # nearly all items were sent before, and to compare them is much faster than to hash them
            common = count_common_items(conversation.last.items, items)
            if common > same:
                same = common
                fingerprints = conversation.last_fingerprints[:same]
        return fingerprints + [fingerprint(item) for item in items[same:]]

    def _find_continued(self, call: LoggedCall, fingerprints: list[bytes]) -> _GrowingConversation | None:
        """The conversation that a call belongs to, the latest first; None if it begins one."""
        candidates = [each for each in self.open if each.first.dialect == call.trace.dialect]
        # a request that names the response before it belongs there, whatever its items are
        if call.previous:
            latest_by_response = {each.response: each for each in candidates}
            return latest_by_response.get(call.previous)
        candidates.reverse()
        continued = [each for each in candidates if each.is_continued_by(fingerprints)]
        if continued:
            return max(continued, key=lambda each: len(each.sent))
        for each in candidates:
            if each.is_rewritten_by(fingerprints):
                return each
        return None


class _GrowingConversation:
    """One conversation: all items so far, and of the last request what was sent and answered."""

    def __init__(self, call: LoggedCall, fingerprints: list[bytes]) -> None:
        self.first = call.trace
        self.items = list(call.trace.items)
        self.is_answered = bool(call.answer)
        self.used: dict[int, RecordedUsage] = {}
        self.compacted: list[int] = []
        self.call_ids: dict[int, str] = {}
        self._remember_call(call, fingerprints, sent=fingerprints)

    def is_continued_by(self, fingerprints: list[bytes]) -> bool:
        """Whether a request begins with all of the last one.

        The same request once more is a retry of one under way, if there was an answer before.
        """
        if not self._leads(fingerprints):
            return False
        return len(fingerprints) > len(self.sent) or any(map(is_answer, self.items))

    def is_rewritten_by(self, fingerprints: list[bytes]) -> bool:
        """Whether a request has many items of the last one and its end, or a long beginning of it.

        A client that put a summary in place of its first messages sends the last ones again.
        """
        shared = set(self.sent) & set(fingerprints)
        half = min(len(fingerprints), len(self.sent)) / 2
        if self.sent[-1] in shared and len(shared) >= max(half, 3):
            return True
        leading = count_common_items(self.sent, fingerprints)
        return leading >= max(LONG, len(self.sent) / 2)

    def add(self, call: LoggedCall, fingerprints: list[bytes]) -> None:
        """Add a request that continues this conversation, with what is new in it.

        Usually the request holds the whole conversation. With a previous response it holds only what is
        new. A client that rewrote its history begins anew from there.
        """
        items = call.trace.items
        self.is_answered = True
        sent = fingerprints
        if call.previous:  # only what is new was sent: the provider kept the rest, and the answer
            self.items += [*self.answer, *items]
            sent = [*self.sent, *map(fingerprint, self.answer), *fingerprints]
        elif self._leads(fingerprints):  # the request holds the answers itself, and they count as it has them
            self.items += items[len(self.sent) :]
        else:
            self._rewrite(items, fingerprints)
        self._remember_call(call, fingerprints, sent=sent)

    def _leads(self, fingerprints: list[bytes]) -> bool:
        """Whether a request begins with all items of the last one."""
        return fingerprints[: len(self.sent)] == self.sent

    def _rewrite(self, items: list[dict[str, Any]], fingerprints: list[bytes]) -> None:
        """Add what is new after a rewrite: a summary, say, and what follows the last item sent before.

        Sent were A, B, C. Of S, B, C, D the new ones are S, a summary, and D.
        """
        sent_before = set(self.sent)
        self.compacted.append(len(self.items))
        unsent_texts: list[dict[str, Any]] = []
        last = 0
        for at, item in enumerate(items):
            if fingerprints[at] in sent_before:
                last = at
                self.items += unsent_texts
                unsent_texts.clear()
            elif _is_user_text(item):
                unsent_texts.append(item)
        self.items += items[last + 1 :]

    def _remember_call(self, call: LoggedCall, fingerprints: list[bytes], *, sent: list[bytes]) -> None:
        """Note what the next request is compared with, and the usage of this one.

        `fingerprints` are those of the call's own items, `sent` those of all that the model read. Usage
        belongs to the answer that follows, so its place is the end of the items so far.
        """
        self.last_fingerprints = fingerprints
        self.sent = sent
        self.answer = call.answer
        self.response = call.response
        self.last = call.trace
        self.size = call.size
        # usage belongs to the answer that follows, so its place is the end of the items so far
        at = len(self.items)
        if call.response:
            self.call_ids[at] = f"{call.response} {at} {sent[-1].hex()}"
        if call.used is not None:
            self.used[at] = _add_usages(self.used.get(at), call.used)

    def trace(self) -> Trace:
        """The whole conversation, with the head and the model of its last request.

        If all there is of it is one record without an answer, that is a whole conversation, with its answers.
        """
        recorded_from = 0
        if self.is_answered:
            recorded_from = _index_of_reply(self.first.items)
        return msgspec.structs.replace(
            self.first,
            items=[*self.items, *self.answer],
            head=self.last.head,
            model=self.last.model or self.first.model,
            used=self.used,
            call_ids=self.call_ids,
            compacted=tuple(dict.fromkeys(self.compacted)),
            recorded_from=recorded_from,
        )


def _index_of_reply(items: list[dict[str, Any]]) -> int:
    """Where the answer to a request begins. If the request ends with the beginning of it, that is its place.

    Of user, assistant, user it is 3. Of user, assistant it is 1: the model goes on with its own words.
    """
    index = len(items)
    while index > 0 and is_answer(items[index - 1]):
        index -= 1
    return index


def fingerprint(item: dict[str, Any]) -> bytes:
    """Equal for items that a model reads alike.

    `{"content": "Hi"}` and `{"content": [{"type": "text", "text": "Hi", "cache_control": {…}}]}` have one.
    """
    content = item.get("content")
    blocks: Any = content
    if isinstance(content, str):
        blocks = [{"type": "text", "text": content}]
    if isinstance(blocks, list):
        blocks = [_without_marker(block) for block in blocks]
    plain = {**_without_marker(item), "content": blocks}
    try:
        data = msgspec.json.encode(plain, order="deterministic")
    except OverflowError:  # a number of more than 64 bits
        data = json.dumps(plain, sort_keys=True).encode()
    return hashlib.blake2b(data, digest_size=16).digest()


def _without_marker(value: Any) -> Any:
    """An object without its cache marker and without fields that are null."""
    if not isinstance(value, dict):
        return value
    plain = drop_nulls(value)
    plain.pop("cache_control", None)
    return plain


def is_answer(item: dict[str, Any]) -> bool:
    """Whether a model wrote it.

    Items of the Responses API have no role: reasoning and calls are the model's.
    """
    if "role" in item:
        return item["role"] in ("assistant", "model")  # Gemini says "model"
    item_type = str(item.get("type"))
    return item_type == "reasoning" or item_type.endswith("_call")


def find_answer_starts(items: list[dict[str, Any]]) -> Iterator[int]:
    """Where each answer of the model begins. One at the very beginning has no request, and is left out.

    Of user, assistant, assistant, user, assistant it is 1 and 4.
    """
    after_answer = True
    for at, item in enumerate(items):
        is_by_model = is_answer(item)
        if is_by_model and not after_answer:
            yield at
        after_answer = is_by_model


def _is_user_text(item: dict[str, Any]) -> bool:
    """Whether it stands by itself: text of the user, and no result of a call.

    In Anthropic's API results stand in messages of the user.
    """
    if item.get("role") != "user":
        return False
    types = [json_field(block, "type") for block in list_field(item, "content")]
    return "tool_result" not in types


def _add_usages(earlier: RecordedUsage | None, usage: RecordedUsage) -> RecordedUsage:
    """Two calls with the same request.

    A request that was sent twice was paid for twice.
    """
    if earlier is None:
        return usage
    return RecordedUsage(
        uncached=earlier.uncached + usage.uncached,
        read=earlier.read + usage.read,
        written=earlier.written + usage.written,
        written_long=earlier.written_long + usage.written_long,
        output=earlier.output + usage.output,
        at=usage.at if earlier.at is None else earlier.at,
        model=usage.model or earlier.model,
        tier=usage.tier or earlier.tier,
    )
