"""Where the cache of a recorded conversation was lost, by what the provider reported of its requests."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from lamina.conversations.record import SentRequest
from lamina.inspector.sent_requests import SentConversation
from lamina.replay.recorded_usage import sum_recorded_usage
from lamina.replay.traces.recorded_conversations import to_recorded_usage
from lamina.replay.values import LostCache, Trace


def find_losses(conversation: SentConversation) -> Mapping[int, LostCache]:
    """The requests that read less than half of what they could, by what was reported, with their numbers."""
    numbers = []
    used = {}
    for number, call in enumerate(conversation.calls):
        if call.answer is not None and call.answer.usage is not None:
            numbers.append(number)
            used[number] = to_recorded_usage(
                call.answer.usage, at=call.request.at or None, model=call.request.model
            )
    trace = Trace(
        id=conversation.name,
        place=conversation.name,
        dialect=conversation.dialect,
        items=[],
        model=conversation.model,
        used=used,
    )
    losses: dict[int, LostCache] = {}
    for loss in sum_recorded_usage(trace).lost:
        number = numbers[loss.call - 1]
        losses[number] = explain_by_record(loss, conversation.calls[number].request)
    return losses


def explain_by_record(loss: LostCache, request: SentRequest) -> LostCache:
    """The loss with the reason that lamina recorded. Amounts alone would blame the client for a cut."""
    if request.cut is None:
        return loss
    why = f"the caller changed what was sent: {request.cut.reason}"
    if request.is_cut:
        why = f"lamina made a cut: {request.cut.reason}"
    return msgspec.structs.replace(loss, why=why)
