"""One row of the table of requests: what a request took, what it cost, and what it would have cost.

A *call* is what a client asked. A *request* is what left for a provider: a call, or what lamina sent once
more after a recall. Every request has three prices. `dollars` is what was paid. `dollars_uncut` is the price
with nothing cut and nothing recalled, and with the cache markers that the request had. `dollars_without` is
the price without lamina: where lamina placed all markers, the client would have read nothing from the cache.
"""

from __future__ import annotations

import msgspec

from lamina.conversations.costs import price_usage
from lamina.costs.uncut_requests import AnsweredRequest, MeasuredConversation, UncutRequest
from lamina.dialects.usage import Usage
from lamina.models.facts import model_or_none


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Where requests come from. `door` is the part of lamina that sent them, "" for a client's own log."""

    file: str = ""
    door: str = ""
    client: str = ""
    client_session: str = ""
    user: str = ""
    project: str = ""
    title: str = ""


class Request(Provenance, frozen=True, kw_only=True):
    """A request that left, as its provider reported it.

    `conversation` is the name under which it is stored, and `root` the one that it was forked from first.
    `tokens` is what was sent, None if the answer did not report it, and `whole` what would have been sent
    with nothing cut, None if nobody knows. `written` is everything that was written to the cache, and
    `written_long` the part for the longer of two lifetimes. `recalled`: lamina answered it with a recall and
    sent the call once more. `pause` is the time since the request before it in seconds.

    `too_long`: `whole` is more than the window of the model, so nobody knows what a client would have done.
    `is_read_unknown`: an earlier run cut the conversation, and what the cache held of it is not known, so the
    price with nothing cut is an upper bound. `unmarked`: all cache markers are lamina's.

    `lost` are the tokens of a lost cache that were paid again, for `lost_dollars` more than a read. `cause`
    is a fixed word for why, `why` says it in a sentence, and `lost_by` who did it
    (`lamina.conversations.lost_caches`). `answer` tells copies of one answer in several files.
    """

    id: str = ""
    at: float | None = None
    conversation: str = ""
    root: str = ""
    agent_of: str = ""
    model: str = ""
    dialect: str = ""
    tokens: int | None = None
    read: int = 0
    written: int = 0
    written_long: int = 0
    output: int = 0
    tier: str = ""
    whole: int | None = None
    is_cut: bool = False
    recalled: bool = False
    compacted: bool = False
    pause: float | None = None
    unmarked: bool = False
    too_long: bool = False
    is_read_unknown: bool = False
    window: int = 0
    window_source: str = ""
    reserve: int = 0
    dollars: float | None = None
    dollars_uncut: float | None = None
    dollars_without: float | None = None
    lost: int = 0
    lost_dollars: float | None = None
    cause: str = ""
    lost_by: str = ""
    why: str = ""
    place: str = ""
    advice: str = ""
    tools: str = ""
    answer: str | None = None


class RequestPricer:
    """State: the last request of each conversation, which tells what the next would be with nothing cut."""

    def __init__(self, origin: Provenance | None = None) -> None:
        self._origin = msgspec.structs.asdict(origin or Provenance())
        self._last: dict[str, MeasuredConversation] = {}
        self._roots: dict[str, str] = {}

    def knows(self, answer: AnsweredRequest) -> bool:
        """Whether an earlier request of its conversation is known."""
        return self._find_last(answer).answer is not None

    def list_conversations(self) -> frozenset[str]:
        """The conversations of which a request is known."""
        return frozenset(self._last)

    def learn(self, answer: AnsweredRequest) -> UncutRequest:
        """Measure a request, and remember it as the last one of its conversation."""
        last = self._find_last(answer)
        uncut = UncutRequest.measure(answer, last)
        self._last[answer.conversation] = last.follow(answer, uncut)
        return uncut

    def price(self, answer: AnsweredRequest) -> Request:
        """The row of the next request of a conversation."""
        is_first = answer.conversation not in self._last
        uncut = self.learn(answer)
        facts = model_or_none(answer.model)
        is_longer = uncut.tokens > answer.input
        uncut_usage = uncut.report(answer)
        dollars = _price(answer, answer.usage)
        dollars_uncut = dollars
        if answer.recalled:  # it left only because of lamina
            dollars_uncut = 0.0
        elif uncut_usage != answer.usage:
            dollars_uncut = _price(answer, uncut_usage)
        dollars_without = dollars_uncut
        if answer.unmarked and not answer.recalled:
            nothing_read = Usage(input=uncut.tokens, output=answer.output, tier=answer.tier)
            dollars_without = _price(answer, nothing_read)
        return Request(
            **self._origin,
            id=answer.id,
            at=answer.at,
            conversation=answer.conversation,
            root=self.find_root(answer.conversation, answer.parent),
            agent_of=answer.agent_of,
            model=answer.model,
            dialect=answer.dialect,
            tokens=answer.input,
            read=answer.cached,
            written=answer.written,
            written_long=answer.written_long,
            output=answer.output,
            tier=answer.tier,
            whole=uncut.tokens,
            is_cut=answer.cut,
            recalled=answer.recalled,
            pause=None if is_first else answer.gap,
            unmarked=answer.unmarked,
            too_long=is_longer and facts is not None and uncut.tokens > facts.budget.window,
            is_read_unknown=uncut.read_is_unknown,
            window=answer.window,
            window_source=answer.window_source,
            reserve=answer.reserve,
            dollars=dollars,
            dollars_uncut=dollars_uncut,
            dollars_without=dollars_without,
        )

    def add_unreported(self, answer: AnsweredRequest) -> Request:
        """The row of a request whose answer did not report its tokens: nobody knows what it cost."""
        return Request(
            **self._origin,
            id=answer.id,
            at=answer.at,
            conversation=answer.conversation,
            root=self.find_root(answer.conversation, answer.parent),
            model=answer.model,
            is_cut=answer.cut,
            recalled=answer.recalled,
        )

    def find_root(self, name: str, parent: str) -> str:
        """The conversation that this one was forked from first: some clients fork with each request."""
        return self._roots.setdefault(name, self._roots.get(parent, name))

    def _find_last(self, answer: AnsweredRequest) -> MeasuredConversation:
        return self._last.get(answer.conversation) or self._last.get(answer.parent) or MeasuredConversation()


def _price(answer: AnsweredRequest, usage: Usage) -> float | None:
    return price_usage(usage, answer.model, dialect=answer.dialect, at=answer.at)
