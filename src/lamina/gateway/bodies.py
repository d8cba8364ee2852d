"""A request's body: unpacked for reading, decoded once, and encoded again only if it was changed.

The body that came stays as it is and is what leaves if nothing has to change. `TurnMemory` remembers decoded
messages by their bytes. A request that grows from call to call repeats them all, so only the new ones are
decoded, and the memos of `lamina.fitting`, which compare objects, stay warm.
"""

from __future__ import annotations

import re
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import brotli  # type: ignore[import-untyped]
import msgspec
import zstandard

from lamina.core.text.characters import lower_ascii
from lamina.gateway.config import RequestLimits
from lamina.gateway.refusals import Refusal

TURN_FIELDS = ("messages", "input", "contents")
"""The field that has the conversation, in each API."""

MEMORY_BYTES = 12 << 20
"""Bytes of messages that one workspace's memory holds at most."""

FOREIGN_FIELDS = ("api_base", "base_url", "api_key")
"""Fields by which some proxies let a client choose the server. Here the settings alone choose it."""

MEDIA_TOKENS = 5_000
"""More than an image or a file that is only named takes."""

_MEDIA = (
    b'"image',
    b'_url"',
    b"file_id",
    b"fileUri",
    b"file_uri",
    b"inlineData",
    b"inline_data",
    b'"document"',
)
"""What a message has that holds or names an image or a file."""

_STEP = 1 << 16
_KEY = re.compile(rb'[ \t\r\n]*("(?:[^"\\]|\\.)*")[ \t\r\n]*:[ \t\r\n]*')
_COMMA = re.compile(rb"[ \t\r\n]*,?")


class RequestBody(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A decoded body. `packed` are the bytes as they came, `text` is their JSON.

    `turns` are the decoded messages. By the identity of each, `sources` has its bytes and `bounds` has more
    tokens than it can have. `turn_bytes` counts the bytes of all of them, and `new_bytes` the bytes of those
    that were not seen before.
    """

    packed: bytes
    text: bytes
    request: dict[str, Any]
    turns: tuple[Any, ...] = ()
    sources: Mapping[int, bytes] = {}
    bounds: Mapping[int, int] = {}
    turn_bytes: int = 0
    new_bytes: int = 0

    @property
    def model(self) -> str:
        model = self.request.get("model")
        return model if isinstance(model, str) else ""


class TurnMemory:
    """Decoded messages by their bytes. The one that was not used for longest is forgotten first."""

    def __init__(self, limit: int = MEMORY_BYTES) -> None:
        self._limit = limit
        self._size = 0
        self._turns: OrderedDict[bytes, _DecodedTurn] = OrderedDict()

    def recall(self, source: bytes) -> _DecodedTurn | None:
        """What these bytes were decoded to, or None."""
        turn = self._turns.get(source)
        if turn is not None:
            self._turns.move_to_end(source)
        return turn

    def remember(self, source: bytes, turn: _DecodedTurn) -> None:
        self._turns[source] = turn
        self._size += len(source)
        while self._size > self._limit and len(self._turns) > 1:
            forgotten, _ = self._turns.popitem(last=False)
            self._size -= len(forgotten)


def decode_body(packed: bytes, encoding: str, limits: RequestLimits, memory: TurnMemory) -> RequestBody:
    """Unpack and decode a body. Raises Refusal if it is no JSON object, or larger than the limits allow."""
    text = unpack(packed, encoding, limits.unpacked)
    fields = _decode_fields(text)
    foreign = [name for name in FOREIGN_FIELDS if name in fields]
    if foreign:
        raise Refusal(
            400, f"the field {foreign[0]!r} is not allowed: the gateway's settings choose the server"
        )

    request: dict[str, Any] = {}
    decoded = _DecodedTurns()
    for name, source in fields.items():
        if name not in TURN_FIELDS or bytes(memoryview(source)[:1]) != b"[":
            request[name] = _decode_value(source, limits, name)
            continue
        raw_turns = [bytes(turn) for turn in _decode_list(source)]
        if len(raw_turns) > limits.turns:
            raise Refusal(413, f"{name} has {len(raw_turns):,} items; the limit is {limits.turns:,}")
        decoded = _decode_turns(raw_turns, limits, memory, name)
        request[name] = decoded.turns
    tools = request.get("tools")
    if isinstance(tools, list) and len(tools) > limits.tools:
        raise Refusal(413, f"tools has {len(tools):,} items; the limit is {limits.tools:,}")
    return RequestBody(
        packed=packed,
        text=text,
        request=request,
        turns=tuple(decoded.turns),
        sources=decoded.sources,
        bounds=decoded.bounds,
        turn_bytes=decoded.turn_bytes,
        new_bytes=decoded.new_bytes,
    )


def encode_body(request: Mapping[str, Any], body: RequestBody) -> bytes:
    """The JSON of a changed request. Messages that did not change keep the bytes in which they came."""
    fields = dict(request)
    for name in TURN_FIELDS:
        turns = fields.get(name)
        if isinstance(turns, list | tuple):
            fields[name] = [_reuse_source(turn, body.sources) for turn in turns]
    return msgspec.json.encode(fields)


def _reuse_source(turn: Any, sources: Mapping[int, bytes]) -> Any:
    source = sources.get(id(turn))
    return turn if source is None else msgspec.Raw(source)


class _DecodedTurn(NamedTuple):
    """A decoded message, and more tokens than it can have."""

    turn: Any
    bound: int


class _DecodedTurns:
    """The decoded messages of one request."""

    def __init__(self) -> None:
        self.turns: list[Any] = []
        self.sources: dict[int, bytes] = {}
        self.bounds: dict[int, int] = {}
        self.turn_bytes = 0
        self.new_bytes = 0

    def add(self, source: bytes, decoded: _DecodedTurn) -> None:
        self.turns.append(decoded.turn)
        self.turn_bytes += len(source)
        if isinstance(decoded.turn, dict):
            self.sources[id(decoded.turn)] = source
        self.bounds[id(decoded.turn)] = decoded.bound


def _decode_turns(
    raw_turns: list[bytes], limits: RequestLimits, memory: TurnMemory, name: str
) -> _DecodedTurns:
    decoded_turns = _DecodedTurns()
    for index, source in enumerate(raw_turns):
        decoded = memory.recall(source)
        if decoded is None:
            decoded_turns.new_bytes += len(source)
            turn = _decode_value(source, limits, f"{name}[{index}]")
            decoded = _DecodedTurn(turn, _bound_tokens(source))
            if isinstance(turn, dict):
                _check_repeated_keys(source, f"{name}[{index}]")
                memory.remember(source, decoded)
        decoded_turns.add(source, decoded)
    return decoded_turns


def _bound_tokens(source: bytes) -> int:
    """More tokens than a message has: as many as it has bytes, and more for each image or file."""
    return len(source) + MEDIA_TOKENS * sum(source.count(sign) for sign in _MEDIA)


def _decode_fields(text: bytes) -> dict[str, msgspec.Raw]:
    """The fields of the body, not decoded yet.

    A field that is there twice is refused: servers differ in which of the two they read.
    """
    try:
        fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Refusal(400, f"the body is not a JSON object: {error}") from None
    _check_keys(text, fields, "the body")
    return fields


def _decode_list(source: msgspec.Raw) -> list[msgspec.Raw]:
    try:
        return msgspec.json.decode(source, type=list[msgspec.Raw])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Refusal(400, f"the body is not JSON: {error}") from None


def _decode_value(source: bytes | msgspec.Raw, limits: RequestLimits, place: str) -> Any:
    try:
        value = msgspec.json.decode(source)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Refusal(400, f"{place} is not JSON: {error}") from None
    if isinstance(value, dict | list) and _is_deeper(value, limits.depth):
        raise Refusal(400, f"{place} is nested deeper than {limits.depth} levels")
    return value


def _is_deeper(value: Any, depth: int) -> bool:
    level: list[Any] = [value]
    for _ in range(depth):
        inner: list[Any] = []
        for container in level:
            items: Iterable[Any] = container.values() if isinstance(container, dict) else container
            inner.extend(item for item in items if isinstance(item, dict | list))
        if not inner:
            return False
        level = inner
    return True


def _check_repeated_keys(source: bytes, place: str) -> None:
    try:
        fields = msgspec.json.decode(source, type=dict[str, msgspec.Raw])
    except RecursionError:
        raise Refusal(400, f"{place} is nested too deeply") from None
    _check_keys(source, fields, place)


def _check_keys(text: bytes, fields: Mapping[str, msgspec.Raw], place: str) -> None:
    """Refuse an object with the same key twice.

    The decoder keeps the last value of a key. So if the text has another value where a key is read first,
    or more keys than were decoded, one of them is there twice.
    """
    position = text.index(b"{") + 1
    seen: set[str] = set()
    while match := _KEY.match(text, position):
        key = msgspec.json.decode(match[1], type=str)
        value = bytes(fields[key])
        if key in seen or not text.startswith(value, match.end()):
            raise Refusal(400, f"{place} has the key {key[:40]!r} twice")
        seen.add(key)
        comma = _COMMA.match(text, match.end() + len(value))
        position = comma.end() if comma else len(text)


Unpacker = Callable[[bytes], bytes]
"""Unpacks a stream piece by piece."""


def unpack(data: bytes, encoding: str, limit: int) -> bytes:
    """The body without its content encodings. Raises Refusal if it is broken or larger than `limit`."""
    for name in reversed([word.strip(" \t") for word in lower_ascii(encoding).split(",")]):
        if name in ("", "identity"):
            continue
        unpack_all = _WHOLE.get(name)
        if unpack_all is None:
            raise Refusal(415, f"content-encoding {name[:40]!r} is unknown; use {', '.join(_WHOLE)}")
        try:
            data = unpack_all(data, limit + 1)
        except (zlib.error, brotli.error, zstandard.ZstdError) as error:
            raise Refusal(400, f"the body is not valid {name}: {error}") from None
        if len(data) > limit:
            raise Refusal(413, f"the body is larger than {limit:,} bytes when unpacked")
    return data


def make_unpacker(encoding: str) -> Unpacker | None:
    """What unpacks an answer piece by piece; None if the encoding is unknown. "" needs no unpacking."""
    if encoding in ("", "identity"):
        return _take_plain
    start = _PIECEWISE.get(encoding)
    return start() if start else None


def _take_plain(data: bytes) -> bytes:
    return data


def _unpack_gzip(data: bytes, most: int) -> bytes:
    return _unpack_zlib(data, most, zlib.decompressobj(wbits=31))


def _unpack_deflate(data: bytes, most: int) -> bytes:
    return _unpack_zlib(data, most, zlib.decompressobj())


def _unpack_zlib(data: bytes, most: int, decoder: Any) -> bytes:
    text: bytes = decoder.decompress(data, most)
    if not decoder.eof and len(text) < most:
        raise zlib.error("it ends too early")
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
    with _zstd_decompressor().stream_reader(data, read_across_frames=True) as reader:
        return reader.read(most)


def _zstd_decompressor() -> zstandard.ZstdDecompressor:
    return zstandard.ZstdDecompressor(max_window_size=1 << 27)


_WHOLE: dict[str, Callable[[bytes, int], bytes]] = {
    "gzip": _unpack_gzip,
    "deflate": _unpack_deflate,
    "br": _unpack_brotli,
    "zstd": _unpack_zstd,
}
_PIECEWISE: dict[str, Callable[[], Unpacker]] = {
    "gzip": lambda: zlib.decompressobj(wbits=31).decompress,
    "deflate": lambda: zlib.decompressobj().decompress,
    "br": lambda: brotli.Decompressor().process,
    "zstd": lambda: _zstd_decompressor().decompressobj().decompress,
}
