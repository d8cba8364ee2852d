"""Reads recorded requests as they were sent: the entries of each, with the reason for every form.

Nothing is fitted again. The record has three things, and each says what it alone knows: the body that left
has the words that were sent, the client's body what they were before, and the ledger which of them were
lowered, how and why. The ledger names the words by their digest, so the three are joined without a guess.
What a record does not have is called not kept.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from lamina.conversations.recall_loop import splice_exchanges
from lamina.conversations.record import RecordedCall
from lamina.conversations.recorded_log import decode_segments
from lamina.conversations.request_digests import NO_DIGESTS, RequestDigests, digest_log
from lamina.core.build import build
from lamina.core.digests import is_digest, lay_folds
from lamina.core.entries import IN_FULL, find_last_turn, omit
from lamina.core.envelope import Envelope
from lamina.core.hashing import NamedSegment, parts_digest
from lamina.core.memo import BuildMemo
from lamina.core.recall import identify_segments
from lamina.core.reminders import is_reminder, make_entries
from lamina.core.turns import age_entries, place_entries
from lamina.core.values import (
    Digest,
    Entry,
    Form,
    Layer,
    Ledger,
    Ref,
    Role,
    Segment,
)
from lamina.core.wording import Wording, text_of
from lamina.costs.logs.recorded_conversations import decode_body, explain_missing_bodies
from lamina.dialects import DIALECTS
from lamina.dialects.memos import ParseMemo
from lamina.dialects.port import Dialect
from lamina.dialects.translate import choose_options
from lamina.errors import LaminaError
from lamina.fitting.building import AS_LOGGED
from lamina.inspector.sent_conversations import SentConversation, count_request_tokens
from lamina.inspector.sent_history import LedgerReasons
from lamina.models.counters.openai import o200k

ERASED_NOTE = "Something of this request was deleted since: what is left of it is shown."
NOT_SENT = "it is in the client's request, and not in the one that was sent; why is not kept"
NOT_KEPT = "what was left out of this request, and why, is not kept: an earlier release recorded it"
SHOWN_FROM_LOG = (
    "lamina cut this session before this request. The entries are those of its log, in full: how much of "
    "each was sent is not kept."
)
UNREADABLE = "the body that was sent cannot be read as a request of its API"
ADDED = "it is not in the client's request"


class SentRequestBuild(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One request as it was sent. `note` says what the record does not tell of it."""

    request: dict[str, Any] = {}
    envelope: Envelope | None = None
    note: str = ""


class SentRequests:
    """Reads the requests of a conversation. Each is cheaper if the one before it was read."""

    def __init__(self, conversation: SentConversation) -> None:
        self._conversation = conversation
        self._sent_memo = ParseMemo()
        self._came_memo = ParseMemo()
        self._counts = BuildMemo()
        self._digests: RequestDigests = NO_DIGESTS

    def read(self, number: int) -> SentRequestBuild:
        """One request, with its entries and their reasons."""
        call = self._conversation.calls[number]
        record = self._conversation.record
        body = record.sent_body(call)
        if body is None:
            return self._read_reasons(call)
        request = decode_body(body)
        dialect = DIALECTS.get(call.request.dialect)
        if request is None or dialect is None:
            return SentRequestBuild(request=request or {}, note=UNREADABLE)
        try:
            counted = self._count(request, dialect)
        except (LaminaError, RecursionError):
            return SentRequestBuild(request=request, note=UNREADABLE)
        ledger = record.ledger(call)
        entries = list(_join(counted.entries, self._read_original(call, dialect), ledger))
        aged = age_entries(entries, find_last_turn(entries))
        envelope = msgspec.structs.replace(counted, entries=tuple(aged), ledger=ledger)
        note = ""
        if call.request.lacks_reasons:
            note = NOT_KEPT
        if record.is_erased(call):
            note = ERASED_NOTE
        if self._conversation.is_log and any(
            each.request.is_cut for each in self._conversation.calls[: number + 1]
        ):
            note = SHOWN_FROM_LOG
        tokens = max(count_request_tokens(call) - self._conversation.unrecorded, 0)
        return SentRequestBuild(request=request, envelope=_scale_envelope(envelope, tokens), note=note)

    def _read_reasons(self, call: RecordedCall) -> SentRequestBuild:
        """What the record tells of a request without its body: what was lowered, how and why."""
        note = explain_missing_bodies(self._conversation.state)
        if call.request.lacks_reasons:
            return SentRequestBuild(note=f"{NOT_KEPT}; {note}")
        ledger = self._conversation.record.ledger(call)
        stored = identify_segments(decode_segments(self._conversation.record.segments))
        reasons = LedgerReasons(ledger)
        lowered: list[Entry] = []
        for named in stored:
            reason = reasons.take(named.ref)
            if reason is not None:
                lowered.append(reason.apply(_make_entry(named)))
        if reasons.count:
            note = f"{reasons.count:,} more were left out whose text is not kept; {note}"
        envelope = msgspec.structs.replace(build(()), entries=tuple(lowered), ledger=ledger)
        return SentRequestBuild(envelope=envelope, note=note)

    def _count(self, request: Mapping[str, Any], dialect: Dialect) -> Envelope:
        """The body that left, with the tokens of each segment, in its order."""
        parsed = dialect.wire.parse(request, memo=self._sent_memo)
        options = choose_options(dialect, parsed.head, layout=AS_LOGGED)
        envelope = build(parsed.log, head=parsed.head, counter=o200k(), options=options, memo=self._counts)
        by_ref = {entry.ref: entry for entry in envelope.entries}
        entries: list[Entry] = []
        for named in identify_segments(parsed.log):
            entry = by_ref[named.ref]
            parts = named.segment.parts
            sent = parts_digest(named.segment.role, parts)
            entries.append(msgspec.structs.replace(entry, form=Form.FULL, parts=parts, sent=sent))
        return msgspec.structs.replace(envelope, entries=tuple(entries))

    def _read_original(self, call: RecordedCall, dialect: Dialect) -> list[Entry]:
        """The client's request before lamina changed it, with the recalls that the client did not see."""
        request = decode_body(self._conversation.record.came_body(call)) or {}
        try:
            parsed = dialect.wire.parse(request, memo=self._came_memo)
            log = parsed.log
            exchanges = self._conversation.state.exchanges
            if exchanges:
                self._digests = digest_log(log, self._digests)
                log = dialect.wire.parse(splice_exchanges(request, exchanges, self._digests)).log
        except (LaminaError, RecursionError):
            return []
        kinds = choose_options(dialect, parsed.head).kinds
        entries, _ = place_entries([_make_entry(named) for named in identify_segments(log)], kinds)
        return entries


def _scale_envelope(envelope: Envelope, tokens: int) -> Envelope:
    """The envelope with tokens that sum to the reported size of its request, if there is one.

    The provider reports the whole request and not its parts, so each part is its share of that. The shares
    come from one quick counter: those of some models take seconds for a request of 100,000 tokens.
    """
    counted = envelope.account.total
    if not tokens or not counted or tokens == counted:
        return envelope
    share = tokens / counted
    entries = [
        msgspec.structs.replace(entry, tokens=round(entry.tokens * share)) for entry in envelope.entries
    ]
    amounts: dict[str, int] = {}
    for name in ("tools", "answer", "parameters", "request"):
        amounts[name] = round(getattr(envelope.account, name) * share)
    amounts["entries"] = sum(entry.tokens for entry in entries)
    amounts["margin"] = tokens - sum(amounts.values())  # what rounding left over
    account = msgspec.structs.replace(envelope.account, basis="estimated", **amounts)
    return msgspec.structs.replace(envelope, entries=tuple(entries), account=account)


def _make_entry(named: NamedSegment) -> Entry:
    """A segment as the client wrote it, in full."""
    segment = named.segment
    return Entry(
        segment=segment,
        ref=named.ref,
        content=named.content,
        role=segment.role,
        layer=Layer.SYSTEM if segment.role is Role.SYSTEM else Layer.HISTORY,
        parts=segment.parts,
        sent=parts_digest(segment.role, segment.parts),
        why=IN_FULL,
        opens=not segment.joins,
    )


def _join(sent: Sequence[Entry], original: Sequence[Entry], ledger: Ledger) -> Iterator[Entry]:
    """The entries that were sent, each with what it was before, and those that were left out.

    What was left out stands where it was: before what follows it, and after the digest that stands for it.
    """
    reasons = LedgerReasons(ledger)
    own_entries = _OwnEntries(ledger)
    # How often each text is still to come among the sent ones: one that does not come was left out.
    to_come = Tally(entry.sent for entry in sent)
    waiting: deque[Entry] = deque()
    for entry in original:
        reason = reasons.take(entry.ref)
        # What the prompt repeats is sent in full again, though the ledger has it lowered.
        if reason is not None and (reason.form is Form.OMITTED or reason.sent in to_come):
            entry = reason.apply(entry)  # noqa: PLW2901 - the same entry, lowered
        waiting.append(entry)
    before: Entry | None = None
    for sent_entry in sent:
        is_digest = own_entries.begins_digest(sent_entry)
        while waiting and not is_digest and to_come[waiting[0].sent] <= 0:
            before = _leave_out(waiting.popleft())
            yield before
        to_come[sent_entry.sent] -= 1
        if waiting and waiting[0].sent == sent_entry.sent:
            entry = waiting.popleft()
        else:
            entry = own_entries.name(sent_entry, before=before, after=waiting[0] if waiting else None)
        before = msgspec.structs.replace(
            entry, parts=sent_entry.parts, sent=sent_entry.sent, tokens=sent_entry.tokens
        )
        yield before
    yield from map(_leave_out, waiting)


def _leave_out(entry: Entry) -> Entry:
    """An entry that is not in the sent body. If the ledger did not lower it, nobody knows why."""
    if entry.form is Form.OMITTED:
        return entry
    return omit(entry, NOT_SENT)


class _OwnEntries:
    """Lamina's own entries in a sent body: digests and reminders, as the ledger has them.

    Their tags may have other attributes, so the text after the opening tag is compared.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._by_text: dict[tuple[Role, str], Entry] = {}
        self._lines = {line.sent: line for line in ledger.lines.values() if line.sent}
        wording = Wording()
        for fold in ledger.folds:
            at = _make_place(fold.covers[0])
            self._add(lay_folds([at], [fold], wording=wording))
        for reminder in ledger.reminders:
            self._add(make_entries(reminder, at=_make_place(reminder.before), wording=wording))

    def begins_digest(self, sent: Entry) -> bool:
        """Whether these are the first words of a digest: what it stands for follows them."""
        own = self._by_text.get((sent.role, _read_body(sent)))
        return own is not None and is_digest(own) and own.role is Role.USER

    def name(self, sent: Entry, *, before: Entry | None, after: Entry | None) -> Entry:
        """An entry that is not in the client's request, with its kind and its reason, between two others.

        A reminder belongs to the question after it. What a recall brought may have been shortened.
        """
        own = self._by_text.get((sent.role, _read_body(sent)))
        if own is None:
            own = msgspec.structs.replace(sent, why=ADDED)
            line = self._lines.get(sent.sent)
            if line is not None:
                own = msgspec.structs.replace(sent, form=line.form, why=line.why)
        neighbour = after if is_reminder(own) else before
        if neighbour is None:
            return own
        return msgspec.structs.replace(own, turn=neighbour.turn, step=neighbour.step)

    def _add(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if entry.segment.is_own:
                self._by_text[entry.role, _read_body(entry)] = entry


def _make_place(ref: Ref) -> Entry:
    """An entry that says only where an own one stands."""
    segment = Segment(role=Role.USER, kind="user", parts=())
    return Entry(segment=segment, ref=ref, content=Digest(""), role=Role.USER)


def _read_body(entry: Entry) -> str:
    """The text of an entry, without the line that opens its tag."""
    text = text_of(entry.parts)
    opening, _, body = text.partition("\n")
    return body or opening
