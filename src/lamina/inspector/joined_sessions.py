"""Makes one session of what several sources say about it: the log of a client, and lamina's record of it.

Both name the session by the client's own id (`claude-code:5f0c`). The record has what was sent and what was
paid, so it stands for the log, unless lamina saw only a part of the session. Sub-agents name their parent by
that id, too: they belong to the conversation that was under way when they began. A client that compacts its
history goes on under the same id with other words: that is a fork of the conversation which it left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from lamina.conversations.store import is_client_id
from lamina.inspector.recorded_sessions import ListedSession, SessionSummary, StoredSession

_CLIENTS_WITH_SESSIONS = frozenset(("claude-code", "codex", "opencode"))
"""Clients whose id names one session. That of others may name a user, or the place of a cache."""


def join_sessions(sessions: Mapping[str, ListedSession]) -> dict[str, ListedSession]:
    """The sessions without logs that lamina has recorded, each with the name of its parent."""
    recorded_calls: Counter[str] = Counter()
    for session in sessions.values():
        if isinstance(session, StoredSession) and session.summary.client_session:
            recorded_calls[session.summary.client_session] += session.summary.calls
    joined: dict[str, ListedSession] = {}
    for session_id, session in sessions.items():
        summary = session.summary
        is_recorded = summary.calls <= recorded_calls[summary.client_session]
        if isinstance(session, StoredSession) or not is_recorded:
            joined[session_id] = session
    conversations = _group_conversations(joined.values())
    names = {session.summary.name for session in joined.values()}
    for session_id, session in joined.items():
        parent = _find_parent(session.summary, conversations, names)
        is_fork = session.summary.is_fork
        if not parent:
            parent = _find_left(session.summary, conversations)
            is_fork = bool(parent)
        if parent != session.summary.parent:
            summary = msgspec.structs.replace(session.summary, parent=parent, is_fork=is_fork)
            joined[session_id] = msgspec.structs.replace(session, summary=summary)
    return joined


def _find_left(summary: SessionSummary, conversations: Mapping[str, list[SessionSummary]]) -> str:
    """The first conversation of the same session of a client; "" if this is the first, or the only one."""
    if summary.client_session.partition(":")[0] not in _CLIENTS_WITH_SESSIONS:
        return ""
    first = conversations.get(summary.client_session, [summary])[0]
    if first.name == summary.name:
        return ""
    return first.name


def _group_conversations(sessions: Iterable[ListedSession]) -> dict[str, list[SessionSummary]]:
    """The conversations of each client's session, the first first, without sub-agents that share its id."""
    conversations: dict[str, list[SessionSummary]] = {}
    for session in sessions:
        summary = session.summary
        if summary.client_session and summary.parent != summary.client_session:
            conversations.setdefault(summary.client_session, []).append(summary)
    for group in conversations.values():
        group.sort(key=lambda summary: summary.began or 0.0)
    return conversations


def _find_parent(
    summary: SessionSummary, conversations: Mapping[str, list[SessionSummary]], names: set[str]
) -> str:
    """The name of the session that one belongs to, which may be known by the client's id only."""
    if not summary.parent or summary.parent in names:
        return summary.parent
    parent_id = summary.parent
    if not is_client_id(parent_id):  # the log of a sub-agent, whose parent lamina has recorded
        parent_id = f"{summary.source}:{parent_id}"
    parent = summary.parent
    for conversation in conversations.get(parent_id, ()):
        if parent == summary.parent or (conversation.began or 0.0) <= (summary.began or 0.0):
            parent = conversation.name
    return parent
