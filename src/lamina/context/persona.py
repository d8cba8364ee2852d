"""Who the model is, as a source: a text, or a file of a workspace that is read for each prompt.

A section of the system text is said once. Given the log, it is said again only after it has changed; the
change stands in its turn until the next cut takes it into the system text.
"""

from __future__ import annotations

from lamina.context.port import GatheredSegments, Log, Source, in_thread, named, unsaid
from lamina.core.text.characters import is_blank
from lamina.segments import persona as section
from lamina.workspace.documents import text_in
from lamina.workspace.workspace import Workspace


def persona(
    text: str = "",
    *,
    path: str = "",
    root: Workspace | None = None,
    log: Log | None = None,
    key: str = "persona",
) -> Source:
    """A source of the persona: `text`, or what the file `path` of the workspace `root` says."""

    async def find(_: str, __: int | None) -> GatheredSegments:
        words = text if root is None else await in_thread(_words, root, path)
        return GatheredSegments(unsaid([section(words, key=key)] if not is_blank(words) else [], log))

    return named("persona", find)


def _words(root: Workspace, path: str) -> str:
    return text_in(path, root.read(path))
