"""The limits of a turn of an agent, and what it has spent: steps, tokens, money.

`lamina.conversations.costs` has the prices. This module stops nothing by itself.
"""

from __future__ import annotations

import msgspec

from lamina.conversations.costs import price_usage
from lamina.dialects.usage import Usage
from lamina.errors import BadInput


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
        return TurnCost(
            steps=self.steps + other.steps,
            input=self.input + other.input,
            cached=self.cached + other.cached,
            written=self.written + other.written,
            output=self.output + other.output,
            money=money,
        )


def check_price(limits: TurnLimits, model: str) -> None:
    """Raise BadInput for a limit on money if the price of the model is not known."""
    if limits.money is not None and price_usage(Usage(input=1), model) is None:
        raise BadInput(
            f"no price of {model!r} is known",
            place="Limits.money",
            hint="name its prices in your own file of models, or limit tokens instead",
        )
