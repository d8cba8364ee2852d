"""The persona as a source: a text, or a file of a workspace that is read for each prompt.

A section of the system text is sent once. With the log, the source returns it again only after it has
changed. The change is part of its turn until the next cut takes it into the system text.
"""

from __future__ import annotations

from lamina.context.port import GatheredSegments, Log, Source, drop_unchanged, name_source, run_in_thread
from lamina.segments import persona as make_persona_segment
from lamina.workspace.documents import text_in
from lamina.workspace.workspace import Workspace

__all__ = ["persona"]


def persona(
    text: str = "",
    *,
    path: str = "",
    root: Workspace | None = None,
    log: Log | None = None,
) -> Source:
    """A source of the persona: `text`, or the text of the file `path` in the workspace `root`."""

    async def find(_: str, __: int | None) -> GatheredSegments:
        persona_text = text
        if root is not None:
            persona_text = await run_in_thread(_read_persona, root, path)
        return GatheredSegments(drop_unchanged([make_persona_segment(persona_text)], log))

    return name_source("persona", find)


def _read_persona(root: Workspace, path: str) -> str:
    """The text of a file, whatever its format."""
    return text_in(path, root.read(path))
