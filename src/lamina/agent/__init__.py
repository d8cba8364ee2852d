"""The agent loop over a session: chat, one-shot tools, tool loop, answer from search. Read `loop` first."""

from __future__ import annotations

from lamina.agent.actions import Action, approve_always
from lamina.agent.loop import Agent, ModelPlan, PlannedCalls
from lamina.agent.outcome import Citation, ToolRunEvent, TurnCost, TurnEvent, TurnLimits, TurnOutcome
from lamina.agent.profiles import CITING, EXPLORER, PLANNING, THINKING, AgentProfile, guidelines
from lamina.agent.ready_actions import scratchpad, search_action, workspace_actions
from lamina.agent.registry import AgentRegistry, load_agents, open_for
from lamina.agent.subagents import ForkedTask, delegate, delegate_forked, fork_tasks, hand_over

__all__ = [
    "CITING",
    "EXPLORER",
    "PLANNING",
    "THINKING",
    "Action",
    "Agent",
    "AgentProfile",
    "AgentRegistry",
    "Citation",
    "ForkedTask",
    "ModelPlan",
    "PlannedCalls",
    "ToolRunEvent",
    "TurnCost",
    "TurnEvent",
    "TurnLimits",
    "TurnOutcome",
    "approve_always",
    "delegate",
    "delegate_forked",
    "fork_tasks",
    "guidelines",
    "hand_over",
    "load_agents",
    "open_for",
    "scratchpad",
    "search_action",
    "workspace_actions",
]
