"""Walks through a session and builds each call from the ledger that the one before it left.

It keeps the sizes of each call, its cut, and every change of a segment's form. Then it prices the calls: what
a cache read and wrote of each, as reported or by its rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import msgspec

from lamina.caches import CacheRules, Tally, rates
from lamina.caches.prefix_path import count_common_items
from lamina.conversations.costs import price_tally
from lamina.conversations.lost_caches import LostCache, find_losses
from lamina.core.build import build
from lamina.core.envelope import Envelope
from lamina.core.layout import Layout
from lamina.core.memo import BuildMemo
from lamina.core.tokens import Counter
from lamina.core.values import Budget, Entry, Form, Ledger, Ref, RequestHead, Segment
from lamina.dialects import DIALECTS
from lamina.dialects.json_values import find_model
from lamina.dialects.memos import ParseMemo
from lamina.dialects.translate import choose_options
from lamina.errors import LaminaError
from lamina.inspector.built_values import (
    BuildSettings,
    BuiltCall,
    FormChange,
    add_cut,
    find_rules,
    make_budget,
)
from lamina.inspector.recorded_sessions import RecordedSession
from lamina.models.counters import counter_for
from lamina.models.counters.openai import o200k
from lamina.replay.message_sizes import MessageSizes
from lamina.replay.model_calls import CHAT, ModelCall
from lamina.replay.outcomes import input_equivalents, simulate_cache, sum_dollars
from lamina.replay.policies.lamina_policies import sum_layers
from lamina.replay.policies.port import PolicyRequest, Setting
from lamina.replay.recorded_usage import list_answered, tally_recorded
from lamina.replay.values import RecordedUsage
from lamina.replay.walk import NeededTerms, WalkStep

"""The key of segments that somebody left out to see what happens."""


class SessionWalk:
    """One walk through a session. It keeps the ledger, the memos, and what was sent last."""

    def __init__(self, session: RecordedSession, settings: BuildSettings) -> None:
        trace = session.conversation.trace
        self.session = session
        self.settings = settings
        self.counter = counter_for(trace.model) if trace.model else o200k()
        self.rules = find_rules(settings.rules, trace.model, trace.dialect)
        first_request = session.conversation.request(session.conversation.calls[0])
        self.head = DIALECTS[CHAT].wire.parse(first_request).head
        self.sizes = MessageSizes(self.counter, session.conversation.tools)
        self.unrecorded = self._estimate_unrecorded()
        self.budget = make_budget(settings, session.window, unrecorded=self.unrecorded)
        self.ledger = Ledger()
        self.memo = BuildMemo()
        self.parse_memo = ParseMemo()
        self.calls: list[BuiltCall] = []
        self.steps: list[WalkStep] = []
        self.history: dict[Ref, list[FormChange]] = {}
        self.arrivals: dict[Ref, int] = {}
        self.previous_messages: list[dict[str, Any]] = []
        self.previous_time: float | None = None

    @cached_property
    def needed_terms(self) -> NeededTerms:
        return NeededTerms(self.session.conversation, self.sizes)

    @cached_property
    def usages(self) -> list[RecordedUsage | None]:
        return usages_by_call(self.session)

    def build_log(self, log: tuple[Segment, ...], idle: float, memo: BuildMemo | None = None) -> Envelope:
        return build_log(
            log,
            head=self.head,
            budget=self.budget,
            ledger=self.ledger,
            counter=self.counter,
            rules=self.rules,
            idle=idle,
            memo=memo,
        )

    def _estimate_unrecorded(self) -> int:
        """Tokens of system text and tools that the records lack: the first usage, less what is there."""
        if self.session.has_head:
            return 0
        usage = self.usages[0]
        if usage is None:
            return 0
        first_call = self.session.conversation.calls[0]
        recorded = self.sizes.count_tokens(self.session.conversation.messages[: first_call.end])
        return max(usage.total - recorded, 0)

    def send(self, number: int, call: ModelCall) -> None:
        """Build the next call of the session, and keep its sizes, its cut and the forms of its segments.

        A call that cannot be built is kept with its error, and the ledger stays as it was.
        """
        idle = self._idle_before(call)
        ledger = self.ledger
        request = self.session.conversation.request(call)
        try:
            log = DIALECTS[CHAT].wire.parse(request, memo=self.parse_memo).log
            envelope = self.build_log(log, idle, self.memo)
        except LaminaError as error:
            self._keep_failure(number, call, idle, ledger, str(error))
            return
        self.ledger = envelope.ledger
        messages = request["messages"]
        if self.settings.changes_requests or envelope.ledger.repairs:
            messages = DIALECTS[CHAT].wire.render(envelope)["messages"]
        shared = count_common_items(self.previous_messages, messages)
        continues = shared >= len(self.previous_messages)
        self.previous_messages = messages
        self._note_forms(number, envelope)
        cut_reason = ""
        cut_lowered = 0
        # A cut that lowers nothing changes no byte, so the strip does not show it.
        if envelope.cut is not None and envelope.cut.lowered > 0:
            cut_reason = envelope.cut.reason
            cut_lowered = envelope.cut.lowered
        sent_entries = [entry for entry in envelope.entries if entry.form is not Form.OMITTED]
        built = BuiltCall(
            number=number,
            call=call,
            at=call.at,
            idle=idle,
            ledger=ledger,
            tokens=envelope.account.total,
            layers=sum_layers(sent_entries),
            entries=len(sent_entries),
            left_out=len(envelope.entries) - len(sent_entries),
            room=envelope.room,
            cut=cut_reason,
            cut_lowered=cut_lowered,
            turn=turn_of(envelope.entries, len(envelope.entries)),
            continues=continues,
        )
        if self.budget is not None:
            built = self._count_needed(built, messages)
        self.calls.append(built)
        sent = PolicyRequest(messages=messages, cut=built.cut, layers=built.layers)
        self.steps.append(WalkStep(call=call, sent=sent, tokens=built.tokens, same=shared))

    def _count_needed(self, built: BuiltCall, messages: list[dict[str, Any]]) -> BuiltCall:
        """The call with how many names its answer needed, and how many of these the request had."""
        terms = self.needed_terms.by_call[built.number]
        text = "\n".join(self.sizes.measure(message).words for message in messages)
        visible = sum(term in text for term in terms)
        return msgspec.structs.replace(built, needed=len(terms), visible=visible)

    def _idle_before(self, call: ModelCall) -> float:
        idle = idle_between(self.previous_time, call.at)
        if call.at is not None:
            self.previous_time = call.at
        return idle

    def _keep_failure(self, number: int, call: ModelCall, idle: float, ledger: Ledger, error: str) -> None:
        self.calls.append(
            BuiltCall(
                number=number,
                call=call,
                at=call.at,
                idle=idle,
                ledger=ledger,
                tokens=0,
                layers={},
                entries=0,
                left_out=0,
                room=None,
                error=error,
            )
        )
        self.steps.append(WalkStep(call=call, sent=None, failed=error))

    def _note_forms(self, number: int, envelope: Envelope) -> None:
        """Keep the form of each segment when it arrives, and whenever it changes.

        So the history of a segment has one line for each form, not one for each call.
        """
        for entry in envelope.entries:
            changes = self.history.setdefault(entry.ref, [])
            self.arrivals.setdefault(entry.ref, number)
            if not changes or changes[-1].form != entry.form.name:
                changes.append(FormChange(number, entry.form.name, entry.why))


def turn_of(entries: Sequence[Entry], end: int) -> int:
    """The turn that a request of so many entries belongs to, counted from 1."""
    if not end:
        return 1
    return max(entries[end - 1].turn, 0) + 1


def idle_between(before: float | None, after: float | None) -> float:
    """Seconds from one call to the next; 0 where a time is not recorded."""
    if before is None or after is None:
        return 0.0
    return max(after - before, 0.0)


def build_log(
    log: tuple[Segment, ...],
    *,
    head: RequestHead,
    budget: Budget | None,
    ledger: Ledger,
    counter: Counter,
    rules: CacheRules,
    idle: float,
    memo: BuildMemo | None = None,
) -> Envelope:
    layout = Layout(context="logged")
    model = find_model(head.parameters)
    options = choose_options(DIALECTS[CHAT], head, layout=layout, rates=rates(rules, model))
    return build(
        log,
        head=head,
        budget=budget,
        ledger=ledger,
        counter=counter,
        options=options,
        idle=idle,
        memo=memo,
    )


def usages_by_call(session: RecordedSession) -> list[RecordedUsage | None]:
    """The reported usage of each call; None where the records have none."""
    usages = [usage for _, usage in sorted(session.conversation.trace.used.items())]
    if len(usages) != len(session.conversation.calls):
        return [None] * len(session.conversation.calls)
    return list(usages)


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
        dollars = sum_dollars([tally], [call.call.output], trace.model, walk.rules)
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
    counted = msgspec.structs.replace(call, tokens=usage.total)
    built = add_cut(counted, usage.cut)
    if built is counted:
        return counted
    return msgspec.structs.replace(built, continues=False)


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
