"""Where the cache of a recorded conversation was lost, by what the provider reported of its requests."""

from __future__ import annotations

from collections.abc import Mapping

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
    return {numbers[loss.call - 1]: loss for loss in sum_recorded_usage(trace).lost}
