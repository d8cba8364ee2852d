"""The policies that others use, written in a few lines each: what lamina has to beat.

They all keep the system text and the last message of the user, and never part a call from its results. That
is the careful variant of each, so that a comparison is about the idea and not about a bug.
"""

from __future__ import annotations

from typing import Any

from bench.lab.port import (
    Message,
    PolicyRequest,
    PolicyRun,
    ReplayPolicy,
    Setting,
    group_messages,
)


def send_everything(setting: Setting) -> PolicyRun:
    """Send every request as it was recorded."""
    del setting

    def run(request: dict[str, Any], _idle: float) -> PolicyRequest:
        return PolicyRequest(messages=request["messages"])

    return run


class DropOldest:
    """Keeps as much of the end as fits, anew for each call."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.first = 0

    def __call__(self, request: dict[str, Any], _idle: float) -> PolicyRequest:
        """The end of the request that fits below the trigger."""
        messages = request["messages"]
        previous_first = self.first
        self.first = _first_that_fits(messages, self.setting, 0, self.setting.trigger)
        return PolicyRequest(
            messages=_messages_from(messages, self.first, pinned_positions(messages)),
            cut="over the trigger" if self.first > previous_first else "",
        )


class Sliding:
    """Drops the oldest down to the target when the trigger is passed, and keeps that boundary till then."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.first = 0
        self.pinned: frozenset[int] = frozenset()

    def __call__(self, request: dict[str, Any], _idle: float) -> PolicyRequest:
        """The request from the last boundary on, or from a new one if that is over the trigger."""
        messages = request["messages"]
        sent = _messages_from(messages, self.first, self.pinned)
        if self.setting.message_sizes.count_tokens(sent) <= self.setting.trigger:
            return PolicyRequest(messages=sent)
        self.pinned = pinned_positions(messages)
        self.first = _first_that_fits(messages, self.setting, self.first, self.setting.target)
        sent = _messages_from(messages, self.first, self.pinned)
        return PolicyRequest(messages=sent, cut="over the trigger")


def _first_that_fits(messages: list[Message], setting: Setting, first: int, most: int) -> int:
    """Where to begin, at `first` or later, so that what is sent takes at most `most` tokens."""
    message_sizes = setting.message_sizes
    pinned = pinned_positions(messages)
    last = len(messages) - 1
    total = message_sizes.count_tokens(_messages_from(messages, first, pinned))
    for group in group_messages(messages):
        if group[0] < first:
            continue
        # whole groups go, so that no call loses its results; the last one always stays
        if total <= most or group[-1] >= last:
            return group[0]
        for at in group:
            if at not in pinned:
                total -= message_sizes.measure(messages[at]).tokens
    return first


def _messages_from(messages: list[Message], first: int, pinned: frozenset[int]) -> list[Message]:
    """The messages from a position on, with those before it that are pinned.

    From 3 on, with 0 pinned, these are the messages 0, 3, 4 and so on.
    """
    pinned_before = [messages[at] for at in sorted(pinned) if at < first]
    return [*pinned_before, *messages[first:]]


def pinned_positions(messages: list[Message]) -> frozenset[int]:
    """Where the system text stands, and the last message of the user.

    Of system, user, assistant, user these are 0 and 3.
    """
    pinned = set()
    last_of_user = None
    for at, message in enumerate(messages):
        role = message.get("role")
        if role in ("system", "developer"):
            pinned.add(at)
        elif role == "user":
            last_of_user = at
    if last_of_user is not None:
        pinned.add(last_of_user)
    return frozenset(pinned)


PLAIN = (
    ReplayPolicy(name="none", title="everything, always", start=send_everything),
    ReplayPolicy(name="drop_oldest", title="drop the oldest, every call", start=DropOldest),
    ReplayPolicy(name="sliding", title="sliding window with hysteresis", start=Sliding),
)
