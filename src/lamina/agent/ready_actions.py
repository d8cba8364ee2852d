"""Actions that are ready: the tools of a workspace, of memory and of search, and a scratchpad.

The tools themselves, with their checks, are those of `lamina.context`. One that changes something needs
approval.

A scratchpad is a file in which a model keeps notes for itself. The notes outlive every cut, and the program.
There are two actions over one path, which the application chooses and the model cannot change. Notes are only
added.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread

from lamina.agent.actions import Action
from lamina.context.search import Index, answer_search_call, search_tool
from lamina.context.tools import Offer, answer
from lamina.core.text.characters import WHITE_SPACE
from lamina.core.values import Segment, ToolCall
from lamina.dialects.port import Tool
from lamina.errors import BadInput

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


LARGEST = 64 * 1024
"""How many bytes a scratchpad may have. It is always read as a whole."""

_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}
_NOTE_ARGUMENTS: dict[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
}


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


def scratchpad(path: str | PathLike[str]) -> tuple[Action, ...]:
    """The tools `note_down` and `read_notes` over one file."""
    notes_path = Path(path)
    lock = anyio.Lock()

    async def note_down(arguments: dict[str, Any]) -> str:
        async with lock:
            return await to_thread.run_sync(_add_note, notes_path, str(arguments["text"]))

    async def read_notes(_: dict[str, Any]) -> str:
        async with lock:
            return await to_thread.run_sync(_read_notes, notes_path) or "There are no notes yet."

    return (
        Action(
            tool=Tool(name="note_down", description="Adds a line to your notes.", schema=_NOTE_ARGUMENTS),
            run=note_down,
            guideline="write down decisions, findings and what is left to do, as soon as you know them",
        ),
        Action(
            tool=Tool(name="read_notes", description="Reads your notes.", schema=_NO_ARGUMENTS),
            run=read_notes,
            guideline="read them when you are not sure what was found or decided",
        ),
    )


def _add_note(path: Path, text: str) -> str:
    """Append a line to the notes, and return what the model reads about it."""
    line = text.rstrip(WHITE_SPACE) + "\n"
    size = 0
    if path.exists():
        size = path.stat().st_size
    if size + len(line.encode()) > LARGEST:
        raise BadInput(f"the notes have {size:,} bytes already", hint="note less, or answer now")
    with path.open("a", encoding="utf-8") as file:
        file.write(line)
    return "Noted."


def _read_notes(path: Path) -> str:
    if not path.exists():
        return ""
    return path.read_text("utf-8")
