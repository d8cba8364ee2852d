"""A disk that fills up: the store says so, keeps what it acknowledged, and goes on when there is room again.

A small file system in memory where this process may mount one; else the shim, for which the disk is full
after so many bytes were written.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from lamina.errors import LaminaError
from tests.torture.children import Say, failure, forked
from tests.torture.medium import Call, Create, Write
from tests.torture.outcome import Outcome, Tally
from tests.torture.shim import Shim
from tests.torture.telling import Telling

SIZE = 1_000_000
FILLER = 300_000
ROOM = 150_000
MOST = 2_000
STEP = 4096


def full(telling: Callable[[], Telling], count: int, *, mount: bool, within: str | None = None) -> Outcome:
    """So many disks, each a little larger than the one before."""
    tally = Tally("disk full")
    for number in range(count):
        tally.tries += 1
        with TemporaryDirectory(prefix="torture-", dir=within, ignore_cleanup_errors=True) as folder:
            try:
                if mount:
                    _mounted(telling(), Path(folder), SIZE + number * STEP, tally)
                else:
                    _filled(telling(), Path(folder), tally, room=ROOM + number * STEP)
            except Exception as error:  # noqa: BLE001 - whatever it is, the store does not hold
                tally.broken(f"disk {tally.tries}", error)
    return tally.outcome()


def can_mount() -> bool:
    """Whether this process may mount a file system."""
    with TemporaryDirectory(prefix="torture-") as folder:
        return mount(folder, SIZE) and subprocess.run(["umount", folder], check=False).returncode == 0  # noqa: S607


def mount(folder: str, size: int) -> bool:
    """Mount a small file system in memory at a folder. Returns whether that is allowed here."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder]
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except OSError:
        return False


def _mounted(telling: Telling, folder: Path, size: int, tally: Tally) -> None:
    assert mount(str(folder), size), "it could not be mounted"
    try:
        _filled(telling, folder, tally)
    finally:
        subprocess.run(["umount", str(folder)], check=True)  # noqa: S607


def _filled(telling: Telling, folder: Path, tally: Tally, *, room: int | None = None) -> None:
    store, filler = folder / "store", folder / "filler"
    store.mkdir()
    filler.write_bytes(bytes(FILLER))
    lines = forked(lambda say: _write(telling, str(store), room, say)).said()
    acknowledged = sum(line.isdigit() for line in lines)
    tally.acknowledged += acknowledged
    assert not failure(lines), failure(lines)
    tally.note(lines[-1] if lines and not lines[-1].isdigit() else "never full")
    filler.unlink()
    told = telling.check(str(store), acknowledged)
    lines = forked(lambda say: telling.write(str(store), lambda n: say(str(n)), start=told, most=2)).said()
    assert not failure(lines), f"after there was room again: {failure(lines)}"
    telling.check(str(store), told + 2)


def _write(telling: Telling, folder: str, room: int | None, say: Say) -> None:
    if room is not None:
        Shim(folder, _Room(room)).place()

    async def tell() -> None:
        async with telling.open(folder) as store:
            for number in range(MOST):
                try:
                    await telling.tell(store, number)
                except LaminaError as error:
                    say(f"refused with {type(error).__name__}")
                    return
                say(str(number))

    anyio.run(tell)


class _Room:
    """So many bytes can be written; then nothing can, and no file made, until somebody makes room."""

    def __init__(self, left: int) -> None:
        self._left = left

    def __call__(self, call: Call) -> None:
        if isinstance(call, Write):
            self._left -= len(call.data)
        if self._left < 0 and isinstance(call, Write | Create):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
