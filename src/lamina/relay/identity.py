"""Reads which conversation a client names: its own ids, in the order in which they can be trusted.

An id of a client's own names a group of conversations, not one. Claude Code sends the same session id for a
title call, Codex for a thread, opencode for all calls of a session. The user that a request names is a part
of it, since one name may serve many users. Without such an id, the user is the id.
Inside a group, and for clients that send no id at all, the chain of message digests decides
(`lamina.relay.conversation_index`). Only `x-lamina-conversation` names one conversation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from lamina.conversations.recognise import USER, add_user, read_user
from lamina.relay.security import Headers

LONGEST_ID = 200

_HeaderValues = Mapping[bytes, bytes]

_CLAUDE_CODE = "claude-code:"
_SUB_AGENT = re.compile(r"[ ;]cc_is_subagent=(?!false|0)[a-z0-9]", re.ASCII)


class ClientIdentity(NamedTuple):
    """The group of a request, "" if the client says nothing.

    `parent` is the group of the conversation whose sub-agent asks, "" if none does. It is the same group if
    the client does not tell its sub-agents apart.
    """

    group: str = ""
    parent: str = ""


_NOBODY = ClientIdentity()


class _ClaudeCodeUser(msgspec.Struct):
    """The fields that are read of what Claude Code writes into `metadata.user_id`."""

    session_id: str = ""
    account_uuid: str = ""


def identify_client(in_headers: ClientIdentity, request: Mapping[str, Any]) -> ClientIdentity:
    """The client's own id for a request: the one in its headers, or else one in its body."""
    identity = in_headers
    if not identity.group:
        identity = _read_body_identity(request)
    if not identity.parent and identity.group.startswith(_CLAUDE_CODE) and _says_sub_agent(request):
        identity = ClientIdentity(identity.group, identity.group)
    if not in_headers.group:
        return identity
    user = _read_named_user(identity.group, request)
    return ClientIdentity(add_user(identity.group, user), identity.parent and add_user(identity.parent, user))


def _read_named_user(group: str, request: Mapping[str, Any]) -> str:
    """The user of a request whose headers name its conversation. A session of Claude Code has one already."""
    claude_user = _read_user_id(request)
    if not claude_user.session_id:
        return read_user(request)
    if group.startswith(_CLAUDE_CODE) or not claude_user.account_uuid:
        return ""
    return f"{USER}{claude_user.account_uuid}"


def read_header_identity(headers: Headers) -> ClientIdentity:
    """The first id that headers have. Of a header that came twice the first counts."""
    by_name = dict(reversed(headers))
    for read in (_read_own, _read_claude_code, _read_codex, _read_opencode):
        identity = read(by_name)
        if identity.group:
            return identity
    return _NOBODY


def _read_body_identity(request: Mapping[str, Any]) -> ClientIdentity:
    session = _read_user_id(request).session_id
    if session:
        return _name("claude-code", session)
    user = read_user(request)
    if user:
        return ClientIdentity(user)
    cache_key = request.get("prompt_cache_key")
    if isinstance(cache_key, str):
        return _name("cache-key", cache_key)
    return _NOBODY


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


def _says_sub_agent(request: Mapping[str, Any]) -> bool:
    """Whether Claude Code says in its first system block that a sub-agent asks.

    `x-anthropic-billing-header: cc_version=2.1.325.0dc; cc_is_subagent=true;` does. Some relays drop the
    header with the id of the agent, and this stays.
    """
    match request.get("system"):
        case [{"text": str(text)}, *_]:
            return _SUB_AGENT.search(text[:LONGEST_ID]) is not None
    return False


def _read_codex(by_name: _HeaderValues) -> ClientIdentity:
    """The thread of Codex. A sub-agent names its parent's thread, and has the session of the root thread."""
    session = _read_value(by_name, b"session-id")
    identity = _name("thread", _read_value(by_name, b"thread-id") or session)
    parent = _read_value(by_name, b"x-codex-parent-thread-id")
    if not parent and _read_value(by_name, b"x-openai-subagent"):
        parent = session
    parent_group = _name("thread", parent).group
    if not identity.group or parent_group == identity.group:
        return identity
    return ClientIdentity(identity.group, parent_group)


def _read_opencode(by_name: _HeaderValues) -> ClientIdentity:
    return _name("session", _read_value(by_name, b"x-session-id"))


def _read_user_id(request: Mapping[str, Any]) -> _ClaudeCodeUser:
    """What Claude Code says in `metadata.user_id`, which is JSON in a string."""
    match request.get("metadata"):
        case {"user_id": str(user_id)}:
            try:
                return msgspec.json.decode(user_id, type=_ClaudeCodeUser)
            except (msgspec.DecodeError, RecursionError):
                pass
        case _:
            pass
    return _ClaudeCodeUser()


def _read_value(by_name: _HeaderValues, header_name: bytes) -> str:
    """The value of a header, "" without it."""
    value = by_name.get(header_name)
    if value is None:
        return ""
    return value.decode("latin-1").strip(" \t")


def _name(kind: str, value: str) -> ClientIdentity:
    if not value:
        return _NOBODY
    return ClientIdentity(f"{kind}:{value[:LONGEST_ID]}")
