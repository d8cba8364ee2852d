"""What the requests of a gateway cost, and what they would have cost without it.

The account is made of the lines of the gateway's log, so it holds exactly what upstreams reported. The price
without lamina is a calculation. Each request is taken as long as it would be with nothing cut and nothing
recalled: as long as the one before it, and what upstreams reported as new since then. What a request with a
cut has more is counted by the gateway. It reads the same share of the request before it from the cache as the
real one did. A request with a cut has no such share, so the last one of its conversation holds, and at first
all of it. The rest is paid as the real one paid it: as written if anything was written. Before the first cut
of a conversation both are the same.

A request that would not have fitted the window of its model cannot have a price. A missing price is never
replaced by another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from lamina.agent.limits import price
from lamina.dialects.usage import Usage, count_noun
from lamina.models.facts import model_or_none

_ENDS = ("answered", "answered without usage", "unanswered")
"""Events after which a request that was sent is done with."""


class AnsweredRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the log about an answer. `full` is what `input` would be if nothing had been cut.

    `new` are the tokens of the request that the one before it did not have, as the gateway counts.
    `recalled`: the model recalled something, and the gateway sent the request once more. Without the gateway
    there would be nothing to recall. `parent` is the conversation that this one was forked from: some clients
    change the last message of each request.
    """

    conversation: str
    parent: str = ""
    model: str
    input: int
    full: int = 0
    new: int = 0
    cached: int = 0
    written: int = 0
    written_long: int = 0
    output: int = 0
    cut: bool = False
    recalled: bool = False

    @property
    def usage(self) -> Usage:
        return Usage(
            input=self.input,
            cached=self.cached,
            written=self.written,
            written_long=self.written_long,
            output=self.output,
        )


class GatewayAccount:
    """The sum over the answers of a gateway."""

    def __init__(self) -> None:
        self.requests = 0
        self.cuts = 0
        self.recalls = 0
        self.usage = Usage()
        self._forks: dict[str, str] = {}
        self._unanswered: set[str] = set()
        self._cost = _Money()
        self._cost_without = _Money()
        self._last: dict[str, _LastRequest] = {}

    def read_event(self, event: Mapping[str, Any]) -> None:
        """Take one line of the log. Lines about other things change nothing."""
        name = event.get("event")
        if name == "sent":
            self._unanswered.add(str(event.get("id")))
            return
        if name in _ENDS:
            self._unanswered.discard(str(event.get("id")))
        if name == "answered":
            self.add(msgspec.convert(dict(event), AnsweredRequest))
        elif name == "answered without usage":
            self._count_event(event)
            self._cost.miss("an answer did not report its tokens")
            self._cost_without.miss("an answer did not report its tokens")

    def _count_event(self, event: Mapping[str, Any]) -> None:
        """Count an answer that did not report its tokens."""
        if event.get("recalled"):
            self.recalls += 1
        else:
            self.requests += 1
        self.cuts += bool(event.get("cut"))
        self._count_conversation(event.get("conversation", ""), event.get("parent", ""))

    def _count_conversation(self, name: str, parent: str) -> None:
        """Count a conversation. A fork belongs to the one that it was forked from."""
        if name:
            self._forks.setdefault(name, self._forks.get(parent, name))

    def add(self, answer: AnsweredRequest) -> None:
        """Add one answer, in the order of its conversation."""
        self.cuts += answer.cut
        self._count_conversation(answer.conversation, answer.parent)
        usage = answer.usage
        self.usage = Usage(
            input=self.usage.input + usage.input,
            cached=self.usage.cached + usage.cached,
            written=self.usage.written + usage.written,
            written_long=self.usage.written_long + usage.written_long,
            output=self.usage.output + usage.output,
        )
        self._cost.add(usage, answer.model)
        last = self._last.get(answer.conversation) or self._last.get(answer.parent) or _LastRequest()
        full = _measure_full(answer, last)
        if answer.recalled:
            self.recalls += 1
            self._last[answer.conversation] = _LastRequest(
                answer=answer, full=full, sent_full=last.sent_full, share=last.share
            )
            return
        self.requests += 1
        share = last.share
        if last.answer is not None and not answer.cut:
            share = min(answer.cached / last.answer.input, 1.0)
        self._add_without(answer, full, read=round(last.sent_full * share))
        self._last[answer.conversation] = _LastRequest(answer=answer, full=full, sent_full=full, share=share)

    @property
    def broken_off(self) -> int:
        """How many requests were sent of which nothing more is logged: the gateway was killed meanwhile."""
        return len(self._unanswered)

    @property
    def cost(self) -> float | None:
        """USD for all answers; None if it is not known."""
        return self._cost.amount

    @property
    def cost_without(self) -> float | None:
        """USD for the same requests with nothing cut; None if it is not known."""
        return self._cost_without.amount

    def write_lines(self) -> list[str]:
        """The account in three lines, for a person."""
        usage = self.usage
        recalls = ""
        if self.recalls:
            recalls = f", {count_noun(self.recalls, 'recall')}"
        conversations = count_noun(len(set(self._forks.values())), "conversation")
        requests = (
            f"{count_noun(self.requests, 'request')} in {conversations}, "
            f"{count_noun(self.cuts, 'cut')}{recalls}; {usage.input:,} tokens read, {usage.cached:,} of them "
            f"from the cache, {usage.output:,} answered"
        )
        cost = str(self._cost)
        if self.broken_off:
            cost += f"; not in it: {count_noun(self.broken_off, 'request')} whose answer was not logged"
        without = str(self._cost_without)
        if self.requests and not self.cuts and self.cost_without == self.cost and self.cost is not None:
            without += ", the same: nothing was cut"
        return [requests, f"cost: {cost}", f"without lamina: {without}"]

    def _add_without(self, answer: AnsweredRequest, full: int, *, read: int) -> None:
        """Add what a request of `full` tokens would have cost, of which so many were sent before."""
        if full == answer.input:
            self._cost_without.add(answer.usage, answer.model)
            return
        facts = model_or_none(answer.model)
        if facts is not None and full > facts.budget.window:
            self._cost_without.miss(
                f"a request would have had {full:,} tokens, more than the window of {answer.model}"
            )
            return
        read = min(read, full)
        written = 0
        written_long = 0
        if answer.written:
            written = full - read
            written_long = round(written * answer.written_long / answer.written)
        usage = Usage(
            input=full,
            cached=read,
            written=written,
            written_long=written_long,
            output=answer.output,
        )
        self._cost_without.add(usage, answer.model)


class _LastRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The last request of a conversation, with the log's line about its answer.

    `full` is how long it would be with nothing cut and nothing recalled, and `sent_full` the same for the
    last one that would have been sent without lamina. `share` is how much of the one before it was read.
    """

    answer: AnsweredRequest | None = None
    full: int = 0
    sent_full: int = 0
    share: float = 1.0


def _measure_full(answer: AnsweredRequest, last: _LastRequest) -> int:
    """How long a request would be with nothing cut and nothing recalled."""
    if last.answer is None:
        return max(answer.full, answer.input)
    if last.answer.recalled:  # it has only what was recalled more
        return last.full
    if answer.cut:
        return last.full + answer.new
    return max(last.full + answer.input - last.answer.input, 0)


class _Money:
    """A sum in USD, or why it is not known."""

    def __init__(self) -> None:
        self._sum = 0.0
        self._reason = ""

    def add(self, usage: Usage, model: str) -> None:
        amount = price(usage, model)
        if amount is None:
            self.miss(f"no price of {model!r} is known")
            return
        self._sum += amount

    def miss(self, reason: str) -> None:
        self._reason = self._reason or reason

    @property
    def amount(self) -> float | None:
        if self._reason:
            return None
        return self._sum

    def __str__(self) -> str:
        if self._reason:
            return f"not known: {self._reason}"
        return f"${self._sum:.4f}"
