"""Measures how long a request would be if its conversation had never been cut, in tokens of its upstream.

The gateway counts with its own counter and upstreams report their own tokens. `lamina.gateway.account`, which
sees what was reported for many requests, scales the one to the other and adds them up.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from lamina.core.entries import find_logged
from lamina.core.tokens import Counter, part_cost
from lamina.core.values import Entry, Form, ToolCall
from lamina.dialects.usage import Usage
from lamina.fitting.request import Fitted
from lamina.gateway.calls import OutgoingRequest


class UncutSizes(NamedTuple):
    """Tokens of a request that was sent, if nothing of its conversation had been cut.

    `full` is the whole request, and `unchanged` what stands before the first thing that was lowered, or 0 if
    nothing was. Both are in tokens of the upstream, and the others in tokens of the gateway's counter:
    `counted` is the request as it was sent, `new` what the request before it did not have, before anything of
    it was shortened, and `held_back` what was shortened in it before it was ever sent.
    """

    full: int
    unchanged: int = 0
    counted: int = 0
    new: int = 0
    held_back: int = 0


def measure_uncut(sent: OutgoingRequest, usage: Usage, counter: Counter) -> UncutSizes:
    """Measure a request. One that was not fitted was sent as it came."""
    fitted = sent.fitted
    if fitted is None:
        return UncutSizes(full=usage.input)
    account = fitted.envelope.account
    counted = max(account.total - account.margin, 1)
    scale = usage.input / counted
    new_entries = _find_new(fitted, sent.new_segments)
    held_back = sum(_count_hidden(entry, counter) for entry in new_entries)
    new = sum(entry.tokens for entry in new_entries) + held_back
    full = usage.input
    if sent.previous is None and fitted.ledger.lines:  # later requests of this process are compared with it
        full += round(_count_removed(fitted, counter, counted) * scale)
    return UncutSizes(
        full=full,
        unchanged=round(_count_unchanged(fitted) * scale),
        counted=counted,
        new=new,
        held_back=held_back,
    )


def _find_new(fitted: Fitted, count: int) -> Sequence[Entry]:
    if not count:
        return ()
    return find_logged(fitted.envelope.entries)[-count:]


def _count_hidden(entry: Entry, counter: Counter) -> int:
    """The tokens of an entry that are not sent, because it is lowered."""
    if entry.form is Form.FULL:
        return 0
    whole = sum(part_cost(part, counter) for part in entry.source.parts)
    sent = sum(part_cost(part, counter) for part in entry.parts)
    return max(whole - sent, 0)


def _count_unchanged(fitted: Fitted) -> int:
    """The tokens before the first entry that is lowered, or that lamina wrote; 0 if there is none."""
    tokens = fitted.envelope.account.head
    for entry in fitted.envelope.entries:
        if entry.form is not Form.FULL or entry.segment.is_own:
            return tokens
        tokens += entry.tokens
    return 0


def _count_removed(fitted: Fitted, counter: Counter, counted: int) -> int:
    """The tokens that the conversation has lost: by cuts, and by entering shortened, less what was recalled.

    A cut of the ledger says how much it took away, in calibrated tokens. Here the calibration is undone.
    """
    ledger = fitted.ledger
    calibrated = fitted.envelope.tokens / counted
    removed = 0
    for cut in ledger.cuts:
        removed += max(cut.before - cut.after, 0)  # a changed head may make a request longer
    held_back = 0
    recalled = 0
    for entry in find_logged(fitted.envelope.entries):
        line = ledger.lines.get(entry.ref)
        if line is not None and not line.cut:  # it entered lowered, so no cut has counted it
            held_back += _count_hidden(entry, counter)
        if _is_recall(entry, fitted.own_names):
            recalled += entry.tokens
    return max(round(removed / calibrated) + held_back - recalled, 0)


def _is_recall(entry: Entry, own_names: Collection[str]) -> bool:
    """Whether it is a call of one of lamina's own tools, or its result. The client has neither."""
    if entry.asked is not None:
        return entry.asked.name in own_names
    return any(isinstance(part, ToolCall) and part.name in own_names for part in entry.parts)
