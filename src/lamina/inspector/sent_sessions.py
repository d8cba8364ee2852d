"""Lists the calls of a recorded conversation as they were sent, with the sizes, cuts and costs of the record.

No request is fitted again here, and no body is read that is like the one before it, so a record of thousands
of requests opens at once. Layers and turns need the entries of a request; they are added when somebody looks
at it (`request_views`).
"""

from __future__ import annotations

import msgspec

from lamina.caches import CacheRules, rules_for
from lamina.conversations.costs import is_refused, price_call, tally_usage
from lamina.conversations.lost_caches import NOT_CACHED, LostCache, compare_requests, explain_by_bytes
from lamina.conversations.record import RecordedCall, is_compaction
from lamina.core.values import Ledger, RequestHead
from lamina.diagnose.values import Difference
from lamina.dialects import DIALECTS
from lamina.dialects.usage import NOTHING_REPORTED, Usage
from lamina.inspector.built_values import BuiltCall, BuiltSession
from lamina.inspector.continuations import Continuations
from lamina.inspector.progress import report_steps
from lamina.inspector.recorded_sessions import RecordedSession
from lamina.inspector.sent_conversations import SentConversation, count_request_tokens
from lamina.inspector.settings import BuildSettings, find_rules
from lamina.inspector.walk import idle_between
from lamina.models.counters.openai import o200k
from lamina.replay.model_calls import ModelCall
from lamina.replay.outcomes import input_equivalents
from lamina.replay.traces.recorded_conversations import decode_body

IN_FLIGHT = "no answer was recorded: it was in flight when lamina ended, or still is"


def list_sent_calls(
    session: RecordedSession, conversation: SentConversation, settings: BuildSettings
) -> BuiltSession:
    """Every recorded request of a conversation, in the order in which they were sent."""
    rules = find_rules(settings.rules, conversation.model, conversation.dialect)
    continuations = Continuations(conversation.record)
    losses = conversation.find_losses()
    calls: list[BuiltCall] = []
    previous: RecordedCall | None = None
    for number in report_steps(range(len(conversation.calls)), "reading requests"):
        call = conversation.calls[number]
        built = _measure(conversation, number, rules)
        if previous is not None:
            continues = continuations.is_continued(previous, call)
            idle = idle_between(previous.request.at, built.at)
            built = msgspec.structs.replace(built, idle=idle, continues=continues)
        built = _add_cut(_add_answer(built, call), call)
        loss = losses.get(number)
        if loss is not None and previous is not None:
            loss = _explain_loss(conversation, loss, previous, call, continues=built.continues)
        calls.append(msgspec.structs.replace(built, loss=loss))
        previous = call
    return BuiltSession(
        session=session,
        settings=settings,
        rules=rules,
        budget=None,
        counter=o200k(),
        head=RequestHead(),
        calls=tuple(calls),
        history={},
        arrivals={},
        sent=conversation,
    )


def _measure(conversation: SentConversation, number: int, rules: CacheRules) -> BuiltCall:
    """One request: its size, and what was reported and paid for it."""
    call = conversation.calls[number]
    request = call.request
    at = request.at or None
    usage = _read_usage(call)
    tally = tally_usage(usage)
    reported = usage.input if usage is not NOTHING_REPORTED else None
    tokens = count_request_tokens(call)
    return BuiltCall(
        number=number,
        call=ModelCall(end=0, answer="", at=at, sent=tokens, output=usage.output),
        at=at,
        idle=0.0,
        ledger=Ledger(),
        tokens=tokens,
        layers={},
        entries=0,
        left_out=0,
        room=None,
        turn=0,
        read=tally.read,
        written=tally.written + tally.written_long,
        uncached=tally.uncached,
        output=usage.output,
        dollars=price_call(call),
        equivalents=input_equivalents(tally, rules, rules.read_share(request.model)),
        simulated=False,
        reported=reported,
        model=request.model,
        follows=conversation.find_earlier(number),
        why=request.why,
    )


def _explain_loss(
    conversation: SentConversation,
    loss: LostCache,
    before: RecordedCall,
    after: RecordedCall,
    *,
    continues: bool,
) -> LostCache:
    """The loss with the reason that the bytes show, as every door told it when the answer came.

    The bodies are read only if they part. If the later one continues the earlier, nobody else did it.
    """
    if after.sent_pieces is None or loss.is_cut:
        return loss
    if continues:
        if loss.cause == NOT_CACHED:
            return loss
        return explain_by_bytes(loss, Difference(cause="none", at=0))
    sent = [decode_body(conversation.record.sent_body(call)) for call in (before, after)]
    dialect = DIALECTS.get(after.request.dialect)
    if None in sent or dialect is None:
        return loss
    tally = tally_usage(_read_usage(after))
    difference = compare_requests(
        *sent,
        rules=rules_for(after.request.model, dialect=dialect.name),
        gap=idle_between(before.request.at, after.request.at),
        tokens=_read_usage(before).input or None,
        dialect=dialect,
        blames_markers=tally.uncached == tally.total,
    )
    return explain_by_bytes(loss, difference)


def _read_usage(call: RecordedCall) -> Usage:
    if call.answer is None or call.answer.usage is None:
        return NOTHING_REPORTED
    return call.answer.usage


def _add_cut(built: BuiltCall, call: RecordedCall) -> BuiltCall:
    """The call with the cut that lamina made for it. What the caller changed has its cause with the miss."""
    cut = call.request.cut
    if cut is None or not is_compaction(cut):
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
        built,
        status=answer.status,
        recalled=answer.recalled,
        refusal=refusal,
        first=answer.first,
        last=answer.last,
    )
