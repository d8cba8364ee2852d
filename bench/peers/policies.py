"""The peers as policies of `lamina.replay`: each in its own process and environment, with its own time.

`lamina.replay.policies.policy` takes any policy by the name `package.module:attribute`. Every peer is an
attribute of this module, with underscores for hyphens: `bench.peers.policies:langchain_trim`. In tables a
peer has a short name, `peer:langchain-trim`.
"""

from __future__ import annotations

import atexit
from typing import Any

from bench.peers.catalogue import PEERS
from bench.peers.policy import peer_policy
from lamina.replay.policies.port import PolicyRequest, PolicyRun, ReplayPolicy, Setting


def policy_name(peer_name: str) -> str:
    """The name under which `lamina.replay.policies.policy` finds a peer, in any process."""
    return f"{__name__}:{peer_name.replace('-', '_')}"


def peer(name: str) -> ReplayPolicy:
    """The peer of this name. Its process starts with the first conversation, and ends with this one."""
    process = peer_policy(name)
    atexit.register(process.close)

    def start(setting: Setting) -> PolicyRun:
        ask = process.start(setting)

        def run(request: dict[str, Any], _idle: float) -> PolicyRequest:
            answer = ask(request)
            return PolicyRequest(messages=answer["messages"], seconds=float(answer.get("seconds") or 0.0))

        return run

    catalogued = PEERS[name]
    return ReplayPolicy(name=f"peer:{name}", title=catalogued.title, start=start, recalls=catalogued.recalls)


def __getattr__(attribute: str) -> ReplayPolicy:
    """The peer that an attribute names; it is made when it is asked for."""
    for name in PEERS:
        if name.replace("-", "_") == attribute:
            return peer(name)
    raise AttributeError(attribute)
