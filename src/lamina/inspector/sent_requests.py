"""Reads recorded requests as they were sent: the entries of each, with the reason for every form.

The record has the body that left and the body that the client wrote. The client's body is fitted again with
the ledger that was recorded, under a budget that nothing exceeds. So nothing new is lowered, and every entry
has its form and its reason. The outcome must be the body that left, apart from its cache markers. If it is
not, the body itself is read. Its entries are then shown without reasons, and a note says so.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from lamina.conversations.recall_loop import append_turns, place_after, splice_exchanges
from lamina.conversations.recognise import names_conversation
from lamina.conversations.record import ConversationRecord, RecordedCall
from lamina.conversations.recorded_log import decode_segments
from lamina.conversations.request_digests import NO_DIGESTS, RequestDigests, digest_log
from lamina.core.build import build
from lamina.core.envelope import Envelope
from lamina.core.hashing import stem_of
from lamina.core.recall import identify_segments, list_refs
from lamina.core.tokens import Counter
from lamina.core.values import Budget, Entry, Form, Ledger, Ref, Segment
from lamina.dialects import DIALECTS
from lamina.dialects.memos import ParseMemo
from lamina.dialects.port import Dialect
from lamina.dialects.translate import choose_options
from lamina.errors import BadInput, LaminaError
from lamina.fitting.building import AS_LOGGED
from lamina.fitting.policy import Policy, RecallMode
from lamina.fitting.recalls import RECALL, TURN_FIELDS, read_turns
from lamina.fitting.request import Fitted, RequestMemo, fit_request
from lamina.inspector.sent_conversations import SentConversation, count_request_tokens
from lamina.models.counters.openai import o200k
from lamina.replay.traces.recorded_conversations import decode_body, explain_missing_bodies

UNLIMITED = Budget(window=1 << 40)
"""A budget that nothing exceeds: a recorded request is fitted again, and not cut again."""

READ_AS_SENT = (
    "The reasons of this request cannot be told: fitting the client's request again gives another body. "
    "The entries are those of the body that was sent."
)
ERASED_NOTE = "Something of this request was deleted since: what is left of it is shown."
NOT_SENT = "it is in the client's request, and not in the one that was sent"
NOT_KEPT = "what was left out of this request, and why, is not kept: an earlier release recorded it"
UNREADABLE = "the body that was sent cannot be read as a request of its API"


class SentRequestBuild(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One request as it was sent. `came` is the client's, with the recalls that the client did not see.

    `note` says why the entries have no reasons, or why there are none.
    """

    request: dict[str, Any] = {}
    came: Mapping[str, Any] = {}
    envelope: Envelope | None = None
    note: str = ""


class SentRequests:
    """Reads the requests of a conversation. Each is cheaper if the one before it was read."""

    def __init__(self, conversation: SentConversation) -> None:
        self._conversation = conversation
        self._memos: dict[RecallMode, RequestMemo] = {}
        self._mode: RecallMode = "off"
        self._parse_memo = ParseMemo()
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
        came = self._read_came(number, dialect)
        note = ""
        envelope = self._fit_again(call, came, request, dialect)
        if envelope is None:
            note = READ_AS_SENT
            envelope = self._read_as_sent(came, request, dialect)
        if envelope is None:
            note = UNREADABLE
        else:
            envelope = _scale(envelope, call)
        if record.is_erased(call):
            note = ERASED_NOTE
        return SentRequestBuild(request=request, came=came, envelope=envelope, note=note)

    def _read_reasons(self, call: RecordedCall) -> SentRequestBuild:
        """What the record tells of a request without its body: what was lowered, how and why."""
        note = explain_missing_bodies(self._conversation.state)
        if call.request.lacks_reasons:
            return SentRequestBuild(note=f"{NOT_KEPT}; {note}")
        ledger = self._conversation.record.ledger(call)
        stored = decode_segments(self._conversation.record.segments)
        entries = tuple(list_lowered(ledger, stored))
        count = len(ledger.lines) + sum(len(fold.covers) for fold in ledger.folds)
        if len(entries) < count:
            note = f"{count - len(entries):,} more were left out whose text is not kept; {note}"
        envelope = msgspec.structs.replace(build(()), entries=entries, ledger=ledger)
        return SentRequestBuild(envelope=envelope, note=note)

    def _read_came(self, number: int, dialect: Dialect) -> Mapping[str, Any]:
        """The client's request, with the recalls in it that the client did not see.

        A request after a recall ends with the recall and its result. These are in no history of the client
        yet. They stand at the end of what was sent, after all of the request that it follows.
        """
        conversation = self._conversation
        call = conversation.calls[number]
        earlier_number = conversation.find_earlier(number)
        if earlier_number is None:
            request = decode_body(conversation.record.came_body(call)) or {}
            digests = self._digest(request, dialect)
            if digests is None:
                return request
            return splice_exchanges(request, conversation.state.exchanges, digests)
        came = self._read_came(earlier_number, dialect)
        earlier = conversation.calls[earlier_number]
        if earlier.answer is None or not earlier.answer.recalled:
            return came  # it was refused, and is the same request
        recalled_turns = _find_added_turns(conversation.record, earlier, call, dialect)
        if recalled_turns is None:  # there was a cut between the two
            recalled_turns = self._find_exchange(call, dialect)
        return append_turns(came, recalled_turns)

    def _find_exchange(self, call: RecordedCall, dialect: Dialect) -> tuple[Any, ...]:
        """The recall at the end of a client's request, as it was remembered for later requests."""
        request = decode_body(self._conversation.record.came_body(call)) or {}
        digests = self._digest(request, dialect)
        if digests is None:
            return ()
        state = self._conversation.state
        place = place_after(request, digests, is_named=names_conversation(state.group))
        for exchange in reversed(state.exchanges):
            if exchange.place == place:
                return exchange.turns
        return ()

    def _digest(self, request: Mapping[str, Any], dialect: Dialect) -> RequestDigests | None:
        """The digests of a client's request; None if no recall has to be put into any request."""
        if not self._conversation.state.exchanges:
            return None
        try:
            log = dialect.wire.parse(request, memo=self._parse_memo).log
        except LaminaError:
            return None
        self._digests = digest_log(log, self._digests)
        return self._digests

    def _fit_again(
        self, call: RecordedCall, came: Mapping[str, Any], sent: Mapping[str, Any], dialect: Dialect
    ) -> Envelope | None:
        """The entries of the client's request under the recorded ledger, if these give the body that left."""
        ledger = self._conversation.record.ledger(call)
        for mode in self._choose_modes(ledger):
            try:
                fitted = self._fit(came, dialect, ledger, mode)
            except (LaminaError, RecursionError):
                continue
            if count_common_turns(fitted.request, sent, dialect, whole=True) is not None:
                self._mode = mode
                return fitted.envelope
        return None

    def _choose_modes(self, ledger: Ledger) -> Sequence[RecallMode]:
        """How recalls may have been offered, the likeliest first. The record does not say which it was."""
        if RECALL.name in ledger.own_tools:
            return ("tool", "handles")
        if not ledger.lines and not ledger.folds:
            return ("off",)  # nothing is lowered, so no handle is shown in either way
        if self._mode == "handles":
            return ("handles", "off")
        return ("off", "handles")

    def _fit(self, came: Mapping[str, Any], dialect: Dialect, ledger: Ledger, mode: RecallMode) -> Fitted:
        return fit_request(
            came,
            dialect=dialect,
            ledger=ledger,
            policy=Policy(budget=UNLIMITED, counter=o200k(), breakpoints="keep", recall=mode, remind="off"),
            memo=self._memos.setdefault(mode, RequestMemo()),
        )

    def _read_as_sent(
        self, came: Mapping[str, Any], sent: Mapping[str, Any], dialect: Dialect
    ) -> Envelope | None:
        """The entries of the body that left, and what the client wrote that is not in it."""
        counter = o200k()
        try:
            envelope = _list_as_sent(sent, dialect, counter)
        except (LaminaError, RecursionError):
            return None
        try:
            original = _list_as_sent(came, dialect, counter)
        except (LaminaError, RecursionError):
            return envelope
        entries = tuple(_add_missing(envelope.entries, original.entries))
        return msgspec.structs.replace(envelope, entries=entries)


def list_lowered(ledger: Ledger, stored: Sequence[Segment]) -> Iterator[Entry]:
    """What a ledger has lowered, as far as the segments are stored, in the order in which they were stored.

    The name of a segment ends with what stood before it, which is not stored. So its beginning is compared.
    """
    reasons: dict[str, tuple[Ref, Form, str]] = {}
    for ref, line in ledger.lines.items():
        reasons[stem_of(ref)] = (ref, line.form, line.why)
    for fold in ledger.folds:
        for ref in fold.covers:
            reasons[stem_of(ref)] = (ref, Form.OMITTED, f"folded into {fold.key}")
    for each in identify_segments(stored):
        reason = reasons.pop(stem_of(each.ref), None)
        if reason is not None:
            ref, form, why = reason
            yield Entry(
                segment=each.segment,
                ref=ref,
                content=each.content,
                role=each.segment.role,
                form=form,
                why=why,
            )


def _scale(envelope: Envelope, call: RecordedCall) -> Envelope:
    """The envelope with tokens that sum to what the provider reported, or else to what lamina counted.

    The provider reports the whole request and not its parts, so each part is its share of that. The shares
    come from one quick counter: those of some models take seconds for a request of 100,000 tokens.
    """
    tokens = count_request_tokens(call)
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


def _list_as_sent(request: Mapping[str, Any], dialect: Dialect, counter: Counter) -> Envelope:
    """The envelope of a request with each of its segments in full, in its order, and nothing repaired."""
    parsed = dialect.wire.parse(request)
    options = choose_options(dialect, parsed.head, layout=AS_LOGGED)
    envelope = build(parsed.log, head=parsed.head, counter=counter, options=options)
    order = {str(ref): at for at, (ref, _) in enumerate(list_refs(parsed.log))}
    entries = [entry for entry in envelope.entries if str(entry.ref) in order]
    entries.sort(key=lambda entry: order[str(entry.ref)])
    in_full = [msgspec.structs.replace(e, form=Form.FULL, parts=e.segment.parts, why="") for e in entries]
    return msgspec.structs.replace(envelope, entries=tuple(in_full))


def _add_missing(sent: Sequence[Entry], original: Sequence[Entry]) -> Iterator[Entry]:
    """The entries that were sent, and those of the client's that were not, each before what follows it."""
    # How often each content is still to come among the sent entries: one that does not come was left out.
    to_come = Tally(entry.content for entry in sent)
    waiting = deque(original)
    for entry in sent:
        while waiting and to_come[waiting[0].content] <= 0:
            yield _omit(waiting.popleft())
        if waiting and waiting[0].content == entry.content:
            waiting.popleft()
        to_come[entry.content] -= 1
        yield entry
    for entry in waiting:  # none is to come any more
        yield _omit(entry)


def _omit(entry: Entry) -> Entry:
    return msgspec.structs.replace(entry, form=Form.OMITTED, parts=(), tokens=0, why=NOT_SENT)


def _find_added_turns(
    record: ConversationRecord, earlier: RecordedCall, call: RecordedCall, dialect: Dialect
) -> tuple[Any, ...] | None:
    """The turns that a request has more than the one before it; None if it does not begin with that one."""
    before = decode_body(record.sent_body(earlier)) or {}
    after = decode_body(record.sent_body(call)) or {}
    count = count_common_turns(before, after, dialect)
    if count is None:
        return None
    return read_turns(after)[count:]


def count_common_turns(
    before: Mapping[str, Any], after: Mapping[str, Any], dialect: Dialect, *, whole: bool = False
) -> int | None:
    """How many turns a request has, if another begins with all of it; None if it does not.

    Cache markers do not count, since they move from request to request. Nor does any setting: the comparison
    is of tools, system text and turns. `whole`: the two must also have the same number of turns.
    """
    turns = read_turns(before)
    other_turns = read_turns(after)
    if len(turns) > len(other_turns):
        return None
    if whole and len(turns) != len(other_turns):
        return None
    # Requests of one conversation share most of their turns as objects. Blocks are made of the others only:
    # a request of a thousand turns has a few that a cache marker came to or left.
    differing_turns: list[Any] = []
    differing_others: list[Any] = []
    for turn, other_turn in zip(turns, other_turns, strict=False):
        if turn is other_turn or turn == other_turn:
            continue
        differing_turns.append(turn)
        differing_others.append(other_turn)
    if not differing_turns and _select_head(before) == _select_head(after):
        return len(turns)
    blocks = _list_blocks(before, differing_turns, dialect)
    if blocks is None:
        return None
    if blocks != _list_blocks(after, differing_others, dialect):
        return None
    return len(turns)


_HEAD_FIELDS = ("system", "instructions", "systemInstruction", "system_instruction", "tools", "toolConfig")
"""Where the APIs have their system text and tools. Converse has its tools in `toolConfig`."""


def _select_head(request: Mapping[str, Any]) -> dict[str, Any]:
    return {name: request.get(name) for name in _HEAD_FIELDS}


def _list_blocks(request: Mapping[str, Any], turns: Sequence[Any], dialect: Dialect) -> list[Any] | None:
    """What a prefix cache sees of a head and of some turns; None if it cannot be read."""
    shorter = dict(request)
    for name in TURN_FIELDS:
        if shorter.get(name) is not None:
            shorter[name] = list(turns)
            break
    try:
        blocks = dialect.cache.stream(shorter).blocks
    except (BadInput, RecursionError):
        return None
    return [(block.sort, block.role, block.data) for block in blocks]
