"""Content encodings of a client's whole body, which is unpacked up to a limit."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import brotli  # type: ignore[import-untyped]
import zstandard

from lamina.conversations.encodings import UNPACK_ERRORS, GzipUnpacker
from lamina.core.text.characters import lower_ascii
from lamina.relay.refusals import Refusal

MOST_ENCODINGS = 4
"""Encodings of one body. A header has room for thousands, and each may unpack to the limit."""

_STEP = 1 << 16
"""Bytes that a decoder gives back at a time, where it would give back any number."""

_GZIP_STEP = 1 << 12
"""Packed bytes after which the size of what they became is looked at."""


def unpack(data: bytes, encoding: str, limit: int) -> bytes:
    """The body without its content encodings. Raises Refusal if it is broken or larger than `limit`."""
    if not encoding:
        return data
    names = [word.strip(" \t") for word in lower_ascii(encoding).split(",")]
    if len(names) > MOST_ENCODINGS:
        raise Refusal(415, f"the body is packed {len(names)} times; the limit is {MOST_ENCODINGS}")
    for name in reversed(names):  # they are listed in the order in which they were applied
        if name in ("", "identity"):
            continue
        unpack_all = _WHOLE.get(name)
        if unpack_all is None:
            raise Refusal(415, f"content-encoding {name[:40]!r} is unknown; use {', '.join(_WHOLE)}")
        try:
            data = unpack_all(data, limit + 1)
        except UNPACK_ERRORS as error:
            raise Refusal(400, f"the body is not valid {name}: {error}") from None
        if len(data) > limit:
            raise Refusal(413, f"the body is larger than {limit:,} bytes when unpacked")
    return data


def _unpack_gzip(data: bytes, most: int) -> bytes:
    """Gzip makes a thousand bytes of one, so a step that goes beyond `most` makes four megabytes."""
    unpacker = GzipUnpacker()
    pieces: list[bytes] = []
    size = 0
    for start in range(0, len(data), _GZIP_STEP):
        pieces.append(unpacker(data[start : start + _GZIP_STEP]))
        size += len(pieces[-1])
        if size >= most:
            break
    if size < most and not unpacker.is_whole:
        raise zlib.error("it ends too early")
    return b"".join(pieces)


def _unpack_deflate(data: bytes, most: int) -> bytes:
    decoder = zlib.decompressobj()
    text = decoder.decompress(data, most)
    if not decoder.eof and len(text) < most:
        raise zlib.error("it ends too early")
    if decoder.unused_data:
        raise zlib.error("something follows its end")
    return text


def _unpack_brotli(data: bytes, most: int) -> bytes:
    """Brotli makes gigabytes of a kilobyte, so it is asked for so much at a time and no more than `most`."""
    decoder = brotli.Decompressor()
    pieces = [decoder.process(data, output_buffer_limit=_STEP)]
    size = len(pieces[0])
    while size < most and not decoder.is_finished():
        piece = decoder.process(b"", output_buffer_limit=_STEP)
        if not piece:
            raise brotli.error("it ends too early")
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def _unpack_zstd(data: bytes, most: int) -> bytes:
    decoder = zstandard.ZstdDecompressor(max_window_size=1 << 27)
    with decoder.stream_reader(data, read_across_frames=True) as reader:
        return reader.read(most)


_WHOLE: dict[str, Callable[[bytes, int], bytes]] = {
    "gzip": _unpack_gzip,
    "x-gzip": _unpack_gzip,
    "deflate": _unpack_deflate,
    "br": _unpack_brotli,
    "zstd": _unpack_zstd,
}
