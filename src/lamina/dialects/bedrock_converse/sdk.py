"""Makes the arguments of boto3 from a Converse request: bytes where the body has base64."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from operator import is_
from typing import Any

from lamina.dialects.port import Request
from lamina.dialects.same_objects import keep_list

_BYTES_FIELDS = frozenset(("bytes", "redactedContent"))
_FREE_FIELDS = frozenset(("input", "json", "additionalModelRequestFields"))
"""Fields that hold any JSON of the caller's, in which a field `bytes` means nothing."""


def to_sdk_arguments(request: Request) -> dict[str, Any]:
    """The arguments of `client.converse` for a request. What holds no bytes stays the same object.

    boto3 encodes bytes itself, so base64 in the place of bytes would be encoded twice.
    """
    return {name: _to_bytes(value, name) for name, value in request.items()}


def _to_bytes(value: Any, name: str) -> Any:
    """The value of the field `name` with bytes inside; the same object if it holds none."""
    if name in _FREE_FIELDS:
        return value
    match value:
        case str() if name in _BYTES_FIELDS:
            return b64decode(value)
        case Mapping():
            changed = to_sdk_arguments(value)
            if all(map(is_, changed.values(), value.values())):
                return value
            return changed
        case list() | tuple():
            return keep_list(value, [_to_bytes(item, "") for item in value])
    return value
