"""What a named agent is, as data: persona, tools, model, limits, and whether it plans in <thinking> tags."""

from __future__ import annotations

import re

import msgspec

from lamina.agent.limits import TurnLimits

THINKING = (
    "Before a task of more than one step, write your plan between <thinking> and </thinking>: what you know, "
    "what you have to look up, and what you will change, in this order. Then act on it. If something turns "
    "out otherwise, write a new plan before you go on. The user is not shown what stands between these tags, "
    "so never put an answer there."
)
"""How an agent with `thinking` writes down its plans."""

_PLAN = re.compile(r"<thinking>(.*?)(?:</thinking>|\Z)", re.DOTALL)
"""A plan: `look` in `<thinking>look</thinking>Done.` One that is not closed goes on to the end."""


class AgentProfile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One agent. `tools` are the names of its actions; None means all that the application has.

    Without a persona it has the usual one. `thinking`: it writes its plans between <thinking> tags.
    """

    name: str = ""
    about: str = ""
    persona: str = ""
    tools: tuple[str, ...] | None = None
    model: str = ""
    limits: TurnLimits = TurnLimits()
    thinking: bool = False


def split_plans(text: str) -> tuple[str, tuple[str, ...]]:
    """What an answer says to the user, and the plans in it."""
    plans = tuple(plan.strip(" \t\r\n") for plan in _PLAN.findall(text))
    return _PLAN.sub("", text).strip(" \t\r\n"), plans
