"""Which sessions can be inspected: recorded traces in files and folders, and conversations in stores."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Container, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from lamina.errors import BadInput, LaminaError
from lamina.inspector.sent_requests import SentConversation
from lamina.models.facts import model as facts_of
from lamina.replay.model_calls import ModelCall, RecordedConversation, message_text, read_conversation
from lamina.replay.recorded_usage import sum_recorded_usage
from lamina.replay.traces import find_files, read_traces
from lamina.replay.values import RecordedUsage, Trace, UnreadableLine

FIRST_WORDS = 120
"""Characters of the first question that the list shows."""

DEFAULT_WINDOW = 200_000
"""The window of a model that nobody knows."""

_TAG = re.compile(r"<(/?)([a-z_-]{1,40})>")
"""The beginning or the end of what clients put before the first question, as `<system-reminder>`."""


class SessionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the list of sessions. Amounts that the records do not have are None.

    `answered` is False if no model has answered the first request, which is then the only one.
    """

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
    cuts: int = 0
    project: str = ""
    parent: str = ""
    answered: bool = True


class RecordedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded session, read and ready to be built.

    `sent` is lamina's own record of it, None for any other log. `history` reads what the client said: of a
    record, that is its last request as the client wrote it, which is read when somebody asks for it.
    """

    summary: SessionSummary
    history: Callable[[], RecordedConversation]
    sent: SentConversation | None = None

    @property
    def conversation(self) -> RecordedConversation:
        """The client's own history, for the question what other settings would have made of it."""
        return self.history()

    @property
    def version(self) -> int:
        """A number that changes when the session grows."""
        if self.sent is not None:
            return self.sent.record.count
        return self.summary.messages

    @property
    def window(self) -> int:
        """The window of the model that answered, or the one that its last request was fitted to."""
        if self.sent is not None and self.sent.window:
            return self.sent.window
        return window_of(self.conversation.trace.model)

    @property
    def has_head(self) -> bool:
        """Whether system text or tools were recorded. Logs of some coding agents have neither."""
        if self.sent is not None or self.conversation.tools:
            return True
        return any(message.get("role") in ("system", "developer") for message in self.conversation.messages)


class StoredSession(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A session of which only the summary is in memory. `load` reads the rest.

    `sizes` has the time and the tokens of each of its requests, None where they are not known.
    """

    summary: SessionSummary
    load: Callable[[], RecordedSession]
    sizes: tuple[tuple[float | None, int | None], ...] = ()


class TraceSource(Protocol):
    """Where traces come from, besides files: a store, say."""

    def state(self) -> object:
        """A value that differs as soon as anything has changed."""

    def read(self) -> Iterable[Trace | UnreadableLine | StoredSession]:
        """All traces, as they are now."""


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
        self._sessions: dict[str, RecordedSession | StoredSession] = {}
        self._problems: list[UnreadableLine] = []
        self._state: object = None

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
        return _load(session)

    def children(self, session: RecordedSession) -> list[RecordedSession | StoredSession]:
        """The sessions of the sub-agents of a session, and what was forked from it."""
        with self._lock:
            self._refresh()
            return [
                other for other in self._sessions.values() if other.summary.parent == session.summary.name
            ]

    def state(self) -> str:
        """A word that changes whenever a file or a store does: the live page asks for it."""
        with self._lock:
            return hashlib.sha256(repr(self._look()).encode()).hexdigest()[:16]

    def _look(self) -> tuple[object, ...]:
        """What the sources look like now."""
        return (_look_at_files(self._paths), *(source.state() for source in self.sources))

    def _refresh(self) -> None:
        """Read again what has changed since the last look. Two sessions with the same id are named apart."""
        state = self._look()
        if state == self._state:
            return
        self._state = state
        self._read_files()
        results: list[RecordedSession | StoredSession | UnreadableLine] = []
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
    results: list[RecordedSession | StoredSession | UnreadableLine]


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
    traces: Iterable[Trace | UnreadableLine | StoredSession],
) -> list[RecordedSession | StoredSession | UnreadableLine]:
    """Traces as sessions. A trace in which no model was asked is left out, a damaged line stays."""
    results: list[RecordedSession | StoredSession | UnreadableLine] = []
    for trace in traces:
        if not isinstance(trace, Trace):
            results.append(trace)
            continue
        session = read_session(trace)
        if session is not None:
            results.append(session)
    return results


def _load(session: RecordedSession | StoredSession) -> RecordedSession:
    """The whole session, under the id that it has in the list."""
    if isinstance(session, RecordedSession):
        return session
    loaded = session.load()
    summary = msgspec.structs.replace(loaded.summary, id=session.summary.id)
    return msgspec.structs.replace(loaded, summary=summary)


def _name_apart(
    session: RecordedSession | StoredSession, others: Container[str]
) -> RecordedSession | StoredSession:
    """The session with an id that no other has."""
    session_id = session.summary.id
    while session_id in others:
        session_id = make_id(session_id)
    return msgspec.structs.replace(session, summary=msgspec.structs.replace(session.summary, id=session_id))


def read_session(trace: Trace) -> RecordedSession | None:
    """A trace as a session; None for one in which no model was asked.

    A question at the end that nobody answered counts as a call, if it is the only one.
    """
    try:
        conversation = read_conversation(trace)
    except (LaminaError, RecursionError):
        return None
    is_answered = bool(conversation.calls)
    if not is_answered:
        conversation = _add_unanswered_call(conversation)
    if not conversation.calls:
        return None
    reported = sum_recorded_usage(trace)
    usages = [usage for _, usage in sorted(trace.used.items())]
    times = [usage.at for usage in usages if usage.at is not None]
    summary = SessionSummary(
        id=make_id(trace.source, trace.place, trace.id),
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
        cuts=len(trace.compacted),
        project=_find_project(trace),
        parent=_find_parent(trace),
        answered=is_answered,
    )
    return RecordedSession(summary=summary, history=lambda: conversation)


def _add_unanswered_call(conversation: RecordedConversation) -> RecordedConversation:
    """The conversation with its first request, if there is no answer to it.

    It stays without a call if all of its answers are copies from another session, or if nobody asked
    anything: clients also record their own commands.
    """
    roles = {message.get("role") for message in conversation.messages}
    if "assistant" in roles or not find_first_words(conversation):
        return conversation
    call = ModelCall(end=len(conversation.messages), answer="")
    return msgspec.structs.replace(conversation, calls=(call,))


def window_of(model: str) -> int:
    """The window of a model, or a usual one if the model is not known."""
    try:
        return facts_of(model).budget.window
    except LaminaError:
        return DEFAULT_WINDOW


def find_first_words(conversation: RecordedConversation) -> str:
    """The beginning of the first question, without what the client put before it.

    Clients put reminders and files into tags before the words.
    """
    for message in conversation.messages:
        if message.get("role") != "user":
            continue
        for text in reversed(_texts_of(message)):  # attachments stand before the question
            words = " ".join(_remove_tagged(text).split())
            if words:
                return words[:FIRST_WORDS]
    return ""


def _remove_tagged(text: str) -> str:
    """A text without `<name>…</name>`, whatever the name is.

    No pattern with a reference to the name does this: it reads the rest of the text for each tag that has no
    end.
    """
    tags = list(_TAG.finditer(text))
    last_ends = {tag[2]: tag.start() for tag in tags if tag[1]}
    outside: list[str] = []
    position = 0
    open_name = ""
    for tag in tags:
        is_end, name = tag.groups()
        if open_name:
            if is_end and name == open_name:
                open_name = ""
                position = tag.end()
        elif not is_end and last_ends.get(name, -1) > tag.start():
            outside.append(text[position : tag.start()])
            open_name = name
    outside.append(text[position:])
    return " ".join(outside)


def _texts_of(message: dict[str, Any]) -> list[str]:
    content = message.get("content")
    if isinstance(content, list):
        return [message_text({"content": [part]}) for part in content]
    return [message_text(message)]


def _largest_request(usages: Sequence[RecordedUsage]) -> int | None:
    if not usages:
        return None
    return max(usage.total for usage in usages)


def make_id(*words: str) -> str:
    """An id that can stand in an address."""
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:12]


def _find_project(trace: Trace) -> str:
    """The folder in which Claude Code keeps the sessions of a project.

    It is "-home-me-app" for /home/me/app.
    """
    if trace.source != "claude-code":
        return ""
    for folder in Path(trace.place).parents:
        if folder.parent.name == "projects":
            return folder.name
    return ""


def _find_parent(trace: Trace) -> str:
    """The name of the session that a sub-agent belongs to: "SESSION/agent-1" belongs to "SESSION"."""
    if trace.source != "claude-code":
        return ""
    parent, separator, _ = trace.id.rpartition("/")
    if not separator:
        return ""
    return parent
