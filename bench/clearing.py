"""Clearing old results, by a library or by a provider, as policies for the lab.

`bench/policies.py PATH --policies bench.clearing:clear_then_drop` finds them. When a request passes the
trigger, all results but the last few become one word, and what was cleared once stays so.

`clear_then_drop` is what many libraries do: if that is not enough, the oldest messages go, down to the
target. `provider_clearing` is Anthropic's `clear_tool_uses_20250919`. It does nothing else, so a talk without
tools stays too long, and the provider refuses it. The real edit says in its answer what it cleared. Here the
same rule is applied to the request, so the prefix cache breaks there.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from bench.lab.plain import Sliding
from bench.lab.port import Message, PolicyRequest, ReplayPolicy, Setting

KEPT = 5
"""Results at the end that libraries spare."""

KEPT_BY_PROVIDER = 3
"""Uses of tools whose results stay: the default of the provider, 2026-11."""


class Clearing:
    """Replaces all results but the last few by a word, at the trigger."""

    def __init__(self, setting: Setting, *, keep: int) -> None:
        self.setting = setting
        self.keep = keep
        self.cleared_before = 0

    def __call__(self, request: dict[str, Any], _idle: float) -> PolicyRequest:
        """The request with old results cleared, and more of them if that is over the trigger."""
        messages = request["messages"]
        sent = self._clear(messages)
        if self.setting.message_sizes.count_tokens(sent) <= self.setting.trigger:
            return PolicyRequest(messages=sent)
        results = [at for at, message in enumerate(messages) if message.get("role") == "tool"]
        if len(results) <= self.keep or results[-self.keep] <= self.cleared_before:
            return PolicyRequest(messages=sent)
        self.cleared_before = results[-self.keep]
        return PolicyRequest(messages=self._clear(messages), cut="old results")

    def _clear(self, messages: list[Message]) -> list[Message]:
        cleared = []
        for at, message in enumerate(messages):
            if at < self.cleared_before and message.get("role") == "tool":
                cleared.append({**message, "content": "[cleared]"})
            else:
                cleared.append(message)
        return cleared


class ClearThenDrop:
    """Clears old results, and lets a sliding window drop what is still too much."""

    def __init__(self, setting: Setting) -> None:
        self.clearing = Clearing(setting, keep=KEPT)
        self.sliding = Sliding(setting)

    def __call__(self, request: dict[str, Any], idle: float) -> PolicyRequest:
        """The request with old results cleared, from the last boundary on."""
        cleared = self.clearing(request, idle)
        sent = self.sliding({**request, "messages": cleared.messages}, idle)
        return msgspec.structs.replace(sent, cut=sent.cut or cleared.cut)


clear_then_drop = ReplayPolicy(
    name="clear_then_drop", title="clear old results, then drop the oldest", start=ClearThenDrop
)

provider_clearing = ReplayPolicy(
    name="provider_clearing",
    title="the provider clears old results",
    start=partial(Clearing, keep=KEPT_BY_PROVIDER),
)
