"""Clearing old results and then dropping the oldest: what many libraries do, as a policy for the lab.

`lamina replay --policy bench.clearing:clear_then_drop` and `bench/loss.py --policies
bench.clearing:clear_then_drop` find it. When a request passes the trigger, the results before the last five
become one word. If that is not enough, the oldest messages go, down to the target.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lamina.replay.policies.plain import Clearing, Sliding
from lamina.replay.policies.port import PolicyRequest, ReplayPolicy, Setting


class ClearThenDrop:
    """Clears old results, and lets a sliding window drop what is still too much."""

    def __init__(self, setting: Setting) -> None:
        self.clearing = Clearing(setting)
        self.sliding = Sliding(setting)

    def __call__(self, request: dict[str, Any], idle: float) -> PolicyRequest:
        """The request with old results cleared, from the last boundary on."""
        cleared = self.clearing(request, idle)
        sent = self.sliding({**request, "messages": cleared.messages}, idle)
        return msgspec.structs.replace(sent, cut=sent.cut or cleared.cut)


clear_then_drop = ReplayPolicy(
    name="clear_then_drop", title="clear old results, then drop the oldest", start=ClearThenDrop
)
