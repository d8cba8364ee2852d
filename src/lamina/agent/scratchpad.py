"""A file in which a model keeps notes for itself. The notes outlive every cut, and the program.

There are two actions over one path, which the application chooses and the model cannot change. Notes are only
added.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread

from lamina.agent.actions import Action
from lamina.core.text.characters import WHITE_SPACE
from lamina.dialects.port import Tool
from lamina.errors import BadInput

LARGEST = 64 * 1024
"""How many bytes a scratchpad may have. It is always read as a whole."""

_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}
_NOTE_ARGUMENTS: dict[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
}


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
    size = path.stat().st_size if path.exists() else 0
    if size + len(line.encode()) > LARGEST:
        raise BadInput(f"the notes have {size:,} bytes already", hint="note less, or answer now")
    with path.open("a", encoding="utf-8") as file:
        file.write(line)
    return "Noted."


def _read_notes(path: Path) -> str:
    if not path.exists():
        return ""
    return path.read_text("utf-8")
