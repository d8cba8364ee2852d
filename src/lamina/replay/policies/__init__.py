"""Every policy by name: plain ones, lamina, and the peers that `make peers` installs.

A name may carry a target, the share of the room that a cut leaves: `sliding@0.3`, `lamina@0.6`.
"""

from __future__ import annotations

from functools import cache

import msgspec

from lamina.errors import BadInput
from lamina.replay.peers.catalogue import PEERS
from lamina.replay.policies.lamina_policies import ours, source_order
from lamina.replay.policies.peers import peer
from lamina.replay.policies.plain import PLAIN
from lamina.replay.policies.port import Policy, Run, Setting

__all__ = ["POLICIES", "policy"]

POLICIES: dict[str, str] = {
    **{each.name: each.title for each in PLAIN},
    "rfc": "the trimming RFC, without head-room",
    "rfc_headroom": "the trimming RFC, with head-room",
    "folding": "whole old steps under digests",
    "lamina": "lamina",
    **{f"peer:{name}": f"{found.title}, as installed" for name, found in PEERS.items()},
}
"""What each name stands for."""


@cache
def policy(name: str) -> Policy:
    """The policy of this name."""
    plain, _, share = name.partition("@")
    target = _share(name, share)
    if plain.startswith("peer:"):
        return peer(plain.removeprefix("peer:"))
    if plain == "lamina":
        return ours(target)
    if plain in ("rfc", "rfc_headroom", "folding"):
        return source_order(plain, POLICIES[plain])
    found = next((each for each in PLAIN if each.name == plain), None)
    if found is None:
        raise BadInput(repr(name), place="policy", hint=f"it is one of {', '.join(POLICIES)}")
    return found if target is None else _with_target(found, name, target)


def _share(name: str, share: str) -> float | None:
    try:
        target = float(share) if share else None
    except ValueError:
        target = -1.0
    if target is not None and not 0 < target <= TRIGGER:
        raise BadInput(repr(name), place="policy", hint=f"after @ give a share above 0, at most {TRIGGER}")
    return target


TRIGGER = 0.95
"""Of the room: where every policy begins to cut."""


def _with_target(found: Policy, name: str, target: float) -> Policy:
    def start(setting: Setting) -> Run:
        return found.start(msgspec.structs.replace(setting, target=int(setting.room * target)))

    return msgspec.structs.replace(found, name=name, start=start)
