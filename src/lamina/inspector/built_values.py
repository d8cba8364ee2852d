"""A session as it was sent: its calls, their sizes and costs, and what is drawn of them. Values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from lamina.caches import CacheRules, rules_for
from lamina.caches.rules import find_named_rules
from lamina.conversations.lost_caches import LostCache
from lamina.conversations.record import CutNote, is_compaction
from lamina.core.envelope import Envelope
from lamina.core.tokens import Counter
from lamina.core.values import Entry, Ref
from lamina.errors import BadInput
from lamina.inspector.recorded_sessions import RecordedSession
from lamina.inspector.sent_conversations import SentConversation
from lamina.replay.model_calls import CHAT

MOST_DIGITS = 15
"""Digits of a number in an address: more than any count of tokens, requests or days has."""

MOST_SHOWN = 40
"""Characters of a wrong word that its error quotes."""


def read_whole(query: Mapping[str, str], name: str, *, hint: str = "give a whole number") -> int | None:
    """A whole number in the query; None if it is absent or empty. Any other word raises BadInput."""
    word = query.get(name, "")
    if not word:
        return None
    return parse_whole(word, name, hint=hint)


def parse_whole(word: str, name: str, *, hint: str) -> int:
    """The number that a word of an address means. Any other word raises BadInput.

    `isdigit` alone is true of "²" and of digits of other scripts.
    """
    is_number = word.isascii() and word.isdigit()
    # Python refuses to read a number of more than 4,300 digits, and one of 400 is too large for a float.
    if not is_number or len(word) > MOST_DIGITS:
        raise BadInput(f"{name} is {word[:MOST_SHOWN]!r}", place=name, hint=hint)
    return int(word)


def find_rules(name: str, model: str, dialect: str) -> CacheRules:
    if not name:
        return rules_for(model, dialect=dialect)
    return find_named_rules(name, "rules")


class FormChange(msgspec.Struct, frozen=True):
    """From this call on, a segment is sent in this form."""

    call: int
    form: str
    why: str


class BuiltCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call: its place in the session, its size, what a cache read of it, and what that cost.

    `simulated`: the amounts of the cache are computed from its rules, since the records do not have them.
    `reported` is the size that the provider reported, None without one.

    The rest is known of requests that lamina recorded. `follows` is the number of the request that this one
    repeats, and `why` says after which refusal; `recalled`: its answer recalled something, and the next
    request has that. `status` is the HTTP status of its answer. `is_open`: no answer was recorded.
    `cut_number` is that of the cut that was made for it. `first` and `last` are the seconds to the first and
    to the last byte of the answer, 0 where they are not known. `entries`, `left_out`, `layers` and `turn` are
    not known until somebody looks at the request.

    `loss` is what the cache lost, by what was reported of this call and the ones before it.
    """

    number: int
    at: float | None = None
    idle: float = 0.0
    tokens: int = 0
    layers: Mapping[str, int] = {}
    entries: int = 0
    left_out: int = 0
    cut: str = ""
    cut_lowered: int = 0
    continues: bool = True
    read: int = 0
    written: int = 0
    uncached: int = 0
    output: int = 0
    dollars: float | None = None
    simulated: bool = True
    reported: int | None = None
    turn: int = 0
    follows: int | None = None
    why: str = ""
    recalled: bool = False
    status: int = 0
    refusal: str = ""
    is_open: bool = False
    cut_number: int = 0
    first: float = 0.0
    last: float = 0.0
    model: str = ""
    loss: LostCache | None = None

    @property
    def is_refused(self) -> bool:
        """Whether the provider refused it. One without an answer has a remark in `refusal`, too."""
        return bool(self.refusal) and not self.is_open


def add_cut(call: BuiltCall, cut: CutNote | None) -> BuiltCall:
    """The call with a cut of lamina's. What the caller changed has its cause with the miss."""
    if cut is None or not is_compaction(cut):
        return call
    return msgspec.structs.replace(
        call,
        cut=cut.reason,
        cut_lowered=cut.lowered,
        cut_number=cut.number,
    )


def scale_envelope(envelope: Envelope, tokens: int) -> Envelope:
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


def scale_layers(layers: Mapping[str, int], share: float) -> dict[str, int]:
    """Tokens by layer in a request that is so many times as large as it was counted."""
    return {name: round(amount * share) for name, amount in layers.items()}


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


class BuiltRequest(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One request that somebody looks at: its entries, and the JSON that was sent.

    `note` says what the record does not tell of it. Without `has_reasons`, nobody knows what was left out.
    """

    envelope: Envelope
    has_reasons: bool = True
    request: dict[str, Any] = {}
    note: str = ""


class BuiltSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session call by call, priced by some rules, and the call at which each segment of a log arrived.

    `unrecorded` are the tokens of system text and tools that the records do not have, as far as the first
    reported usage tells. `sent` is lamina's own record, if the session has one.
    """

    session: RecordedSession
    rules: CacheRules
    counter: Counter
    calls: tuple[BuiltCall, ...]
    arrivals: Mapping[Ref, int] = {}
    unrecorded: int = 0
    sent: SentConversation | None = None

    @property
    def is_sent(self) -> bool:
        return self.sent is not None

    @property
    def dialect(self) -> str:
        """The dialect in which requests are shown: lamina's record has them in their own."""
        if self.is_sent:
            return self.session.summary.dialect
        return CHAT


class RequestSpan(NamedTuple):
    """Requests by their numbers from 0, both ends included. None is without a limit."""

    first: int | None = None
    last: int | None = None

    def contains(self, number: int) -> bool:
        if self.first is not None and number < self.first:
            return False
        return self.last is None or number <= self.last

    def select(self, calls: Sequence[BuiltCall]) -> list[BuiltCall]:
        """The calls of the span. Raises BadInput if the session has none of them."""
        selected = [call for call in calls if self.contains(call.number)]
        if not selected:
            raise BadInput(
                "the session has no request of that span", place="from", hint="count from 0, from ≤ to"
            )
        return selected


WHOLE = RequestSpan()


def read_span(query: Mapping[str, str]) -> RequestSpan:
    """The span in the words of an address: `from=3&to=8`. A word that is no number raises BadInput."""
    hint = "give the number of a request, from 0"
    return RequestSpan(read_whole(query, "from", hint=hint), read_whole(query, "to", hint=hint))
