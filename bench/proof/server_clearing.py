"""What a provider clears on its own side, simulated: Anthropic's `clear_tool_uses_20250919`.

When a request passes the trigger, the provider replaces all results but the last three by a placeholder. It
does nothing else, so a talk without tools stays too long, and the provider refuses it. The real edit says in
its answer what it cleared. Here the same rule is applied to the request, so the prefix cache breaks there.
"""

from __future__ import annotations

from typing import Any

from lamina.replay.policies.port import Message, PolicyRequest, ReplayPolicy, Setting

KEPT = 3
"""Uses of tools whose results stay: the default of the provider, 2026-11."""

PLACEHOLDER = "[cleared to save context]"


class ProviderClearing:
    """Remembers how far it cleared: what was cleared once stays so."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.cleared_before = 0

    def __call__(self, request: dict[str, Any], _idle: float) -> PolicyRequest:
        """The request as the model sees it after the edit."""
        messages = request["messages"]
        sent = self._clear(messages)
        if self.setting.message_sizes.count_tokens(sent) <= self.setting.trigger:
            return PolicyRequest(messages=sent)
        results = [at for at, message in enumerate(messages) if message.get("role") == "tool"]
        if len(results) <= KEPT or results[-KEPT] <= self.cleared_before:
            return PolicyRequest(messages=sent)
        self.cleared_before = results[-KEPT]
        return PolicyRequest(messages=self._clear(messages), cut="cleared by the provider")

    def _clear(self, messages: list[Message]) -> list[Message]:
        cleared = []
        for at, message in enumerate(messages):
            is_cleared = at < self.cleared_before and message.get("role") == "tool"
            cleared.append({**message, "content": PLACEHOLDER} if is_cleared else message)
        return cleared


provider_clearing = ReplayPolicy(
    name="provider_clearing", title="the provider clears old results", start=ProviderClearing
)
