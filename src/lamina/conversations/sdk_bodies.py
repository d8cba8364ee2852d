"""The bodies that an SDK makes of its arguments and answers, for the record.

The SDK writes the bytes itself, so a body here has the same values as the one that left, and not always the
same spaces. Headers, timeouts and other arguments that are no part of the body are not kept: a key may be
among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

_NOT_SENT = frozenset(("extra_headers", "extra_query", "timeout", "betas"))
"""Arguments of SDKs that are no part of the body."""

_NOT_GIVEN = frozenset(("NotGiven", "Omit"))
"""The types of what SDKs take for an argument that was not given."""


def encode_answer(answer: Any) -> tuple[str, bytes]:
    """The content type and the body of an answer: a whole one, or the events of a stream."""
    if isinstance(answer, list):
        return "text/event-stream", b"".join(b"data: " + encode_value(event) + b"\n\n" for event in answer)
    return "application/json", encode_value(answer)


def encode_arguments(request: Mapping[str, Any]) -> bytes:
    """The body that an SDK makes of its arguments."""
    body: dict[str, Any] = {}
    for name, value in request.items():
        if name in _NOT_SENT or type(value).__name__ in _NOT_GIVEN:
            continue
        body[name] = value
    extra = body.pop("extra_body", None)
    if isinstance(extra, Mapping):
        body.update(extra)
    return encode_value(body)


def encode_value(value: Any) -> bytes:
    """A value of an SDK as JSON. What cannot be written is named by its type: a record never fails a call."""
    try:
        return msgspec.json.encode(value, enc_hook=_to_plain)
    except Exception as error:  # noqa: BLE001 - a foreign object may do anything
        return msgspec.json.encode({"not recorded": type(error).__name__})


def _to_plain(value: Any) -> Any:
    for name, options in (("model_dump", {"mode": "json", "exclude_unset": True}), ("to_dict", {})):
        method = getattr(value, name, None)
        if callable(method):
            return method(**options)
    if isinstance(value, Sequence):
        return list(value)
    return f"<{type(value).__name__}>"
