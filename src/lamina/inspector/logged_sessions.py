"""Lists the calls of a client's log as they were sent: their sizes and turns, and what a cache read of them.

A log has every message in full, so a request is the beginning of the last one: one build of the last request
measures all of them, however many there are. A reported size goes before a counted one, and after a cut of
lamina only it is right. Calls without a reported usage are priced by the rules of the cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

import msgspec

from lamina.caches import CacheRules, Tally
from lamina.conversations.lost_caches import LostCache, find_losses
from lamina.core.build import build
from lamina.core.envelope import Envelope
from lamina.core.recall import list_refs
from lamina.core.tokens import Counter
from lamina.core.values import Layer, Ref, Segment
from lamina.dialects import DIALECTS
from lamina.dialects.memos import ParseMemo
from lamina.dialects.port import ParsedRequest
from lamina.dialects.translate import choose_options
from lamina.fitting.building import AS_LOGGED
from lamina.inspector.built_values import (
    BuiltCall,
    BuiltSession,
    add_cut,
    find_rules,
    idle_between,
    scale_layers,
    turn_of,
)
from lamina.inspector.recorded_sessions import RecordedSession
from lamina.models.counters import counter_for
from lamina.models.counters.openai import o200k
from lamina.replay.message_sizes import MessageSizes
from lamina.replay.model_calls import CHAT
from lamina.replay.outcomes import sum_dollars
from lamina.replay.recorded_usage import list_answered, price_recorded, tally_recorded
from lamina.replay.values import RecordedUsage


def list_logged_calls(session: RecordedSession, rules_name: str) -> BuiltSession:
    """Every call of a log. Without the name of rules, those of its model hold, and what was reported."""
    conversation = session.conversation
    trace = conversation.trace
    counter = counter_for(trace.model) if trace.model else o200k()
    rules = find_rules(rules_name, trace.model, trace.dialect)
    memo = ParseMemo()
    parsed = DIALECTS[CHAT].wire.parse(conversation.request(conversation.calls[-1]), memo=memo)
    envelope = build_in_full(parsed, counter)
    sizes = _RequestSizes(envelope, parsed.log, map(len, memo.past.groups))
    reports = usages_by_call(session)
    usages = reports
    if rules_name:  # what was reported is of another cache, but of the same request
        usages = [None] * len(reports)
    unrecorded = _estimate_unrecorded(session, reports, counter)
    losses = _find_losses(session, usages)
    calls: list[BuiltCall] = []
    arrivals: dict[Ref, int] = {}
    previous = BuiltCall(number=-1)
    for number, (call, report, usage) in enumerate(zip(conversation.calls, reports, usages, strict=True)):
        end = sizes.end_of(call.end)
        counted = sizes.count_tokens(end)
        tokens = counted if report is None else report.total - unrecorded
        arrivals |= dict.fromkeys((entry.ref for entry in envelope.entries[previous.entries : end]), number)
        built = BuiltCall(
            number=number,
            at=call.at,
            idle=idle_between(previous.at, call.at),
            tokens=tokens,
            layers=scale_layers(sizes.count_layers(end), tokens / max(counted, 1)),
            entries=end,
            turn=turn_of(envelope.entries, end),
            output=call.output,
            loss=losses.get(number),
        )
        if usage is None:
            built = _add_guess(built, previous, session, rules, unrecorded)
        else:
            built = _add_usage(built, session, usage)
        calls.append(built)
        previous = msgspec.structs.replace(built, at=previous.at if built.at is None else built.at)
    return BuiltSession(
        session=session,
        rules=rules,
        counter=counter,
        calls=tuple(calls),
        arrivals=arrivals,
        unrecorded=unrecorded,
    )


def build_in_full(parsed: ParsedRequest, counter: Counter) -> Envelope:
    """A request in OpenAI chat, with nothing left out."""
    options = choose_options(DIALECTS[CHAT], parsed.head, layout=AS_LOGGED)
    return build(parsed.log, head=parsed.head, counter=counter, options=options)


def usages_by_call(session: RecordedSession) -> list[RecordedUsage | None]:
    """The reported usage of each call; None where the records have none."""
    usages = [usage for _, usage in sorted(session.conversation.trace.used.items())]
    if len(usages) != len(session.conversation.calls):
        return [None] * len(session.conversation.calls)
    return list(usages)


def _estimate_unrecorded(
    session: RecordedSession, usages: Sequence[RecordedUsage | None], counter: Counter
) -> int:
    """Tokens of system text and tools that the records lack: the first usage, less what is there.

    No request has fewer tokens than these.
    """
    first = usages[0]
    if session.has_head or first is None:
        return 0
    conversation = session.conversation
    sizes = MessageSizes(counter, conversation.tools)
    recorded = sizes.count_tokens(conversation.messages[: conversation.calls[0].end])
    smallest = min(usage.total for usage in usages if usage is not None)
    return min(max(first.total - recorded, 0), smallest)


def _find_losses(session: RecordedSession, usages: Sequence[RecordedUsage | None]) -> dict[int, LostCache]:
    """What was lost by the amounts that were reported, by the number of the call."""
    if None in usages:
        return {}
    return {loss.call - 1: loss for loss in find_losses(list_answered(session.conversation.trace))}


class _RequestSizes:
    """Sums of tokens over the beginnings of a request, as a whole and by layer."""

    def __init__(self, envelope: Envelope, log: Iterable[Segment], message_sizes: Iterable[int]) -> None:
        """`message_sizes` are the segments of each message. What repair added has a place among the rest."""
        entries = envelope.entries
        places = {entry.ref: at for at, entry in enumerate(entries)}
        segment_ends = list(accumulate((places[ref] + 1 for ref, _ in list_refs(log)), max, initial=0))
        self._ends = [segment_ends[count] for count in accumulate(message_sizes, initial=0)]
        self._all = list(accumulate((entry.tokens for entry in entries), initial=0))
        self._fixed = envelope.account.total - self._all[-1]
        system = (entry.tokens * (entry.layer is Layer.SYSTEM) for entry in entries)
        self._system = list(accumulate(system, initial=0))
        prompts = (entry.tokens * (entry.segment.kind == "user") for entry in entries)
        self._prompts = list(accumulate(prompts, initial=0))
        self._turn_starts: list[int] = []
        for at, entry in enumerate(entries):
            goes_on = at > 0 and entry.turn == entries[at - 1].turn
            self._turn_starts.append(self._turn_starts[-1] if goes_on else at)

    def end_of(self, messages: int) -> int:
        """How many entries a request with so many messages has."""
        return self._ends[messages]

    def count_tokens(self, end: int) -> int:
        """The size of the request that ends before this entry, with its head."""
        return self._fixed + self._all[end]

    def count_layers(self, end: int) -> dict[str, int]:
        """Tokens by layer of the same request: what is older than its last turn is history."""
        if not end:
            return {}
        start = self._turn_starts[end - 1]
        prompt = self._prompts[end] - self._prompts[start]
        turn_system = self._system[end] - self._system[start]
        in_turn = self._all[end] - self._all[start] - turn_system
        layers = {
            Layer.SYSTEM.value: self._system[end],
            Layer.HISTORY.value: self._all[start] - self._system[start],
            Layer.PROMPT.value: prompt,
            Layer.STEPS.value: in_turn - prompt,
        }
        return {name: tokens for name, tokens in layers.items() if tokens}


def _add_guess(
    call: BuiltCall, previous: BuiltCall, session: RecordedSession, rules: CacheRules, unrecorded: int
) -> BuiltCall:
    """The call with what a cache would read of it by its rules, and what that costs."""
    model = session.conversation.trace.model
    tally = _add_unrecorded(_guess_tally(call, previous, model, rules), unrecorded)
    return _add_tally(call, tally, sum_dollars([tally], [call.output], model, rules))


def _guess_tally(call: BuiltCall, previous: BuiltCall, model: str, rules: CacheRules) -> Tally:
    """What a cache would read of a request that continues the last one: all of it, while it is remembered.

    A request that is shorter than the least that the cache stores is never read.
    """
    read = 0
    if call.idle <= rules.seconds("") and previous.tokens >= rules.least(model):
        read = min(previous.tokens, call.tokens)
    if rules.write > 1:
        return Tally(read=read, written=call.tokens - read)
    return Tally(read=read, uncached=call.tokens - read)


def _add_unrecorded(tally: Tally, unrecorded: int) -> Tally:
    """The tally with the head that the records lack: it is read whenever anything is.

    It stands before all messages. If nothing was read, it is written or paid with them.
    """
    if tally.read:
        return msgspec.structs.replace(tally, read=tally.read + unrecorded)
    if tally.written:
        return msgspec.structs.replace(tally, written=tally.written + unrecorded)
    return msgspec.structs.replace(tally, uncached=tally.uncached + unrecorded)


def _add_usage(call: BuiltCall, session: RecordedSession, usage: RecordedUsage) -> BuiltCall:
    """The call with what was reported of it, and the cut that lamina recorded for it."""
    trace = session.conversation.trace
    call = _add_tally(call, tally_recorded(usage), price_recorded(usage, trace))
    call = msgspec.structs.replace(call, simulated=False, reported=usage.total)
    if not trace.under_lamina:
        return call
    call = add_cut(call, usage.cut)
    return msgspec.structs.replace(call, continues=not call.cut)


def _add_tally(call: BuiltCall, tally: Tally, dollars: float | None) -> BuiltCall:
    return msgspec.structs.replace(
        call,
        read=tally.read,
        written=tally.written + tally.written_long,
        uncached=tally.uncached,
        dollars=dollars,
    )
