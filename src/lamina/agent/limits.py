"""How far an agent may go in one turn, and how far it has gone: steps, tokens, money.

Prices are those of `lamina.models.facts`, with the rules' shares for cached tokens. It stops nothing.
"""

from __future__ import annotations

import msgspec

from lamina.caches import Tally, cost
from lamina.dialects.port import Usage
from lamina.errors import BadInput


class TurnLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits for one turn; None is no limit.

    `steps` are calls of the model, `tokens` what they read and write in sum, `money` is in USD. `parallel`
    and `seconds` are for tools: how many run at once, and how long one may take.
    """

    steps: int = 50
    tokens: int | None = None
    money: float | None = None
    parallel: int = 8
    seconds: float | None = 120.0

    def __post_init__(self) -> None:
        given = {"steps": self.steps, "tokens": self.tokens, "money": self.money, "parallel": self.parallel}
        for name, value in given.items():
            if value is not None and value <= 0:
                raise BadInput(f"{name} is {value!r}", place="Limits", hint="give a number above 0, or None")

    def reached(self, spent: Spent, *, ahead: int = 0) -> str:
        """The limit that is reached, by name; `ahead` are the tokens that the next request reads."""
        if spent.steps >= self.steps:
            return "steps"
        if self.tokens is not None and spent.input + spent.output + ahead > self.tokens:
            return "tokens"
        if self.money is not None and (spent.money or 0.0) >= self.money:
            return "money"
        return ""

    def words(self, name: str) -> str:
        """What a limit is, for people and models."""
        amounts = {"steps": f"{self.steps:,} steps", "tokens": f"{self.tokens or 0:,} tokens"}
        return f"the limit of {amounts.get(name, f'{self.money or 0:g} USD')} for this turn was reached"


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn took. `money` is in USD, None where the model's prices are not known."""

    steps: int = 0
    input: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0
    money: float | None = 0.0

    def after(self, usage: Usage, model: str) -> Spent:
        """The same with one more call of a model."""
        one = Spent(
            steps=1,
            input=usage.input,
            cached=usage.cached,
            written=usage.written,
            output=usage.output,
            money=price(usage, model),
        )
        return self + one

    def __add__(self, other: Spent) -> Spent:
        known = None if self.money is None or other.money is None else self.money + other.money
        return Spent(
            steps=self.steps + other.steps,
            input=self.input + other.input,
            cached=self.cached + other.cached,
            written=self.written + other.written,
            output=self.output + other.output,
            money=known,
        )


def price(usage: Usage, model: str) -> float | None:
    """What one call cost in USD; None where no price is known."""
    fresh = max(usage.input - usage.cached - usage.written, 0)
    tally = Tally(read=usage.cached, written=usage.written, uncached=fresh)
    try:
        return cost(tally, model, output=usage.output).total
    except BadInput:
        return None


def check_price(limits: TurnLimits, model: str) -> None:
    """Refuses a limit on money that could not be kept."""
    if limits.money is not None and price(Usage(input=1), model) is None:
        raise BadInput(
            f"no price of {model!r} is known",
            place="Limits.money",
            hint="name its prices in your own file of models, or limit tokens instead",
        )
