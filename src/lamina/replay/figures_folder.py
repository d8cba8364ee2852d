"""Keeps a folder of Parquet tables that a replay writes while it runs, and goes on with the next time.

    figures/outcomes/month=2026-11/000003.parquet    the rows of part 3 whose sessions began in November
    figures/state/000003.json                        which files part 3 is of, and their answers
    figures/state/settings.json                      how everything in the folder was replayed

    with open_figures("figures/", options=options) as figures:
        for file_replay in replay_files(figures.select_new(files), options, seen=figures.seen()):
            figures.add(file_replay)

Rows are written a part at a time. A part counts as soon as its file in `state` is there, which is written
last. So a replay that is killed loses the part that it was at, and the next one goes on behind the last whole
part. A file that did not change is not read again, and its rows stay even if it is deleted. If it has
changed, its rows are left out of a copy of their part, and it is replayed again.
"""

from __future__ import annotations

import base64
import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from lamina.errors import BadInput, StoreError
from lamina.models.facts import AS_OF
from lamina.replay.account_sums import group_by
from lamina.replay.parquet import TABLES, Row, Tables, import_pyarrow, make_schema, read_rows, write_rows
from lamina.replay.runs import ReplayOptions, TraceReplay
from lamina.replay.shards import FileReplay
from lamina.replay.traces import TraceFile
from lamina.replay.traces.own_answers import DIGEST_SIZE, SeenAnswers
from lamina.stores.sqlite.drivers import ProcessLock

ROWS_OF_PART = 20_000
BYTES_OF_PART = 2 << 30
"""A part ends with the file after which it has so many rows, or with which it stands for so many bytes."""

FORMAT = 1
"""Of the files in `state`."""

STORE = "store:"
"""Begins the name of what was read from a store. It is read anew each time."""

_STATE = "state"
_SETTINGS = "settings.json"
_NO_MONTH = "__HIVE_DEFAULT_PARTITION__"
"""What DuckDB, Spark and pyarrow read as a month that is not known."""


class _File(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a part, as it was when it was read. `answers` are digests, as base64."""

    name: str
    size: int
    changed: int
    answers: str = ""


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """One part. `replaces` are parts of which it has what still counts."""

    number: int
    files: tuple[_File, ...]
    replaces: tuple[int, ...] = ()


def is_figures_folder(path: str | Path) -> bool:
    """Whether a replay wrote its figures there."""
    return (Path(path) / _STATE / _SETTINGS).is_file()


def read_figures(folder: str | Path) -> Iterator[TraceReplay]:
    """Every session of a folder of figures, to look at and not to add to."""
    figures = FiguresFolder(import_pyarrow(str(folder)), Path(folder))
    yield from figures.read()


@contextlib.contextmanager
def open_figures(
    folder: str | Path, *, options: ReplayOptions, since: float | None = None
) -> Iterator[FiguresFolder]:
    """The figures in this folder, which is made if it is not there, to be added to.

    After an error, what was added so far is there, and the next replay goes on behind it.
    """
    path = Path(folder)
    pyarrow = import_pyarrow("--parquet")
    try:
        (path / _STATE).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from None
    lock = ProcessLock(str(path / _STATE / "folder"), needed=True, patience=0.0)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(lock.hold())
        except StoreError:
            hint = "wait until it is done, or name another folder"
            raise BadInput("another replay writes to it", place=str(path), hint=hint) from None
        _check_settings(path, options, since)
        figures = FiguresFolder(pyarrow, path)
        figures.clean()
        try:
            yield figures
        finally:
            figures.write_part()


class FiguresFolder:
    """State: the parts that are whole, and the rows of the next one."""

    def __init__(self, pyarrow: Any, folder: Path) -> None:
        self._pyarrow = pyarrow
        self._folder = folder
        self._parts = {part.number: part for part in _read_parts(folder)}
        self._rows: Tables = {name: [] for name in TABLES}
        self._files: list[_File] = []
        self._bytes = 0

    def clean(self) -> None:
        """Remove what a replay that was killed has left behind, and what was read from a store."""
        for table in TABLES:
            for path in (self._folder / table).glob("month=*/*"):
                # a table that was not written to its end, or whose part never counted
                if path.suffix != ".parquet" or _number_of(path) not in self._parts:
                    path.unlink()
        for path in _state_files(self._folder):
            if _number_of(path) not in self._parts:
                path.unlink()
        stored = {file.name for file in self._all_files() if file.name.startswith(STORE)}
        self._leave_out(stored)

    def select_new(self, files: Sequence[TraceFile]) -> list[TraceFile]:
        """The files that are not in the folder yet, or have changed: the rows of these are left out."""
        stamps = {file.name: (file.size, file.changed) for file in self._all_files()}
        new = []
        changed = set()
        for file in files:
            name = str(file)
            if stamps.get(name) == _look_at(file):
                continue
            new.append(file)
            changed.add(name)
        self._leave_out(changed)
        return new

    def seen(self) -> SeenAnswers:
        """The answers that are in the folder already."""
        digests = []
        for file in self._all_files():
            data = base64.b64decode(file.answers)
            digests += [data[at : at + DIGEST_SIZE] for at in range(0, len(data), DIGEST_SIZE)]
        return SeenAnswers(digests)

    def read(self) -> Iterator[TraceReplay]:
        """Every session of the parts that are whole."""
        for number in sorted(self._parts):
            yield from read_rows({table: self._read_table(table, number) for table in TABLES})

    def add(self, file_replay: FileReplay) -> None:
        """The rows of one file. They are in memory until their part is full."""
        size, changed = _look_at(file_replay.file)
        if size != file_replay.size:  # it has grown meanwhile, and will be read again the next time
            size = file_replay.size
            changed = 0
        answers = base64.b64encode(b"".join(file_replay.answers)).decode()
        file = _File(name=str(file_replay.file), size=size, changed=changed, answers=answers)
        self._add_file(file, file_replay.replays)

    def add_stored(self, name: str, replays: Iterable[TraceReplay]) -> None:
        """The rows of what was read from a store. The next replay reads it anew."""
        self._add_file(_File(name=f"{STORE}{name}", size=0, changed=0), replays)

    def _add_file(self, file: _File, replays: Iterable[TraceReplay]) -> None:
        for trace_replay in replays:
            for table, row in write_rows(trace_replay, file.name):
                self._rows[table].append(row)
        self._files.append(file)
        self._bytes += file.size
        if self._bytes >= BYTES_OF_PART or sum(map(len, self._rows.values())) >= ROWS_OF_PART:
            self.write_part()

    def write_part(self) -> None:
        """Write the rows in memory as the next part."""
        if not self._files:
            return
        self._write(self._files, self._rows)
        self._rows = {name: [] for name in TABLES}
        self._files = []
        self._bytes = 0

    def _leave_out(self, names: set[str]) -> None:
        """Copy each part that has one of these files, without it, and remove the part."""
        for number, part in sorted(self._parts.items()):
            files_left = [file for file in part.files if file.name not in names]
            if len(files_left) == len(part.files):
                continue
            rows_left: Tables = {}
            for table in TABLES:
                rows = self._read_table(table, number)
                rows_left[table] = [row for row in rows if row["file"] not in names]
            # the copy is whole before its original goes: a replay that is killed in between has both, and
            # `replaces` says which of them counts
            self._write(files_left, rows_left, replaces=(number,))
            self._remove_part(number)

    def _remove_part(self, number: int) -> None:
        del self._parts[number]
        _state_file(self._folder, number).unlink()
        for table in TABLES:
            for path in self._table_files(table, number):
                path.unlink()

    def _write(self, files: Sequence[_File], tables: Tables, *, replaces: tuple[int, ...] = ()) -> None:
        """Write a part. It counts as soon as its file in `state` is there."""
        number = max(self._parts, default=0) + 1
        part = _Part(number=number, files=tuple(files), replaces=replaces)
        try:
            for table, rows in tables.items():
                self._write_table(table, number, rows)
            write_whole(_state_file(self._folder, number), msgspec.json.encode(part))
        except OSError as error:
            raise _unwritable(self._folder, error) from None
        self._parts[number] = part

    def _all_files(self) -> Iterator[_File]:
        for part in self._parts.values():
            yield from part.files

    def _table_files(self, table: str, number: int) -> list[Path]:
        return sorted((self._folder / table).glob(f"month=*/{number:06}.parquet"))

    def _read_table(self, table: str, number: int) -> list[Row]:
        """The rows of one part. The month is in the path alone, and no column."""
        rows: list[Row] = []
        for path in self._table_files(table, number):
            rows += self._pyarrow.parquet.ParquetFile(path).read().to_pylist()
        return rows

    def _write_table(self, table: str, number: int, rows: Sequence[Row]) -> None:
        """Write the rows of one part, those of each month into a file of its own."""
        by_month = group_by(rows, lambda row: row["day"][:7] or _NO_MONTH)
        schema = make_schema(self._pyarrow, table)
        for month, rows_of_month in by_month.items():
            path = self._folder / table / f"month={month}" / f"{number:06}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            columns = [{name: row[name] for name in schema.names} for row in rows_of_month]
            content = self._pyarrow.Table.from_pylist(columns, schema=schema)
            self._pyarrow.parquet.write_table(content, path, compression="zstd")


def _check_settings(folder: Path, options: ReplayOptions, since: float | None) -> None:
    """Raise BadInput if the figures of a folder were made in another way; their sums would mean nothing."""
    plain = msgspec.to_builtins(options)
    del plain["points"]  # calls one by one are not in the tables
    settings = {
        "format": FORMAT,
        "lamina": version("lamina-context"),
        "prices": AS_OF,
        "since": since,
        **plain,
    }
    content = msgspec.json.encode(settings)
    path = folder / _STATE / _SETTINGS
    if not path.exists():
        try:
            write_whole(path, content)
        except OSError as error:
            raise _unwritable(folder, error) from None
        return
    before = _decode_state(path, dict[str, Any])
    # both as JSON has them: a tuple of policies comes back as a list
    now = msgspec.json.decode(content)
    differing = [name for name in now if now[name] != before.get(name)]
    if differing:
        raise BadInput(
            f"its figures are of a replay with other settings: {', '.join(differing)}",
            place=str(folder),
            hint="replay as before, or name another folder",
        )


def _read_parts(folder: Path) -> list[_Part]:
    """The parts that are whole, without those that others replace."""
    parts = [_decode_state(path, _Part) for path in _state_files(folder)]
    replaced: set[int] = set()
    for part in parts:
        replaced.update(part.replaces)
    return [part for part in parts if part.number not in replaced]


def _state_files(folder: Path) -> list[Path]:
    return sorted((folder / _STATE).glob("[0-9]*.json"))


def _state_file(folder: Path, number: int) -> Path:
    return folder / _STATE / f"{number:06}.json"


def _number_of(path: Path) -> int:
    if not path.stem.isdecimal():
        return -1
    return int(path.stem)


def _decode_state(path: Path, kind: Any) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        hint = "delete the folder and replay again"
        raise BadInput(f"it cannot be read: {error}", place=str(path), hint=hint) from None


def _look_at(file: TraceFile | str) -> tuple[int, int]:
    """The size and the time of a file; 0 and 0 if it is gone."""
    if isinstance(file, str):
        return 0, 0
    try:
        status = file.stat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that is there as a whole, or not at all."""
    unfinished = path.with_suffix(".part")
    with unfinished.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def _unwritable(folder: Path, error: OSError) -> BadInput:
    hint = "check folder and rights"
    return BadInput(f"it cannot be written: {error.strerror}", place=str(folder), hint=hint)
