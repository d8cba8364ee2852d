"""A file in which a model keeps notes for itself while it works: it outlives every cut, and the program.

Two actions over one path, which the application chooses and the model cannot. Notes are only added.
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
"""Bytes that a scratchpad may have: it is read whole."""

_NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
_NOTE: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def scratchpad(path: str | PathLike[str]) -> tuple[Action, ...]:
    """The tools `note_down` and `read_notes` over one file."""
    place, lock = Path(path), anyio.Lock()

    async def note_down(given: dict[str, Any]) -> str:
        async with lock:
            return await to_thread.run_sync(_added, place, str(given["text"]))

    async def read_notes(_: dict[str, Any]) -> str:
        async with lock:
            return await to_thread.run_sync(_read, place) or "There are no notes yet."

    return (
        Action(
            tool=Tool(name="note_down", description="Adds a line to your notes.", schema=_NOTE),
            run=note_down,
            guideline="write down decisions, findings and what is left to do, as soon as you know them",
        ),
        Action(
            tool=Tool(name="read_notes", description="Reads your notes.", schema=_NOTHING),
            run=read_notes,
            guideline="read them when you are not sure what was found or decided",
        ),
    )


def _added(path: Path, text: str) -> str:
    line = text.rstrip(WHITE_SPACE) + "\n"
    before = path.stat().st_size if path.exists() else 0
    if before + len(line.encode()) > LARGEST:
        raise BadInput(f"the notes have {before:,} bytes already", hint="note less, or answer now")
    with path.open("a", encoding="utf-8") as file:
        file.write(line)
    return "Noted."


def _read(path: Path) -> str:
    return path.read_text("utf-8") if path.exists() else ""
