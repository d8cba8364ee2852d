"""What a policy is: it starts once for each conversation, and decides what is sent for each call.

A policy that keeps nothing between calls is a plain function of the request; those that keep state are a
small class. A policy never sees the answer that it will be judged by.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from lamina.caches import CacheRules
from lamina.costs.logs.message_sizes import MessageSizes

Message = dict[str, Any]

RESERVED_PART = 8
"""One part in so many of the window is reserved for the answer."""

TRIGGER = 0.95
"""Of the room: where every policy begins to cut."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy may know: the sizes in tokens, how messages are measured, and the cache's rules.

    `own_window` and `own_rules`: they are those of the session's own model.
    """

    window: int
    room: int
    trigger: int
    target: int
    message_sizes: MessageSizes
    rules: CacheRules
    model: str = ""
    own_window: bool = False
    own_rules: bool = False

    @property
    def recorded_window(self) -> int:
        """The window without what is sent at the beginning of every request, but not recorded."""
        return max(self.window - self.message_sizes.unrecorded, self.window - self.room + 1)


def make_setting(
    window: int,
    message_sizes: MessageSizes,
    rules: CacheRules,
    *,
    reserve: int | None = None,
    model: str = "",
    own_window: bool = False,
    own_rules: bool = False,
) -> Setting:
    """The sizes of a window: of 200,000, 25,000 are reserved for the answer, a cut leaves half of the rest.

    `reserve` is another number of tokens for the answer.
    """
    if reserve is None:
        reserve = window // RESERVED_PART
    room = window - reserve
    return Setting(
        window=window,
        room=room,
        trigger=int(room * TRIGGER),
        target=room // 2,
        message_sizes=message_sizes,
        rules=rules,
        model=model,
        own_window=own_window,
        own_rules=own_rules,
    )


class PolicyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The messages that a policy sends. `cut` is the reason if anything was lowered now, else "".

    The rest is for policies that report on themselves. `lowered` are the segments that are not sent in full,
    and `lost` those among them that did not come back when they were recalled.
    `seconds` is the time it took, if that was not spent in this process.
    """

    messages: list[Message]
    cut: str = ""
    lowered: int = 0
    lost: int = 0
    seconds: float | None = None


PolicyRun = Callable[[dict[str, Any], float], PolicyRequest]
"""Takes the request with its whole history, and the seconds since the last one; returns what to send."""


class ReplayPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A way to fit a conversation. `recalls`: the model can have back what it leaves out.

    `by_rules`: what it sends depends on the cache's rules, so it runs once for each.
    """

    name: str
    title: str
    start: Callable[[Setting], PolicyRun]
    recalls: bool = False
    by_rules: bool = False


def group_messages(messages: list[Message]) -> list[list[int]]:
    """Positions that go together: a call with its results; every other message alone.

    Of user, assistant, tool, tool these are `[[0], [1, 2, 3]]`.
    """
    groups: list[list[int]] = []
    for at, message in enumerate(messages):
        if message.get("role") == "tool" and groups:
            groups[-1].append(at)
        else:
            groups.append([at])
    return groups
