"""Says when a window is too small for its work, once, with the number to set.

Three things make a window too small: the client's own text and tools leave little of it, one result takes a
large part, or cuts come so often that each is paid before it has saved anything. The first two are seen at
the first cut of a conversation, the last at the third: nothing has to be remembered to say it once.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from lamina.core.envelope import Envelope
from lamina.core.values import Layer

HEAD_SHARE = 0.4
"""Of the room: system text and tools that take more leave too little for the work."""

RESULT_SHARE = 1 / 3
"""Of the room: beside a result that takes more, most of what stands around it has to go."""

CUTS_SEEN = 3
REQUESTS_BETWEEN_CUTS = 6
"""A cut from 95 to 30 % of the room writes 30 % anew and saves the reading of 65 %. Where a write costs 1.25
and a read 0.1, that is paid back by the sixth request. If the next cut comes earlier, each costs money."""

_WIDE_ENOUGH = 4
"""The room that is advised, as a multiple of what fills this one."""


class WindowAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """Why a window is too small, and the window to set instead, in tokens."""

    reason: Literal["own text", "one result", "many cuts"]
    text: str
    window: int

    def __str__(self) -> str:
        return f"{self.text}; a window of {self.window:,} tokens or more is better"


def advise_window(envelope: Envelope, window: int) -> WindowAdvice | None:
    """What to say about the window of this request, if a cut was just made and something is to be said."""
    cut = envelope.cut
    room = envelope.room
    if cut is None or not cut.lowered:
        return None
    if not room or not window:
        return None
    # The number of cuts so far says it once, without a memory of what was said.
    cuts = sum(1 for past_cut in envelope.ledger.cuts if past_cut.lowered)
    if cuts == 1:
        return _look_at_sizes(envelope, room, window)
    if cuts == CUTS_SEEN:
        return _look_at_pace(envelope, window)
    return None


def _look_at_sizes(envelope: Envelope, room: int, window: int) -> WindowAdvice | None:
    reserved = window - room
    own = envelope.account.tools
    largest = 0
    for entry in envelope.entries:
        if entry.layer is Layer.SYSTEM:
            own += entry.tokens
        elif entry.segment.kind == "tool_result":
            largest = max(largest, entry.tokens)
    if own > HEAD_SHARE * room:
        text = f"system text and tools take {own:,} of the {room:,} tokens that a request may have"
        return WindowAdvice(reason="own text", text=text, window=_round_up(own * _WIDE_ENOUGH + reserved))
    if largest > RESULT_SHARE * room:
        text = f"one tool result takes {largest:,} of the {room:,} tokens that a request may have"
        advised = _round_up(largest * _WIDE_ENOUGH + own + reserved)
        return WindowAdvice(reason="one result", text=text, window=advised)
    return None


def _look_at_pace(envelope: Envelope, window: int) -> WindowAdvice | None:
    """Each step is one request: an answer of the model, and what its tools gave back."""
    requests = max((entry.step for entry in envelope.entries), default=0) + 1
    if requests >= CUTS_SEEN * REQUESTS_BETWEEN_CUTS:
        return None
    text = f"there were {CUTS_SEEN} cuts in {requests} requests"
    return WindowAdvice(reason="many cuts", text=text, window=_round_up(2 * window))


def _round_up(tokens: int) -> int:
    """Whole thousands, as people set windows."""
    return -(-tokens // 1000) * 1000
