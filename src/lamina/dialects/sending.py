"""Makes the last step before a request leaves: it passes its dialect's `check`, or it is refused.

    settle_repairs ──▶ the envelope, with the lasting mends of rendering written into its ledger
    render_request ──▶ the request for an envelope, with every mend made, or InvalidRequest
    keeps_head ──▶ whether tools may be added to a request
    find_violations, make_refusal, describe_mends ──▶ the same in steps, for callers with a request to compare

What a dialect mends while rendering may not depend on what comes later, or bytes would change that were sent
before. If the wire format leaves no choice, `settle_repairs` records a cut. This module knows no rule of any
API. An error names the place that breaks a rule: `messages[3].content[0]`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from lamina.core.bound_thinking import is_held_by_thinking
from lamina.core.entries import count_same
from lamina.core.envelope import Envelope
from lamina.core.memo import BuildMemo
from lamina.core.values import Cut, Entry, Form, Layer, Ref, RequestHead, Role, SentMark
from lamina.dialects.json_values import list_or_empty, read_field
from lamina.dialects.memos import CheckMemo
from lamina.dialects.origins import ON_THE_WIRE
from lamina.dialects.port import Dialect, Request, Violation
from lamina.dialects.translate import choose_binding
from lamina.errors import InvalidRequest

MOVED = "a rule of the API moved what was sent before"
"""The reason of a cut that no edit and no lowering caused."""

NOTE_LIMIT = 5
"""Mends that the account of one request names; the rest are counted."""

_QUOTE_LENGTH = 40
"""Characters of a message that an error shows."""

_FIELD_AND_INDEX = re.compile(r"([a-zA-Z_]{1,40})(?:\[([0-9]{1,9})\])?")
"""The beginning of a place: ("messages", "3") in "messages[3].content[0]", ("system", None) in "system"."""

_TURNS_FIELDS = ("messages", "input", "contents")
"""Fields of a request that hold its turns."""

_TEXT_FIELDS = ("content", "parts", "text", "name", "output")
"""Fields of messages, parts and definitions that may hold text, or something that holds it."""

_HINTS = {
    "has_limit": "give max_tokens",
    "begins_with_user": "begin with a message of the user",
    "ends_with_user": "add what the user asks, as the last message",
    "system_messages_stand_right": "put it after a message of the user",
    "names_and_ids_fit": "rename the tool in its definition",
    "functions_are_declared_once": "declare each function once",
    "cached_content_stands_alone": "leave it out, or do not name a cached content",
    "one_past_is_continued": "give one of the two",
    "nothing_else_speaks": "leave it out, or use a dialect with messages",
}
"""What to do about rules that rendering does not mend."""


def settle_repairs(
    envelope: Envelope, dialect: Dialect, *, before: SentMark | None, memo: BuildMemo
) -> Envelope:
    """The envelope with the lasting mends of its wire format in the ledger, for later requests to repeat.

    `before` is the mark of the last request. If this request cannot continue that one, a cut is recorded.
    """
    ledger = envelope.ledger
    cut = envelope.cut
    new_repairs = _find_new_repairs(envelope, dialect, memo)
    if new_repairs:
        ledger = msgspec.structs.replace(ledger, repairs=ledger.repairs | new_repairs)
    if cut is None and before is not None:
        rewrites = _rewrites_sent_entries(envelope, new_repairs, before)
        if rewrites or _moves_sent_entries(envelope, dialect, before):
            cut = Cut(number=len(ledger.cuts) + 1, reason=MOVED, after=envelope.tokens)
            ledger = msgspec.structs.replace(ledger, cuts=(*ledger.cuts, cut))
    if ledger is envelope.ledger:
        return envelope
    # The next build goes on from the checkpoint only if it is given the ledger that this one leaves.
    checkpoint = memo.checkpoint
    if checkpoint is not None and checkpoint.ledger is envelope.ledger:
        memo.checkpoint = msgspec.structs.replace(checkpoint, ledger=ledger)
    return msgspec.structs.replace(envelope, ledger=ledger, cut=cut)


class _SettledRequest(NamedTuple):
    """An envelope whose lasting mends are in its ledger. `repairs` are those of that ledger."""

    dialect: Dialect
    head: RequestHead
    entries: tuple[Entry, ...]
    repairs: Mapping[Ref, str]

    def is_continued_by(self, envelope: Envelope, dialect: Dialect) -> bool:
        """Whether entries that both have need not be looked at again: their mends are in the ledger."""
        if dialect is not self.dialect or envelope.head != self.head:
            return False
        return self.repairs.items() <= envelope.ledger.repairs.items()


def _find_new_repairs(envelope: Envelope, dialect: Dialect, memo: BuildMemo) -> dict[Ref, str]:
    """The lasting mends of this request that no earlier request made."""
    if dialect.wire.lasting is None:
        return {}
    old_repairs = envelope.ledger.repairs
    settled: _SettledRequest | None = memo.settled
    start = 0
    if settled is not None and settled.is_continued_by(envelope, dialect):
        start = count_same(settled.entries, envelope.entries)
    repairs = dialect.wire.lasting(envelope, start)
    new_repairs = {ref: repair for ref, repair in repairs.items() if old_repairs.get(ref) != repair}
    memo.settled = _SettledRequest(dialect, envelope.head, envelope.entries, old_repairs | new_repairs)
    return new_repairs


def _rewrites_sent_entries(envelope: Envelope, new_repairs: Mapping[Ref, str], before: SentMark) -> bool:
    """Whether entries that were sent before are written in another way from now on.

    A call that is signed from now on, and that an earlier request sent unsigned, is one.
    """
    mended_refs = find_mended_refs(new_repairs)
    if not mended_refs:
        return False
    return any(entry.ref in mended_refs for entry in envelope.sent[: before.sent])


def _moves_sent_entries(envelope: Envelope, dialect: Dialect, before: SentMark) -> bool:
    """Whether entries that were sent before have another order now that others came after them.

    A system message stands last as long as nothing follows it, and may find another place once more follows.
    """
    order = dialect.wire.order
    if order is None or envelope.ledger.mark is None:
        return False
    new_count = envelope.ledger.mark.sent - before.sent
    tail = _select_movable_tail(envelope.entries, new_count=new_count)
    if all(entry.role is not Role.SYSTEM for entry in tail):
        return False
    old_count = max(len(tail) - new_count, 0)
    order_now = order(tail, envelope.head)
    order_before = order(tail[:old_count], envelope.head)
    return order_now[: len(order_before)] != order_before


def _select_movable_tail(entries: Sequence[Entry], *, new_count: int) -> list[Entry]:
    """The sent entries since the model last began to speak before the `new_count` new ones.

    Nothing before that can move: the user's side had spoken there, so whatever waited for it was placed.
    """
    tail: list[Entry] = []
    for entry in reversed(entries):
        if entry.form is Form.OMITTED or entry.layer is Layer.SYSTEM:
            continue
        is_users_side = entry.role in (Role.USER, Role.TOOL)
        if is_users_side and len(tail) > new_count and tail[-1].role is Role.ASSISTANT:
            break
        tail.append(entry)
    tail.reverse()
    return tail


def keeps_head(envelope: Envelope, dialect: Dialect, *, drop_block: bool) -> bool:
    """Whether the tools of a request must stay as they are, since the latest thinking is bound to them.

    `drop_block`: the server may be asked to drop thinking that does not fit any more.
    """
    binding = choose_binding(dialect, envelope.head.parameters, drop_block=drop_block)
    return is_held_by_thinking(envelope.entries, binding)


def find_mended_refs(repairs: Mapping[Ref, str]) -> frozenset[str]:
    """Refs of entries that a dialect's `lasting` mended for good.

    `kabc~:wire` in the repairs says that the entry `kabc~` was mended on the wire.
    """
    return frozenset(ref.removesuffix(ON_THE_WIRE) for ref in repairs if ref.endswith(ON_THE_WIRE))


def render_request(envelope: Envelope, dialect: Dialect) -> dict[str, Any]:
    """The request for an envelope. Raises InvalidRequest if the API would refuse it all the same."""
    request = dialect.wire.render(envelope)
    violations = find_violations(request, dialect)
    if violations:
        raise make_refusal(request, violations)
    return request


def find_violations(request: Request, dialect: Dialect, memo: CheckMemo | None = None) -> list[Violation]:
    """The rules that a request breaks that this dialect parsed or rendered.

    With a memo, the part of a growing request that was clean before is not read again.
    """
    return dialect.wire.check(request, memo=memo or CheckMemo())


def find_lost_question(caller_request: Request, request: Request) -> Violation | None:
    """The violation of a request that lost the question at its end, because that said nothing.

    Without it the model's last answer would stand at the end: some models would go on with it, which nobody
    asked for. `caller_request` is the request as it came, perhaps in the words of another API, and a question
    in its place cannot be invented.
    """
    caller_field = _find_turns_field(caller_request)
    field = _find_turns_field(request)
    if not caller_field or not field:
        return None
    last_caller_turn = caller_request[caller_field][-1]
    ended_with_user = read_field(last_caller_turn, "role") in ("user", None)
    ends_with_model = read_field(request[field][-1], "role") in ("assistant", "model")
    if not ended_with_user or not ends_with_model:
        return None
    place = f"{caller_field}[{len(caller_request[caller_field]) - 1}]"
    message = "it says nothing, and without it the request would end with what the model said"
    return Violation(rule="ends_with_user", place=place, message=message)


def _find_turns_field(request: Request) -> str:
    """The field in which a request has its turns; "" if it has none, or only a text."""
    for field in _TURNS_FIELDS:
        if list_or_empty(request.get(field)):
            return field
    return ""


def make_refusal(
    request: Request,
    violations: Sequence[Violation],
    *,
    caller_request: Request | None = None,
    mended_violations: Sequence[Violation] = (),
) -> InvalidRequest:
    """The error for a request that cannot be mended.

    `caller_request` is the request as the caller sent it: the error names places in it. `mended_violations`
    are what it broke besides. That may be the reason: if a blank question was left out, nothing is asked.
    """
    reported = list(violations)
    quoted_request = request
    if caller_request is not None:
        reported = [_find_caller_place(violation, request, caller_request) for violation in violations]
        quoted_request = caller_request
    hint = _HINTS.get(reported[0].rule, "correct it in the request")
    broken = {violation.rule for violation in violations}
    mends = [f"{mend.place} ({mend.rule})" for mend in mended_violations if mend.rule not in broken]
    if mends:
        hint += f"; left out or mended before: {', '.join(mends[:NOTE_LIMIT])}"
    words = _quote_beginning(quoted_request, reported[0].place)
    return InvalidRequest(reported, words=words, hint=hint)


def describe_mends(violations: Sequence[Violation]) -> tuple[str, ...]:
    """Notes for the account: which rules a request broke that was mended, and where.

    `mended messages[3]: calls_are_answered`, for example.
    """
    notes = [f"mended {violation.place}: {violation.rule}" for violation in violations]
    unique_notes = tuple(dict.fromkeys(notes))
    more = len(unique_notes) - NOTE_LIMIT
    if more <= 0:
        return unique_notes
    return (*unique_notes[:NOTE_LIMIT], f"mended {more:,} more")


def _find_caller_place(violation: Violation, request: Request, caller_request: Request) -> Violation:
    """A violation with its place in the request as the caller sent it, if the message was in that.

    Of several equal messages it is the one that has as many equal ones before it. Messages are compared as
    values: with a memo, the one that is sent may be an equal object of an earlier call.
    """
    match = _FIELD_AND_INDEX.match(violation.place)
    if match is None or match[2] is None:
        return violation
    field = match[1]
    index = int(match[2])
    items = list_or_empty(request.get(field))
    item = next(iter(items[index : index + 1]), None)
    equal_before = items[:index].count(item)
    caller_items = list_or_empty(caller_request.get(field))
    equal_indexes = [position for position, other in enumerate(caller_items) if other == item]
    if equal_before >= len(equal_indexes):
        message = f"{violation.message} (in the request as mended)"
        return msgspec.structs.replace(violation, message=message)
    rest = violation.place[match.end() :]
    place = f"{field}[{equal_indexes[equal_before]}]{rest}"
    return msgspec.structs.replace(violation, place=place)


def _quote_beginning(request: Request, place: str) -> str:
    """How the message begins in which a place lies: `messages[3].content[0]` is in the fourth message.

    It helps a reader to find the message: the place counts messages that the reader may not have counted.
    """
    match = _FIELD_AND_INDEX.match(place)
    if match is None:
        return ""
    value = request.get(match[1])
    if match[2] is not None:
        index = int(match[2])
        value = list_or_empty(value)[index : index + 1]
    text = _find_text(value)
    if len(text) > _QUOTE_LENGTH:
        return f"{text[:_QUOTE_LENGTH]}…"
    return text


def _find_text(value: Any) -> str:
    """The first text in a message, a part or a definition, "" if there is none.

    In `{"role": "user", "content": [{"type": "text", "text": "Hi"}]}` it is `Hi`.
    """
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        value = dump()
    if isinstance(value, str):
        return value
    inner_values = list_or_empty(value)
    if isinstance(value, Mapping):
        inner_values = list(map(value.get, _TEXT_FIELDS))
    for inner in inner_values:
        text = _find_text(inner)
        if text:
            return text
    return ""
