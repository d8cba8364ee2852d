"""What the requests of a gateway cost, and what they would have cost without it.

The lines of the gateway's log about answers are rows of the table of requests, so the account holds exactly
what upstreams reported, and its lines are queries (`lamina.costs.table`). Here stand the words, and the
counts of what left no request: refusals, and answers that were never logged.

A request that would not have fitted the window of its model cannot have a price. If the first request of a
conversation was cut already, nobody knows what the cache held of it: the sum takes it as not cached, and says
so. A missing price is never replaced by another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from lamina.core.cut_target import USUAL_PART
from lamina.costs.report import (
    describe_losses,
    describe_without,
    find_cost_without,
    find_cut_saving,
    list_causes,
)
from lamina.costs.requests import RequestPricer
from lamina.costs.savings import compare_settings
from lamina.costs.table import RequestTable
from lamina.costs.uncut_requests import AnsweredRequest
from lamina.dialects.usage import count_noun
from lamina.models.facts import model_or_none
from lamina.relay.journal import decode_event

_ENDS = ("answered", "answered without usage", "unanswered")
"""Events after which a request that was sent is done with."""


_NO_REFUSALS = (426, 502, 504)
"""Statuses with which the gateway refuses no request.

After 426 Codex sends the same request by POST. After the others the upstream failed, which has a line of its
own.
"""

MOST_CUTS = 5
OFTEN_CUT = 0.25
"""If there were so many cuts, and one in every fourth call or more, the window is called too small."""

BETTER = 0.95
"""Another setting is told if the conversations would have cost less than this share with it."""

_OF_AGENTS = "agent_of != ''"
_FIRST_OF_AGENTS = "rowid in (select min(rowid) from requests where agent_of != '' group by root)"
_LARGEST = "select max(tokens) as largest, max(reserve) as reserve from requests where window and model = ?"


class GatewayAccount:
    """The account of a gateway: the table of its requests, and the words about it.

    `refused` counts each try, by the gateway or by the upstream, and `retried` what the gateway itself asked
    an upstream again. `read_earlier` gives the lines of earlier runs. It is called once, if a
    conversation of theirs goes on.
    """

    def __init__(self, read_earlier: Callable[[], Iterable[Mapping[str, Any]]] | None = None) -> None:
        self._read_earlier = read_earlier
        self.table = RequestTable()
        self.refused = 0
        self.retried = 0
        self._pricer = RequestPricer()
        self._unanswered: set[str] = set()

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
                answer = msgspec.convert({"conversation": "", "input": 0, **event}, AnsweredRequest)
                self.table.add([self._pricer.add_unreported(answer)])
            case "unanswered":
                self.refused += 1
            case "retried":
                self.retried += 1
            case "refused" if event.get("status") not in _NO_REFUSALS:
                self.refused += 1
            case "miss":
                self.table.note_loss(event)

    def add(self, answer: AnsweredRequest) -> None:
        """Add one answer, in the order of its conversation."""
        if answer.was_cut and not self._pricer.knows(answer):
            self._learn_earlier(answer.process)
        self.table.add([self._pricer.price(answer)])

    def learn_line(self, line: bytes) -> None:
        """Take one earlier line of the log as the past of its conversation. Nothing of it is summed."""
        answer = _read_answer(decode_event(line) or {})
        if answer is not None:
            self._pricer.learn(answer)

    def _learn_earlier(self, process: str) -> None:
        """Take the lines of earlier runs as the past of their conversations. Nothing of them is summed.

        The file of these lines may have lines of this `process` already, which are still to come here.
        """
        if self._read_earlier is None:
            return
        events = self._read_earlier()
        self._read_earlier = None
        present_conversations = self._pricer.list_conversations()
        for answer in filter(None, map(_read_answer, events)):
            if answer.process != process and answer.conversation not in present_conversations:
                self._pricer.learn(answer)

    @property
    def calls(self) -> int:
        """How often a client asked a model."""
        count: int = self.table.sum("count(*)", "not recalled")
        return count

    @property
    def recalls(self) -> int:
        count: int = self.table.sum("count(*)", "recalled")
        return count

    @property
    def cuts(self) -> int:
        count: int = self.table.sum("total(is_cut)")
        return int(count)

    @property
    def broken_off(self) -> int:
        """How many requests were sent and have no line about an answer: the gateway was killed meanwhile."""
        return len(self._unanswered)

    @property
    def is_empty(self) -> bool:
        """Whether nobody asked a model."""
        return not (self.calls or self.recalls or self.refused or self.broken_off)

    @property
    def cost(self) -> float | None:
        """USD for all answers; None if it is not known."""
        return self.table.sum_money().amount

    @property
    def cost_without(self) -> float | None:
        """USD for the same calls without lamina; None if it is not known."""
        return find_cost_without(self.table)

    @property
    def saved_by_cuts(self) -> float | None:
        """USD that the cuts saved, less what they cost; None if it is not known."""
        return find_cut_saving(self.table)

    def write_lines(self) -> list[str]:
        """The account in three lines, for a person, with one more for each thing that is seldom there."""
        return [
            self._describe_requests(),
            f"cost: {self._describe_cost()}",
            f"without lamina: {describe_without(self.table)}",
            *self._list_better(),
            *self._list_remarks(),
        ]

    def _describe_requests(self) -> str:
        table = self.table
        conversations = count_noun(table.sum("count(distinct root)", "root != ''"), "conversation")
        counts = [f"{count_noun(self.calls, 'call')} in {conversations}", count_noun(self.cuts, "cut")]
        if self.recalls:
            counts.append(count_noun(self.recalls, "recall"))
        if self.refused:
            counts.append(f"{self.refused:,} refused")
        if self.retried:
            counts.append(f"{self.retried:,} asked again")
        unreported = table.sum("count(*)", "tokens is null")
        tokens = (
            f"{table.sum('sum(tokens)'):,} tokens read, {table.sum('sum(read)'):,} of them from the cache, "
            f"{table.sum('sum(output)'):,} answered"
        )
        if unreported and not table.sum("sum(tokens)"):
            tokens = "no answer reported its tokens"
        elif unreported:
            tokens += f"; {count_noun(unreported, 'answer')} did not report any"
        return f"{', '.join(counts)}; {tokens}"

    def _describe_cost(self) -> str:
        cost = self.table.sum_money()
        if not self.broken_off:
            return str(cost)
        unlogged = count_noun(self.broken_off, "request")
        return f"{cost}; not in it: {unlogged} whose answer was not logged"

    def _list_better(self) -> Iterator[str]:
        """The setting that would have cost least, if that is less than what was paid."""
        cost = self.cost
        saving = compare_settings(self.table)
        if cost is None or saving is None or self.saved_by_cuts is None:
            return
        best = min(saving.rows[1:], key=lambda row: row.dollars)
        if best.dollars < BETTER * cost:
            yield f"with --window price --prefer {best.prefer}: about ${best.dollars:.4f}, simulated"

    def _list_remarks(self) -> Iterator[str]:
        """The lines about what is not in every account: windows, lost caches, sub-agents."""
        windows = self._list_windows()
        for window in windows:
            yield str(window)
        if self.cuts >= MOST_CUTS and self.cuts > OFTEN_CUT * self.calls:
            # what else makes room, if much of a window is kept free for answers
            advice = ""
            if any(window.is_for_answers for window in windows):
                advice = ", or let the client ask for shorter answers (max_tokens)"
            yield (
                f"{self.cuts:,} cuts in {self.calls:,} calls: the window is too small for this work, "
                f"and each cut pays for the cache anew; give --window a larger one{advice}"
            )
        yield from self._describe_losses()
        if self.table.sum("count(*)", _OF_AGENTS):
            yield self._describe_agents()

    def _list_windows(self) -> list[_UsedWindow]:
        # SQLite takes the other columns from the row that has the maximum: the last request of the model.
        rows = self.table.select(
            "model, dialect, window as tokens, window_source as source, max(rowid) as last",
            "window",
            "group by model order by min(rowid)",
        )
        windows: list[_UsedWindow] = []
        for row in rows:
            del row["last"]
            [largest] = self.table.query(_LARGEST, row["model"])
            windows.append(_UsedWindow(**row, **largest))
        return windows

    def _describe_losses(self) -> Iterator[str]:
        """Where the provider's cache was lost, and why most often."""
        causes = sorted(list_causes(self.table), key=lambda cause: (-cause["times"], cause["first"]))
        if not causes:
            return
        first = causes[0]
        often = ", most often" if len(causes) > 1 else ""
        where = f" at {first['place']}" if first["place"] else ""
        advice = f". {first['advice']}" if first["advice"] else ""
        yield f"{describe_losses(self.table)}{often}: {first['cause']}{where}{advice}"

    def _describe_agents(self) -> str:
        """What sub-agents took, and of that their first requests: system text, tools and task.

        What a first request reads from the cache, its parent or another child has written there before.
        """
        table = self.table
        calls = count_noun(table.sum("count(*)", f"{_OF_AGENTS} and not recalled"), "call")
        return (
            f"of it sub-agents: {calls}, {table.sum_money(where=_OF_AGENTS)}; their first requests read "
            f"{table.sum('sum(tokens)', _FIRST_OF_AGENTS):,} tokens, "
            f"{table.sum('sum(read)', _FIRST_OF_AGENTS):,} of them from the cache: "
            f"{table.sum_money(where=_FIRST_OF_AGENTS)}"
        )


def _read_answer(event: Mapping[str, Any]) -> AnsweredRequest | None:
    """An event about an answer; None if it is another, or has fields of another release."""
    if event.get("event") != "answered":
        return None
    try:
        return msgspec.convert(dict(event), AnsweredRequest)
    except msgspec.ValidationError:
        return None


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
