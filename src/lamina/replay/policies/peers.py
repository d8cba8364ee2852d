"""A real peer as a policy: its own process, its own environment, its own time."""

from __future__ import annotations

import atexit
from typing import Any

from lamina.replay.peers.catalogue import PEERS
from lamina.replay.peers.policy import peer_policy
from lamina.replay.policies.port import Policy, PolicyRequest, Run, Setting


def peer(name: str) -> Policy:
    """The peer of this name; its process starts with the first conversation, and ends with this one."""
    process = peer_policy(name)
    atexit.register(process.close)

    def start(setting: Setting) -> Run:
        ask = process.start(setting)

        def run(request: dict[str, Any], _idle: float) -> PolicyRequest:
            answer = ask(request)
            return PolicyRequest(messages=answer["messages"], seconds=float(answer.get("seconds") or 0.0))

        return run

    found = PEERS[name]
    return Policy(name=f"peer:{name}", title=found.title, start=start, recalls=found.recalls)
