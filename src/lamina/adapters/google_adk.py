"""Google's Agent Development Kit: a plugin that fits each request of the model.

    app = App(name="support", root_agent=agent, plugins=[LaminaPlugin(budget=16_000)])

The session's events stay whole. The ledger is a field of the session's state, so any session service keeps
it. The plugin gives every agent of the app the tool `recall`. Contents of Gemini's API are sent as they came
unless they were lowered: thought signatures stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from lamina.adapters.bridge import PASS_THROUGH, RECALL, ContextFitter, RecentValues, Turn, add_report
from lamina.core.values import Budget
from lamina.fitting.policy import Policy

__all__ = ["LaminaPlugin"]

LEDGER = "lamina_ledger"
"""Begins the keys of the session's state under which the ledgers stand, one for each agent.

Agents that run in parallel write the state in turns, so each has a key of its own: of a shared dict the last
writer would keep what the others had before.
"""

_SESSIONS = 256
"""How many sessions' last contents are held for `recall`."""


class LaminaPlugin(BasePlugin):
    """Fits each request into the window. `policy` says how; `budget` replaces that of the policy.

    Without a budget the window of the model counts. If the policy turns recall off, no handles are shown.
    """

    def __init__(
        self,
        *,
        policy: Policy | None = None,
        budget: Budget | int | None = None,
        name: str = "lamina",
    ) -> None:
        super().__init__(name=name)
        self.fitter = ContextFitter(CODEC, policy=policy, budget=budget)
        self._contents: RecentValues[tuple[str, str], list[types.Content]] = RecentValues(_SESSIONS)
        self._recall_tool = self._make_recall_tool()

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        """Put the fitted contents into the request, and the ledger of this agent into the session's state.

        The whole contents are remembered for `recall`.
        """
        if self.fitter.recall and RECALL.name not in llm_request.tools_dict:
            llm_request.append_tools([self._recall_tool])
        agent = callback_context.agent_name
        contents = list(llm_request.contents)
        fitted = self.fitter.fit(
            contents,
            head={"model": llm_request.model or "", "config": llm_request.config},
            ledger=callback_context.state.get(_name_ledger(agent)),
            conversation=f"{callback_context.session.id} {agent}",
        )
        callback_context.state[_name_ledger(agent)] = msgspec.to_builtins(fitted.ledger)
        llm_request.contents = list(fitted.messages)
        self._contents[callback_context.session.id, agent] = contents

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        """Add what the model's API reported to the ledger of this agent, at the end of a stream."""
        name = _name_ledger(callback_context.agent_name)
        ledger = callback_context.state.get(name)
        if ledger is not None and not llm_response.partial:
            callback_context.state[name] = add_report(ledger, llm_response)

    def _make_recall_tool(self) -> FunctionTool:
        """The tool. It answers from the last request of its agent, or from the session's events."""

        def recall(key: str, tool_context: ToolContext, start: int = 0, find: str = "") -> str:
            session = tool_context.session
            contents = self._contents.get((session.id, tool_context.agent_name))
            if contents is None:
                contents = [event.content for event in session.events if event.content is not None]
            ledger = tool_context.state.get(_name_ledger(tool_context.agent_name))
            return self.fitter.answer(contents, {"key": key, "start": start, "find": find}, ledger=ledger)

        recall.__doc__ = RECALL.description
        recall.__annotations__["tool_context"] = ToolContext
        return FunctionTool(recall)


def _name_ledger(agent: str) -> str:
    return f"{LEDGER}:{agent}"


def _read_content(turns: Sequence[Turn], _: Any) -> types.Content:
    """The content for a turn. A lowered one is a dict, which the SDK validates."""
    wire = turns[0].wire
    if isinstance(wire, types.Content):
        return wire
    return types.Content.model_validate(wire)


CODEC = msgspec.structs.replace(PASS_THROUGH, read=_read_content, dialect="gemini")
