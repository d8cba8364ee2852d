"""What a policy is: it starts once for each conversation, and says what is sent for each call.

A policy that keeps nothing between calls is a plain function of the request; those that keep state are a
small class. A policy never sees the answer that it will be judged by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from lamina.caches import CacheRules
from lamina.replay.message_sizes import Scales

Message = dict[str, Any]


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy may know: the sizes in tokens, how messages are weighed, and the cache's rules."""

    window: int
    room: int
    trigger: int
    target: int
    scales: Scales
    rules: CacheRules
    model: str = ""


class PolicyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The messages that a policy sends. `cut` says why anything was lowered now, "" where nothing was.

    `layers` are tokens by layer, `lowered` the segments that stand in less than full form and `lost` those
    among them that did not come back when they were recalled; all where the policy tells. `seconds` is the
    time it took, where that was not spent in this process.
    """

    messages: list[Message]
    cut: str = ""
    layers: Mapping[str, int] = {}
    lowered: int = 0
    lost: int = 0
    seconds: float | None = None


Run = Callable[[dict[str, Any], float], PolicyRequest]
"""The request as it stands, and the seconds since the last one; returns what to send."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """A way to fit a conversation. `recalls`: what it leaves out can be had back by the model.

    `by_rules`: what it sends depends on the cache's rules, so it runs once for each.
    """

    name: str
    title: str
    start: Callable[[Setting], Run]
    recalls: bool = False
    by_rules: bool = False


def groups(messages: list[Message]) -> list[list[int]]:
    """Positions that go together: a call with its results; every other message alone."""
    found: list[list[int]] = []
    for at, message in enumerate(messages):
        if message.get("role") == "tool" and found:
            found[-1].append(at)
        else:
            found.append([at])
    return found
