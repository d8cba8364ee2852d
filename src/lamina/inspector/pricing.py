"""Prices the calls of a session: what a cache read and wrote of each, as reported or by its rules."""

from __future__ import annotations

import msgspec

from lamina.caches import CacheRules, Tally, cost
from lamina.errors import LaminaError
from lamina.inspector.built_values import BuiltCall
from lamina.inspector.walk import SessionWalk
from lamina.models.facts import model as facts_of
from lamina.replay.outcomes import input_equivalents, simulate_cache
from lamina.replay.policies.port import Setting


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
    priced: list[BuiltCall] = []
    for call in walk.calls:
        if call.error:
            priced.append(call)
            continue
        tally = add_unrecorded(next(tallies), walk.unrecorded)
        priced.append(price_call(walk, call, tally))
    return priced


def price_call(walk: SessionWalk, call: BuiltCall, tally: Tally) -> BuiltCall:
    """One call with its tally, or with the reported one where the session is shown as it was recorded."""
    model = walk.session.conversation.trace.model
    usage = walk.usages[call.number]
    # Under other rules or settings the provider reported nothing: its amounts are of what was sent then.
    shows_records = not walk.settings.changes_requests and not walk.settings.rules
    if usage is not None and shows_records:
        tally = Tally(
            read=usage.read,
            written=usage.written,
            written_long=usage.written_long,
            uncached=usage.uncached,
            why=tally.why,
        )
    return msgspec.structs.replace(
        call,
        read=tally.read,
        written=tally.written + tally.written_long,
        uncached=tally.uncached,
        output=call.call.output,
        dollars=_price_tally(tally, model, walk.rules, call.call.output),
        equivalents=input_equivalents(tally, walk.rules, walk.rules.read_share(model)),
        simulated=usage is None or not shows_records,
        reported=None if usage is None else usage.total,
        miss="" if call.continues else tally.why,
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


def _price_tally(tally: Tally, model: str, rules: CacheRules, output: int) -> float | None:
    try:
        return cost(tally, facts_of(model), rules=rules, output=output).total
    except LaminaError:
        return None
