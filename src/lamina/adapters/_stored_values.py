"""What the adapter of the OpenAI Agents SDK has stored, read back.

It is apart from that adapter so that its test needs no framework.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lamina.errors import Damaged


def decode_stored(source: bytes, kind: Any = Any) -> Any:
    """The value whose JSON a store has. Raises Damaged if it is not JSON, or not of this kind."""
    try:
        return msgspec.json.decode(source, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(f"what the store has cannot be read: {error}") from error
