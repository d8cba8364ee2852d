"""What the requests of a gateway cost, and what they would have cost without it.

The account is made of the lines of the gateway's log, so it holds exactly what upstreams reported. The price
without lamina is a calculation, in two steps for each request:

1. How long it would be with nothing cut and nothing recalled: as long as the one before it, and what
   upstreams reported as new since then. A request with a cut shows no growth, so what is new in it is taken
   as the gateway counts it, scaled by what the upstream reported of the growth that the gateway counted
   before. If an earlier run has cut the conversation, the lines of that run tell how long it was. If they
   are gone, the ledger of the conversation does, less exactly.
2. How much of that the cache would have given back: all of the request before it, less what the real one
   missed of its own. If the real one found only what stands before the first cut, the cache had nothing
   more, and would have given back as much. A request with a cut shows no such figure, so that of the request
   before it holds; and so it does after a recall, which lamina alone made.

The rest is paid as the real one paid it: as written if anything was written. Before the first cut of a
conversation both are the same.

A request that would not have fitted the window of its model cannot have a price. If the first request of a
conversation was cut already, nobody knows what the cache held of it: the sum takes it as not cached, and says
so. A missing price is never replaced by another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from lamina.caches import rules_for
from lamina.conversations.costs import NO_USAGE, CostSum
from lamina.diagnose import AgreementRate
from lamina.dialects.usage import Usage, count_noun
from lamina.models.facts import model_or_none

_ENDS = ("answered", "answered without usage", "unanswered", "kept warm")
"""Events after which a request that was sent is done with."""

_REFUSALS = ("refused", "unanswered")
"""Events of a request that the gateway or the upstream refused. One that is tried again counts each time."""

ABOUT = 1.05
"""A read of at most this many times the tokens before the first cut is a read of these alone: both are known
to a few hundredths only."""


class AnsweredRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the log about an answer. `lamina.gateway.uncut_sizes` has what would be if nothing were cut.

    `full` is what `input` would be. `unchanged` of its tokens stand before the first thing that was lowered.
    As the gateway counts, the request has `counted` tokens, of which the request before it did not have `new`
    ones; `held_back` of these were shortened before they were ever sent. `gap` are the seconds since the
    request before it.

    `recalled`: the model recalled something, and the gateway sent the request once more. Without the gateway
    there would be nothing to recall. `parent` is the conversation that this one was forked from: some clients
    change the last message of each request. `agent_of` is the client's id of the conversation whose sub-agent
    asked, "" if it was no sub-agent. `window` is the one that it was fitted into, and `window_source` where
    that comes from (`lamina.gateway.sizes`).
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
    cut: bool = False
    recalled: bool = False
    window: int = 0
    window_source: str = ""

    @property
    def usage(self) -> Usage:
        return Usage(
            input=self.input,
            cached=self.cached,
            written=self.written,
            written_long=self.written_long,
            output=self.output,
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
        lifetime = rules_for(self.model).seconds("")
        return bool(lifetime) and self.gap > lifetime and not self.written_long


class GatewayAccount:
    """The sum over the answers of a gateway.

    `read_earlier` gives the lines of earlier runs. It is called once, if a conversation of theirs goes on.
    """

    def __init__(self, read_earlier: Callable[[], Iterable[Mapping[str, Any]]] | None = None) -> None:
        self._read_earlier = read_earlier
        self.requests = 0
        self.cuts = 0
        self.recalls = 0
        self.refused = 0
        self.advice = ""
        self.warmings = 0
        self.reports = AgreementRate()
        self.usage = Usage()
        self._forks: dict[str, str] = {}
        self._sub_agents = _SubAgents()
        self._unanswered: set[str] = set()
        self._cost = CostSum()
        self._cost_without = CostSum()
        self._unknown_reads = 0
        self._last: dict[str, _LastRequest] = {}
        self._windows: dict[str, _UsedWindow] = {}
        self._misses = _MissedCaches()

    def read_line(self, line: bytes) -> Mapping[str, Any] | None:
        """Take one line of the log as bytes. Returns its event.

        None if it is something else, such as a warning of a server, or has fields of another release.
        """
        try:
            event = msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.DecodeError, ValueError, RecursionError):
            return None
        if not isinstance(event.get("event"), str):
            return None
        try:
            self.read_event(event)
        except msgspec.ValidationError:
            return None
        return event

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
        elif name == "miss":
            self._misses.add(event)
        elif name == "advice":
            self.advice = str(event.get("text", ""))
        elif name in _REFUSALS:
            self.refused += 1
        elif name == "kept warm":
            self._add_warming(event)
        elif name == "cache report":
            self.reports.add(str(event.get("verdict")))
        elif name == "answered without usage":
            self._count_event(event)
            self._cost.miss(NO_USAGE)
            self._cost_without.miss(NO_USAGE)

    def _add_warming(self, event: Mapping[str, Any]) -> None:
        """Add a request that only kept a cache warm. Without the gateway nobody would have sent it."""
        answer = msgspec.convert({"conversation": "", "model": "", **event}, AnsweredRequest)
        self.warmings += 1
        self._cost.add(answer.usage, answer.model, dialect=answer.dialect, at=answer.at)

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
            self._add_without(answer, uncut)

    def _note_window(self, answer: AnsweredRequest) -> None:
        """Remember the window of this model, and its largest request."""
        if not answer.window:
            return
        largest = answer.input
        if answer.model in self._windows:
            largest = max(largest, self._windows[answer.model].largest)
        self._windows[answer.model] = _UsedWindow(
            model=answer.model, tokens=answer.window, source=answer.window_source, largest=largest
        )

    def _follow(self, answer: AnsweredRequest) -> _UncutRequest:
        """Measure a request, and remember it as the last one of its conversation."""
        last = self._find_last(answer)
        uncut = _UncutRequest.measure(answer, last)
        self._last[answer.conversation] = last.follow(answer, uncut)
        return uncut

    def _find_last(self, answer: AnsweredRequest) -> _LastRequest:
        return self._last.get(answer.conversation) or self._last.get(answer.parent) or _LastRequest()

    def _learn_earlier(self, process: str) -> None:
        """Take the lines of earlier runs as the past of their conversations. Nothing of them is summed.

        The file of these lines may have lines of this `process` already, which are still to come here.
        """
        if self._read_earlier is None:
            return
        events = self._read_earlier()
        self._read_earlier = None
        present_conversations = frozenset(self._last)
        for event in events:
            if event.get("event") != "answered":
                continue
            try:
                answer = msgspec.convert(dict(event), AnsweredRequest)
            except msgspec.ValidationError:
                continue  # fields of another release
            if answer.process != process and answer.conversation not in present_conversations:
                self._follow(answer)

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
        """The account in three lines, for a person, with one more for each thing that is seldom there."""
        usage = self.usage
        recalls = ""
        if self.recalls:
            recalls = f", {count_noun(self.recalls, 'recall')}"
        if self.warmings:
            recalls += f", {count_noun(self.warmings, 'read')} to keep a cache warm"
        refused = ""
        if self.refused:
            refused = f", {self.refused:,} refused"
        conversations = count_noun(len(set(self._forks.values())), "conversation")
        requests = (
            f"{count_noun(self.requests, 'request')} in {conversations}, "
            f"{count_noun(self.cuts, 'cut')}{recalls}{refused}; {usage.input:,} tokens read, "
            f"{usage.cached:,} of them from the cache, {usage.output:,} answered"
        )
        cost = str(self._cost)
        if self.broken_off:
            cost += f"; not in it: {count_noun(self.broken_off, 'request')} whose answer was not logged"
        without = str(self._cost_without)
        if self._unknown_reads and self.cost_without is not None:
            requests_read = count_noun(self._unknown_reads, "request")
            without += f" at most: what the cache held before {requests_read} with a first cut is not known"
        if self.requests and not self.cuts and self.cost_without == self.cost and self.cost is not None:
            without += ", the same: nothing was cut"
        return [requests, f"cost: {cost}", f"without lamina: {without}", *self._list_remarks()]

    def _list_remarks(self) -> Iterator[str]:
        """The lines about what is not in every account: windows, lost caches, advice, sub-agents."""
        for window in self._windows.values():
            yield str(window)
        if self._misses.count:
            yield str(self._misses)
        if self.advice:
            yield f"advice: {self.advice}"
        if self._sub_agents.requests:
            yield str(self._sub_agents)
        if str(self.reports):
            yield f"causes of cache misses: {self.reports}"

    def _add_without(self, answer: AnsweredRequest, uncut: _UncutRequest) -> None:
        """Add what a request would have cost with nothing cut."""
        if uncut.tokens == answer.input and not uncut.is_recalled:
            self._cost_without.add(answer.usage, answer.model, dialect=answer.dialect, at=answer.at)
            return
        facts = model_or_none(answer.model)
        if facts is not None and uncut.tokens > facts.budget.window:
            self._cost_without.miss(
                f"a request would have had {uncut.tokens:,} tokens, more than the window of {answer.model}"
            )
            return
        self._unknown_reads += uncut.read_is_unknown
        written = 0
        written_long = 0
        if answer.written:
            written = uncut.tokens - uncut.read
            written_long = round(written * answer.written_long / answer.written)
        usage = Usage(
            input=uncut.tokens,
            cached=uncut.read,
            written=written,
            written_long=written_long,
            output=answer.output,
        )
        self._cost_without.add(usage, answer.model, dialect=answer.dialect, at=answer.at)


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
    tokens: int
    source: str
    largest: int

    def __str__(self) -> str:
        source = _SOURCES.get(self.source, self.source)
        return (
            f"window of {self.model}: {self.tokens:,} tokens, {source}; "
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


class _UncutRequest(msgspec.Struct, frozen=True, kw_only=True):
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
    def measure(cls, answer: AnsweredRequest, last: _LastRequest) -> _UncutRequest:
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
        if answer.cached <= ABOUT * answer.unchanged or not answer.cached:
            read = answer.cached
        if answer.is_idle:  # the cache misses no more of the next request for that
            missed = last.uncut.missed
        return cls(tokens=tokens, read=_limit(read, tokens), missed=missed)


def _measure_first(answer: AnsweredRequest) -> _UncutRequest:
    """The first request of a conversation in this log. An earlier process may have cut it.

    What the upstream did not read would be as long without lamina: it is the end of the request, which no
    cut has touched.
    """
    tokens = max(answer.full, answer.input)
    if answer.cut:
        return _UncutRequest(tokens=tokens, read_is_unknown=tokens > answer.input)
    read = tokens - (answer.input - answer.cached)
    if answer.cached <= ABOUT * answer.unchanged or not answer.cached:
        read = answer.cached
    return _UncutRequest(tokens=tokens, read=_limit(read, tokens))


def _measure_cut(answer: AnsweredRequest, last: _LastRequest) -> _UncutRequest:
    """A request with a cut: its own reads say nothing of those without, so those of the last one hold."""
    tokens = last.uncut.tokens + round(answer.new * last.growth.scale(answer))
    missed = last.uncut.missed
    if answer.is_idle:
        return _UncutRequest(tokens=tokens, missed=missed)
    return _UncutRequest(tokens=tokens, read=_limit(last.uncut.tokens - missed, tokens), missed=missed)


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
        sent_new = answer.new - answer.held_back
        if last is None or answer.cut or answer.recalled or last.recalled or sent_new <= 0:
            return self
        return _Growth(
            reported=self.reported + answer.input - last.input,
            counted=self.counted + sent_new,
        )


class _LastRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The last request of a conversation: the log's line about its answer, and itself with nothing cut."""

    answer: AnsweredRequest | None = None
    uncut: _UncutRequest = _UncutRequest()
    growth: _Growth = _Growth()

    def follow(self, answer: AnsweredRequest, uncut: _UncutRequest) -> _LastRequest:
        """The request of this answer, as the last one."""
        return _LastRequest(answer=answer, uncut=uncut, growth=self.growth.add(answer, self.answer))
