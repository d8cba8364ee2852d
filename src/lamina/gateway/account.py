"""What the requests of a gateway cost, and what they would have cost without it.

The account is made of the lines of the gateway's log, so it holds exactly what upstreams reported. The price
without lamina is a calculation. Each request is taken as long as it would be with nothing cut. It reads the
same share of the request before it from the cache as the real one did. A request with a cut has no such
share, so the last one of its conversation holds, and at first all of it. The rest is paid as the real one
paid it: as written if anything was written. Before the first cut of a conversation both are the same.

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


class AnsweredRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the log about an answer. `full` is what `input` would be if nothing had been cut.

    `recalled`: the model recalled something, and the gateway sent the request once more. Without the gateway
    there would be nothing to recall.
    """

    conversation: str
    model: str
    input: int
    full: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0
    cut: bool = False
    recalled: bool = False

    @property
    def usage(self) -> Usage:
        return Usage(input=self.input, cached=self.cached, written=self.written, output=self.output)


class GatewayAccount:
    """The sum over the answers of a gateway."""

    def __init__(self) -> None:
        self.requests = 0
        self.cuts = 0
        self.recalls = 0
        self.conversations: set[str] = set()
        self.usage = Usage()
        self._cost = _Money()
        self._cost_without = _Money()
        self._last: dict[str, _LastRequest] = {}

    def read_event(self, event: Mapping[str, Any]) -> None:
        """Take one line of the log. Lines about other things change nothing."""
        if event.get("event") == "answered":
            self.add(msgspec.convert(dict(event), AnsweredRequest))
        elif event.get("event") == "answered without usage":
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
        if event.get("conversation"):
            self.conversations.add(event["conversation"])

    def add(self, answer: AnsweredRequest) -> None:
        """Add one answer, in the order of its conversation."""
        self.cuts += answer.cut
        self.conversations.add(answer.conversation)
        usage = answer.usage
        self.usage = Usage(
            input=self.usage.input + usage.input,
            cached=self.usage.cached + usage.cached,
            written=self.usage.written + usage.written,
            output=self.usage.output + usage.output,
        )
        self._cost.add(usage, answer.model)
        last = self._last.get(answer.conversation, _LastRequest())
        if answer.recalled:
            self.recalls += 1
            self._last[answer.conversation] = msgspec.structs.replace(last, input=answer.input)
            return
        self.requests += 1
        share = last.share
        if last.input and not answer.cut:
            share = min(answer.cached / last.input, 1.0)
        self._add_without(answer, read=round(last.full * share))
        full = max(answer.full, answer.input)
        self._last[answer.conversation] = _LastRequest(input=answer.input, full=full, share=share)

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
        conversations = count_noun(len(self.conversations), "conversation")
        requests = (
            f"{count_noun(self.requests, 'request')} in {conversations}, "
            f"{count_noun(self.cuts, 'cut')}{recalls}; {usage.input:,} tokens read, {usage.cached:,} of them "
            f"from the cache, {usage.output:,} answered"
        )
        without = str(self._cost_without)
        if self.requests and not self.cuts and self.cost_without == self.cost and self.cost is not None:
            without += ", the same: nothing was cut"
        return [requests, f"cost: {self._cost}", f"without lamina: {without}"]

    def _add_without(self, answer: AnsweredRequest, *, read: int) -> None:
        if answer.full <= answer.input:
            self._cost_without.add(answer.usage, answer.model)
            return
        facts = model_or_none(answer.model)
        if facts is not None and answer.full > facts.budget.window:
            self._cost_without.miss(
                f"a request would have had {answer.full:,} tokens, more than the window of {answer.model}"
            )
            return
        read = min(read, answer.full)
        written = 0
        if answer.written:
            written = answer.full - read
        usage = Usage(input=answer.full, cached=read, written=written, output=answer.output)
        self._cost_without.add(usage, answer.model)


class _LastRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The last request of a conversation. `share` is how much of the one before it was read."""

    input: int = 0
    full: int = 0
    share: float = 1.0


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
