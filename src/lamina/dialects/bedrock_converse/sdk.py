"""Converse requests as boto3 takes them: bytes where the body of a request has base64."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from lamina.dialects.json_values import LIST_TYPES
from lamina.dialects.port import Request

_BYTES_FIELDS = frozenset(("bytes", "redactedContent"))
_FREE_FIELDS = frozenset(("input", "json", "additionalModelRequestFields"))
"""Fields that hold any JSON of the caller's, in which a field `bytes` means nothing."""


def to_sdk_arguments(request: Request) -> dict[str, Any]:
    """The arguments of `client.converse` for a request. What holds no bytes stays the same object.

    boto3 encodes bytes itself, so base64 in the place of bytes would be encoded twice.
    """
    return {name: _to_bytes(value, name) for name, value in request.items()}


def _to_bytes(value: Any, name: str) -> Any:
    if name in _FREE_FIELDS:
        return value
    if name in _BYTES_FIELDS and isinstance(value, str):
        return b64decode(value)
    if isinstance(value, Mapping):
        changed = {inner: _to_bytes(held, inner) for inner, held in value.items()}
        return changed if any(changed[inner] is not value[inner] for inner in value) else value
    if isinstance(value, LIST_TYPES):
        items = [_to_bytes(item, "") for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value
