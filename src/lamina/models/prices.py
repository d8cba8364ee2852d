"""Holds what a model's tokens cost: prices, tiers for longer requests, and quiet hours."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

WholeNumber = Annotated[int, msgspec.Meta(ge=0)]
Price = Annotated[float, msgspec.Meta(ge=0)]


class Prices(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """USD for a million tokens; None where the source names no price of its own.

    `input` is for what a cache neither gave nor took, `read` for what it gave, `write` for what it took,
    `write_1h` for what it took to keep longer than its shortest lifetime.
    """

    input: Price | None = None
    output: Price | None = None
    read: Price | None = None
    write: Price | None = None
    write_1h: Price | None = None

    def cost(
        self, *, uncached: int = 0, read: int = 0, write: int = 0, write_1h: int = 0, output: int = 0
    ) -> float | None:
        """USD for these tokens; None if a price that they need is unknown.

        Reading and writing without a price of their own cost what input costs; keeping longer does not.
        """
        read_price = self.input if self.read is None else self.read
        write_price = self.input if self.write is None else self.write
        amounts = (
            (uncached, self.input),
            (read, read_price),
            (write, write_price),
            (write_1h, self.write_1h),
            (output, self.output),
        )
        costs: list[float] = []
        for tokens, price in amounts:
            if not tokens:
                continue
            if price is None:
                return None
            costs.append(tokens * price)
        return sum(costs) / 1_000_000


class Tier(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The prices of a whole request whose input, cached or not, is longer than `above` tokens."""

    above: WholeNumber
    prices: Prices


class Hours(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A span of the days `days` (1 is Monday), from minute `start` to before minute `end`, in UTC."""

    days: tuple[Annotated[int, msgspec.Meta(ge=1, le=7)], ...]
    start: WholeNumber
    end: WholeNumber

    def contain(self, moment: datetime) -> bool:
        """Whether a moment in UTC is within this span."""
        minute = moment.hour * 60 + moment.minute
        return moment.isoweekday() in self.days and self.start <= minute < self.end


class OffPeak(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The prices at quiet hours."""

    prices: Prices
    hours: tuple[Hours, ...]
