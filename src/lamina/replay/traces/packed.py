"""The bytes of a file, unpacked where it is packed, a piece at a time.

What it is packed with is told by its first bytes, not by its name. Memory is bounded by a piece and by the
window of zstd, whatever the file unpacks to. It knows nothing of lines.
"""

from __future__ import annotations

import contextlib
import gzip
import importlib
import io
import shutil
import subprocess
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lamina.errors import BadInput

PIECE = 1 << 20
"""Bytes that are read at once."""

WINDOW = 27
"""The largest window of zstd that is unpacked, as a power of two: 128 MiB."""

_SIPS = 1 << 11  # packed bytes given to zstd at once: the worst of them become 64 MiB, the usual ones 10 KiB
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_SKIPPABLE = b"\x2a\x4d\x18"

Tell = Callable[[int], None]


def pieces(path: Path, tell: Tell) -> Iterator[bytes]:
    """What the file holds. `tell` is given the bytes of the file that are behind; damage is a `BadInput`."""
    try:
        with path.open("rb", buffering=0) as raw, _buffered(raw) as file:
            for piece in _unpacked(raw, file, file.peek(4)[:4]):
                tell(_behind(raw))
                yield piece
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"it cannot be read on: {reason}") from None


@contextlib.contextmanager
def _buffered(raw: io.FileIO) -> Iterator[io.BufferedReader[Any]]:
    """A reader that leaves closing the file to whoever opened it."""
    file: io.BufferedReader[Any] = io.BufferedReader(raw, PIECE)
    try:
        yield file
    finally:
        with contextlib.suppress(OSError, ValueError):
            file.detach()


def _behind(raw: io.FileIO) -> int:
    try:
        return raw.tell()
    except OSError:  # a pipe
        return 0


def _unpacked(raw: io.FileIO, file: io.BufferedReader[Any], start: bytes) -> Iterator[bytes]:
    if start.startswith(_GZIP):
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield from iter(lambda: unpacked.read1(PIECE), b"")
    elif start == _ZSTD or (start[1:] == _SKIPPABLE and 0x50 <= start[0] <= 0x5F):
        yield from _from_zstd(raw, file)
    else:
        yield from iter(lambda: file.read1(PIECE), b"")


def _from_zstd(raw: io.FileIO, file: io.BufferedReader[Any]) -> Iterator[bytes]:
    """By the first that is there: the standard library's (3.14), the package, the command."""
    if library := _imported("compression.zstd"):
        yield from _by_library(library, file)
    elif package := _imported("zstandard"):
        yield from _by_package(package, file)
    elif command := shutil.which("zstd"):
        yield from _by_command(command, raw)
    else:
        raise BadInput("it is packed with zstd, which nothing here unpacks: install lamina[zstd]")


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _by_library(library: Any, file: io.BufferedReader[Any]) -> Iterator[bytes]:
    options = {library.DecompressionParameter.window_log_max: WINDOW}
    try:
        with library.ZstdFile(file, options=options) as unpacked:
            yield from iter(lambda: unpacked.read1(PIECE), b"")  # read() would drop what stands before damage
    except library.ZstdError as error:
        raise BadInput(f"it cannot be read on: {error}") from None


def _by_package(package: Any, file: io.BufferedReader[Any]) -> Iterator[bytes]:
    """Frame by frame: unlike its stream, an object for each frame says whether the frame came to its end."""
    unpack = package.ZstdDecompressor(max_window_size=1 << WINDOW)
    frame, rest = None, b""
    try:
        while packed := rest or file.read(_SIPS):
            frame = frame or unpack.decompressobj()
            if piece := frame.decompress(packed):
                yield piece
            rest = frame.unused_data if frame.eof else b""
            frame = None if frame.eof else frame
    except package.ZstdError as error:
        raise BadInput(f"it cannot be read on: {error}") from None
    if frame is not None:
        raise EOFError("it ends before its last frame does")


def _by_command(command: str, raw: io.FileIO) -> Iterator[bytes]:
    raw.seek(0)
    running = subprocess.Popen(  # noqa: S603 - a fixed command, and the file is its input, not its argument
        [command, "-dcq", f"--long={WINDOW}"], stdin=raw, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with running as process:
        assert process.stdout is not None and process.stderr is not None  # noqa: S101, PT018 - both are pipes
        try:
            yield from iter(lambda: process.stdout.read(PIECE), b"")  # type: ignore[union-attr]
            said = process.stderr.read().decode("utf-8", "replace").strip()
        finally:
            process.kill()
    if process.returncode > 0 or said:
        raise BadInput(f"it cannot be read on: {said or 'zstd failed'}")
