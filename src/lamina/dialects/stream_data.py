"""Encodes what a cache compares, and reads the lifetimes of cache markers, for all dialects."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from lamina.caches.stream import encode_block
from lamina.dialects.json_values import drop_nulls, mapping_or_empty, text_or_empty
from lamina.dialects.port import Request
from lamina.errors import BadInput


def encode_data(value: Any, place: str) -> bytes:
    """The bytes that a cache compares. Raises BadInput with this place if the value is not JSON."""
    try:
        return encode_block(value)
    except BadInput as error:
        raise BadInput(error.problem, place=place, hint=error.hint) from None


def encode_settings(settings: Mapping[str, Any]) -> dict[str, bytes]:
    """The settings of a request as a cache compares them. Those that are null are left out."""
    return {name: encode_data(value, name) for name, value in drop_nulls(settings).items()}


def find_other_fields(request: Request, fields: Container[str]) -> dict[str, Any] | None:
    """The fields of a request besides these, without nulls; None if there are no others.

    The model may read a field that lamina does not know. So whoever compares two requests should see that
    they differ.
    """
    others = {name: value for name, value in request.items() if name not in fields}
    return drop_nulls(others) or None


def read_marker(holder: Mapping[str, Any], field: str, default_lifetime: str) -> str:
    """The lifetime that a marker in this field asks for, "" if there is no marker.

    A marker that asks for none has the default lifetime.
    """
    marker = holder.get(field)
    if marker is None:
        return ""
    return text_or_empty(mapping_or_empty(marker).get("ttl")) or default_lifetime
