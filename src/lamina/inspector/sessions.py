"""Which sessions can be inspected: recorded traces in files and folders, and conversations in stores."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from lamina.errors import BadInput, LaminaError
from lamina.models.facts import model as facts_of
from lamina.replay.model_calls import RecordedConversation, message_text, read_conversation
from lamina.replay.recorded_usage import sum_recorded_usage
from lamina.replay.traces import find_files, read_traces
from lamina.replay.values import RecordedUsage, Trace, UnreadableLine

FIRST_WORDS = 120
"""Characters of the first question that the list shows."""

DEFAULT_WINDOW = 200_000
"""The window of a model that nobody knows."""

_TAGGED = re.compile(r"<([a-z_-]{1,40})>.*?</\1>", re.DOTALL)
"""What clients put before the first question: "<system-reminder>…</system-reminder>"."""


class SessionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the list of sessions. Amounts that the records do not have are None."""

    id: str
    name: str
    source: str
    place: str
    first_words: str
    model: str
    dialect: str
    calls: int
    messages: int
    tokens: int | None
    dollars: float | None
    lost_caches: int
    began: float | None
    ended: float | None
    parent: str = ""
    problem: str = ""


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded session, read and ready to be built."""

    summary: SessionSummary
    conversation: RecordedConversation

    @property
    def window(self) -> int:
        """The window of the model that answered."""
        return window_of(self.conversation.trace.model)


Reader = Callable[[], Iterable[Trace | UnreadableLine]]
"""Reads all traces of a source anew."""


class Sessions:
    """All sessions of some sources. They are read when first asked for, and again when a file has changed.

    One lock guards the list: a server answers several requests at once.
    """

    def __init__(self, paths: Sequence[str] = (), readers: Sequence[Reader] = ()) -> None:
        self._paths = tuple(paths)
        self._readers = tuple(readers)
        self._lock = threading.RLock()
        self._sessions: dict[str, Session] = {}
        self._problems: list[UnreadableLine] = []
        self._state: tuple[object, ...] | None = None

    def summaries(self) -> list[SessionSummary]:
        """The newest first. Those without times come last, in the order in which they were read."""
        with self._lock:
            self._refresh()
            summaries = [session.summary for session in self._sessions.values()]
        return sorted(summaries, key=lambda summary: -(summary.ended or 0))

    def problems(self) -> list[UnreadableLine]:
        """What could not be read."""
        with self._lock:
            self._refresh()
            return list(self._problems)

    def get(self, session_id: str) -> Session:
        with self._lock:
            self._refresh()
            session = self._sessions.get(session_id)
        if session is None:
            raise BadInput(
                f"there is no session {session_id!r}",
                place="session",
                hint="the list of sessions has the ids; a file may have changed since the page was opened",
            )
        return session

    def state(self) -> str:
        """A word that changes whenever a file does: the live page asks for it."""
        with self._lock:
            return hashlib.sha256(repr(self._file_state()).encode()).hexdigest()[:16]

    def _refresh(self) -> None:
        state = self._file_state()
        if state == self._state:
            return
        self._state = state
        sessions: dict[str, Session] = {}
        self._problems = []
        for trace in self._read():
            if isinstance(trace, UnreadableLine):
                self._problems.append(trace)
                continue
            session = read_session(trace, known_ids=sessions)
            if session is not None:
                sessions[session.summary.id] = session
        self._sessions = sessions

    def _read(self) -> Iterable[Trace | UnreadableLine]:
        if self._paths:
            yield from read_traces(self._paths)
        for reader in self._readers:
            yield from reader()

    def _file_state(self) -> tuple[object, ...]:
        """The size and time of each file. A source that is not a file counts as unchanged."""
        if not self._paths:
            return ()
        state: list[object] = []
        for path in find_files(self._paths):
            try:
                status = Path(path).stat()
            except OSError:
                continue
            state.append((str(path), status.st_size, status.st_mtime_ns))
        return tuple(state)


def read_session(trace: Trace, known_ids: Iterable[str] = ()) -> Session | None:
    """A trace as a session; None for one in which no model was called."""
    try:
        conversation = read_conversation(trace)
    except (LaminaError, RecursionError):
        return None
    if not conversation.calls:
        return None
    reported = sum_recorded_usage(trace)
    usages = [usage for _, usage in sorted(trace.used.items())]
    times = [usage.at for usage in usages if usage.at is not None]
    summary = SessionSummary(
        id=_unique_id(trace, known_ids),
        name=trace.id,
        source=trace.source,
        place=trace.place,
        first_words=find_first_words(conversation),
        model=trace.model,
        dialect=trace.dialect,
        calls=len(conversation.calls),
        messages=len(trace.items),
        tokens=_largest_request(usages),
        dollars=reported.dollars,
        lost_caches=len(reported.lost),
        began=min(times, default=None),
        ended=max(times, default=None),
        parent=_find_parent(trace),
    )
    return Session(summary=summary, conversation=conversation)


def window_of(model: str) -> int:
    """The window of a model, or a usual one if the model is not known."""
    try:
        return facts_of(model).budget.window
    except LaminaError:
        return DEFAULT_WINDOW


def find_first_words(conversation: RecordedConversation) -> str:
    """The beginning of the first question, without what the client put before it."""
    for message in conversation.messages:
        if message.get("role") != "user":
            continue
        text = _TAGGED.sub(" ", message_text(message))
        words = " ".join(text.split())
        if words:
            return words[:FIRST_WORDS]
    return ""


def _largest_request(usages: Sequence[RecordedUsage]) -> int | None:
    if not usages:
        return None
    return max(usage.total for usage in usages)


def _unique_id(trace: Trace, known_ids: Iterable[str]) -> str:
    """An id that can stand in an address. Two traces of one name get different ones."""
    digest = hashlib.sha256(f"{trace.source}\0{trace.place}\0{trace.id}".encode()).hexdigest()
    session_id = digest[:12]
    while session_id in known_ids:
        digest = hashlib.sha256(digest.encode()).hexdigest()
        session_id = digest[:12]
    return session_id


def _find_parent(trace: Trace) -> str:
    """The name of the session that a sub-agent belongs to: "SESSION/agent-1" belongs to "SESSION"."""
    if trace.source != "claude-code":
        return ""
    parent, separator, _ = trace.id.rpartition("/")
    return parent if separator else ""
