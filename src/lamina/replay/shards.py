"""Reads and replays files by many workers at once, with the same figures as one reader would give.

A worker gets a file, reads it and replays all of its sessions. It does not know of other files, so it takes
every answer for the session's own. One place then counts the answers, in the order of the files, and finds
those that an earlier file has. Few sessions have any: that place replays these a second time, without them.

One process reads a file and gives its sessions to the workers one by one, if

- it has a large part of all bytes, so that one worker would be busy with it when all others have ended,
- a worker does not have it, or has another one of the same name: it is on this machine only,
- every worker that got it died: then only the session that kills them is lost.

Nothing here writes a file.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from lamina.replay.engines import Engine, open_engine, run_in_order
from lamina.replay.runs import LostSessions, ReplayOptions, TraceReplay, give_up, replay_record
from lamina.replay.traces import TraceFile, file_size, read_file
from lamina.replay.traces.own_answers import SeenAnswers, digest_answers, select_own
from lamina.replay.values import Trace, UnreadableLine

Progress = Callable[[int, int], None]
"""Called with the bytes that are behind and those of all files, as they lie on the disk."""

FED_BY_ONE = 4
"""Workers that one reader keeps busy: reading is about a quarter of the work."""

FILES_PER_WORKER = 2
"""With fewer files, some workers would have ended long before the others."""


class FileReplay(msgspec.Struct, frozen=True, kw_only=True):
    """One file: all its sessions in order."""

    file: TraceFile
    replays: tuple[TraceReplay, ...] = ()


class _Work(NamedTuple):
    """What a worker gets: a file, or one record of a file that is read by this process."""

    number: int
    file: TraceFile
    size: int
    order: int = 0
    record: Trace | UnreadableLine | None = None
    is_last: bool = False


class _Replayed(NamedTuple):
    """One session of a file. `replay` is None if nothing of it counts."""

    order: int
    replay: TraceReplay | None
    answers: Mapping[int, bytes]


class _Done(NamedTuple):
    """What a worker returns: the sessions of a file, or one of them.

    It is not `read` if the file is not there, or if every worker died with it.
    """

    work: _Work
    sessions: list[_Replayed]
    read: bool = True
    ends_file: bool = True


def replay_files(
    files: Sequence[TraceFile],
    options: ReplayOptions,
    *,
    jobs: int = 1,
    engine: Engine | None = None,
    since: float | None = None,
    progress: Progress | None = None,
    count: Callable[[TraceReplay], None] | None = None,
) -> Iterator[FileReplay]:
    """Every file, in order. Figures do not depend on `jobs` and `engine`.

    `progress` gets the bytes that are done and all bytes, and `count` each session as soon as it is replayed.
    """
    sizes = [file_size(file) for file in files]
    shards = _Shards(files, sizes, since=since, progress=progress, options=options)
    if engine is None and jobs == 1:
        yield from shards.replay_here(count)
        return
    with contextlib.ExitStack() as stack:
        if engine is None:
            engine = stack.enter_context(open_engine("local", jobs=jobs))
        yield from shards.replay_on(engine, count)


class _OpenFile:
    """State: a file of which something is still missing."""

    def __init__(self, number: int, file: TraceFile, size: int) -> None:
        self.number = number
        self.file = file
        self.size = size
        self.sessions: dict[int, _Replayed] = {}
        self.is_read = False

    def finish(self) -> FileReplay:
        sessions = [self.sessions[index] for index in sorted(self.sessions)]
        replays = tuple(session.replay for session in sessions if session.replay is not None)
        return FileReplay(file=self.file, replays=replays)


class _Shards:
    """State: the files under way, in order, and those that no worker could read."""

    def __init__(
        self,
        files: Sequence[TraceFile],
        sizes: Sequence[int],
        *,
        since: float | None,
        progress: Progress | None,
        options: ReplayOptions,
    ) -> None:
        self._files = files
        self._sizes = sizes
        self._total = sum(sizes)
        self._since = since
        self._seen = SeenAnswers()
        self._progress = progress
        self._options = options
        self._done_bytes = 0
        self._open: dict[int, _OpenFile] = {}
        self._unread: deque[_OpenFile] = deque()
        self._lost = LostSessions()

    def replay_here(self, count: Callable[[TraceReplay], None] | None) -> Iterator[FileReplay]:
        """Every file, by this process alone: each session is counted before it is replayed."""
        for number, (file, size) in enumerate(zip(self._files, self._sizes, strict=True)):
            open_file = _OpenFile(number, file, size)
            for index, record in enumerate(read_file(file, tell=self._tell)):
                answers: dict[int, bytes] = {}
                if isinstance(record, Trace):
                    answers = digest_answers(record)
                replay = _replay_own(record, self._seen.add(answers), self._since, self._options)
                open_file.sessions[index] = _Replayed(index, replay, answers)
                if replay is not None and count is not None:
                    count(replay)
            self._end_file(size)
            yield open_file.finish()

    def replay_on(self, engine: Engine, count: Callable[[TraceReplay], None] | None) -> Iterator[FileReplay]:
        """Every file, by the workers of an engine."""
        run_one = partial(_run_work, options=self._options, since=self._since)
        work = self._make_work(engine.jobs)
        while True:
            for done in run_in_order(engine, run_one, work, _give_up_work):
                self._take(done, count)
                yield from self._finish_files()
            yield from self._finish_files()
            if not self._unread:
                return
            work = self._read_unread()

    def _make_work(self, jobs: int) -> Iterator[_Work]:
        """What the workers have to do. Files that none of them could read come before the next one."""
        # with few files some workers would end long before the others; but one reader cannot feed many
        has_many = len(self._files) >= FILES_PER_WORKER * jobs or jobs > FED_BY_ONE
        for number, (file, size) in enumerate(zip(self._files, self._sizes, strict=True)):
            yield from self._read_unread()
            self._open[number] = _OpenFile(number, file, size)
            if has_many and size * FED_BY_ONE <= self._total:
                yield _Work(number, file, size)
            else:
                yield from self._read_here(self._open[number])

    def _read_unread(self) -> Iterator[_Work]:
        while self._unread:
            yield from self._read_here(self._unread.popleft())

    def _read_here(self, open_file: _OpenFile) -> Iterator[_Work]:
        """The sessions of a file one by one. Each waits for the next, so that the last is known as such."""
        last: _Work | None = None
        for index, record in enumerate(read_file(open_file.file, tell=self._tell)):
            if last is not None:
                yield last
            last = _Work(open_file.number, open_file.file, open_file.size, order=index, record=record)
        if last is not None:
            yield last._replace(is_last=True)
        else:
            open_file.is_read = True

    def _take(self, done: _Done, count: Callable[[TraceReplay], None] | None) -> None:
        """Put what a worker returned into its file."""
        open_file = self._open[done.work.number]
        if not done.read:
            self._unread.append(open_file)
            return
        for session in done.sessions:
            open_file.sessions[session.order] = session
            if session.replay is not None:
                self._lost.look_at(session.replay)
                if count is not None:
                    count(session.replay)
        open_file.is_read = done.ends_file

    def _finish_files(self) -> Iterator[FileReplay]:
        """Give the files up to the first that was not read to its end, without what earlier files have."""
        for number in list(self._open):
            open_file = self._open[number]
            if not open_file.is_read:
                return
            del self._open[number]
            self._leave_out_copies(open_file)
            self._end_file(open_file.size)
            yield open_file.finish()

    def _leave_out_copies(self, open_file: _OpenFile) -> None:
        """Replay the sessions again, here, of which an earlier file has answers. There are few of them."""
        copied: dict[int, frozenset[int]] = {}
        for index in sorted(open_file.sessions):
            places = self._seen.add(open_file.sessions[index].answers)
            if places:
                copied[index] = places
        if not copied:
            return
        for index, record in enumerate(read_file(open_file.file)):
            if index in copied:
                replay = _replay_own(record, copied[index], self._since, self._options)
                open_file.sessions[index] = open_file.sessions[index]._replace(replay=replay)

    def _end_file(self, size: int) -> None:
        self._done_bytes += size
        self._tell(0)

    def _tell(self, behind: int) -> None:
        """Say how many bytes are done. Of the file that is read here, those that were read count."""
        if self._progress is not None:
            self._progress(min(self._done_bytes + behind, self._total), self._total)


def _run_work(work: _Work, options: ReplayOptions, since: float | None) -> _Done:
    records: Iterable[tuple[int, Trace | UnreadableLine]]
    if work.record is not None:
        records = [(work.order, work.record)]
    elif _is_there(work.file, work.size):
        records = enumerate(read_file(work.file))
    else:
        return _Done(work, [], read=False)
    sessions: list[_Replayed] = []
    for index, record in records:
        answers: dict[int, bytes] = {}
        if isinstance(record, Trace):
            answers = digest_answers(record)
        sessions.append(_Replayed(index, _replay_own(record, frozenset(), since, options), answers))
    ends_file = work.record is None or work.is_last
    return _Done(work._replace(record=None), sessions, ends_file=ends_file)  # the record need not travel back


def _is_there(file: TraceFile, size: int) -> bool:
    """Whether a worker has the file that is meant. Another machine may have another one of the same name."""
    try:
        return file.stat().st_size == size
    except (OSError, LookupError):
        return False


def _replay_own(
    record: Trace | UnreadableLine, copied: frozenset[int], since: float | None, options: ReplayOptions
) -> TraceReplay | None:
    """A record without what does not count of it; None if nothing is left."""
    if isinstance(record, Trace):
        own_part = select_own(record, copied, since)
        if own_part is None:
            return None
        record = own_part
    return replay_record(record, options)


def _give_up_work(work: _Work) -> _Done:
    """A file with which every worker died is read by one process; a session is lost."""
    if work.record is None:
        return _Done(work, [], read=False)
    lost = _Replayed(work.order, give_up(work.record), {})
    return _Done(work._replace(record=None), [lost], ends_file=work.is_last)
