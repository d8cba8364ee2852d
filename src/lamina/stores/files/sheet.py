"""The file of one record: what it is called, and its bytes as JSON.

A record that is JSON itself is kept to the byte, so that anyone can read it; any other is wrapped. The
time in the name is for people. Nothing here, and nothing elsewhere, puts records in order by it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from datetime import UTC, datetime
from typing import Any

import msgspec

SEALED = "record"
"""Stands for the role in the name of a file whose record does not tell one."""

_NAME = re.compile(r"([0-9]{8}T[0-9]{9}Z)_([0-9]{4,})_([a-z]+)\.json")
_ROLES = frozenset(("system", "user", "assistant", "tool"))
_OPENS, _CLOSES = b'{"base64":"', b'"}'


def sheet_name(seq: int, body: bytes, at: datetime) -> str:
    """`yyyyMMddTHHmmssfffZ_{seq}_{role}.json`."""
    return _named(_stamp(at), seq, body)


def renamed(name: str, seq: int, body: bytes) -> str:
    """The name for another body in the same place: the time stays."""
    found = _NAME.fullmatch(name)
    return _named(found[1], seq, body) if found else name


def is_sheet(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def written(body: bytes) -> bytes:
    """A record as the content of its file."""
    if _plain(body) is not None and not body.startswith(_OPENS):
        return body
    return _OPENS + base64.b64encode(body) + _CLOSES


def body_of(content: bytes) -> bytes:
    """The record that `written` was given; of a damaged file something else, which its digest shows."""
    if not content.startswith(_OPENS):
        return content
    try:
        return base64.b64decode(content[len(_OPENS) : -len(_CLOSES)], validate=True)
    except binascii.Error:
        return content


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:32]


def _named(stamp: str, seq: int, body: bytes) -> str:
    return f"{stamp}_{seq:04d}_{_role(body)}.json"


def _stamp(at: datetime) -> str:
    at = at.astimezone(UTC)
    return f"{at.year:04d}{at:%m%dT%H%M%S}{at.microsecond // 1000:03d}Z"


def _role(body: bytes) -> str:
    segment = (_plain(body) or {}).get("segment")
    role = segment.get("role") if isinstance(segment, dict) else None
    return role if isinstance(role, str) and role in _ROLES else SEALED


def _plain(body: bytes) -> dict[str, Any] | None:
    """A record that is a JSON object."""
    try:
        plain = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return plain if isinstance(plain, dict) else None
