"""Redacts a session that somebody sends on: names stay, and each text becomes a mark with its length.

Equal texts have equal marks, so a reader still sees what was repeated. The marks are made with a key that is
thrown away, so nobody can find a text by trying. Only fields that are known to hold names stay as they are:
a field that nobody thought of counts as a text.
"""

from __future__ import annotations

import re
import secrets
from hashlib import blake2b
from typing import Any

_NAMES_OF_VIEWS = frozenset(
    (
        "advice cache cause columns content_type cut dialect entries form hint id kind lamina layer"
        " layers list loss miss model name operation order parent prices_as_of recorded"
        " ref role rules sort source status stop why without_words"
    ).split()
)
"""Fields of the inspector's own views that hold names, and sentences that lamina wrote itself."""

_EMPTIED: dict[str, Any] = {"difference": [], "images": [], "headers": {}}
"""Fields that quote the session in lists, or as names of values."""

# `messages[66].tool_calls[0]`: a place in a request
_STRUCTURE = re.compile(r"[a-z_]+(\[\d+\](\.[a-z_]+)?)*")

# `read_file`, `mcp__files__read`: what an entry is, if that is one name
_ONE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,60}")


class Redaction:
    """Marks for texts. Those of one redaction are made with one key."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._count = 0

    def mark(self, text: str) -> str:
        """`[text 4f1c09ae, 812 characters]` for a text; "" stays empty."""
        if not text.strip():
            return text
        self._count += 1
        digest = blake2b(text.encode("utf-8", "surrogatepass"), key=self._key, digest_size=4).hexdigest()
        return f"[text {digest}, {len(text):,} characters]"

    def describe(self) -> str:
        """What was left out until now, for whoever opens the file."""
        return (
            f"Redacted: {self._count:,} texts, paths and arguments are marks with their length; images and "
            "headers are left out. Names of tools and models, sizes, times, costs and reasons stay."
        )

    def redact_view(self, value: Any, field: str = "") -> Any:
        """An answer of the inspector, redacted."""
        match value:
            case dict():
                return {name: self._redact_field(name, inner) for name, inner in value.items()}
            case list() | tuple():
                return [self.redact_view(inner, field) for inner in value]
            case str() if not _is_name_in_view(field, value):
                return self.mark(value)
            case _:
                return value

    def _redact_field(self, name: str, value: Any) -> Any:
        if name in _EMPTIED:
            return _EMPTIED[name]
        return self.redact_view(value, name)


def _is_name_in_view(field: str, text: str) -> bool:
    """Whether a text of a view is a name, and stays."""
    match field:
        case "place" | "entry" | "was":
            return _STRUCTURE.fullmatch(text) is not None
        case "what":
            return _ONE_NAME.fullmatch(text) is not None
        case _:
            return field in _NAMES_OF_VIEWS
