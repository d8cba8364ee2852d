"""The truth test: what the record and the inspector say is what the upstream received.

    check_truth(received, ask, workspace)

`received` is what an upstream got, in order, with what it answered. Everything here is computed from these
bodies alone: no function of lamina that writes the record, or reads it, says what is right.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pytest

from lamina.conversations.record import ConversationRecord
from lamina.conversations.store import conversation_place, conversation_workspace
from lamina.dialects import Usage
from lamina.inspector import Inspector, Sessions, answers, request_views, segment_views, views
from lamina.inspector.stored_sessions import AskStore, StoredSessions
from lamina.models import model as facts_of
from lamina.stores import Store
from lamina.stores.paging import every_conversation

_TURN_FIELDS = ("messages", "input", "contents")
_HEAD_FIELDS = ("system", "instructions", "systemInstruction", "tools")
_MARKER = "cache_control"
_READ_SHARE = 0.1
"""What a cached token costs of a new one, for the models of these tests whose prices do not say it."""


class ReceivedRequest(Protocol):
    """A request as an upstream received it, and what it answered."""

    body: bytes
    model: str
    usage: Usage | None
    status: int


def open_inspector(ask: AskStore, workspace: str, *, pause: float = 600.0) -> Inspector:
    """The inspector of a store, as `lamina inspect` and the gateway open it."""
    return Inspector(Sessions(sources=[StoredSessions(ask, workspace, pause=pause)]))


def check_truth(received: Sequence[ReceivedRequest], ask: AskStore, workspace: str) -> None:
    """Check the record of a workspace and every view of it against what the upstream received."""
    records = ask(lambda store: _read_records(store, workspace))
    check_bodies(received, records)
    inspector = open_inspector(ask, workspace)
    assert not inspector.sessions.problems()
    by_digest = _Matcher(received)
    total = 0.0
    for name, record in records.items():
        own = [by_digest.take(record.sent_body(call)) for call in record.calls]
        session_id = next(each.id for each in inspector.sessions.summaries() if each.name == name)
        check_session(inspector, session_id, own)
        total += sum(price_received(each) for each in own)
    shown = [summary.dollars for summary in inspector.sessions.summaries()]
    assert sum(dollars or 0.0 for dollars in shown) == pytest.approx(total, abs=1e-9)


def check_bodies(received: Sequence[ReceivedRequest], records: dict[str, ConversationRecord]) -> None:
    """Every body that arrived is in the record byte for byte, in the order in which it was sent."""
    calls = [(call.request.at, record, call) for record in records.values() for call in record.calls]
    calls.sort(key=lambda each: each[0])
    recorded = [record.sent_body(call) for _, record, call in calls]
    assert recorded == [each.body for each in received]


def check_session(inspector: Inspector, session_id: str, received: Sequence[ReceivedRequest]) -> None:
    """The strip and every request of one conversation: tokens, cuts, costs, and what was left out."""
    strip = views.show_session(inspector, session_id)
    assert strip["as_sent"]
    assert len(strip["calls"]) == len(received)
    previous: ReceivedRequest | None = None
    for call, each in zip(strip["calls"], received, strict=True):
        if each.usage is not None:
            assert call["tokens"] == call["reported"] == each.usage.input
            assert call["read"] == each.usage.cached
            assert call["written"] == each.usage.written
            assert call["output"] == each.usage.output
            assert call["dollars"] == pytest.approx(price_received(each), abs=1e-12)
        else:
            assert call["reported"] is None
        # A cut is what changes bytes that were sent, in a history that only grows.
        is_continued = previous is None or continues(previous.body, each.body)
        assert bool(call["cut"]) == (not is_continued), call
        check_request(inspector, session_id, call["number"], each)
        previous = each
    answered = [call for call in strip["calls"] if (call["status"] or 200) < 400]
    assert strip["totals"]["cuts"] == sum(bool(call["cut"]) for call in answered)


def check_request(inspector: Inspector, session_id: str, number: int, received: ReceivedRequest) -> None:
    """One request: its JSON, the text of each entry, and what is not in it."""
    assert answers.show_body(inspector, session_id, number)["text"].encode() == received.body
    strings = "\n".join(list_strings(json.loads(received.body)))
    shown = request_views.show_request(inspector, session_id, number)
    assert shown["entries"]
    left_out: list[str] = []
    sent: list[str] = []
    for entry in shown["entries"]:
        text = segment_views.show_segment(inspector, session_id, number, entry["ref"])
        if entry["form"] == "OMITTED":
            left_out.append(text["original"])
            continue
        sent.append(text["sent"])
        if entry["kind"] in ("user", "assistant", "system"):
            assert text["sent"] in strings
        if entry["form"] == "FULL" and not entry["own"]:
            assert text["sent"] == text["original"]
    assert shown["left_out"] == len(left_out)
    for original in left_out:
        # A text that is left out may have been recalled: then it stands in the result of the recall alone.
        assert strings.count(original) == sum(text.count(original) for text in sent), original


def continues(before: bytes, after: bytes) -> bool:
    """Whether a request begins with all of another one, but for its cache markers."""
    one = drop_markers(json.loads(before))
    other = drop_markers(json.loads(after))
    if any(one.get(name) != other.get(name) for name in _HEAD_FIELDS):
        return False
    for name in _TURN_FIELDS:
        if name in one:
            return bool(other[name][: len(one[name])] == one[name])
    return True


def price_received(received: ReceivedRequest) -> float:
    """What a request cost, from the table of prices by hand; 0 if nothing was reported."""
    usage = received.usage
    if usage is None:
        return 0.0
    prices = facts_of(received.model).prices
    assert prices.input is not None
    assert prices.output is not None
    read = prices.read if prices.read is not None else prices.input * _READ_SHARE
    write = prices.write if prices.write is not None else prices.input
    new = usage.input - usage.cached - usage.written
    dollars = new * prices.input + usage.cached * read + usage.written * write + usage.output * prices.output
    return dollars / 1_000_000


def list_strings(value: Any) -> Iterator[str]:
    """Every text in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from list_strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from list_strings(inner)


def drop_markers(value: Any) -> Any:
    """A JSON value without cache markers. A text in a list of one block is that text."""
    if isinstance(value, list):
        items = [drop_markers(item) for item in value]
        if len(items) == 1 and isinstance(items[0], dict) and items[0].keys() == {"type", "text"}:
            return items[0]["text"]
        return items
    if isinstance(value, dict):
        return {name: drop_markers(inner) for name, inner in value.items() if name != _MARKER}
    return value


class _Matcher:
    """Finds the received request of a recorded body. Equal ones are taken in their order."""

    def __init__(self, received: Sequence[ReceivedRequest]) -> None:
        self._left = list(received)

    def take(self, body: bytes | None) -> ReceivedRequest:
        for at, each in enumerate(self._left):
            if each.body == body:
                return self._left.pop(at)
        raise AssertionError("the upstream never received a recorded body")


async def _read_records(store: Store, workspace: str) -> dict[str, ConversationRecord]:
    records: dict[str, ConversationRecord] = {}
    async for head in every_conversation(store, conversation_workspace(workspace)):
        page = await store.read(conversation_place(workspace, head.conversation))
        record = ConversationRecord()
        record.read(item.body for item in page.records)
        records[head.conversation] = record
    return records
