"""Writes content as text where a wire format has no field for it.

Content that has a text is sent as that, an address with a few words around it, another provider's own block
as its JSON. Whether content may be sent so is for a dialect's `carries` to say.
"""

from __future__ import annotations

from collections.abc import Iterable

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
