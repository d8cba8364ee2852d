"""The log: one JSON object to a line, on standard error and in a file that `lamina log -f` follows.

It has ids, sizes, times and causes, no content. What has no glyph is escaped, so nothing that a client sends
can begin a line of its own, or move the cursor of a terminal that shows the log. The file lies beside the
store. Workers of one gateway share it: each line is one write at its end. It is renamed to `….1` when it gets
large, so that both together stay bounded.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from io import TextIOWrapper
from itertools import count
from pathlib import Path
from time import time
from typing import Any, TextIO

import msgspec

from lamina.core.text.characters import escape_json
from lamina.errors import LaminaError
from lamina.relay.config import GatewaySettings
from lamina.settings import data_folder, load_settings
from lamina.stores.address import KEY_VARIABLE

OFF = "off"
"""The setting `journal` of a gateway that writes no file."""

ENDING = ".requests.jsonl"
"""Ends the name of the file, after the name of the store."""

LARGEST = 16 << 20
"""Bytes of the file after which it is renamed."""

LAST_BYTES = 256 << 10
LAST_SECONDS = 60.0
"""How much of the end of the file is read for what a process logged last before it was killed."""

_FILE_KINDS = ("sqlite", "files")


class Journal:
    """Writes events. Keys and tokens never get here: no caller has a header or a body at hand.

    Gateways of several stores may write one file. `store` is the address of this one's, without a password.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        path: Path | None = None,
        store: str = "",
        is_supervised: bool = False,
    ) -> None:
        self._stream = stream
        self._is_supervised = is_supervised
        self._store_mark = blake2b(store.encode(), digest_size=4).hexdigest()
        self._id_prefix = f"{self._store_mark}{secrets.token_hex(6)}"
        self._ids = count()
        self._file: JournalFile | None = None
        if path is not None:
            self._file = JournalFile(path)

    def write_sent(self, *, conversation: str, upstream: str, model: str) -> str:
        """Note that a request leaves for an upstream. Returns the id that the line about its answer has.

        If the gateway is killed before that line, this one tells its supervisor that there was a request.
        Without a supervisor nobody needs it, and the file does not have it.
        """
        sent_id = f"{self._id_prefix}-{next(self._ids):x}"
        if not self._is_supervised:
            return sent_id
        facts = {"id": sent_id, "conversation": conversation, "upstream": upstream, "model": model}
        self._write_line(_encode_event("sent", facts))
        return sent_id

    def write(self, event: str, **facts: Any) -> None:
        line = _encode_event(event, facts)
        self._write_line(line)
        if self._file is not None:
            self._file.append(line)

    def write_stopped(self, *, cut_off: int) -> None:
        """Note that this process ends, and that everything it has logged is in the store."""
        self.write("stopped", cut_off=cut_off, process=self._id_prefix)

    def list_unstopped(self) -> list[dict[str, Any]]:
        """The last events in the file of processes that have not stopped: each was killed, or runs still.

        Only answers for this store are among them. Events without an id may be those of any process.
        """
        if self._file is None:
            return []
        events = self._file.list_unstopped()
        return [
            event for event in events if str(event.get("id", self._store_mark)).startswith(self._store_mark)
        ]

    def _write_line(self, line: bytes) -> None:
        stream = self._stream or sys.stderr
        try:
            if isinstance(stream, TextIOWrapper):
                stream.buffer.write(line)  # no need to decode it and encode it again
            else:
                stream.write(line.decode())
            stream.flush()
        except (OSError, ValueError):
            return  # nobody listens; requests go on


def _encode_event(event: str, facts: Mapping[str, Any]) -> bytes:
    line = msgspec.json.encode({"at": round(time(), 3), "event": event, **facts})
    if not line.isascii():
        line = escape_json(line.decode()).encode()
    return line + b"\n"


class JournalFile:
    """A file that several processes append to. If it cannot be written, the gateway goes on without it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def check(self) -> None:
        """Open the file once. Raises OSError or ValueError if it cannot be written."""
        self._open()
        self._close()

    def append(self, line: bytes) -> None:
        try:
            if self._descriptor < 0:
                self._open()
            # Appending moves the offset to the end of the file. To ask for it costs less than for the size.
            elif os.lseek(self._descriptor, 0, os.SEEK_CUR) > LARGEST:
                self._rename_large()
                self._open()
            os.write(self._descriptor, line)
        except OSError:
            self._close()

    def list_unstopped(self) -> list[dict[str, Any]]:
        """What `Journal.list_unstopped` returns."""
        try:
            with self._path.open("rb") as file:
                file.seek(max(self._path.stat().st_size - LAST_BYTES, 0))
                lines = file.read(LAST_BYTES).split(b"\n")
        except OSError:
            return []
        events = [event for line in lines if (event := decode_event(line)) is not None]
        last_times = {_find_process(event): _find_time(event) for event in events}
        stopped = {event.get("process") for event in events if event.get("event") == "stopped"}
        unstopped: list[dict[str, Any]] = []
        for event in events:
            process = _find_process(event)
            is_late = _find_time(event) >= last_times[process] - LAST_SECONDS
            if process not in stopped and is_late:
                unstopped.append(event)
        return unstopped

    def _open(self) -> None:
        self._close()
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._descriptor = os.open(self._path, flags, 0o600)

    def _rename_large(self) -> None:
        """Rename the file, unless another worker has done so and this one only holds the old one open."""
        current = self._path.stat()
        if os.path.samestat(current, os.fstat(self._descriptor)):
            self._path.replace(older_file(self._path))

    def _close(self) -> None:
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
        self._descriptor = -1


def _find_process(event: Mapping[str, Any]) -> str:
    """What the ids of the process begin with that has logged an event; "" if it has no id."""
    return str(event.get("id", "")).rpartition("-")[0]


def _find_time(event: Mapping[str, Any]) -> float:
    """When it was logged, in seconds since 1970."""
    at = event.get("at")
    if not isinstance(at, int | float):
        return 0.0
    return at


def older_file(path: Path) -> Path:
    """Where the lines before the last renaming are."""
    return path.with_name(f"{path.name}.1")


def read_journal(path: Path) -> Iterator[dict[str, Any]]:
    """The events in a file and in the one before it, oldest first. What cannot be read is left out."""
    for file in (older_file(path), path):
        try:
            lines = file.read_bytes().split(b"\n")
        except OSError:
            continue
        for line in lines:
            event = decode_event(line)
            if event is not None:
                yield event


def decode_event(line: bytes) -> dict[str, Any] | None:
    """The event in a line; None if it is something else, such as a warning of a server."""
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def find_journal(settings: GatewaySettings, environment: Mapping[str, str]) -> Path | None:
    """The file of a gateway with these settings; None if it writes none.

    A gateway that keeps nothing, or keeps it sealed, writes a file only if the settings name one.
    """
    if settings.journal == OFF:
        return None
    if settings.journal:
        return Path(settings.journal).expanduser()
    if settings.policy.keep == "nothing" or _is_sealed(settings, environment):
        return None
    return place_journal(_find_store(settings, environment))


def _find_store(settings: GatewaySettings, environment: Mapping[str, str]) -> str:
    """The address of the store."""
    return settings.store or load_settings(environment=environment).store_address()


def place_journal(address: str) -> Path:
    """The file beside the store at an address, or in the user's folder for a store that is no file."""
    kind, colon, rest = address.partition(":")
    if not colon or len(kind) == 1:  # a plain path, or one with the letter of a drive
        rest = address
    elif kind not in _FILE_KINDS:
        return data_folder() / f"gateway{ENDING}"
    path = Path(rest).expanduser()
    return path.with_name(f"{path.name}{ENDING}")


def open_journal(
    settings: GatewaySettings, environment: Mapping[str, str], *, is_supervised: bool = False
) -> Journal:
    path = None
    store = ""
    with contextlib.suppress(LaminaError):  # the settings of the user are wrong; opening the store says so
        path = find_journal(settings, environment)
        # user:password@host/name?password=…
        store = _find_store(settings, environment).rpartition("@")[2].partition("?")[0]
    return Journal(path=path, store=store, is_supervised=is_supervised)


def _is_sealed(settings: GatewaySettings, environment: Mapping[str, str]) -> bool:
    if settings.key_file or environment.get(KEY_VARIABLE):
        return True
    return bool(load_settings(environment=environment).key_file)


class NoJournal(Journal):
    """Writes nothing, and names what is sent all the same."""

    def write(self, event: str, **facts: Any) -> None:
        """Write nothing."""
