"""Lists the calls of a recorded conversation as they were sent, with the sizes, cuts and costs of the record.

No request is fitted again here, and no body is read that is like the one before it, so a record of thousands
of requests opens at once. Layers and turns need the entries of a request; they are added when somebody looks
at it (`request_views`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from lamina.caches import rules_for
from lamina.caches.prefix_path import count_common_items
from lamina.conversations.body_places import (
    LIST_OF_TURNS,
    BodyPlace,
    BodyPlaces,
    find_end_of_turns,
)
from lamina.conversations.costs import is_refused, price_call, tally_usage
from lamina.conversations.lost_caches import NOT_CACHED, LostCache, compare_requests, explain_by_bytes
from lamina.conversations.record import ConversationRecord, RecordedCall
from lamina.diagnose.values import Difference
from lamina.dialects import DIALECTS
from lamina.dialects.port import Dialect
from lamina.dialects.usage import NOTHING_REPORTED, Usage
from lamina.errors import BadInput
from lamina.fitting.recalls import TURN_FIELDS, read_turns
from lamina.inspector.built_values import BuiltCall, BuiltSession, add_cut, find_rules, idle_between
from lamina.inspector.progress import report_steps
from lamina.inspector.recorded_sessions import RecordedSession
from lamina.inspector.sent_conversations import SentConversation, count_request_tokens
from lamina.models.counters.openai import o200k
from lamina.replay.traces.recorded_conversations import decode_body

IN_FLIGHT = "no answer was recorded: it was in flight when lamina ended, or still is"


def list_sent_calls(
    session: RecordedSession, conversation: SentConversation, rules_name: str
) -> BuiltSession:
    """Every recorded request of a conversation, in the order in which they were sent."""
    rules = find_rules(rules_name, conversation.model, conversation.dialect)
    continuations = Continuations(conversation.record)
    losses = conversation.find_losses()
    calls: list[BuiltCall] = []
    previous: RecordedCall | None = None
    for number in report_steps(range(len(conversation.calls)), "reading requests"):
        call = conversation.calls[number]
        built = _measure(conversation, number)
        if previous is not None:
            continues = continuations.is_continued(previous, call)
            idle = idle_between(previous.request.at, built.at)
            built = msgspec.structs.replace(built, idle=idle, continues=continues)
        built = add_cut(_add_answer(built, call), call.request.cut)
        loss = losses.get(number)
        if loss is not None and previous is not None:
            loss = _explain_loss(conversation, loss, previous, call, continues=built.continues)
        calls.append(msgspec.structs.replace(built, loss=loss))
        previous = call
    return BuiltSession(
        session=session,
        rules=rules,
        counter=o200k(),
        calls=tuple(calls),
        sent=conversation,
    )


def _measure(conversation: SentConversation, number: int) -> BuiltCall:
    """One request: its size, and what was reported and paid for it."""
    call = conversation.calls[number]
    request = call.request
    usage = _read_usage(call)
    tally = tally_usage(usage)
    reported = usage.input if usage is not NOTHING_REPORTED else None
    return BuiltCall(
        number=number,
        at=request.at or None,
        tokens=count_request_tokens(call),
        read=tally.read,
        written=tally.written + tally.written_long,
        uncached=tally.uncached,
        output=usage.output,
        dollars=price_call(call),
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
    difference = compare_requests(
        *sent,
        rules=rules_for(after.request.model, dialect=dialect.name),
        gap=idle_between(before.request.at, after.request.at),
        tokens=_read_usage(before).input or None,
        dialect=dialect,
        usage=_read_usage(after),
    )
    return explain_by_bytes(loss, difference)


def _read_usage(call: RecordedCall) -> Usage:
    if call.answer is None or call.answer.usage is None:
        return NOTHING_REPORTED
    return call.answer.usage


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


class _EndOfTurns(NamedTuple):
    """The last turns of a body, and its rest: the end of a piece, and the numbers of those after it."""

    turns: list[Any]
    rest: tuple[bytes, tuple[int, ...]]


class Continuations:
    """Decides whether a request begins with all of the one before it, by the pieces of their bodies.

    A record of thousands of requests has gigabytes of bodies, and each has a few pieces more than the one
    before it. Pieces have numbers, and equal numbers are equal bytes. So the common beginning of two bodies
    is found without reading it, and only the turns around the place where they part are decoded:

        before   [0 1 2 3 4]           4 closes the list of messages
        after    [0 1 2 3 5 6 4]       continues: 5 and 6 are new turns at the end of the list
        after    [0 1 2 7 5 6 4]       3 and 7 are the same turn with and without a cache marker, or another

    Where the bodies part before their turns, as in the tools, both are decoded whole.
    """

    def __init__(self, record: ConversationRecord) -> None:
        self._record = record
        self._places = BodyPlaces(record)

    def is_continued(self, before: RecordedCall, after: RecordedCall) -> bool:
        """Whether the later request begins with all of the earlier one, but for cache markers.

        Without both bodies nobody knows, and nothing is claimed: the answer is yes.
        """
        old = before.sent_pieces
        new = after.sent_pieces
        dialect = DIALECTS.get(after.request.dialect)
        if old is None or new is None or dialect is None:
            return True
        if before.request.dialect != after.request.dialect:
            return False
        if old == new:
            return True
        is_continued = self._compare_turns(old, new, dialect)
        if is_continued is not None:
            return is_continued
        old_request = decode_body(self._record.sent_body(before))
        new_request = decode_body(self._record.sent_body(after))
        if not old_request or not new_request:
            return True
        return count_common_turns(old_request, new_request, dialect) is not None

    def _compare_turns(self, old: tuple[int, ...], new: tuple[int, ...], dialect: Dialect) -> bool | None:
        """The answer from the turns where two bodies part; None if they part elsewhere."""
        start = count_common_items(old, new)
        places = self._places.find(old)
        while start and not places[start].is_between_turns:
            start -= 1  # the pieces part inside of a turn
        if not places[start].is_between_turns:
            return None
        old_end = self._read_turns(old, start, places[start])
        new_end = self._read_turns(new, start, places[start])
        if old_end is None or new_end is None:
            return None
        if old_end.rest != new_end.rest:  # tools may stand after the turns
            return None
        field = places[start].field
        common_turns = count_common_turns({field: old_end.turns}, {field: new_end.turns}, dialect)
        return common_turns is not None

    def _read_turns(self, pieces: tuple[int, ...], start: int, place: BodyPlace) -> _EndOfTurns | None:
        """The turns from one piece to the end of the list, and what follows it; None if that is not there."""
        parts: list[bytes] = []
        for at in range(start, len(pieces)):
            piece = self._record.piece(pieces[at]) or b""
            end = self._places.end_of(pieces[at], place)
            if end.depth < LIST_OF_TURNS or end.field != place.field:
                position = find_end_of_turns(piece, place)
                turns = _decode_list(b"".join([*parts, piece[:position]]))
                if turns is None:
                    return None
                return _EndOfTurns(turns, (piece[position:], pieces[at + 1 :]))
            parts.append(piece)
            place = end
        return None


def _decode_list(text: bytes) -> list[Any] | None:
    """The values of a part of a list: `,{…},{…}`."""
    try:
        values: list[Any] = msgspec.json.decode(b"[" + text.lstrip().removeprefix(b",") + b"]")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return values


def count_common_turns(before: Mapping[str, Any], after: Mapping[str, Any], dialect: Dialect) -> int | None:
    """How many turns a request has, if another begins with all of it; None if it does not.

    Cache markers do not count, since they move from request to request. Nor does any setting: the comparison
    is of tools, system text and turns.
    """
    turns = read_turns(before)
    other_turns = read_turns(after)
    if len(turns) > len(other_turns):
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
