"""Content encodings: the body of an answer is unpacked for reading, whole or piece by piece.

Only gzip and deflate are part of Python. The packages for the others come with the extra `run`, so a
machine that only reads records may lack them.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable

from lamina.core.text.characters import lower_ascii
from lamina.errors import BadInput

Unpacker = Callable[[bytes], bytes]
"""Unpacks a stream piece by piece."""

_GZIP_STEP = 1 << 12
"""Bytes that a decoder gets at a time: at the end of each member it copies what is left of them."""


def list_unpack_errors() -> tuple[type[Exception], ...]:
    """What broken bytes raise."""
    errors: list[type[Exception]] = [zlib.error]
    for module, name in (("brotli", "error"), ("zstandard", "ZstdError")):
        try:
            errors.append(getattr(importlib.import_module(module), name))
        except ImportError:
            continue
    return tuple(errors)


UNPACK_ERRORS = list_unpack_errors()


def make_unpacker(encoding: str) -> Unpacker | None:
    """What unpacks an answer piece by piece; None if the encoding is unknown. "" needs no unpacking."""
    name = lower_ascii(encoding.strip(" \t"))
    if name in ("", "identity"):
        return _take_plain
    start = _PIECEWISE.get(name)
    if start is None:
        return None
    return start()


def unpack_recorded(body: bytes, encoding: str) -> bytes:
    """The body of an answer without its content encodings. Raises BadInput if it cannot be unpacked."""
    hint = "lamina inspect and its JSON have the bytes as they came"
    for name in reversed(encoding.split(",")):
        try:
            unpacker = make_unpacker(name)
        except ImportError as error:
            raise BadInput(str(error), place="answer", hint="pip install 'lamina-context[run]'") from None
        if unpacker is None:
            raise BadInput(f"content-encoding {name[:40]!r} is unknown", place="answer", hint=hint)
        try:
            body = unpacker(body)
        except UNPACK_ERRORS as error:
            raise BadInput(f"it is not valid {name}: {error}", place="answer", hint=hint) from None
    return body


def _take_plain(data: bytes) -> bytes:
    return data


class GzipUnpacker:
    """Unpacks all members of a file: RFC 1952 lets several follow each other.

    `is_whole`: what came so far ends with the end of a member.
    """

    def __init__(self) -> None:
        self._decoder = zlib.decompressobj(wbits=31)

    @property
    def is_whole(self) -> bool:
        return self._decoder.eof

    def __call__(self, data: bytes) -> bytes:
        pieces: list[bytes] = []
        for start in range(0, len(data), _GZIP_STEP):
            packed = data[start : start + _GZIP_STEP]
            while packed:
                if self._decoder.eof:
                    self._decoder = zlib.decompressobj(wbits=31)
                pieces.append(self._decoder.decompress(packed))
                packed = self._decoder.unused_data
        return b"".join(pieces)


def _start_deflate() -> Unpacker:
    return zlib.decompressobj().decompress


def _start_brotli() -> Unpacker:
    unpacker: Unpacker = importlib.import_module("brotli").Decompressor().process
    return unpacker


def _start_zstd() -> Unpacker:
    zstandard = importlib.import_module("zstandard")
    decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 27)
    unpacker: Unpacker = decompressor.decompressobj(read_across_frames=True).decompress
    return unpacker


_PIECEWISE: dict[str, Callable[[], Unpacker]] = {
    "gzip": GzipUnpacker,
    "x-gzip": GzipUnpacker,
    "deflate": _start_deflate,
    "br": _start_brotli,
    "zstd": _start_zstd,
}
