"""The last step before a request leaves lamina: it is valid by its dialect's `check`, or it is refused.

    settled ──▶ the envelope, with what rendering will do for good written into its ledger
    rendered ──▶ the request for an envelope, every mend made, or InvalidRequest
    broken_rules, refused, mended ──▶ the same in single steps, for whoever has a request to compare with

What a dialect mends while rendering may not depend on what comes later, or bytes change that were sent. Where
the wire leaves no choice, `settled` records the cut. No rule of any API stands here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from lamina.core.envelope import Envelope
from lamina.core.memo import Memo
from lamina.core.values import Cut, Entry, Form, Layer, Ledger, Ref, Role, SentMark
from lamina.dialects.port import ON_THE_WIRE, CheckMemo, Dialect, Request, Violation
from lamina.errors import InvalidRequest

MOVED = "a rule of the API moved what was sent before"
"""The reason of a cut that no edit and no lowering made."""

NOTES = 5
"""Mends that the account of one request names; the rest are counted."""

_WORDS = 40
"""Characters of a message that an error shows."""

_INDEXED = re.compile(r"([a-zA-Z_]{1,40})(?:\[([0-9]{1,9})\])?")


def settled(envelope: Envelope, dialect: Dialect, *, before: SentMark | None, memo: Memo) -> Envelope:
    """The envelope with the mends of its wire in the ledger, for the next request to make them again.

    `before` is the mark of the last request: if the wire cannot continue that one, a cut is recorded.
    """
    ledger, cut = envelope.ledger, envelope.cut
    lasting = dialect.lasting(envelope)
    new = {ref: what for ref, what in lasting.items() if ledger.repairs.get(ref) != what}
    if new:
        ledger = msgspec.structs.replace(ledger, repairs=ledger.repairs | new)
    if cut is None and before is not None and _changes_what_was_sent(envelope, dialect, new, before):
        cut = Cut(number=len(ledger.cuts) + 1, reason=MOVED, after=envelope.tokens)
        ledger = msgspec.structs.replace(ledger, cuts=(*ledger.cuts, cut))
    if ledger is envelope.ledger:
        return envelope
    kept = memo.checkpoint
    if kept is not None and kept.ledger is envelope.ledger:
        memo.checkpoint = msgspec.structs.replace(kept, ledger=ledger)
    return msgspec.structs.replace(envelope, ledger=ledger, cut=cut)


def written_anew(ledger: Ledger) -> frozenset[str]:
    """Refs of entries whose wire was mended for good by a dialect's `lasting`."""
    return frozenset(ref.removesuffix(ON_THE_WIRE) for ref in ledger.repairs if ref.endswith(ON_THE_WIRE))


def rendered(envelope: Envelope, dialect: Dialect, *, memo: CheckMemo | None = None) -> dict[str, Any]:
    """The request for an envelope. Raises InvalidRequest where the API would refuse it all the same."""
    request = dialect.render(envelope)
    violations = broken_rules(request, dialect, memo)
    if violations:
        raise refused(request, violations)
    return request


def broken_rules(request: Request, dialect: Dialect, memo: CheckMemo | None = None) -> list[Violation]:
    """The rules that a request breaks which was parsed or rendered by this dialect."""
    if dialect.recheck is None:
        return dialect.check(request)
    return dialect.recheck(request, memo)


def refused(
    request: Request,
    violations: Sequence[Violation],
    *,
    asked: Request | None = None,
    mended: Sequence[Violation] = (),
) -> InvalidRequest:
    """The error for a request that cannot be mended.

    `asked` is the request as the caller gave it: places are told as they are there. `mended` is what it broke
    besides, which may be why this cannot be mended: a blank question, for one, was left out.
    """
    told = [_as_given(violation, request, asked) for violation in violations]
    hint = _HINTS.get(told[0].rule, "correct it in the request")
    mends = [f"{one.place} ({one.rule})" for one in mended if one.rule not in {v.rule for v in violations}]
    if mends:
        hint += f"; left out or mended before: {', '.join(mends[:NOTES])}"
    words = _first_words(asked if asked is not None else request, told[0].place)
    return InvalidRequest(told, words=words, hint=hint)


def mended(violations: Sequence[Violation]) -> tuple[str, ...]:
    """Notes for the account: which rules a request broke that was mended, and where."""
    told = list(dict.fromkeys(f"mended {one.place}: {one.rule}" for one in violations))
    more = len(told) - NOTES
    return (*told[:NOTES], f"mended {more:,} more") if more > 0 else tuple(told)


def _changes_what_was_sent(
    envelope: Envelope, dialect: Dialect, new: Mapping[Ref, str], before: SentMark
) -> bool:
    return _rewrites(envelope, new, before) or _moves(envelope, dialect, before)


def _rewrites(envelope: Envelope, new: Mapping[Ref, str], before: SentMark) -> bool:
    """Whether entries that were sent are written in another way from now on."""
    sent_before = envelope.sent[: before.sent]
    return bool(new) and any(f"{entry.ref}{ON_THE_WIRE}" in new for entry in sent_before)


def _moves(envelope: Envelope, dialect: Dialect, before: SentMark) -> bool:
    """Whether entries that were sent stand in another order now that others came after them."""
    if dialect.order is None or envelope.ledger.mark is None:
        return False
    tail, old = _tail(envelope.entries, new=envelope.ledger.mark.sent - before.sent)
    if all(entry.role is not Role.SYSTEM for entry in tail):
        return False
    now = dialect.order(tail, envelope.head)
    then = dialect.order(tail[:old], envelope.head)
    return now[: len(then)] != then


def _tail(entries: Sequence[Entry], *, new: int) -> tuple[list[Entry], int]:
    """What is sent since the model last began to speak before the `new` entries, and how much of it is old.

    Nothing before that can move: there the user's side had spoken, so whatever waited for it was placed.
    """
    found: list[Entry] = []
    for entry in reversed(entries):
        if entry.form is Form.OMITTED or entry.layer is Layer.SYSTEM:
            continue
        answers_user = len(found) > new and found[-1].role is Role.ASSISTANT
        if answers_user and entry.role in (Role.USER, Role.TOOL):
            break
        found.append(entry)
    found.reverse()
    return found, max(len(found) - new, 0)


def _as_given(violation: Violation, request: Request, asked: Request | None) -> Violation:
    """A violation with its place in the request as the caller gave it, where that message was in it.

    Of several equal messages it is the one that has as many before it. They are compared as values: with a
    memo, what is sent may be an equal message of an earlier call.
    """
    found = _INDEXED.match(violation.place)
    if asked is None or found is None or found[2] is None:
        return violation
    name, at = found[1], int(found[2])
    sent, given = _items(request, name), _items(asked, name)
    item = sent[at] if at < len(sent) else None
    nth = sum(one == item for one in sent[:at])
    equal = [i for i, one in enumerate(given) if one == item]
    if nth < len(equal):
        place = f"{name}[{equal[nth]}]{violation.place[found.end() :]}"
        return msgspec.structs.replace(violation, place=place)
    return msgspec.structs.replace(violation, message=f"{violation.message} (in the request as mended)")


def _items(request: Request, name: str) -> Sequence[Any]:
    found = request.get(name)
    return found if isinstance(found, list | tuple) else ()


def _first_words(request: Request, place: str) -> str:
    """How the message begins in which a place lies: `messages[3].content[0]` is in the fourth message."""
    found = _INDEXED.match(place)
    if found is None:
        return ""
    value = request.get(found[1])
    if found[2] is not None:
        value = next(iter(_items(request, found[1])[int(found[2]) :]), None)
    text = _text_in(value)
    return f"{text[:_WORDS]}…" if len(text) > _WORDS else text


def _text_in(value: Any) -> str:
    """The first text of a message, a part or a definition."""
    dump = getattr(value, "model_dump", None)
    value = dump() if callable(dump) else value
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return next((text for one in value if (text := _text_in(one))), "")
    if isinstance(value, Mapping):
        inner = (value.get(name) for name in ("content", "parts", "text", "name", "output"))
        return next((text for one in inner if one is not None and (text := _text_in(one))), "")
    return ""


_HINTS = {
    "has_limit": "give max_tokens",
    "begins_with_user": "begin with a message of the user",
    "ends_with_user": "add what the user asks, as the last message",
    "ends_with_the_user": "add what the user asks, as the last content",
    "system_messages_stand_right": "put it after a message of the user",
    "names_are_allowed": "rename the tool in its definition",
    "names_fit_the_pattern": "rename the tool in its definition",
    "functions_are_declared_once": "declare each function once",
    "cached_content_stands_alone": "leave it out, or do not name a cached content",
    "one_past_is_continued": "give one of the two",
    "nothing_else_speaks": "leave it out, or use a dialect with messages",
}
"""What to do about rules that rendering does not mend."""
