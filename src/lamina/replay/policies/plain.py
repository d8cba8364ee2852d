"""The policies that others use, written in a few lines each: what is to be beaten.

They all keep the system text and the last thing that the user said, and never part a call from its results:
the careful variant of each, so that a comparison is about the idea and not about a bug.
"""

from __future__ import annotations

from typing import Any

from lamina.replay.policies.port import Message, Policy, PolicyRequest, Run, Setting, groups

KEEP = 5
"""Results at the end that clearing and masking spare."""


def nothing(setting: Setting) -> Run:
    del setting
    return lambda request, _idle: PolicyRequest(messages=request["messages"])


class DropOldest:
    """Keeps as much of the end as fits, anew for each call."""

    def __init__(self, setting: Setting) -> None:
        self.setting, self.first = setting, 0

    def __call__(self, request: dict[str, Any], _idle: float) -> PolicyRequest:
        messages, before = request["messages"], self.first
        self.first = _first_kept(messages, self.setting, 0, self.setting.trigger)
        sent = _from(messages, self.first, pinned(messages))
        return PolicyRequest(messages=sent, cut="over the trigger" if self.first > before else "")


class Sliding:
    """Drops the oldest down to the target when the trigger is passed, and keeps that boundary till then."""

    def __init__(self, setting: Setting) -> None:
        self.setting, self.first = setting, 0
        self.pinned: frozenset[int] = frozenset()

    def __call__(self, request: dict[str, Any], _idle: float) -> PolicyRequest:
        messages, cut = request["messages"], ""
        sent = _from(messages, self.first, self.pinned)
        if self.setting.scales.tokens(sent) > self.setting.trigger:
            self.pinned = pinned(messages)
            self.first = _first_kept(messages, self.setting, self.first, self.setting.target)
            sent, cut = _from(messages, self.first, self.pinned), "over the trigger"
        return PolicyRequest(messages=sent, cut=cut)


class Clearing:
    """Replaces old results by a word: all but the last few, at the trigger; with `at_once` at every call."""

    def __init__(self, setting: Setting, *, at_once: bool = False, word: str = "[cleared]") -> None:
        self.setting, self.at_once, self.word, self.until = setting, at_once, word, 0

    def __call__(self, request: dict[str, Any], _idle: float) -> PolicyRequest:
        messages, cut = request["messages"], ""
        sent = self._cleared(messages)
        if self.at_once or self.setting.scales.tokens(sent) > self.setting.trigger:
            results = [at for at, message in enumerate(messages) if message.get("role") == "tool"]
            until = results[-KEEP] if len(results) > KEEP else 0
            if until > self.until:
                self.until, cut = until, "old results"
                sent = self._cleared(messages)
        return PolicyRequest(messages=sent, cut=cut)

    def _cleared(self, messages: list[Message]) -> list[Message]:
        return [
            {**message, "content": self.word}
            if at < self.until and message.get("role") == "tool"
            else message
            for at, message in enumerate(messages)
        ]


def _first_kept(messages: list[Message], setting: Setting, first: int, most: int) -> int:
    """Where to begin, at `first` or later, so that what is sent takes at most `most` tokens."""
    fixed, last = pinned(messages), len(messages) - 1
    total = setting.scales.tokens(_from(messages, first, fixed))
    for group in groups(messages):
        if group[0] < first:
            continue
        if total <= most or group[-1] >= last:
            return group[0]
        total -= sum(setting.scales.message(messages[at]).tokens for at in group if at not in fixed)
    return first


def _from(messages: list[Message], first: int, fixed: frozenset[int]) -> list[Message]:
    return [message for at, message in enumerate(messages) if at >= first or at in fixed]


def pinned(messages: list[Message]) -> frozenset[int]:
    """The system text, and the last thing that the user said."""
    spoken = [at for at, message in enumerate(messages) if message.get("role") == "user"]
    system = [at for at, message in enumerate(messages) if message.get("role") in ("system", "developer")]
    return frozenset((*system, *spoken[-1:]))


PLAIN = (
    Policy(name="none", title="everything, always", start=nothing),
    Policy(name="drop_oldest", title="drop the oldest, every call", start=DropOldest),
    Policy(name="sliding", title="sliding window with hysteresis", start=Sliding),
    Policy(name="clear_results", title="clear tool results at the trigger", start=Clearing),
    Policy(
        name="masking",
        title="observation masking, every call",
        start=lambda setting: Clearing(setting, at_once=True, word="[old observation omitted]"),
    ),
)
