"""Finds a policy by its name: a plain one, lamina, or one of another package.

A name may carry a target, the share of the room that a cut leaves: `sliding@0.3`, `lamina@0.6`. That of
lamina may carry what its cuts prefer instead: `lamina@memory`, `lamina@balanced`, `lamina@cost`.

A policy of your own has the name `package.module:attribute`. The module is imported, in every process of a
replay, and the attribute must be a `ReplayPolicy` or a function without arguments that returns one:

    python bench/policies.py logs/ --policies sliding,my_package.policies:oldest_first

The tables show the policy's own `name`, not the name by which it was imported.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import cast, get_args

import msgspec

from bench.lab.lamina_policies import lamina_policy
from bench.lab.plain import PLAIN
from bench.lab.port import TRIGGER, PolicyRun, ReplayPolicy, Setting
from lamina.core.values import Preference
from lamina.errors import BadInput

__all__ = ["POLICIES", "find_policy"]

POLICIES: dict[str, str] = {
    **{plain.name: plain.title for plain in PLAIN},
    "lamina": "lamina",
}
"""What each name stands for."""


@cache
def find_policy(name: str) -> ReplayPolicy:
    """The policy of this name: one of POLICIES, or `package.module:attribute`.

    `sliding@0.3` is the policy `sliding` with a target of 0.3 of the room. `lamina@memory` and `lamina@cost`
    say what a cut prefers.
    """
    base, _, share = name.partition("@")
    if base == "lamina" and share in get_args(Preference):
        return lamina_policy(prefer=cast("Preference", share))
    target = _parse_target(name, share)
    if base == "lamina":
        return lamina_policy(target)
    chosen = _find_policy(base)
    if target is None:
        return chosen
    return _with_target(chosen, target, share)


def _parse_target(name: str, share: str) -> float | None:
    """The share after `@`: 0.3 in `sliding@0.3`; None without one."""
    if not share:
        return None
    try:
        target = float(share)
    except ValueError:
        target = -1.0
    if not 0 < target <= TRIGGER:
        raise BadInput(repr(name), place="policy", hint=f"after @ give a share above 0, at most {TRIGGER}")
    return target


def _find_policy(name: str) -> ReplayPolicy:
    """A plain policy, or one of another package."""
    if ":" in name:
        return _import_policy(name)
    for plain in PLAIN:
        if plain.name == name:
            return plain
    raise BadInput(
        repr(name), place="policy", hint=f"it is one of {', '.join(POLICIES)}, or package.module:attribute"
    )


def _import_policy(name: str) -> ReplayPolicy:
    """The policy that a module has under this name, or makes."""
    module_name, _, attribute = name.partition(":")
    try:
        value = getattr(import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadInput(
            f"{name!r} cannot be imported: {error}", place="policy", hint="it is package.module:attribute"
        ) from error
    if callable(value):
        value = value()
    if not isinstance(value, ReplayPolicy):
        raise BadInput(
            f"{name!r} is a {type(value).__name__}",
            place="policy",
            hint="give a bench.lab.port.ReplayPolicy, or a function that returns one",
        )
    return value


def _with_target(chosen: ReplayPolicy, target: float, share: str) -> ReplayPolicy:
    """The same policy, with another target than the setting's."""

    def start(setting: Setting) -> PolicyRun:
        return chosen.start(msgspec.structs.replace(setting, target=int(setting.room * target)))

    return msgspec.structs.replace(chosen, name=f"{chosen.name}@{share}", start=start)
