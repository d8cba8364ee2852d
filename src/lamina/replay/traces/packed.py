"""Reads the bytes of a file a piece at a time, unpacked if it is packed.

What a file is packed with is decided by its first bytes, not by its name. Memory is bounded by a piece and by
the window of zstd, whatever the file unpacks to. Nothing here knows of lines.
"""

from __future__ import annotations

import contextlib
import gzip
import importlib
import io
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from lamina.errors import BadInput
from lamina.replay.traces.files import TraceFile

PIECE = 1 << 20
"""Bytes that are read at once."""

WINDOW = 27
"""The largest window of zstd that is unpacked, as a power of two: 128 MiB."""

_ZSTD_PIECE = 1 << 11  # packed bytes given to zstd at once: the worst become 64 MiB, the usual ones 10 KiB
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE_MAGIC = b"\x2a\x4d\x18"
"""Of a frame of zstd without data, after a first byte from 0x50 to 0x5F."""

Tell = Callable[[int], None]


def read_pieces(path: TraceFile, tell: Tell) -> Iterator[bytes]:
    """What the file holds. `tell` gets the bytes of the file that are behind; damage is a `BadInput`."""
    try:
        with path.open("rb", buffering=0) as raw, _buffered(raw) as file:
            for piece in _unpack(file, file.peek(4)[:4]):
                tell(_position(raw))
                yield piece
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"it cannot be read on: {reason}") from None


@contextlib.contextmanager
def _buffered(raw: io.RawIOBase) -> Iterator[io.BufferedReader[Any]]:
    """A reader that leaves closing the file to whoever opened it."""
    file: io.BufferedReader[Any] = io.BufferedReader(raw, PIECE)
    try:
        yield file
    finally:
        with contextlib.suppress(OSError, ValueError):
            file.detach()


def _position(raw: io.RawIOBase) -> int:
    """The bytes of a file that are behind; 0 for a pipe, which does not say."""
    try:
        return raw.tell()
    except OSError:  # a pipe
        return 0


def _unpack(file: io.BufferedReader[Any], start: bytes) -> Iterator[bytes]:
    """The pieces of a file, unpacked by what its first bytes say."""
    if start.startswith(_GZIP_MAGIC):
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield from iter(lambda: unpacked.read1(PIECE), b"")
    elif _is_zstd(start):
        yield from _unpack_zstd(file)
    else:
        yield from iter(lambda: file.read1(PIECE), b"")


def _is_zstd(start: bytes) -> bool:
    """Whether a file begins with a frame of zstd, or with one that a reader skips."""
    if start == _ZSTD_MAGIC:
        return True
    return start[1:] == _SKIPPABLE_MAGIC and 0x50 <= start[0] <= 0x5F


def _unpack_zstd(file: io.BufferedReader[Any]) -> Iterator[bytes]:
    """By the standard library's module (3.14), or else by the package."""
    library = _import_if_there("compression.zstd")
    if library is not None:
        yield from _unpack_by_library(library, file)
        return
    package = _import_if_there("zstandard")
    if package is not None:
        yield from _unpack_by_package(package, file)
        return
    raise BadInput("it is packed with zstd, which nothing here unpacks: install lamina-context[replay]")


def _import_if_there(name: str) -> Any:
    """A module; None if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _unpack_by_library(library: Any, file: io.BufferedReader[Any]) -> Iterator[bytes]:
    options = {library.DecompressionParameter.window_log_max: WINDOW}
    try:
        with library.ZstdFile(file, options=options) as unpacked:
            yield from iter(lambda: unpacked.read1(PIECE), b"")  # read() would drop what stands before damage
    except library.ZstdError as error:
        raise BadInput(f"it cannot be read on: {error}") from None


def _unpack_by_package(package: Any, file: io.BufferedReader[Any]) -> Iterator[bytes]:
    """Frame by frame: unlike its stream, an object for each frame says whether the frame came to its end."""
    decompressor = package.ZstdDecompressor(max_window_size=1 << WINDOW)
    frame = None
    rest = b""
    try:
        while packed := rest or file.read(_ZSTD_PIECE):
            if frame is None:
                frame = decompressor.decompressobj()
            piece = frame.decompress(packed)
            if piece:
                yield piece
            rest = b""
            if frame.eof:
                rest = frame.unused_data
                frame = None
    except package.ZstdError as error:
        raise BadInput(f"it cannot be read on: {error}") from None
    if frame is not None:
        raise EOFError("it ends before its last frame does")
