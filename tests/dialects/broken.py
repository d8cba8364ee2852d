"""Requests that break one rule each, made from a valid one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
Change = Callable[[Json], Any]
Broken = tuple[str, str, Json]
"""A rule, the place that is named or "", and a request that breaks it."""


def list_broken(valid: Json, breaks: dict[str, list[Change]]) -> list[Broken]:
    """A request for each change of a valid one. The name of a rule may go on with ` at ` and a place."""
    broken: list[Broken] = []
    for name, changes in breaks.items():
        rule, _, place = name.partition(" at ")
        for change in changes:
            request = copy.deepcopy(valid)
            change(request)
            broken.append((rule, place, request))
    return broken
