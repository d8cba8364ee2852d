"""The file of one record: its name, and its bytes as JSON.

A record that is a JSON object is stored as it is, so that anyone can read it; any other record is wrapped:
`{"base64":"..."}`. The time in the name is for people. Nothing orders records by it.
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
"""Stands for the role in the name of a file whose record has none that can be read."""

_NAME = re.compile(r"([0-9]{8}T[0-9]{9}Z)_([0-9]{4,})_([a-z]+)\.json")  # "20250824T163625123Z_0000_user.json"
_ROLES = frozenset(("system", "user", "assistant", "tool"))
_WRAPPER_START = b'{"base64":"'
_WRAPPER_END = b'"}'


def record_file_name(seq: int, body: bytes, at: datetime) -> str:
    """The name of a new file: `yyyyMMddTHHmmssfffZ_{seq}_{role}.json`."""
    return _format_name(_format_time(at), seq, body)


def rename_record_file(name: str, seq: int, body: bytes) -> str:
    """The name of a file whose record gets another body: the time stays."""
    match = _NAME.fullmatch(name)
    if match is None:
        return name
    return _format_name(match[1], seq, body)


def is_record_file(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def encode_body(body: bytes) -> bytes:
    """A record as the content of its file."""
    if _parse_object(body) is not None and not body.startswith(_WRAPPER_START):
        return body
    return _WRAPPER_START + base64.b64encode(body) + _WRAPPER_END


def decode_body(content: bytes) -> bytes:
    """The record in the content of its file. A damaged file gives other bytes, which the digest shows."""
    if not content.startswith(_WRAPPER_START):
        return content
    try:
        return base64.b64decode(content[len(_WRAPPER_START) : -len(_WRAPPER_END)], validate=True)
    except binascii.Error:
        return content


def body_digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:32]


def _format_name(time: str, seq: int, body: bytes) -> str:
    return f"{time}_{seq:04d}_{_role_of(body)}.json"


def _format_time(at: datetime) -> str:
    """A time in UTC as file names have it, which sort by time: `20260131T093000123Z`."""
    at = at.astimezone(UTC)
    return f"{at.year:04d}{at:%m%dT%H%M%S}{at.microsecond // 1000:03d}Z"


def _role_of(body: bytes) -> str:
    """Who speaks in a record, for the name of its file; `sealed` if nobody can tell without a key."""
    record = _parse_object(body)
    match record:
        case {"segment": {"role": str(role)}} if role in _ROLES:
            return role
    return SEALED


def _parse_object(body: bytes) -> dict[str, Any] | None:
    """The JSON object in a record; None if it is something else."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return value
