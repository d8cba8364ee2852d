"""Logs each answer with what it reported, and each lost cache with its cause.

`lamina.conversations.lost_caches` says whether a cache was lost, by what the upstream reported of two
requests. Then the two are compared as they were sent, to name the cause. The comparison runs in a thread
after the answer, one at a time, and delays nobody. If the client has asked the upstream why its cache missed,
the log has the upstream's word, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from time import time
from typing import Any, NamedTuple

import msgspec
from anyio import to_thread

from lamina.caches import rules_for
from lamina.conversations.costs import tally_usage
from lamina.conversations.lost_caches import (
    LOST_SHARE,
    LostCache,
    PaidCall,
    compare_requests,
    explain_by_bytes,
    find_loss,
)
from lamina.conversations.record import CutNote, is_compaction
from lamina.core.entries import find_logged
from lamina.core.hashing import parts_digest
from lamina.core.scale import Scale
from lamina.core.text.estimate import utf8_size
from lamina.core.tokens import Counter
from lamina.core.values import Digest, Entry, Form, Part, Text, ToolCall, ToolResult
from lamina.diagnose import Difference
from lamina.dialects.json_values import find_model
from lamina.dialects.usage import Usage
from lamina.errors import LaminaError
from lamina.fitting.request import Fitted
from lamina.relay.calls import IncomingRequest, OutgoingRequest
from lamina.relay.events import AnsweredEvent, SentEvent
from lamina.relay.journal import Journal
from lamina.relay.observers import CallMetrics
from lamina.relay.policies import choose_breakpoints, lacks_markers
from lamina.telemetry import Telemetry


class AnswerLog:
    """Logs answers, and compares each request that lost its cache with the one before it."""

    def __init__(self, metrics: CallMetrics, journal: Journal, telemetry: Telemetry) -> None:
        self._metrics = metrics
        self._telemetry = telemetry
        self._journal = journal
        self._task: asyncio.Task[None] | None = None

    def answered(self, event: AnsweredEvent) -> None:
        """Log what was reported beside what was expected, and begin to say why a cache was lost."""
        if not event.is_counted:
            return
        incoming, outgoing = event.sent.incoming, event.sent.outgoing
        usage = event.usage
        request = _describe_request(event)
        if not usage.input:
            self._journal.write("answered without usage", **request)
            return
        window_facts: dict[str, Any] = {}
        window = event.sent.window
        if window is not None:
            window_facts = {
                "window": window.tokens,
                "window_source": window.source,
                "reserve": window.reserve,
            }
        self._journal.write(
            "answered",
            **request,
            dialect=incoming.dialect.name,
            outcome=outgoing.outcome,
            left_out=outgoing.left_out,
            input=usage.input,
            cached=usage.cached,
            written=usage.written,
            written_long=usage.written_long,
            output=usage.output,
            tier=usage.tier,
            provider_cause=event.report.cause,
            **event.account,
            **window_facts,
        )
        loss = _find_loss(incoming, outgoing, usage)
        if loss is not None and not loss.is_cut:
            self._report_loss(incoming, outgoing, usage, loss)

    def _report_loss(
        self, incoming: IncomingRequest, sent: OutgoingRequest, usage: Usage, loss: LostCache
    ) -> None:
        """Log a lost cache, with what the bytes tell if no other comparison is under way."""
        if self._task is not None and not self._task.done():
            self._log_loss(incoming, sent, usage, loss)
            return
        self._task = asyncio.ensure_future(self._diagnose(incoming, sent, usage, loss))

    async def _diagnose(
        self, incoming: IncomingRequest, sent: OutgoingRequest, usage: Usage, loss: LostCache
    ) -> None:
        place = ""
        try:
            difference = await to_thread.run_sync(_compare, incoming, sent, usage)
        except LaminaError as error:
            self._journal.write("miss not diagnosed", error=type(error).__name__)
        else:
            loss = explain_by_bytes(loss, difference)
            place = difference.place
        self._log_loss(incoming, sent, usage, loss, place=place)

    def _log_loss(
        self,
        incoming: IncomingRequest,
        sent: OutgoingRequest,
        usage: Usage,
        loss: LostCache,
        *,
        place: str = "",
    ) -> None:
        self._metrics.add("lamina_misses_total", upstream=incoming.upstream.name, cause=loss.cause)
        self._telemetry.count_miss(
            incoming.dialect.name, incoming.model, cause=loss.cause, by=loss.by, lost=loss.tokens
        )
        self._journal.write(
            "miss",
            conversation=sent.conversation_name,
            cause=loss.cause,
            by=loss.by,
            why=loss.why,
            place=place,
            predicted=loss.tokens + usage.cached,
            cached=usage.cached,
            lost=loss.tokens,
            price=loss.dollars,
            advice=loss.advice,
        )


def _find_loss(incoming: IncomingRequest, sent: OutgoingRequest, usage: Usage) -> LostCache | None:
    """What the cache lost between the last request of the conversation and this one."""
    if sent.previous is None or not sent.previous_usage.input:
        return None
    if usage.cached >= LOST_SHARE * min(sent.previous_usage.input, usage.input):  # as after most requests
        return None
    cut = None
    if sent.new_cuts:
        cut = CutNote.of(max(sent.new_cuts, key=is_compaction))
    dialect = incoming.dialect.name
    at = time()
    last = PaidCall(
        tally=tally_usage(sent.previous_usage),
        model=find_model(sent.previous) or incoming.model,
        dialect=dialect,
        at=at - sent.gap,
    )
    call = PaidCall(
        tally=tally_usage(usage), model=incoming.model, dialect=dialect, at=at, tier=usage.tier, cut=cut
    )
    return find_loss([last], call)


def _describe_request(event: AnsweredEvent) -> dict[str, Any]:
    """What the log says about every answer, whether it reports its usage or not."""
    incoming, outgoing = event.sent.incoming, event.sent.outgoing
    parent = ""
    if outgoing.conversation is not None:
        parent = outgoing.conversation.state.parent
    return {
        "id": event.sent.id,
        "workspace": incoming.workspace,
        "conversation": outgoing.conversation_name,
        "parent": parent,
        "agent_of": incoming.identity.parent,
        "upstream": incoming.upstream.name,
        "model": incoming.model,
        "cut": outgoing.cut,
        "recalled": event.recalled,
    }


def _compare(incoming: IncomingRequest, sent: OutgoingRequest, usage: Usage) -> Difference:
    assert sent.previous is not None  # noqa: S101 - only then a request is compared
    return compare_requests(
        sent.previous,
        sent.request,
        rules=rules_for(incoming.model, dialect=incoming.dialect.name),
        gap=sent.gap,
        tokens=sent.previous_usage.input,
        dialect=incoming.dialect,
        usage=usage,
    )


def measure_account(sent: SentEvent, usage: Usage) -> dict[str, Any]:
    """What the price of a request without lamina depends on, besides its usage."""
    incoming, outgoing = sent.incoming, sent.outgoing
    uncut = UncutSizes(full=usage.input)  # one that was not fitted was sent as it came
    if outgoing.fitted is not None:
        counter = incoming.upstream.settings.policy.find_counter(incoming.model)
        counts = _find_counts(outgoing, counter)
        uncut = measure_uncut(outgoing, outgoing.fitted, usage, counter, counts)
    return {
        "full": uncut.full,
        "unchanged": uncut.unchanged,
        "counted": uncut.counted,
        "new": uncut.new,
        "held_back": uncut.held_back,
        "gap": round(outgoing.gap, 1),
        "predicted": outgoing.predicted_read,
        "unmarked": choose_breakpoints(incoming) != "keep" and lacks_markers(incoming),
    }


class UncutSizes(NamedTuple):
    """Tokens of a request that was sent, if nothing of its conversation had been cut.

    The gateway counts with its own counter and upstreams report their own tokens. `lamina.gateway.account`,
    which sees what was reported for many requests, scales the one to the other.

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


def _find_counts(sent: OutgoingRequest, counter: Counter) -> Mapping[Digest, int]:
    """What was counted when the request was fitted."""
    if sent.conversation is None or sent.call is None:
        return {}
    memo = sent.conversation.memo
    if sent.call.is_spliced:
        memo = sent.conversation.spliced_memo or memo
    return memo.build.counts(counter)


DEFAULT_BYTES = 3.5
"""Bytes of a token, where less than `SAMPLE_BYTES` of text tell how many it has."""

SAMPLE_BYTES = 1_000


class _TextSizes:
    """Measures texts by their bytes: a token has as many of them as in the texts that were sent.

    After a restart nothing is known of what was left out. To count it would keep other requests waiting.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    def count(self, text: str) -> int:
        return round(utf8_size(text) / self._token_bytes)

    @cached_property
    def _token_bytes(self) -> float:
        size = 0
        tokens = 0
        for entry in self._entries:
            if entry.form is not Form.FULL or entry.segment.is_own:
                continue
            texts = [*_list_texts(entry.parts)]
            if len(texts) == len(entry.parts):
                size += sum(map(utf8_size, texts))
                tokens += entry.tokens
        if size < SAMPLE_BYTES or not tokens:
            return DEFAULT_BYTES
        return size / tokens


def _list_texts(parts: Iterable[Part]) -> Iterator[str]:
    """The texts of parts, one for each that has nothing else."""
    for part in parts:
        match part:
            case Text(text):
                yield text
            case ToolResult(content=(Text(text),)):
                yield text


def measure_uncut(
    sent: OutgoingRequest, fitted: Fitted, usage: Usage, counter: Counter, counts: Mapping[Digest, int]
) -> UncutSizes:
    """Measure a request that was fitted. `counts` is what the counter counted then.

    Anything else is measured by its bytes.
    """
    sizes = _TextSizes(fitted.envelope.entries)
    weights = Scale(counter=msgspec.structs.replace(counter, count=sizes.count), counts=dict(counts))
    counted = max(fitted.envelope.account.uncalibrated, 1)
    scale = usage.input / counted
    new_entries = _find_new(fitted, sent.new_segments)
    held_back = sum(_count_hidden(entry, weights) for entry in new_entries)
    new = sum(entry.tokens for entry in new_entries) + held_back
    full = usage.input
    if sent.previous is None and fitted.ledger.lines:  # later requests of this process are compared with it
        full += round(_count_removed(fitted, weights, counted) * scale)
    elif sent.new_cuts:
        full += round(_count_left_out(fitted, weights) * scale)
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


def _count_hidden(entry: Entry, weights: Scale) -> int:
    """The tokens of an entry that are not sent, because it is lowered."""
    if entry.form is Form.FULL:
        return 0
    parts = entry.source.parts
    whole = msgspec.structs.replace(entry, parts=parts, sent=parts_digest(entry.role, parts))
    return max(weights.gain(whole, entry), 0)


def _count_unchanged(fitted: Fitted) -> int:
    """The tokens before the first entry that is lowered, or that lamina wrote; 0 if there is none."""
    tokens = fitted.envelope.account.head
    for entry in fitted.envelope.entries:
        if entry.form is not Form.FULL or entry.segment.is_own:
            return tokens
        tokens += entry.tokens
    return 0


def _count_left_out(fitted: Fitted, weights: Scale) -> int:
    """The tokens by which the client's own messages are longer than what is sent of them."""
    hidden = 0
    for entry in fitted.envelope.entries:
        if entry.segment.is_own:
            hidden -= entry.tokens
        else:
            hidden += _count_hidden(entry, weights)
    return max(hidden, 0)


def _count_removed(fitted: Fitted, weights: Scale, counted: int) -> int:
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
            held_back += _count_hidden(entry, weights)
        if _is_recall(entry, fitted.own_names):
            recalled += entry.tokens
    return max(round(removed / calibrated) + held_back - recalled, 0)


def _is_recall(entry: Entry, own_names: Collection[str]) -> bool:
    """Whether it is a call of one of lamina's own tools, or its result. The client has neither."""
    if entry.asked is not None:
        return entry.asked.name in own_names
    return any(isinstance(part, ToolCall) and part.name in own_names for part in entry.parts)
