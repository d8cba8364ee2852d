"""Answers about conversations that lamina recorded in a store: names, clients, last requests, usage."""

from __future__ import annotations

from typing import Any

import msgspec

from lamina.conversations.answer_bodies import decode_object
from lamina.conversations.record import ConversationRecord, RecordedCall, SentRequest
from lamina.conversations.recorded_log import KEPT_BY
from lamina.conversations.store import (
    ConversationState,
    conversation_workspace,
)
from lamina.costs.logs.growing_requests import find_answer_starts
from lamina.costs.logs.values import RecordedUsage, Trace, record_usage
from lamina.dialects.usage import Usage
from lamina.fitting.recalls import TURN_FIELDS
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
