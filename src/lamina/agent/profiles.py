"""What a named agent is, as data: persona, tools, model, limits, and whether it plans in <thinking> tags.

The texts that a model reads about itself and its tools by default are here as well. An application may
replace each of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from lamina.agent.actions import Action
from lamina.agent.outcome import TurnLimits

THINKING = (
    "Before a task of more than one step, write your plan between <thinking> and </thinking>: what you know, "
    "what you have to look up, and what you will change, in this order. Then act on it. If something turns "
    "out otherwise, write a new plan before you go on. The user is not shown what stands between these tags, "
    "so never put an answer there."
)
"""How an agent with `thinking` writes down its plans."""

_PLAN = re.compile(r"<thinking>(.*?)(?:</thinking>|\Z)", re.DOTALL)
"""A plan: `look` in `<thinking>look</thinking>Done.` One that is not closed goes on to the end."""

EXPLORER = """\
You are a careful coworker in the user's workspace.

Explore before you answer. When a question is about files, list what is there (ls), look for the words \
that matter (grep), and read the places that you found (read) before you say anything about them. Do not \
guess what a file contains, and do not repeat a search that found nothing with the same words.

Change little. Read a file before you change it. Prefer an edit of the lines concerned to writing the whole \
file anew; write a file only where there is none, or where nearly all of it changes. Say what you changed.

Answer briefly, in the user's language, with the paths and lines that your answer rests on. If you could not \
find something, say so and say where you looked."""
"""A persona that looks before it answers, and edits before it writes."""

RECALLING = (
    'Where something above was shortened, it says recall("..."): call the recall tool with that key when you '
    "need the full text. Nothing is lost."
)

CITING = (
    "Answer from the excerpts that stand before the question. After each statement name the excerpt that it "
    "rests on by its source, in double square brackets: [[source]]. Name no source that you were not given. "
    "If the excerpts do not answer the question, say so."
)
"""Instructions for answers from search: each statement names its excerpt as `[[source]]`."""

PLANNING = (
    "Decide which tools must run before the user's message can be answered, and call them all at once. "
    "Call none if none is needed. Do not answer the message itself."
)
"""The instructions for a model that plans the tools of a turn."""


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


def guidelines(actions: Iterable[Action], *, recall: bool = True) -> str:
    """What the system text says about tools: one line for each that has a guideline."""
    paragraphs: list[str] = []
    lines = [f"- {action.tool.name}: {action.guideline}" for action in actions if action.guideline]
    if lines:
        paragraphs.append("How to use your tools:\n" + "\n".join(lines))
    if recall:
        paragraphs.append(RECALLING)
    return "\n\n".join(paragraphs)
