"""The tools of a workspace, of memory and of search as actions. A tool that changes something needs approval.

The tools themselves, with their checks, are those of `lamina.context`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from lamina.agent.actions import Action
from lamina.context.search import Index, answer_search_call, search_tool
from lamina.context.tools import Offer, answer
from lamina.core.values import Segment, ToolCall
from lamina.dialects.port import Tool

GUIDELINES = {
    "ls": "look at a folder before you name its files",
    "grep": "find the place first, then read around it",
    "read": "read a file before you say what it does, and before you change it",
    "edit": "prefer it to write: give the exact text that is there",
    "write": "only for a file that is new, or of which nearly everything changes",
    "rm": "only what the user asked to remove",
    "remember": "keep what will still matter in another conversation, one fact at a time",
}
"""A line for the system text about each tool that needs one."""


def workspace_actions(offers: Iterable[Offer]) -> tuple[Action, ...]:
    """Tools over a workspace or memory as actions."""
    return tuple(_make_action(offer) for offer in offers)


def search_action(index: Index, *, name: str = "search") -> Action:
    """A search over an index as an action. The question is repeated after what it finds."""

    async def run(arguments: dict[str, Any]) -> Any:
        return await answer_search_call(index, arguments) or "Nothing was found."

    definition = search_tool(name)
    return Action(
        tool=Tool(
            name=definition["name"],
            description=definition["description"],
            schema=definition["parameters"],
        ),
        run=run,
        searches=True,
        guideline=(
            "search before you say that something is not there; ask again in other words if nothing is found"
        ),
    )


def _make_action(offer: Offer) -> Action:
    async def run(arguments: dict[str, Any]) -> Segment:
        call = ToolCall(id="", name=offer.name, arguments=json.dumps(arguments))
        return await answer((offer,), call)

    return Action(
        tool=Tool(**offer.definition),
        run=run,
        writes=offer.changes,
        searches=offer.name == "grep",
        guideline=GUIDELINES.get(offer.name, ""),
    )
