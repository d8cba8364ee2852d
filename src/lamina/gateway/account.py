"""What the requests of a gateway cost, and what they would have cost without it.

The account is made of the lines of the gateway's log, so it holds exactly what upstreams reported. The price
without lamina is a calculation (`lamina.conversations.uncut_requests`).

A request that would not have fitted the window of its model cannot have a price. If the first request of a
conversation was cut already, nobody knows what the cache held of it: the sum takes it as not cached, and says
so. A missing price is never replaced by another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from lamina.caches.lifetimes import PausedRequest
from lamina.caches.prices import price_working
from lamina.conversations.costs import NO_USAGE, CostSum, price_usage
from lamina.conversations.uncut_requests import (
    AnsweredRequest,
    CostWithout,
    MeasuredConversation,
    UncutRequest,
)
from lamina.core.cut_target import PRICING, USUAL_PART
from lamina.core.values import Preference
from lamina.dialects.usage import Usage, count_noun
from lamina.models.facts import model_or_none
from lamina.relay.journal import decode_event

_ENDS = ("answered", "answered without usage", "unanswered")
"""Events after which a request that was sent is done with."""


_NO_REFUSALS = (426, 502, 504)
"""Statuses with which the gateway refuses no request.

After 426 Codex sends the same request by POST. After the others the upstream failed, which has a line of its
own.
"""


class GatewayAccount:
    """The sum over the answers of a gateway.

    `refused` counts each try, by the gateway or by the upstream, and `retried` what the gateway itself asked
    an upstream again. `read_earlier` gives the lines of earlier runs. It is called once, if a
    conversation of theirs goes on.
    """

    def __init__(self, read_earlier: Callable[[], Iterable[Mapping[str, Any]]] | None = None) -> None:
        self._read_earlier = read_earlier
        self.requests = 0
        self.cuts = 0
        self.recalls = 0
        self.refused = 0
        self.retried = 0
        self.usage = Usage()
        self._unreported = 0
        self._forks: dict[str, str] = {}
        self._sub_agents = _SubAgents()
        self._unanswered: set[str] = set()
        self._cost = CostSum()
        self._without = CostWithout()
        self._last: dict[str, MeasuredConversation] = {}
        self._windows: dict[str, _UsedWindow] = {}
        self._misses = _MissedCaches()
        self._uncut = _UncutConversations()

    def read_line(self, line: bytes) -> Mapping[str, Any] | None:
        """Take one line of the log as bytes. Returns its event.

        None if it is something else, such as a warning of a server, or has fields of another release.
        """
        event = decode_event(line)
        if event is None or not isinstance(event.get("event"), str):
            return None
        try:
            self.read_event(event)
        except msgspec.ValidationError:
            return None
        return event

    def read_event(self, event: Mapping[str, Any]) -> None:
        """Take one line of the log. Lines about other things change nothing."""
        name = event.get("event")
        if name in _ENDS:
            self._unanswered.discard(str(event.get("id")))
        match name:
            case "sent":
                self._unanswered.add(str(event.get("id")))
            case "answered":
                self.add(msgspec.convert(dict(event), AnsweredRequest))
            case "answered without usage":
                self._count_event(event)
                self._cost.miss(NO_USAGE)
                self._without.miss(NO_USAGE)
            case "unanswered":
                self.refused += 1
            case "retried":
                self.retried += 1
            case "refused" if event.get("status") not in _NO_REFUSALS:
                self.refused += 1
            case "miss":
                self._misses.add(event)

    def _count_event(self, event: Mapping[str, Any]) -> None:
        """Count an answer that did not report its tokens."""
        self._unreported += 1
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
        self._note_window(answer)
        usage = answer.usage
        self.usage = Usage(
            input=self.usage.input + usage.input,
            cached=self.usage.cached + usage.cached,
            written=self.usage.written + usage.written,
            written_long=self.usage.written_long + usage.written_long,
            output=self.usage.output + usage.output,
        )
        self._cost.add(usage, answer.model, dialect=answer.dialect, at=answer.at)
        if answer.agent_of:
            self._sub_agents.add(answer)
        if answer.was_cut and self._find_last(answer).answer is None:
            self._learn_earlier(answer.process)
        uncut = self._follow(answer)
        if answer.recalled:
            self.recalls += 1
        else:
            self.requests += 1
            self._uncut.add(answer, uncut)
            self._without.add(answer, uncut)

    def _note_window(self, answer: AnsweredRequest) -> None:
        """Remember the window of this model, and its largest request."""
        if not answer.window:
            return
        largest = answer.input
        reserve = answer.reserve
        last = self._windows.get(answer.model)
        if last is not None:
            largest = max(largest, last.largest)
            reserve = max(reserve, last.reserve)
        self._windows[answer.model] = _UsedWindow(
            model=answer.model,
            dialect=answer.dialect,
            tokens=answer.window,
            source=answer.window_source,
            largest=largest,
            reserve=reserve,
        )

    def _follow(self, answer: AnsweredRequest) -> UncutRequest:
        """Measure a request, and remember it as the last one of its conversation."""
        last = self._find_last(answer)
        uncut = UncutRequest.measure(answer, last)
        self._last[answer.conversation] = last.follow(answer, uncut)
        return uncut

    def _find_last(self, answer: AnsweredRequest) -> MeasuredConversation:
        return self._last.get(answer.conversation) or self._last.get(answer.parent) or MeasuredConversation()

    def learn_line(self, line: bytes) -> None:
        """Take one earlier line of the log as the past of its conversation. Nothing of it is summed."""
        answer = _read_answer(decode_event(line) or {})
        if answer is not None:
            self._follow(answer)

    def _learn_earlier(self, process: str) -> None:
        """Take the lines of earlier runs as the past of their conversations. Nothing of them is summed.

        The file of these lines may have lines of this `process` already, which are still to come here.
        """
        if self._read_earlier is None:
            return
        events = self._read_earlier()
        self._read_earlier = None
        present_conversations = frozenset(self._last)
        for answer in filter(None, map(_read_answer, events)):
            if answer.process != process and answer.conversation not in present_conversations:
                self._follow(answer)

    @property
    def broken_off(self) -> int:
        """How many requests were sent and have no line about an answer: the gateway was killed meanwhile."""
        return len(self._unanswered)

    @property
    def is_empty(self) -> bool:
        """Whether nobody asked a model."""
        return not (self.requests or self.recalls or self.refused or self.broken_off)

    @property
    def cost(self) -> float | None:
        """USD for all answers; None if it is not known."""
        return self._cost.amount

    @property
    def cost_without(self) -> float | None:
        """USD for the same requests without lamina; None if it is not known."""
        return self._without.amount

    @property
    def saved_by_cuts(self) -> float | None:
        """USD that the cuts saved, less what they cost; None if it is not known."""
        return self._without.saved_by_cuts(self.cost)

    def write_lines(self) -> list[str]:
        """The account in three lines, for a person, with one more for each thing that is seldom there."""
        return [
            self._describe_requests(),
            f"cost: {self._describe_cost()}",
            f"without lamina: {self._without.describe(self.cost, cuts=self.cuts)}",
            *self._uncut.list_better(self.cost, self._without.marked),
            *self._list_remarks(),
        ]

    def _describe_requests(self) -> str:
        usage = self.usage
        conversations = count_noun(len(set(self._forks.values())), "conversation")
        counts = [
            f"{count_noun(self.requests, 'request')} in {conversations}",
            count_noun(self.cuts, "cut"),
        ]
        if self.recalls:
            counts.append(count_noun(self.recalls, "recall"))
        if self.refused:
            counts.append(f"{self.refused:,} refused")
        if self.retried:
            counts.append(f"{self.retried:,} asked again")
        tokens = (
            f"{usage.input:,} tokens read, {usage.cached:,} of them from the cache, {usage.output:,} answered"
        )
        if self._unreported and not usage.input:
            tokens = "no answer reported its tokens"
        elif self._unreported:
            tokens += f"; {count_noun(self._unreported, 'answer')} did not report any"
        return f"{', '.join(counts)}; {tokens}"

    def _describe_cost(self) -> str:
        if not self.broken_off:
            return str(self._cost)
        unlogged = count_noun(self.broken_off, "request")
        return f"{self._cost}; not in it: {unlogged} whose answer was not logged"

    def _list_remarks(self) -> Iterator[str]:
        """The lines about what is not in every account: windows, lost caches, sub-agents."""
        for window in self._windows.values():
            yield str(window)
        if self.cuts >= MOST_CUTS and self.cuts > OFTEN_CUT * self.requests:
            yield (
                f"{self.cuts:,} cuts in {self.requests:,} requests: the window is too small for this work, "
                "and each cut pays for the cache anew; give --window a larger one"
                f"{self._advise_on_answers()}"
            )
        if self._misses.count:
            yield str(self._misses)
        if self._sub_agents.requests:
            yield str(self._sub_agents)

    def _advise_on_answers(self) -> str:
        """What else makes room, if much of a window is kept free for answers."""
        if any(window.is_for_answers for window in self._windows.values()):
            return ", or let the client ask for shorter answers (max_tokens)"
        return ""


def _read_answer(event: Mapping[str, Any]) -> AnsweredRequest | None:
    """An event about an answer; None if it is another, or has fields of another release."""
    if event.get("event") != "answered":
        return None
    try:
        return msgspec.convert(dict(event), AnsweredRequest)
    except msgspec.ValidationError:
        return None


MOST_CUTS = 5
OFTEN_CUT = 0.25
"""If there were so many cuts, and one in every fourth request or more, the window is called too small."""

BETTER = 0.95
"""Another setting is told if the conversations would have cost less than this share with it."""


class _UncutConversations:
    """The requests of each conversation as they would have been with nothing cut, to price other settings."""

    def __init__(self) -> None:
        self._requests: dict[str, list[PausedRequest]] = {}
        self._models: dict[str, tuple[str, str]] = {}
        self._answers = 0.0

    def add(self, answer: AnsweredRequest, uncut: UncutRequest) -> None:
        """Add a request of the client. One that is shorter than the one before it begins anew."""
        requests = self._requests.setdefault(answer.conversation, [])
        self._models[answer.conversation] = (answer.model, answer.dialect)
        held = 0
        pause = None
        if requests:
            pause = answer.gap
            if uncut.tokens >= requests[-1].tokens:
                held = requests[-1].tokens
        requests.append(PausedRequest(tokens=uncut.tokens, held=held, pause=pause))
        output = Usage(output=answer.output, tier=answer.tier)
        self._answers += price_usage(output, answer.model, dialect=answer.dialect, at=answer.at) or 0.0

    def list_better(self, cost: float | None, cost_uncut: float | None) -> Iterator[str]:
        """The setting that would have cost least, if that is less than what was paid.

        The simulation gives shares of what everything would have cost, since that is known better.
        """
        everything = self._price(None)
        if cost is None or cost_uncut is None or not everything:
            return
        estimates: dict[Preference, float] = {}
        for prefer in PRICING:
            share = self._price(prefer) / everything
            estimates[prefer] = self._answers + (cost_uncut - self._answers) * share
        best = min(PRICING, key=lambda prefer: estimates[prefer])
        if estimates[best] < BETTER * cost:
            yield f"with --window price --prefer {best}: about ${estimates[best]:.4f}, simulated"

    def _price(self, prefer: Preference | None) -> float:
        """The input of all conversations with a setting, in USD; 0 if a price is not known."""
        total = 0.0
        for name, requests in self._requests.items():
            model, dialect = self._models[name]
            simulated = price_working(requests, model, dialect=dialect, prefer=prefer)
            if simulated is None:
                return 0.0
            total += simulated.dollars
        return total


_SOURCES = {
    "set": "as it was set",
    "refusal": "named by the provider when it refused a longer request",
    "server": "listed by the server",
    "model": "the model's own",
    "unknown": "a guess, since nobody knows this model: set the right one with --window",
}


class _UsedWindow(msgspec.Struct, frozen=True, kw_only=True):
    """The window that the requests to a model were fitted into, where it comes from, and the largest one."""

    model: str
    dialect: str
    tokens: int
    source: str
    largest: int
    reserve: int

    @property
    def is_for_answers(self) -> bool:
        """Whether an unusual part of it is left for the answers, and not for requests."""
        return self.reserve > self.tokens // USUAL_PART

    def __str__(self) -> str:
        source = _SOURCES.get(self.source, self.source)
        facts = model_or_none(self.model, dialect=self.dialect)
        if facts is not None and facts.inferred:
            is_nearest = self.source == "model"
            if is_nearest:
                source = "the nearest model's"
            source = f"{source}; {facts.describe_inferred(window=is_nearest)}"
        kept_free = ""
        if self.is_for_answers:
            kept_free = f"; {self.reserve:,} of them are kept free for the answer"
        return (
            f"window of {self.model}: {self.tokens:,} tokens, {source}{kept_free}; "
            f"the largest request had {self.largest:,}"
        )


class _MissedCaches:
    """Where the provider's cache was lost, and why most often."""

    def __init__(self) -> None:
        self.count = 0
        self._lost = 0
        self._dollars = 0.0
        self._causes: Counter[str] = Counter()
        self._first_of_cause: dict[str, Mapping[str, Any]] = {}

    def add(self, event: Mapping[str, Any]) -> None:
        """Add one miss. What is no number in a line of another release counts nothing."""
        self.count += 1
        if isinstance(event.get("lost"), int):
            self._lost += event["lost"]
        if isinstance(event.get("price"), float):
            self._dollars += event["price"]
        cause = str(event.get("cause"))
        self._causes[cause] += 1
        self._first_of_cause.setdefault(cause, event)

    def __str__(self) -> str:
        [(cause, _)] = self._causes.most_common(1)
        first = self._first_of_cause[cause]
        paid = ""
        if self._lost:
            paid = f", {self._lost:,} tokens paid again (${self._dollars:.4f} more)"
        often = ", most often" if len(self._causes) > 1 else ""
        where = f" at {first['place']}" if first.get("place") else ""
        advice = f". {first['advice']}" if first.get("advice") else ""
        return f"cache lost {count_noun(self.count, 'time')}{paid}{often}: {cause}{where}{advice}"


class _SubAgents:
    """What the requests of sub-agents took, and of that their first ones: system text, tools and task.

    What a first request reads from the cache, its parent or another child has written there before.
    """

    def __init__(self) -> None:
        self.requests = 0
        self._conversations: set[str] = set()
        self._cost = CostSum()
        self._first_input = 0
        self._first_cached = 0
        self._first_cost = CostSum()

    def add(self, answer: AnsweredRequest) -> None:
        self.requests += not answer.recalled
        usage = answer.usage
        self._cost.add(usage, answer.model, dialect=answer.dialect, at=answer.at)
        if answer.conversation in self._conversations or answer.parent in self._conversations:
            self._conversations.add(answer.conversation)
            return
        self._conversations.add(answer.conversation)
        self._first_input += usage.input
        self._first_cached += usage.cached
        self._first_cost.add(usage, answer.model, dialect=answer.dialect, at=answer.at)

    def __str__(self) -> str:
        return (
            f"of it sub-agents: {count_noun(self.requests, 'request')}, {self._cost}; their first requests "
            f"read {self._first_input:,} tokens, {self._first_cached:,} of them from the cache: "
            f"{self._first_cost}"
        )
