"""What the streams of all dialects have in common: encoded data, and the lifetimes of cache markers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.caches.stream import encode_block
from lamina.dialects.json_values import mapping_or_empty, text_or_empty
from lamina.dialects.port import Marking, Request
from lamina.errors import BadInput


def encode_data(value: Any, place: str) -> bytes:
    """The bytes that a cache compares. Raises BadInput with this place if the value is not JSON."""
    try:
        return encode_block(value)
    except BadInput as error:
        raise BadInput(error.problem, place=place, hint=error.hint) from None


def mark_nothing(request: Request, _: Marking) -> dict[str, Any]:
    """The request as it is, for an API without cache markers."""
    if isinstance(request, dict):
        return request
    return dict(request)


def read_marker(holder: Mapping[str, Any], field: str, default_lifetime: str) -> str:
    """The lifetime that a marker in this field asks for, "" if there is no marker."""
    marker = holder.get(field)
    if marker is None:
        return ""
    return text_or_empty(mapping_or_empty(marker).get("ttl")) or default_lifetime
