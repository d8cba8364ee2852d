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
        "advice all_rules cache cause columns content_type cut dialect entries form hint id kind lamina layer"
        " layers list loss miss model name operation order parent prices_as_of project recorded"
        " ref role rules sort source state states status stop tools why"
    ).split()
)
"""Fields of the inspector's own views that hold names, and sentences that lamina wrote itself."""

_NAMES_OF_BODIES = frozenset("model name object role status stop_reason finish_reason type".split())
"""Fields of requests and answers of any API that hold names."""

_ARGUMENT_FIELDS = frozenset(("arguments", "input", "args"))

_EMPTIED: dict[str, Any] = {"difference": [], "images": [], "path": {}, "read_again": {}, "headers": {}}
"""Fields that quote the session in lists, or as names of values."""

# `messages[66].tool_calls[0]`: a place in a request
_STRUCTURE = re.compile(r"[a-z_]+(\[\d+\](\.[a-z_]+)?)*")

# `read_file`, `mcp__files__read`: what an entry is, if that is one name
_ONE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,60}")


class Redaction:
    """Marks for texts. Those of one redaction are made with one key."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def mark(self, text: str) -> str:
        """`[text 4f1c09ae, 812 characters]` for a text; "" stays empty."""
        if not text.strip():
            return text
        digest = blake2b(text.encode("utf-8", "surrogatepass"), key=self._key, digest_size=4).hexdigest()
        return f"[text {digest}, {len(text):,} characters]"

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

    def redact_body(self, value: Any, field: str = "") -> Any:
        """A request or an answer of any API, redacted. Names of fields stay, unless they are arguments."""
        match value:
            case dict():
                return self._redact_object(value, field)
            case list() | tuple():
                return [self.redact_body(inner, field) for inner in value]
            case str() if field not in _NAMES_OF_BODIES:
                return self.mark(value)
            case _:
                return value

    def _redact_object(self, value: dict[str, Any], field: str) -> dict[str, Any]:
        """An object of a body. Names of arguments are marked too: a tool may take paths or words as names."""
        # `input` is the arguments of a call in Anthropic's API, and the list of items in OpenAI's.
        is_item = "role" in value or "type" in value
        if field in _ARGUMENT_FIELDS and not is_item:
            return {self.mark(name): self.redact_body(inner) for name, inner in value.items()}
        return {name: self.redact_body(inner, name) for name, inner in value.items()}


def _is_name_in_view(field: str, text: str) -> bool:
    """Whether a text of a view is a name, and stays."""
    match field:
        case "place" | "entry" | "was":
            return _STRUCTURE.fullmatch(text) is not None
        case "what":
            return _ONE_NAME.fullmatch(text) is not None
        case _:
            return field in _NAMES_OF_VIEWS
