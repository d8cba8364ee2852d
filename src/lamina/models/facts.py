"""Facts per model: how much it reads and writes, what that costs, its tokenizer, if its thinking is bound.

Facts come from the table (`table`) and from the user's own file (`own_models`). This file knows no request
and no clock.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from functools import lru_cache

from lamina.errors import BadInput
from lamina.models.own_models import load_models
from lamina.models.prices import Prices
from lamina.models.table import VARIABLE, Model, Models, find_model, table


def model(name: str, *, own: Models | None = None) -> Model:
    """The facts of a model, by its name as any provider writes it: with its path, region, or date.

    `own` are the caller's models, which win over the table; None takes those of the file that the
    environment variable LAMINA_MODELS names, read once.
    """
    if own is None:
        return _find_with_file(name, os.environ.get(VARIABLE, ""))
    return find_model(name, own, table())


def model_or_none(name: str) -> Model | None:
    """What `model` gives, or None if it would raise `BadInput`."""
    return _find_with_file_or_none(name, os.environ.get(VARIABLE, ""))


def price_of(model: Model, *, tokens: int = 0, at: datetime | None = None) -> Prices:
    """The prices of a request with `tokens` of input, cached or not, sent at the moment `at`.

    Without a moment they are those of the busy hours, which are the higher ones.
    """
    if at is not None:
        moment = _to_utc(at)
        off_peak = model.off_peak
        if off_peak is not None and any(hours.contain(moment) for hours in off_peak.hours):
            return off_peak.prices
    prices = model.prices
    for tier in model.tiers:
        if tokens > tier.above:
            prices = tier.prices
    return prices


def _to_utc(at: datetime) -> datetime:
    if at.tzinfo is None:
        raise BadInput(f"{at!r} has no time zone", place="at", hint="pass datetime(..., tzinfo=UTC)")
    return at.astimezone(UTC)


@lru_cache(maxsize=256)
def _find_with_file(name: str, path: str) -> Model:
    """The model of this name in the user's file and the table; `path` is "" if there is no file."""
    if not path:
        return find_model(name, table())
    return find_model(name, _load_once(path), table())


@lru_cache(maxsize=256)
def _find_with_file_or_none(name: str, path: str) -> Model | None:
    try:
        return _find_with_file(name, path)
    except BadInput:
        return None


@lru_cache(maxsize=8)
def _load_once(path: str) -> Models:
    return load_models(path)
