"""Lists the sessions that can be inspected: recorded traces in files and folders, conversations in stores.

A live page asks often. So a file is read again only if its size or its time has changed.

The log of a client and lamina's record of it are one session: both name it by the client's own id
(`claude-code:5f0c`). The record has what was sent and what was paid, so it stands for the log, unless lamina
saw only a part of the session. Sub-agents name their parent by that id, too: they belong to the conversation
that was under way when they began. A client that compacts its history goes on under the same id with other
words: that is a fork of the conversation which it left.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Protocol

import msgspec

from lamina.conversations.store import is_client_id
from lamina.costs.logs import find_files, read_traces
from lamina.costs.logs.values import Trace, UnreadableLine, make_id
from lamina.errors import BadInput, LaminaError
from lamina.inspector.logs import read_log
from lamina.inspector.recorded_sessions import (
    ListedSession,
    ReadBodies,
    RecordedSession,
    SessionSummary,
    make_line,
)

SCANNED = 200
"""Recorded conversations whose records are read at a time for a search."""

_CLIENTS_WITH_SESSIONS = frozenset(("claude-code", "codex", "opencode"))
"""Clients whose id names one session. That of others may name a user, or the place of a cache."""


class TraceSource(Protocol):
    """Where traces come from, besides files: a store, say."""

    def state(self) -> object:
        """A value that differs as soon as anything has changed."""

    def read(self) -> Iterable[Trace | UnreadableLine | ListedSession]:
        """All traces, as they are now."""


class Relatives(msgspec.Struct):
    """The sessions around one."""

    parents: list[SessionSummary] = []
    forks: list[SessionSummary] = []
    agents: list[ListedSession] = []


class Sessions:
    """All sessions of some sources. They are read when first asked for, and again when a file has changed.

    A file that has not changed is not read again. One lock guards the list: a server answers several
    requests at once.
    """

    def __init__(self, paths: Sequence[str] = (), sources: Sequence[TraceSource] = ()) -> None:
        self._paths = tuple(paths)
        self.sources = tuple(sources)
        self._lock = threading.RLock()
        self._by_file: dict[str, _ReadFile] = {}
        self._sessions: dict[str, ListedSession] = {}
        self._problems: list[UnreadableLine] = []
        self._state: object = None

    def summaries(self) -> list[SessionSummary]:
        """The newest first. Those without times come last, in the order in which they were read."""
        with self._lock:
            self._refresh()
            summaries = [session.summary for session in self._sessions.values()]
        return sorted(summaries, key=lambda summary: -(summary.ended or 0))

    def complete(self, summaries: Iterable[SessionSummary]) -> list[SessionSummary]:
        """The same lines with their figures. Where a list is long, not every record was read for it."""
        with self._lock:
            return [self._complete(self._sessions[summary.id]).summary for summary in summaries]

    def _complete(self, session: ListedSession) -> ListedSession:
        """A session whose line has its figures. One that cannot be read stays as it is."""
        if session.complete is None:
            return session
        try:
            line = session.complete()
        except LaminaError:
            return session
        summary = msgspec.structs.replace(line.summary, id=session.summary.id, parent=session.summary.parent)
        completed = msgspec.structs.replace(line, summary=summary)
        self._sessions[summary.id] = completed
        return completed

    def problems(self) -> list[UnreadableLine]:
        """What could not be read."""
        with self._lock:
            self._refresh()
            return list(self._problems)

    def get(self, session_id: str) -> RecordedSession:
        with self._lock:
            self._refresh()
            session = self._sessions.get(session_id)
        if session is None:
            raise BadInput(
                f"there is no session {session_id!r}",
                place="session",
                hint="the list of sessions has the ids; a file may have changed since the page was opened",
            )
        return RecordedSession(summary=session.summary, sent=session.load())

    def select_stored(
        self, summaries: Iterable[SessionSummary], may_have: Callable[[Sequence[bytes]], bool]
    ) -> Iterator[SessionSummary]:
        """The lines without those of recorded conversations whose records surely have not what is wanted.

        The records are read in pages, so that a search which has found enough reads no more.
        """
        remaining = iter(summaries)
        while page := list(islice(remaining, SCANNED)):
            names: dict[ReadBodies, dict[str, str]] = {}
            with self._lock:
                for summary in page:
                    session = self._sessions.get(summary.id)
                    if session is not None and session.read_bodies is not None:
                        names.setdefault(session.read_bodies, {})[summary.name] = summary.id
            without: set[str] = set()
            for read_bodies, ids in names.items():
                bodies = read_bodies(list(ids))
                without.update(ids[name] for name in bodies if not may_have(bodies[name]))
            yield from (summary for summary in page if summary.id not in without)

    def list_relatives(self, session: RecordedSession) -> Relatives:
        """The session that one is a part of, those in which its client went on, and its sub-agents."""
        with self._lock:
            self._refresh()
            relatives = Relatives()
            own = self._sessions.get(session.summary.id)
            for other in list(self._sessions.values()):
                if own is not None and own.summary.parent == other.summary.name:
                    relatives.parents.append(other.summary)
                if other.summary.parent != session.summary.name:
                    continue
                if other.summary.is_fork:
                    relatives.forks.append(other.summary)
                else:
                    relatives.agents.append(self._complete(other))
            return relatives

    def state(self) -> str:
        """A word that changes whenever a file or a store does: the live page asks for it."""
        with self._lock:
            return hashlib.sha256(repr(self._look()).encode()).hexdigest()[:16]

    def _look(self) -> tuple[object, ...]:
        return (_look_at_files(self._paths), *(source.state() for source in self.sources))

    def _refresh(self) -> None:
        """Read again what has changed since the last look. Two sessions with the same id are named apart."""
        state = self._look()
        if state == self._state:
            return
        self._state = state
        self._read_files()
        results: list[ListedSession | UnreadableLine] = []
        for read_file in self._by_file.values():
            results += read_file.results
        for source in self.sources:
            results += _read_sessions(source.read())
        self._sessions = {}
        self._problems = []
        for result in results:
            if isinstance(result, UnreadableLine):
                self._problems.append(result)
            else:
                session = _name_apart(result, self._sessions)
                self._sessions[session.summary.id] = session
        self._sessions = join_sessions(self._sessions)

    def _read_files(self) -> None:
        """Read the files that are new or have changed. Files that are gone are forgotten."""
        by_file: dict[str, _ReadFile] = {}
        for path, state in _look_at_files(self._paths):
            read_file = self._by_file.get(path)
            if read_file is None or read_file.state != state:
                read_file = _ReadFile(state=state, results=_read_sessions(read_traces([path])))
            by_file[path] = read_file
        self._by_file = by_file


class _ReadFile(msgspec.Struct, frozen=True, kw_only=True):
    """What a file held when its size and time were these."""

    state: tuple[int, int]
    results: list[ListedSession | UnreadableLine]


def _look_at_files(paths: Sequence[str]) -> tuple[tuple[str, tuple[int, int]], ...]:
    """The path or URL of each file, with its size and time.

    A file that has both unchanged is not read again.
    """
    if not paths:
        return ()
    files: list[tuple[str, tuple[int, int]]] = []
    for path in find_files(paths):
        try:
            status = path.stat()
        except OSError:
            continue  # it was removed just now
        files.append((str(path), (status.st_size, status.st_mtime_ns)))
    return tuple(files)


def _read_sessions(
    traces: Iterable[Trace | UnreadableLine | ListedSession],
) -> list[ListedSession | UnreadableLine]:
    """Traces as sessions. A trace in which no model was asked is left out, a damaged line stays."""
    results: list[ListedSession | UnreadableLine] = []
    for trace in traces:
        if not isinstance(trace, Trace):
            results.append(trace)
            continue
        conversation = read_log(trace)
        if conversation is not None:
            results.append(make_line(conversation))
    return results


def _name_apart(session: ListedSession, others: Container[str]) -> ListedSession:
    """The session with an id that no other has."""
    session_id = session.summary.id
    while session_id in others:
        session_id = make_id(session_id)
    return msgspec.structs.replace(session, summary=msgspec.structs.replace(session.summary, id=session_id))


def join_sessions(sessions: Mapping[str, ListedSession]) -> dict[str, ListedSession]:
    """The sessions without logs that lamina has recorded, each with the name of its parent."""
    recorded_calls: Counter[str] = Counter()
    for session in sessions.values():
        if session.summary.client_session and not session.is_log:
            recorded_calls[session.summary.client_session] += session.summary.calls
    joined: dict[str, ListedSession] = {}
    for session_id, session in sessions.items():
        summary = session.summary
        is_recorded = summary.calls <= recorded_calls[summary.client_session]
        if not session.is_log or not is_recorded:
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
