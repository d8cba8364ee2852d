"""Finds the budget of a request, and bounds its tokens without counting them.

A bound is never below the tokens: a text has no more tokens than bytes. What the last request was counted as,
here or by its upstream, holds for the part that both have in common.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from lamina.caches.prefix_path import count_same_objects
from lamina.conversations.remedies import limit_budget
from lamina.core import cut_target
from lamina.core.values import Budget, RequestHead
from lamina.dialects.port import Dialect
from lamina.fitting.policy import Policy
from lamina.fitting.request import reserve_output
from lamina.models.facts import model_or_none
from lamina.relay.config import UpstreamSettings
from lamina.relay.request_bodies import RequestBody

UNKNOWN_WINDOW = 128_000
"""Tokens of a model that the table does not have, at an upstream that does not list its windows."""

MOVED_MARKERS = 3
"""Messages at the end of a request that the next one may have with other cache markers."""


class ChosenWindow(NamedTuple):
    """The window that a request was fitted into, where it comes from, and what of it is left for the answer.

    The source is `set` by the settings or --window, the `refusal` of a longer request that named it, the
    list of a `server`, the table of models (`model`), or nowhere (`unknown`): then it is the default.
    `reserve` is 0 for a request that was not fitted: nobody asked how long its answer may be.
    """

    tokens: int
    source: str
    reserve: int = 0


class CountedRequest(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A request whose tokens are known: its messages, and the bytes around them."""

    tokens: int
    turns: tuple[Any, ...]
    head_bytes: int


def bound_tokens(body: RequestBody, counted: CountedRequest | None) -> int:
    """More tokens than a request has: a text never has more tokens than bytes.

    If the last request of the conversation was `counted`, only what is new since then is bounded by its
    bytes. The bytes around the messages count twice, since providers describe tools in more words than the
    client.
    """
    if counted is not None:
        same = count_same_objects(counted.turns, body.turns)
        if same + MOVED_MARKERS >= len(counted.turns):
            head = max(body.head_bytes - counted.head_bytes, 0)
            return counted.tokens + sum(body.bounds[same:]) + 2 * head
    return sum(body.bounds) + 2 * body.head_bytes


class KnownTrigger(NamedTuple):
    """The tokens above which a request with this budget and these parameters is cut."""

    budget: Budget
    parameters: Mapping[str, Any]
    tokens: int


def find_trigger(
    budget: Budget, head: RequestHead, dialect: Dialect, last: KnownTrigger | None
) -> KnownTrigger:
    """The trigger of a request. It is that of the `last` one if the same parameters say so."""
    if last is not None and last.budget is budget and last.parameters == head.parameters:
        return last
    trigger = cut_target.find_trigger(reserve_output(budget, head, dialect), head)
    return KnownTrigger(budget, head.parameters, trigger)


def find_budget(
    upstream: UpstreamSettings,
    model: str,
    reported_window: int | None,
    *,
    served_window: int | None = None,
    dialect: str = "",
) -> Budget:
    """The budget of a model at an upstream. A smaller window that the upstream reported comes first.

    `served_window` is what the upstream lists for the model. The budget of the policy wins over it.
    """
    # Of the policy only its budget: the whole has no hash, as a table of kinds has none.
    budget = _find_configured(upstream.policy.budget, served_window or 0, model, dialect)
    if reported_window is None or reported_window >= budget.window:
        return budget
    return limit_budget(budget, reported_window)


def choose_window(
    upstream: UpstreamSettings,
    model: str,
    reported_window: int | None,
    *,
    served_window: int | None = None,
    dialect: str = "",
) -> ChosenWindow:
    """The window of a model at an upstream, as `find_budget` chooses it, and why."""
    window = find_budget(
        upstream, model, reported_window, served_window=served_window, dialect=dialect
    ).window
    if window == reported_window:
        return ChosenWindow(window, "refusal")
    if upstream.policy.own_budget is not None:
        return ChosenWindow(window, "set")
    if served_window:
        return ChosenWindow(window, "server")
    if model_or_none(model, dialect=dialect) is None:
        return ChosenWindow(window, "unknown")
    return ChosenWindow(window, "model")


@lru_cache(maxsize=256)
def _find_configured(own_budget: Budget | int | None, served_window: int, model: str, dialect: str) -> Budget:
    """The budget of a model at an upstream with this budget of its own, the same object each time."""
    policy = Policy(budget=own_budget)
    if policy.own_budget is not None:
        return policy.own_budget
    facts = model_or_none(model, dialect=dialect)
    if served_window:
        budget = Budget(window=served_window)
    elif facts is not None:
        budget = facts.budget
    else:
        budget = Budget(window=UNKNOWN_WINDOW)
    return policy.fill_budget(budget)
