"""Compares the prices of the table with those of genai-prices, a second opinion that is kept by other people.

Knows how genai-prices lays out its data and nothing of how ours is made. It imports that package from the
folder or wheel it is given, so pydantic and httpx2 have to be installed; the anthropic SDK brings both.
"""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lamina.models import Model, Prices, price_of

BUSY = datetime(2026, 11, 9, 2, 0, tzinfo=UTC)
"""A Monday, in the busy hours of DeepSeek's."""

QUIET = BUSY.replace(hour=12)

_FIELDS = {
    "input": "input_mtok",
    "output": "output_mtok",
    "read": "cache_read_mtok",
    "write": "cache_write_mtok",
}


def compare(rows: Sequence[tuple[Model, str, str]], other: Path, known: Mapping[str, str]) -> int:
    """Print every disagreement and a count by listing; 1 if one of them is not among the known ones."""
    sys.path.insert(0, str(other))
    listings = {one.id: one for one in importlib.import_module("genai_prices.data").providers}
    tally: Counter[tuple[str, str]] = Counter()
    for model, key, listing in rows:
        verdict, lines = _verdict(model, _theirs_for(model, key, listings.get(listing)), known)
        tally[listing or "open models", verdict] += 1
        for line in lines:
            print(line)
    _print(tally)
    return 1 if any(verdict == "differ" for _, verdict in tally) else 0


def _verdict(model: Model, theirs: Any, known: Mapping[str, str]) -> tuple[str, list[str]]:
    name = model.listed or model.name
    if theirs is None or model.prices.input is None:
        return "only ours", []
    found = [f"{name} ({theirs.id}): {line}" for line in _differences(model, theirs)]
    if found and name in known:
        return "known to differ", [*found, f"{name}: known, {known[name]}"]
    return ("differ" if found else "agree"), found


def _theirs_for(model: Model, key: str, listing: Any) -> Any:
    """Under the name that it is sent with; for a model of ours that stands for several, under our name."""
    if listing is None:
        return None
    return listing.find_model(key.rpartition("/")[2]) or listing.find_model(model.listed or model.name)


def _differences(model: Model, theirs: Any) -> Iterator[str]:
    """At the start and just above each tier of either side; "from N" and "above N" are taken for one."""
    for moment in (BUSY, QUIET) if model.off_peak else (BUSY,):
        prices = theirs.get_prices(moment)
        own = {0} | {tier.above for tier in model.tiers}
        more = {step for step in _steps(prices) if step + 1 not in own and step < model.window}
        for step in sorted(own | more):
            ours = price_of(model, tokens=step + 1, at=moment)
            for field, theirs_field in _FIELDS.items():
                mine, yours = _ours(ours, field), _theirs(prices, theirs_field, step + 1)
                if mine is not None and yours is not None and abs(mine - yours) > 1e-9:
                    yield f"{field} above {step:,} at {moment:%H:%M}: {mine:g}, there {yours:g}"


def _ours(prices: Prices, field: str) -> float | None:
    value: float | None = getattr(prices, field)
    return value


def _steps(prices: Any) -> Iterator[int]:
    for field in _FIELDS.values():
        for tier in getattr(getattr(prices, field, None), "tiers", ()):
            yield int(tier.start)


def _theirs(prices: Any, field: str, tokens: int) -> float | None:
    value = getattr(prices, field, None)
    if value is None:
        return None
    reached = [tier.price for tier in getattr(value, "tiers", ()) if tokens > tier.start]
    return float(reached[-1] if reached else getattr(value, "base", value))


def _print(tally: Counter[tuple[str, str]]) -> None:
    kinds = ("agree", "known to differ", "differ", "only ours")
    print(f"\n{'listing':<14}" + "".join(f"{kind:>17}" for kind in kinds))
    for listing in sorted({listing for listing, _ in tally}):
        print(f"{listing:<14}" + "".join(f"{tally[listing, kind]:>17}" for kind in kinds))
    totals = [sum(count for (_, have), count in tally.items() if have == kind) for kind in kinds]
    print(f"{'all':<14}" + "".join(f"{total:>17}" for total in totals))
