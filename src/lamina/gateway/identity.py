"""Which conversation a client says that it is: its own ids, in the order in which they can be trusted.

An id names a group of conversations, not one. Claude Code sends the same session id for a title call, Codex
for a thread, opencode for all calls of a session. Inside a group, and for clients that send no id at all, the
chain of message digests decides (`lamina.gateway.conversations`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from lamina.gateway.security import Headers

LONGEST_ID = 200

_HeaderValues = Mapping[bytes, bytes]


class ClientIdentity(NamedTuple):
    """The group of a request, "" if the client says nothing. `parent` is the group that it is part of."""

    group: str = ""
    parent: str = ""


def identify_client(headers: Headers, request: Mapping[str, Any]) -> ClientIdentity:
    """The client's own id for a request. Of a header that came twice the first counts."""
    by_name = dict(reversed(headers))
    for read in (_read_own, _read_claude_code, _read_codex, _read_opencode):
        identity = read(by_name)
        if identity.group:
            return identity
    for name, value in (
        ("cache-key", request.get("prompt_cache_key")),
        ("claude-code", _read_user_id(request)),
    ):
        if isinstance(value, str) and value:
            return ClientIdentity(f"{name}:{value[:LONGEST_ID]}")
    return ClientIdentity()


def _read_own(by_name: _HeaderValues) -> ClientIdentity:
    return _name("name", _read_value(by_name, b"x-lamina-conversation"))


def _read_claude_code(by_name: _HeaderValues) -> ClientIdentity:
    session = _read_value(by_name, b"x-claude-code-session-id")
    agent = _read_value(by_name, b"x-claude-code-agent-id")
    identity = _name("claude-code", session)
    if not session or not agent:
        return identity
    parent = _read_value(by_name, b"x-claude-code-parent-agent-id")
    parent_group = identity.group
    if parent:
        parent_group = f"{identity.group}:{parent[:LONGEST_ID]}"
    return ClientIdentity(f"{identity.group}:{agent[:LONGEST_ID]}", parent_group)


def _read_codex(by_name: _HeaderValues) -> ClientIdentity:
    thread = _read_value(by_name, b"thread-id") or _read_value(by_name, b"session-id")
    return _name("thread", thread)


def _read_opencode(by_name: _HeaderValues) -> ClientIdentity:
    return _name("session", _read_value(by_name, b"x-session-id"))


def _read_user_id(request: Mapping[str, Any]) -> str:
    """Claude Code's session in `metadata.user_id`, which is JSON in a string."""
    metadata = request.get("metadata")
    if not isinstance(metadata, Mapping) or not isinstance(metadata.get("user_id"), str):
        return ""
    try:
        fields = msgspec.json.decode(metadata["user_id"], type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return ""
    session = fields.get("session_id")
    if isinstance(session, str):
        return session
    return ""


def _read_value(by_name: _HeaderValues, header_name: bytes) -> str:
    """The value of a header, "" without it."""
    value = by_name.get(header_name)
    if value is None:
        return ""
    return value.decode("latin-1").strip(" \t")


def _name(kind: str, value: str) -> ClientIdentity:
    if not value:
        return ClientIdentity()
    return ClientIdentity(f"{kind}:{value[:LONGEST_ID]}")
