"""Writes what an API has no field for as text, and names of tools so that an API takes them.

Content that has a text is sent as that, an address with a few words around it, another provider's own block
as its JSON. Whether content may be sent so is for a dialect's `carries` to say.

Each API takes other characters in the name of a tool. A call that came from another API, or from a model that
made a name up, gets a name that the API takes. A name that the request itself defines is left as it is: if
the API refuses it, that is for `check` to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from lamina.core.values import Document, Image, Part
from lamina.core.wording import text_of

OPENING = "[the conversation begins with the assistant]"
"""Sent in place of the user's first message, if an API asks for one. It states a fact, in nobody's name."""


def write_as_text(parts: Iterable[Part]) -> str:
    """All of some parts as text, one after the other."""
    return "\n".join(map(_write_part, parts))


def _write_part(part: Part) -> str:
    """The text of a part. A picture or a document that lamina does not have is named by its address.

    `[picture at https://example.com/a.png]`, or `[document a.pdf at https://example.com/a.pdf]`.
    """
    match part:
        case Image(data="", url=url) if url:
            return f"[picture at {url}]"
        case Document(data="", text="", name="", url=url) if url:
            return f"[document at {url}]"
        case Document(data="", text="", name=name, url=url) if url:
            return f"[document {name} at {url}]"
    return text_of((part,))


class ToolNames:
    """Chooses the name of a call. `defined` are the names of the request's own tools, as they came."""

    def __init__(self, defined: Iterable[Any], make_safe: Callable[[str], str]) -> None:
        self._defined = {name for name in defined if isinstance(name, str)}
        self._make_safe = make_safe

    def choose(self, name: str) -> str:
        """The name to send: `fs.read` if a tool has this name, else what `make_safe` makes of it."""
        if name in self._defined:
            return name
        return self._make_safe(name)
