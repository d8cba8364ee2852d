"""Finds the requests of a recorded conversation that lost their cache, by the usage that was reported."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from lamina.conversations.record import SentRequest
from lamina.inspector.sent_conversations import SentConversation
from lamina.replay.recorded_usage import sum_recorded_usage
from lamina.replay.values import LostCache, Trace


def find_losses(conversation: SentConversation) -> Mapping[int, LostCache]:
    """The requests that read less than half of what they could, by what was reported, with their numbers."""
    usages = conversation.read_usages()
    numbers = list(usages)
    trace = Trace(
        id=conversation.name,
        place=conversation.name,
        dialect=conversation.dialect,
        items=[],
        model=conversation.model,
        used=usages,
    )
    losses: dict[int, LostCache] = {}
    for loss in sum_recorded_usage(trace).lost:
        number = numbers[loss.call - 1]
        losses[number] = _explain_by_record(loss, conversation.calls[number].request)
    return losses


def _explain_by_record(loss: LostCache, request: SentRequest) -> LostCache:
    """The loss with the reason that lamina recorded.

    The reported amounts alone would blame the client for a cut of lamina's.
    """
    if request.cut is None:
        return loss
    why = f"the caller changed what was sent: {request.cut.reason}"
    if request.is_cut:
        why = f"lamina made a cut: {request.cut.reason}"
    return msgspec.structs.replace(loss, why=why)
