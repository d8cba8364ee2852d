"""A recorded conversation, call by call, as it was sent: sizes, cuts and costs are those of the record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from lamina.caches import Tally
from lamina.conversations.costs import is_refused, price_call, tally_usage
from lamina.conversations.record import RecordedCall
from lamina.core.envelope import Envelope
from lamina.core.values import Form, Head, Ledger, Ref
from lamina.dialects import DIALECTS
from lamina.inspector.built_values import BuiltCall, BuiltSession, FormChange
from lamina.inspector.sent_requests import (
    SentConversation,
    SentRequestBuild,
    SentRequests,
    count_common_turns,
)
from lamina.inspector.sessions import RecordedSession
from lamina.inspector.settings import BuildSettings, find_rules
from lamina.inspector.walk import idle_between, turn_of
from lamina.replay.model_calls import ModelCall
from lamina.replay.outcomes import input_equivalents
from lamina.replay.policies.lamina_policies import sum_layers

IN_FLIGHT = "no answer was recorded: it was in flight when lamina ended, or still is"


def list_sent_calls(
    session: RecordedSession, conversation: SentConversation, settings: BuildSettings
) -> BuiltSession:
    """Every recorded request of a conversation, in the order in which they were sent."""
    walk = _SentWalk(conversation, settings)
    for number in range(len(conversation.calls)):
        walk.read(number)
    return BuiltSession(
        session=session,
        settings=settings,
        rules=walk.rules,
        budget=None,
        counter=walk.requests.counter(conversation.model),
        head=walk.head,
        calls=tuple(walk.calls),
        history={ref: tuple(changes) for ref, changes in walk.history.items()},
        arrivals=walk.arrivals,
        is_sent=True,
    )


class _SentWalk:
    """One walk through the requests of a conversation. It keeps what was sent last."""

    def __init__(self, conversation: SentConversation, settings: BuildSettings) -> None:
        self.conversation = conversation
        self.rules = find_rules(settings.rules, conversation.model, conversation.dialect)
        self.requests = SentRequests(conversation)
        self.calls: list[BuiltCall] = []
        self.history: dict[Ref, list[FormChange]] = {}
        self.arrivals: dict[Ref, int] = {}
        self.head = Head()
        self._previous_request: Mapping[str, Any] = {}
        self._previous_time: float | None = None

    def read(self, number: int) -> None:
        call = self.conversation.calls[number]
        build = self.requests.read(number)
        built = self._measure(number, call, build)
        if build.envelope is not None:
            self.head = build.envelope.head
            self._note_forms(number, build.envelope)
        self._previous_request = build.request
        self._previous_time = call.request.at
        self.calls.append(built)

    def _measure(self, number: int, call: RecordedCall, build: SentRequestBuild) -> BuiltCall:
        """One request: its sizes, its cut, and what was reported and paid for it."""
        request = call.request
        at = request.at or None
        tally = Tally()
        output = 0
        reported = None
        if call.answer is not None and call.answer.usage is not None:
            tally = tally_usage(call.answer.usage)
            output = call.answer.usage.output
            reported = call.answer.usage.input
        tokens = reported or request.tokens
        layers: dict[str, int] = {}
        sent_count = 0
        left_out = 0
        turn = 1
        if build.envelope is not None:
            entries = build.envelope.entries
            sent_entries = [entry for entry in entries if entry.form is not Form.OMITTED]
            counted = build.envelope.account.total
            tokens = tokens or counted
            layers = _scale_layers(sum_layers(sent_entries), counted, tokens)
            sent_count = len(sent_entries)
            left_out = len(entries) - sent_count
            turn = turn_of(entries, len(entries))
        built = BuiltCall(
            number=number,
            call=ModelCall(end=0, answer="", at=at, sent=tokens, output=output),
            at=at,
            idle=idle_between(self._previous_time, at),
            ledger=Ledger(),
            tokens=tokens,
            layers=layers,
            entries=sent_count,
            left_out=left_out,
            room=None,
            turn=turn,
            continues=self._continues(build.request, request.dialect),
            read=tally.read,
            written=tally.written + tally.written_long,
            uncached=tally.uncached,
            output=output,
            dollars=price_call(call),
            equivalents=input_equivalents(tally, self.rules, self.rules.read_share(request.model)),
            simulated=False,
            reported=reported,
            follows=self.conversation.find_earlier(number),
            why=request.why,
        )
        return _add_cut(_add_answer(built, call), call)

    def _continues(self, request: Mapping[str, Any], dialect: str) -> bool:
        """Whether a request begins with all of the one before it, but for cache markers."""
        if not self._previous_request or not request or dialect not in DIALECTS:
            return True
        return count_common_turns(self._previous_request, request, DIALECTS[dialect]) is not None

    def _note_forms(self, number: int, envelope: Envelope) -> None:
        """Keeps the form of each segment when it arrives, and whenever it changes."""
        for entry in envelope.entries:
            changes = self.history.setdefault(entry.ref, [])
            self.arrivals.setdefault(entry.ref, number)
            if not changes or changes[-1].form != entry.form.name:
                changes.append(FormChange(number, entry.form.name, entry.why))


def _add_cut(built: BuiltCall, call: RecordedCall) -> BuiltCall:
    """The call with the cut that was recorded for it."""
    cut = call.request.cut
    if cut is None:
        return built
    return msgspec.structs.replace(
        built,
        cut=cut.reason,
        cut_lowered=cut.lowered,
        cut_number=cut.number,
        cut_before=cut.before,
        cut_after=cut.after,
    )


def _add_answer(built: BuiltCall, call: RecordedCall) -> BuiltCall:
    """The call with what is known of its answer."""
    answer = call.answer
    if answer is None:
        return msgspec.structs.replace(built, is_open=True, refusal=IN_FLIGHT)
    refusal = ""
    if is_refused(call):
        refusal = answer.error or f"the answer had the status {answer.status}"
    return msgspec.structs.replace(
        built, status=answer.status, recalled=answer.recalled, refusal=refusal, retries=answer.retries
    )


def _scale_layers(layers: Mapping[str, int], counted: int, tokens: int) -> dict[str, int]:
    """Tokens by layer, as shares of what was reported: lamina's own count may differ from the provider's."""
    if not counted or counted == tokens:
        return dict(layers)
    return {name: round(amount * tokens / counted) for name, amount in layers.items()}
