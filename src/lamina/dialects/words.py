"""Words for content that a wire format has no field for, where it must be said as text.

What has a text is said by it; what stands at an address is named with it; another provider's own block is
its JSON. Nothing here decides whether content may be said so: that is a dialect's `carries`.
"""

from __future__ import annotations

from collections.abc import Iterable

from lamina.core.values import Document, Image, Part
from lamina.core.wording import text_of

OPENING = "[the conversation begins with the assistant]"
"""In the place of the user's first message, where an API asks for one: a fact, and nobody's words."""


def said(parts: Iterable[Part]) -> str:
    """All of some parts as text, one after the other."""
    return "\n".join(map(_said, parts))


def _said(part: Part) -> str:
    if isinstance(part, Image) and part.url and not part.data:
        return f"[picture at {part.url}]"
    if isinstance(part, Document) and part.url and not part.data and not part.text:
        return f"[document {part.name} at {part.url}]" if part.name else f"[document at {part.url}]"
    return text_of((part,))
