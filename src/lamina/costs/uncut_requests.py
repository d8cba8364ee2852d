"""What requests would have been without lamina, and what that would have cost: every surface asks here.

The same facts of an answer stand in a line of the gateway's log and in the record of a conversation.
`lamina.costs.requests` prices them.

It is calculated in two steps:

1. How long it would be with nothing cut and nothing recalled: as long as the one before it, and what
   upstreams reported as new since then. A request with a cut shows no growth, so what is new in it is taken
   as the gateway counts it, scaled by what the upstream reported of the growth that the gateway counted
   before. If an earlier run has cut the conversation, the lines of that run tell how long it was. If they
   are gone, the ledger of the conversation does, less exactly.
2. How much of that the cache would have given back: all of the request before it, less what the real one
   missed of its own. If the real one found only what stands before the first cut, the cache had nothing
   more, and would have given back as much. A request with a cut shows no such figure, so that of the request
   before it holds; and so it does after a recall, which lamina alone made.

Before the first cut of a conversation both are as they were reported. A client that marks nothing, for a
cache that keeps only what is marked, would have had nothing from it: there lamina placed all markers, and
a `Request` has the price with lamina's markers and nothing cut apart from the price without both.
"""

from __future__ import annotations

import msgspec

from lamina.caches import rules_for
from lamina.dialects.usage import Usage


class AnsweredRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an answer. `lamina.relay.misses` measures what would be if nothing were cut.

    `full` is what `input` would be. `unchanged` of its tokens stand before the first thing that was lowered.
    As the gateway counts, the request has `counted` tokens, of which the request before it did not have `new`
    ones; `held_back` of these were shortened before they were ever sent. `gap` are the seconds since the
    request before it.

    `recalled`: the model recalled something, and the gateway sent the request once more. Without the gateway
    there would be nothing to recall. `parent` is the conversation that this one was forked from: some clients
    change the last message of each request. `agent_of` is the client's id of the conversation whose sub-agent
    asked, "" if it was no sub-agent. `unmarked`: the client marked nothing for a cache that keeps only what
    is marked, so that all markers are lamina's. `window` is the one that it was fitted into, `window_source`
    where that comes from, and `reserve` what of it was left for the answer (`lamina.relay.sizes`). `tier`
    is how the call was served (`lamina.dialects.usage`).
    """

    id: str = ""
    at: float | None = None
    conversation: str
    parent: str = ""
    agent_of: str = ""
    model: str
    dialect: str = ""
    input: int
    full: int = 0
    unchanged: int = 0
    counted: int = 0
    new: int = 0
    held_back: int = 0
    gap: float = 0.0
    cached: int = 0
    written: int = 0
    written_long: int = 0
    output: int = 0
    tier: str = ""
    cut: bool = False
    recalled: bool = False
    unmarked: bool = False
    window: int = 0
    window_source: str = ""
    reserve: int = 0

    @property
    def usage(self) -> Usage:
        return Usage(
            input=self.input,
            cached=self.cached,
            written=self.written,
            written_long=self.written_long,
            output=self.output,
            tier=self.tier,
        )

    @property
    def process(self) -> str:
        """What the ids of one gateway process begin with."""
        return self.id.rpartition("-")[0]

    @property
    def was_cut(self) -> bool:
        """Whether this request, or one before it in its conversation, was cut."""
        return self.cut or self.full > self.input

    @property
    def is_idle(self) -> bool:
        """Whether the request came so late that a cache of the usual lifetime had forgotten the last one."""
        if self.written_long:
            return False
        lifetime = rules_for(self.model).seconds("")
        return 0 < lifetime < self.gap


ABOUT = 1.05
"""A read of at most this many times the tokens before the first cut is a read of these alone: both are known
to a few hundredths only."""


class UncutRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it would have been with nothing cut and nothing recalled.

    `tokens` is how long it would be, and `read` what the cache would have given back. `missed` is what the
    cache did not give back of the request before it. `is_recalled`: it goes on after a recall.
    """

    tokens: int = 0
    read: int = 0
    missed: int = 0
    read_is_unknown: bool = False
    is_recalled: bool = False

    @classmethod
    def measure(cls, answer: AnsweredRequest, last: MeasuredConversation) -> UncutRequest:
        """The request of this answer, after the last one of its conversation."""
        if last.answer is None:
            return _measure_first(answer)
        if last.answer.recalled:  # it has only what was recalled more
            return msgspec.structs.replace(last.uncut, is_recalled=True)
        if answer.cut:
            return _measure_cut(answer, last)
        held_back = round(answer.held_back * last.growth.scale(answer))
        tokens = max(last.uncut.tokens + answer.input - last.answer.input + held_back, 0)
        missed = max(last.answer.input - answer.cached, 0)
        read = last.uncut.tokens - missed
        if _reads_only_unchanged(answer):
            read = answer.cached
        if answer.is_idle:  # the cache misses no more of the next request for that
            missed = last.uncut.missed
        return cls(tokens=tokens, read=_limit(read, tokens), missed=missed)

    def report(self, answer: AnsweredRequest) -> Usage:
        """What the upstream would have reported of it, with the cache markers that the real one had."""
        if self.tokens == answer.input and not self.is_recalled:
            return answer.usage
        written = 0
        written_long = 0
        if answer.written:
            written = self.tokens - self.read
            written_long = round(written * answer.written_long / answer.written)
        return Usage(
            input=self.tokens,
            cached=self.read,
            written=written,
            written_long=written_long,
            output=answer.output,
            tier=answer.tier,
        )


def _measure_first(answer: AnsweredRequest) -> UncutRequest:
    """The first request of a conversation in this log. An earlier process may have cut it.

    What the upstream did not read would be as long without lamina: it is the end of the request, which no
    cut has touched.
    """
    tokens = max(answer.full, answer.input)
    if answer.cut:
        return UncutRequest(tokens=tokens, read_is_unknown=tokens > answer.input)
    read = tokens - (answer.input - answer.cached)
    if _reads_only_unchanged(answer):
        read = answer.cached
    return UncutRequest(tokens=tokens, read=_limit(read, tokens))


def _measure_cut(answer: AnsweredRequest, last: MeasuredConversation) -> UncutRequest:
    """A request with a cut: its own reads say nothing of those without, so those of the last one hold."""
    scale = last.growth.scale(answer)
    new = round(answer.new * scale)
    tokens = last.uncut.tokens + new
    if last.answer is not None and last.answer.conversation != answer.conversation:
        # a fork may have left most of its conversation, so it is at most as long as its own messages
        hidden = answer.full - answer.input
        if answer.counted:  # `full` was scaled by the whole request
            hidden = round(hidden * scale * answer.counted / answer.input)
        tokens = min(tokens, answer.input + hidden)
    missed = last.uncut.missed
    if answer.is_idle:
        return UncutRequest(tokens=tokens, missed=missed)
    return UncutRequest(tokens=tokens, read=_limit(tokens - new - missed, tokens), missed=missed)


def _reads_only_unchanged(answer: AnsweredRequest) -> bool:
    """Whether the cache gave back no more than what stands before the first thing that was lowered."""
    return answer.cached <= ABOUT * answer.unchanged


def _limit(read: int, tokens: int) -> int:
    return min(max(read, 0), tokens)


class _Growth(msgspec.Struct, frozen=True, kw_only=True):
    """By how much the requests of a conversation grew: as upstreams reported it, and as the gateway counts.

    Only what both know is in it. A request as a whole has a head that the two may count differently, so what
    is new in one is scaled by growth alone.
    """

    reported: int = 0
    counted: int = 0

    def scale(self, answer: AnsweredRequest) -> float:
        """Tokens of the upstream for each token of the gateway's count."""
        if self.counted > 0 and self.reported > 0:
            return self.reported / self.counted
        if answer.counted:
            return answer.input / answer.counted
        return 1.0

    def add(self, answer: AnsweredRequest, last: AnsweredRequest | None) -> _Growth:
        """The growth with that of one more request, if it shows any."""
        if last is None or answer.cut:
            return self
        if answer.recalled or last.recalled:  # what was recalled is not the client's growth
            return self
        sent_new = answer.new - answer.held_back
        if sent_new <= 0:
            return self
        return _Growth(
            reported=self.reported + answer.input - last.input,
            counted=self.counted + sent_new,
        )


class MeasuredConversation(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a conversation so far: its last answer, that request with nothing cut, its growth."""

    answer: AnsweredRequest | None = None
    uncut: UncutRequest = UncutRequest()
    growth: _Growth = _Growth()

    def follow(self, answer: AnsweredRequest, uncut: UncutRequest) -> MeasuredConversation:
        """The conversation after one more answer."""
        return MeasuredConversation(answer=answer, uncut=uncut, growth=self.growth.add(answer, self.answer))
