"""Prices the calls of a session: what a cache read and wrote of each, as reported or by its rules."""

from __future__ import annotations

import msgspec

from lamina.caches import CacheRules, Tally, cost
from lamina.conversations.costs import price_tally
from lamina.conversations.lost_caches import LostCache, find_losses
from lamina.conversations.record import is_compaction
from lamina.errors import LaminaError
from lamina.inspector.built_values import BuiltCall
from lamina.inspector.walk import SessionWalk
from lamina.models.facts import model as facts_of
from lamina.replay.outcomes import input_equivalents, simulate_cache
from lamina.replay.policies.port import Setting
from lamina.replay.recorded_usage import list_answered, tally_recorded
from lamina.replay.values import RecordedUsage


def price_calls(walk: SessionWalk) -> list[BuiltCall]:
    """The calls with what a cache read and wrote: as recorded if it was, else by the rules."""
    trace = walk.session.conversation.trace
    setting = Setting(
        window=0,
        room=0,
        trigger=0,
        target=0,
        message_sizes=walk.sizes,
        rules=walk.rules,
        model=trace.model,
    )
    tallies = iter(simulate_cache(walk.steps, setting, walk.rules))
    losses = _find_losses(walk)
    priced: list[BuiltCall] = []
    for call in walk.calls:
        if call.error:
            priced.append(call)
            continue
        tally = add_unrecorded(next(tallies), walk.unrecorded)
        priced_call = price_call(walk, call, tally)
        priced.append(msgspec.structs.replace(priced_call, loss=losses.get(call.number)))
    return priced


def _find_losses(walk: SessionWalk) -> dict[int, LostCache]:
    """What was lost by the amounts that were reported, by the number of the call."""
    trace = walk.session.conversation.trace
    if not _shows_records(walk) or None in walk.usages:
        return {}
    return {loss.call - 1: loss for loss in find_losses(list_answered(trace))}


def _shows_records(walk: SessionWalk) -> bool:
    """Whether the session is shown as it was recorded.

    Under other rules or settings the provider reported nothing: its amounts are of what was sent then.
    """
    return not walk.settings.changes_requests and not walk.settings.rules


def price_call(walk: SessionWalk, call: BuiltCall, tally: Tally) -> BuiltCall:
    """One call with its tally, or with the reported one where the session is shown as it was recorded."""
    trace = walk.session.conversation.trace
    usage = walk.usages[call.number]
    miss = ""
    if not call.continues:
        miss = tally.why
    if usage is not None and _shows_records(walk):
        tally = tally_recorded(usage)
        if trace.under_lamina:
            call = _add_recorded_cut(call, usage)
        dollars = price_tally(
            tally,
            usage.model or trace.model,
            output=usage.output,
            dialect=trace.dialect,
            at=usage.at,
            tier=usage.tier,
        )
    else:
        dollars = _price_simulated(tally, trace.model, walk.rules, call.call.output)
    return msgspec.structs.replace(
        call,
        read=tally.read,
        written=tally.written + tally.written_long,
        uncached=tally.uncached,
        output=call.call.output,
        dollars=dollars,
        equivalents=input_equivalents(tally, walk.rules, walk.rules.read_share(trace.model)),
        simulated=usage is None or not _shows_records(walk),
        reported=None if usage is None else usage.total,
        miss=miss,
    )


def _add_recorded_cut(call: BuiltCall, usage: RecordedUsage) -> BuiltCall:
    """The call with the cut that lamina recorded for it.

    The log of a session has everything in full, so a request of it cannot be measured after a cut.
    """
    cut = usage.cut
    if cut is None or not is_compaction(cut):
        return msgspec.structs.replace(call, tokens=usage.total)
    return msgspec.structs.replace(
        call,
        tokens=usage.total,
        continues=False,
        cut=cut.reason,
        cut_lowered=cut.lowered,
        cut_number=cut.number,
        cut_before=cut.before,
        cut_after=cut.after,
    )


def add_unrecorded(tally: Tally, unrecorded: int) -> Tally:
    """The tally with the head that the records lack: it is read whenever anything is.

    It stands before all messages. If nothing was read, it is written or paid with them.
    """
    if not unrecorded:
        return tally
    if tally.read:
        return msgspec.structs.replace(tally, read=tally.read + unrecorded)
    if tally.written:
        return msgspec.structs.replace(tally, written=tally.written + unrecorded)
    return msgspec.structs.replace(tally, uncached=tally.uncached + unrecorded)


def _price_simulated(tally: Tally, model: str, rules: CacheRules, output: int) -> float | None:
    try:
        return cost(tally, facts_of(model), rules=rules, output=output).total
    except LaminaError:
        return None
