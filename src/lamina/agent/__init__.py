"""The agent loop over a session: chat, one-shot tools, tool loop, answer from search. Read `loop` first."""

from __future__ import annotations

from lamina.agent.actions import Action, always
from lamina.agent.limits import Spent, TurnLimits
from lamina.agent.loop import Agent
from lamina.agent.one_shot import ByModel, Planned
from lamina.agent.opening import open_for
from lamina.agent.outcome import Citation, Ran, TurnOutcome
from lamina.agent.persona import CITING, EXPLORER, PLANNING, guidelines
from lamina.agent.scratchpad import scratchpad
from lamina.agent.subagents import delegate, hand_over
from lamina.agent.workspace_actions import offered, searching

__all__ = [
    "CITING",
    "EXPLORER",
    "PLANNING",
    "Action",
    "Agent",
    "ByModel",
    "Citation",
    "Planned",
    "Ran",
    "Spent",
    "TurnLimits",
    "TurnOutcome",
    "always",
    "delegate",
    "guidelines",
    "hand_over",
    "offered",
    "open_for",
    "scratchpad",
    "searching",
]
