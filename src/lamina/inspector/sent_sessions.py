"""Lists the requests of a session as they were sent, with the sizes, cuts and costs of the record.

No request is fitted again here, and hardly any body is read, so a record of thousands of requests opens at
once. What stands in a request is read when somebody looks at it (`request_views`).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from lamina.caches import CacheRules, rules_for
from lamina.conversations.costs import is_refused, tally_usage
from lamina.conversations.lost_caches import NOT_CACHED, LostCache, compare_requests, explain_by_bytes
from lamina.conversations.record import RecordedCall
from lamina.core.text.arguments import pick_telling_argument
from lamina.core.values import ToolCall
from lamina.costs.logs.recorded_conversations import decode_body
from lamina.dialects import DIALECTS
from lamina.dialects.usage import NOTHING_REPORTED, Usage
from lamina.fitting.recalls import RECALL
from lamina.inspector.recorded_sessions import RecordedSession
from lamina.inspector.sent_conversations import SentConversation, count_request_tokens

IN_FLIGHT = "no answer was recorded: it was in flight when lamina ended, or still is"

MOST_ANSWERS = 2_000
"""Answers that are read for the name of their first call. Of a longer session, those of the last requests."""

LONGEST_CALL = 80
"""Characters of a call in the list of requests."""


class SentCall(msgspec.Struct, frozen=True, kw_only=True):
    """One request: its place in the session, its size, what a cache read of it, and what that cost.

    `tokens` is its size, and `whole` what it would have been without lamina, None where nobody measured it.
    `reported` is the size that the provider reported, None without one. `follows` is the number of the
    request that this one repeats, and `why` says after which refusal; `recalled`: its answer recalled
    something, and the next request has that. `calls` is the first tool call of its answer. `status` is the
    HTTP status. `is_open`: no answer was recorded. `cut_number` is that of the cut that was made for it.
    `first` and `last` are the seconds to the first and to the last byte of the answer, 0 where they are not
    known. `loss` is what the cache lost, by what was reported of this request and the ones before it.
    """

    number: int
    at: float | None = None
    idle: float = 0.0
    tokens: int = 0
    whole: int | None = None
    reported: int | None = None
    read: int = 0
    written: int = 0
    uncached: int = 0
    output: int = 0
    dollars: float | None = None
    cut: str = ""
    cut_lowered: int = 0
    cut_number: int = 0
    loss: LostCache | None = None
    model: str = ""
    follows: int | None = None
    why: str = ""
    recalled: bool = False
    calls: str = ""
    status: int = 0
    refusal: str = ""
    is_open: bool = False
    compacted: bool = False
    first: float = 0.0
    last: float = 0.0

    @property
    def is_refused(self) -> bool:
        """Whether the provider refused it. One without an answer has a remark in `refusal`, too."""
        return bool(self.refusal) and not self.is_open


class SentSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session request by request."""

    session: RecordedSession
    calls: tuple[SentCall, ...]

    @property
    def sent(self) -> SentConversation:
        return self.session.sent

    @property
    def rules(self) -> CacheRules:
        return rules_for(self.sent.model, dialect=self.sent.dialect)


def list_calls(session: RecordedSession) -> SentSession:
    """Every request of a session, in the order in which they were sent."""
    return SentSession(session=session, calls=tuple(_read_calls(session.sent)))


def _read_calls(sent: SentConversation) -> Iterator[SentCall]:
    losses = sent.find_losses()
    previous: RecordedCall | None = None
    for number, (call, row) in enumerate(zip(sent.calls, sent.rows, strict=True)):
        request = call.request
        usage = _read_usage(call)
        tally = tally_usage(usage)
        loss = losses.get(number)
        idle = 0.0
        if previous is not None:
            idle = _measure_idle(previous, call)
            if loss is not None:
                loss = _explain_loss(sent, loss, previous, call)
        sent_call = SentCall(
            number=number,
            at=request.at or None,
            idle=idle,
            tokens=count_request_tokens(call),
            read=tally.read,
            written=tally.written + tally.written_long,
            uncached=tally.uncached,
            output=usage.output,
            dollars=sent.price(number),
            loss=loss,
            model=request.model,
            follows=sent.find_earlier(number),
            why=request.why,
            compacted=number in sent.compacted,
        )
        if usage is not NOTHING_REPORTED and row is not None:
            sent_call = msgspec.structs.replace(sent_call, reported=usage.input, whole=row.whole)
        if request.cut is not None and request.is_cut:
            cut = request.cut
            sent_call = msgspec.structs.replace(
                sent_call, cut=cut.reason, cut_lowered=cut.lowered, cut_number=cut.number
            )
        yield _add_answer(sent_call, call, sent)
        previous = call


def _read_usage(call: RecordedCall) -> Usage:
    if call.answer is None or call.answer.usage is None:
        return NOTHING_REPORTED
    return call.answer.usage


def _measure_idle(before: RecordedCall, after: RecordedCall) -> float:
    """Seconds from one request to the next; 0 where a time is not recorded."""
    if not before.request.at or not after.request.at:
        return 0.0
    return max(after.request.at - before.request.at, 0.0)


def _explain_loss(
    sent: SentConversation, loss: LostCache, before: RecordedCall, after: RecordedCall
) -> LostCache:
    """The loss with the reason that the bytes show, as every door told it when the answer came."""
    if after.sent_pieces is None or loss.is_cut:
        return loss
    bodies = [decode_body(sent.record.sent_body(call)) for call in (before, after)]
    dialect = DIALECTS.get(after.request.dialect)
    if None in bodies or dialect is None:
        return loss
    difference = compare_requests(
        *bodies,
        rules=rules_for(after.request.model, dialect=dialect.name),
        gap=_measure_idle(before, after),
        tokens=_read_usage(before).input or None,
        dialect=dialect,
        usage=_read_usage(after),
        has_markers=not sent.is_log,
    )
    if difference.continues and loss.cause == NOT_CACHED:
        return loss
    return explain_by_bytes(loss, difference)


def _add_answer(sent_call: SentCall, call: RecordedCall, sent: SentConversation) -> SentCall:
    """The request with what is known of its answer."""
    answer = call.answer
    if answer is None:
        return msgspec.structs.replace(sent_call, is_open=True, refusal=IN_FLIGHT)
    if not sent.is_log:  # a log does not have it
        sent_call = msgspec.structs.replace(sent_call, status=answer.status)
    refusal = ""
    calls = ""
    if is_refused(call):
        refusal = answer.error or f"the answer had the status {answer.status}"
    elif sent_call.number >= len(sent.calls) - MOST_ANSWERS:
        calls = _name_call(sent, call)
    return msgspec.structs.replace(
        sent_call,
        recalled=answer.recalled,
        refusal=refusal,
        calls=calls,
        first=answer.first,
        last=answer.last,
    )


def _name_call(sent: SentConversation, call: RecordedCall) -> str:
    """The first tool call of an answer: `read_file src/tariff.py`; "" if it has none."""
    for segment in sent.read_answer(call):
        for part in segment.parts:
            if isinstance(part, ToolCall) and part.name != RECALL.name:
                words = f"{part.name} {pick_telling_argument(part.arguments)}"
                return " ".join(words.split())[:LONGEST_CALL]
    return ""
