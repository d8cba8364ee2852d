"""Reads conversations that lamina recorded in a store, as traces like those of any other log.

The items of such a trace are the client's own history: what the client wrote in its last request, and the
answer to it. What was reported is of the requests that lamina sent, so it may be of fewer tokens than the
items have. Every reported usage is in the trace, also that of requests which were sent twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from lamina.conversations.answer_bodies import decode_object, read_answer
from lamina.conversations.body_places import BodyPlaces
from lamina.conversations.costs import is_refused
from lamina.conversations.record import ConversationRecord, RecordedCall, SentRequest
from lamina.conversations.recorded_log import KEPT_BY
from lamina.conversations.store import (
    ConversationState,
    conversation_workspace,
    find_conversation,
    read_record,
)
from lamina.costs.recorded_calls import list_cut_savings
from lamina.dialects import DIALECTS
from lamina.dialects.usage import Usage
from lamina.errors import LaminaError
from lamina.fitting.recalls import TURN_FIELDS, read_turns, render_turns
from lamina.replay.traces.growing_requests import find_answer_starts, is_answer
from lamina.replay.traces.requests import find_user
from lamina.replay.values import RecordedUsage, Trace, UnreadableLine, record_usage
from lamina.stores.paging import every_conversation
from lamina.stores.port import Store

SOURCE = "lamina"
"""The source of these traces, as an account names it."""

_CLIENTS = {"claude-code": "claude-code", "thread": "codex", "session": "opencode"}
"""The client that sends each kind of id, as the gateway names it."""

_HEAD_LEFT_OUT = frozenset((*TURN_FIELDS, "model"))


async def list_recorded(store: Store, *, workspace: str) -> list[str]:
    """The names of the recorded conversations of a workspace."""
    return [head.conversation async for head in every_conversation(store, conversation_workspace(workspace))]


async def read_recorded(store: Store, *, workspace: str, name: str) -> Trace | UnreadableLine:
    """One recorded conversation of a workspace. One that cannot be read comes back with the reason."""
    try:
        stored = await find_conversation(store, workspace, name)
        if stored is None:
            return UnreadableLine(place=name, reason="it was deleted meanwhile", foreign=True)
        record = await read_record(store, workspace, name)
        if stored.state.door != "session" and record.calls and find_last_request(record) is None:
            return make_trace_of_usages(name, stored.state, record)
        return make_trace(name, stored.state, record)
    except LaminaError as error:
        return UnreadableLine(place=name, reason=str(error))


def make_trace(name: str, state: ConversationState, record: ConversationRecord) -> Trace | UnreadableLine:
    """One recorded conversation as a trace. A record without bodies cannot be replayed, and says why."""
    if not record.calls:
        return UnreadableLine(place=name, reason="no request of it is recorded", foreign=True)
    last = find_last_request(record)
    if last is None:
        return UnreadableLine(place=name, reason=explain_missing_bodies(state), foreign=True)
    request = read_came(record, last)
    if request is None:
        return UnreadableLine(place=name, reason="the body of its last request is not a JSON object")
    items = [turn for turn in read_turns(request) if isinstance(turn, dict)]
    reports = _Reports(record, items)
    answer = _read_last_answer(record, last, request)
    return Trace(
        id=name,
        place=f"{last.request.upstream or state.upstream or state.door or SOURCE}/{name}",
        dialect=last.request.dialect or state.dialect,
        items=[*items, *answer],
        head={field: value for field, value in request.items() if field not in _HEAD_LEFT_OUT},
        source=SOURCE,
        model=last.request.model or state.model,
        used=reports.used,
        repeated=tuple(reports.repeated),
        unreported=reports.unreported,
        under_lamina=True,
        began=record.calls[0].request.at or None,
        title=state.title,
        user=find_user({}, request),
        client=name_client(name, state),
        client_session=state.group,
    )


def make_trace_of_usages(name: str, state: ConversationState, record: ConversationRecord) -> Trace:
    """A conversation whose texts are not kept, as what its requests took: enough to say what it cost."""
    reports = _Reports(record, ())
    last_request = record.calls[-1].request
    return Trace(
        id=name,
        place=f"{last_request.upstream or state.upstream or state.door or SOURCE}/{name}",
        dialect=last_request.dialect or state.dialect,
        items=[],
        source=SOURCE,
        model=last_request.model or state.model,
        used=dict(enumerate(usage for _, usage in reports.repeated)),
        unreported=reports.unreported,
        under_lamina=True,
        began=record.calls[0].request.at or None,
        title=state.title,
        client=name_client(name, state),
        client_session=state.group,
    )


def name_client(name: str, state: ConversationState) -> str:
    """The program that ran a conversation, by the id that it sent; else the door that it came through.

    The gateway names a conversation after the kind of this id, too: `claude-code-5f0c1b7a`.
    """
    for kind in (state.group.partition(":")[0], name.rpartition("-")[0]):
        if kind in _CLIENTS:
            return _CLIENTS[kind]
    return state.door or SOURCE


def find_last_request(record: ConversationRecord) -> RecordedCall | None:
    """The last request whose body is kept; None if the store keeps none."""
    for call in reversed(record.calls):
        if call.came_pieces is not None:
            return call
    return None


def explain_missing_bodies(state: ConversationState) -> str:
    """Why a conversation has no texts, and which setting would show more."""
    if state.door == "session":
        return "a session keeps its texts in its log, and here only what each request took"
    return KEPT_BY.get(state.keep, KEPT_BY["nothing"])


def read_came(record: ConversationRecord, call: RecordedCall) -> dict[str, Any] | None:
    """A request as the client wrote it; None if its body is not kept, or is not a JSON object."""
    return decode_body(record.came_body(call))


def decode_body(body: bytes | None) -> dict[str, Any] | None:
    """The body of a request as JSON; None if there is none, or if it is anything but an object."""
    if body is None:
        return None
    return decode_object(body)


def to_recorded_usage(usage: Usage, request: SentRequest, saving: float | None = None) -> RecordedUsage:
    """What was reported of one request, with its time, its model and its cut."""
    return record_usage(usage, at=request.at or None, model=request.model, cut=request.cut, saving=saving)


def add_reported(trace: Trace, record: ConversationRecord) -> Trace:
    """The trace of a session's log with what was reported for each answer, as the record beside it has it.

    A session records the requests that were answered. If the log has another number of answers, since it was
    forked or answers were deleted, nobody can tell which is which, and nothing is added.
    """
    places = list(find_answer_starts(trace.items))
    usages = [call.answer.usage for call in record.calls if call.answer is not None]
    # the log was forked, or answers were deleted: nobody can tell which is which
    if len(places) != len(usages):
        return trace
    used: dict[int, RecordedUsage] = {}
    for place, call, usage in zip(places, record.calls, usages, strict=True):
        if usage is not None:
            used[place] = to_recorded_usage(usage, call.request)
    return msgspec.structs.replace(trace, used=used, under_lamina=True)


class _Reports:
    """What was reported for each request, by the place of its answer among the items of the client."""

    def __init__(self, record: ConversationRecord, items: Sequence[Mapping[str, Any]]) -> None:
        self.used: dict[int, RecordedUsage] = {}
        self.repeated: list[tuple[int, RecordedUsage]] = []
        self.unreported = 0
        self._record = record
        self._items = items
        self._places = BodyPlaces(record)
        for call, saving in zip(record.calls, list_cut_savings(record.calls), strict=True):
            self._add(call, saving)

    def _add(self, call: RecordedCall, saving: float | None) -> None:
        answer = call.answer
        if answer is None or is_refused(call):
            return
        if answer.usage is None:
            self.unreported += 1
            return
        usage = to_recorded_usage(answer.usage, call.request, saving)
        place = self._find_place(call)
        if place is None:
            self.repeated.append((len(self._items), usage))
            return
        earlier = self.used.get(place)
        if earlier is not None:  # the same request again: the last answer is the one that the client has
            self.repeated.append((place, earlier))
        self.used[place] = usage

    def _find_place(self, call: RecordedCall) -> int | None:
        """How many items a request had; None if its body is not kept, or if it had more than the last one."""
        if call.came_pieces is None:
            return None
        # Each body is a few pieces more than the one before it: to decode them all takes the square of that.
        count = self._places.count_turns(call.came_pieces)
        if not count:
            request = read_came(self._record, call)
            if request is None:
                return None
            count = sum(isinstance(turn, dict) for turn in read_turns(request))
        if count > len(self._items):
            return None
        return count


def _read_last_answer(
    record: ConversationRecord, call: RecordedCall, request: dict[str, Any]
) -> tuple[dict[str, Any], ...]:
    """The answer to the last request, as the client would have it in its next one."""
    body = record.answer_body(call)
    dialect = DIALECTS.get(call.request.dialect)
    if body is None or call.answer is None or dialect is None:
        return ()
    # the client never saw an answer that lamina took for a recall
    if is_refused(call) or call.answer.recalled:
        return ()
    try:
        segments = read_answer(body, call.answer, dialect.name).segments
        turns = render_turns(segments, dialect, dialect.wire.parse(request).head)
    except LaminaError:
        return ()
    # A call of a tool has no result yet, and rendering writes one so that the request is valid.
    return tuple(turn for turn in turns if is_answer(turn))
