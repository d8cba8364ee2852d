"""What comes of a turn, what a listener hears while it goes on, its limits, and what it has spent.

Values only: nothing here stops a turn by itself. `lamina.conversations.costs` has the prices.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Literal

import msgspec

from lamina.clients.events import Event
from lamina.conversations.costs import price_usage
from lamina.core.text.characters import WHITE_SPACE
from lamina.core.values import Segment, ToolCall
from lamina.dialects.usage import Usage
from lamina.errors import BadInput

Ending = Literal["end", "steps", "tokens", "money", "length", "refused", "error", "empty"]
"""Why a turn ended: the model was done, a limit was reached, or its answer was cut off, refused, broken."""


class TurnLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits for one turn; None is no limit.

    `steps` are calls of the model, `tokens` is the sum of what they read and write, and `money` is in USD.
    `parallel` and `seconds` are for tools: how many run at once, and how long one may take.
    """

    steps: int = 50
    tokens: int | None = None
    money: float | None = None
    parallel: int = 8
    seconds: float | None = 120.0

    def __post_init__(self) -> None:
        for name in ("steps", "tokens", "money", "parallel"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise BadInput(f"{name} is {value!r}", place="Limits", hint="give a number above 0, or None")

    def reached(self, spent: TurnCost, *, ahead: int = 0) -> str:
        """The name of the limit that is reached, or "".

        `ahead` is how many tokens the next request would read.
        """
        if spent.steps >= self.steps:
            return "steps"
        if self.tokens is not None and spent.input + spent.output + ahead > self.tokens:
            return "tokens"
        # `money` is None after a sub-agent whose model has no known price: then nobody can tell.
        if self.money is not None and spent.money is not None and spent.money >= self.money:
            return "money"
        return ""

    def words(self, name: str) -> str:
        """Describe a limit that was reached, for people and models."""
        amounts = {
            "steps": f"{self.steps:,} steps",
            "tokens": f"{self.tokens or 0:,} tokens",
            "money": f"{self.money or 0:g} USD",
        }
        return f"the limit of {amounts[name]} for this turn was reached"


class TurnCost(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn cost. `money` is in USD, and None if the model's prices are not known."""

    steps: int = 0
    input: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0
    money: float | None = 0.0

    def after(self, usage: Usage, model: str) -> TurnCost:
        """The sum with one more call of a model."""
        call = TurnCost(
            steps=1,
            input=usage.input,
            cached=usage.cached,
            written=usage.written,
            output=usage.output,
            money=price_usage(usage, model),
        )
        return self + call

    def __add__(self, other: TurnCost) -> TurnCost:
        money = None
        if self.money is not None and other.money is not None:
            money = self.money + other.money
        counts = ("steps", "input", "cached", "written", "output")
        sums = {name: getattr(self, name) + getattr(other, name) for name in counts}
        return TurnCost(money=money, **sums)


def check_price(limits: TurnLimits, model: str) -> None:
    """Raise BadInput for a limit on money if the price of the model is not known."""
    if limits.money is not None and price_usage(Usage(input=1), model) is None:
        raise BadInput(
            f"no price of {model!r} is known",
            place="Limits.money",
            hint="name its prices in your own file of models, or limit tokens instead",
        )


class Citation(msgspec.Struct, frozen=True, kw_only=True):
    """A segment that an answer cites: its key, where it comes from, and the place in it."""

    key: str
    source: str
    place: str = ""


class TurnOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that ended. `ran` are the calls that were run.

    `unfounded` are sources that the answer cites although the model was not given them. `plans` are what an
    agent with `thinking` wrote between <thinking> tags in its last answer; `text` is without them.
    """

    text: str = ""
    plans: tuple[str, ...] = ()
    ending: Ending = "end"
    spent: TurnCost = TurnCost()
    ran: tuple[ToolCall, ...] = ()
    citations: tuple[Citation, ...] = ()
    unfounded: tuple[str, ...] = ()


class ToolRunEvent(msgspec.Struct, frozen=True, kw_only=True, tag="ran"):
    """A tool was called, and this is its result, as it goes to the log."""

    call: ToolCall
    result: Segment


TurnEvent = Event | ToolRunEvent
"""What happens in a turn: the events of the model, and each tool that was run."""

Listener = Callable[[TurnEvent], Awaitable[None]]
"""A listener. It is called with each event of the model and each result of a tool, as they happen."""


async def ignore_event(_: TurnEvent) -> None:
    """A listener that does nothing."""


class SteadyListener:
    """A listener whose error waits until what the model said is stored.

    The answer was paid for. After an error nothing more is told, and `raise_error` raises it.
    """

    def __init__(self, hear: Listener) -> None:
        self._hear = hear
        self._error: Exception | None = None

    async def __call__(self, event: TurnEvent) -> None:
        if self._error is not None:
            return
        try:
            await self._hear(event)
        except Exception as error:  # noqa: BLE001 - it is raised later
            self._error = error

    def raise_error(self) -> None:
        """Raise what the listener raised, if it did."""
        if self._error is not None:
            raise self._error


_CITATION = re.compile(r"\[\[([^\[\]\n]{1,300})\]\]")
"""A source in double square brackets: `[[docs/spec.md]]`."""


def find_citations(text: str, context: Iterable[Segment]) -> tuple[tuple[Citation, ...], tuple[str, ...]]:
    """What an answer cites of the context, and the names it cites that are not in the context."""
    by_name: dict[str, Citation] = {}
    for segment in context:
        for name, citation in _list_names(segment):
            by_name.setdefault(name, citation)
    citations: dict[Citation, None] = {}  # as a set that keeps the order
    unfounded: dict[str, None] = {}
    for match in _CITATION.findall(text):
        name = match.strip(WHITE_SPACE)
        if name in by_name:
            citations[by_name[name]] = None
        else:
            unfounded[name] = None
    return tuple(citations), tuple(unfounded)


def _list_names(segment: Segment) -> list[tuple[str, Citation]]:
    """The names that a segment may be cited by: its source, its source and place, or its key."""
    source = _source_of(segment)
    place = segment.attrs.get("place", "")
    citation = Citation(key=segment.key, source=source, place=place)
    names = [source]
    if place:
        names += [f"{source}:{place}", f"{source} {place}", f"{source}#{place}"]
    names.append(segment.key)
    return [(name, citation) for name in names if name]


def _source_of(segment: Segment) -> str:
    for name in ("source", "path", "url", "name", "title"):
        if segment.attrs.get(name):
            return segment.attrs[name]
    return segment.key
