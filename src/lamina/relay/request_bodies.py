"""A request's body: decoded once, and encoded again only if it was changed.

The body that came stays as it is and is what leaves if nothing has to change. `TurnMemory` remembers what the
last bodies were decoded to. A request that grows from call to call repeats them all, so only the new ones are
decoded, and the memos of `lamina.fitting`, which compare objects, stay warm.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from operator import is_
from typing import Any, NamedTuple

import msgspec

from lamina.core.text.characters import lower_ascii
from lamina.relay import limits
from lamina.relay.refusals import Refusal
from lamina.relay.turn_memory import (
    DecodedTurn,
    DecodedTurns,
    RepeatedTurns,
    SeenRequest,
    TurnMemory,
    describe_request,
    extend_request,
)

TURN_FIELDS = ("messages", "input", "contents")
"""The field that has the conversation, in each API."""

FOREIGN_FIELDS = ("api_base", "base_url", "api_key")
"""Fields by which some proxies let a client choose the server. Here the settings alone choose it."""

LONG_FIELD = 512
"""Bytes from which on a field is remembered by its bytes."""

_KEY = re.compile(rb'[ \t\r\n]*("(?:[^"\\]|\\.)*")[ \t\r\n]*:[ \t\r\n]*')
_COMMA = re.compile(rb"[ \t\r\n]*,?")

_RAW_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_RAW_LIST = msgspec.json.Decoder(list[msgspec.Raw])

NO_TURNS = DecodedTurns()


class RequestBody(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A decoded body. `packed` are the bytes as they came, `text` is their JSON.

    `decoded` are the messages. `turn_bytes` counts the bytes of all of them, and `new_bytes` the bytes of
    those that were not seen before. `seen` is what the memory keeps of it, None if it has no messages that
    are objects, and `similar` what it has of a request with many of the same messages.
    """

    packed: bytes
    text: bytes
    request: dict[str, Any]
    decoded: DecodedTurns = NO_TURNS
    turn_bytes: int = 0
    new_bytes: int = 0
    seen: SeenRequest | None = None
    similar: SeenRequest | None = None

    @property
    def turns(self) -> tuple[Any, ...]:
        return self.decoded.values

    @property
    def bounds(self) -> tuple[int, ...]:
        """For each message more tokens than it can have."""
        return self.decoded.bounds

    @property
    def model(self) -> str:
        model = self.request.get("model")
        if isinstance(model, str):
            return model
        return ""

    @property
    def head_bytes(self) -> int:
        """The bytes that are not in the messages."""
        return len(self.text) - self.turn_bytes

    def sources(self) -> dict[int, bytes]:
        """The bytes of each message that is an object, by its identity."""
        sources, turns, _ = self.decoded
        return {id(turn): source for source, turn in zip(sources, turns, strict=True) if type(turn) is dict}


def decode_body(text: bytes, memory: TurnMemory, *, packed: bytes | None = None) -> RequestBody:
    """Decode a body. Raises Refusal if it is no JSON object, or has more than the limits allow.

    `packed` are the bytes that were unpacked to it, None if it came as it is.
    """
    content = _decode_grown(text, memory)
    if content is None:
        content = _decode_whole(text, memory)
    if content.seen is not None:
        memory.remember(content.seen)
    return RequestBody(
        packed=text if packed is None else packed,
        text=text,
        request=content.request,
        decoded=content.decoded,
        turn_bytes=sum(map(len, content.decoded.sources)),
        new_bytes=content.new_bytes,
        seen=content.seen,
        similar=content.similar,
    )


class _BodyContent(NamedTuple):
    """What a body was decoded to. `fields` are the long ones, by their bytes.

    `seen` is what the next body is compared with, None if it cannot be. It was `similar` to another one.
    """

    request: dict[str, Any]
    decoded: DecodedTurns
    new_bytes: int
    fields: Mapping[bytes, Any]
    seen: SeenRequest | None = None
    similar: SeenRequest | None = None


def _decode_grown(text: bytes, memory: TurnMemory) -> _BodyContent | None:
    """Decode what an earlier body did not have. None if all of it must be read.

    Agents send their whole history each time, so this is the usual way of a request.
    """
    repeated = memory.find_repeated(text)
    if repeated is None:
        return None
    similar = repeated.seen
    new_text = text[repeated.end :]
    # The tools may follow the messages. They were counted with the request before, and decoded.
    value_count = similar.value_count + count_values(new_text.removesuffix(similar.tail))
    if value_count > limits.VALUES:  # the sum may be too high: the whole text is counted exactly
        return None
    content = _decode_new_turns(text, repeated)
    if content is None:
        value_count = similar.value_count + count_values(new_text)
        if value_count > limits.VALUES:
            return None
        scan = _scan_rest(text, repeated)
        if scan is None:
            return None
        content = _decode_scan(scan, repeated.turns, similar)
    seen = extend_request(
        repeated, text, content.decoded, content.request, fields=content.fields, value_count=value_count
    )
    return content._replace(seen=seen, similar=similar)


def _decode_whole(text: bytes, memory: TurnMemory) -> _BodyContent:
    """Decode a body from its first byte. Messages of a similar one are recalled all the same."""
    value_count = count_values(text)
    if value_count > limits.VALUES:
        raise Refusal(
            413, f"the body has {value_count:,} values at all depths; the limit is {limits.VALUES:,}"
        )
    scan = _scan_body(text)
    similar = memory.find_edited(scan.raw_turns)
    content = _decode_scan(scan, NO_TURNS, similar)
    if 2 * content.new_bytes > len(text):  # another conversation that begins alike
        similar = None
    seen = describe_request(
        text,
        scan.name,
        scan.start,
        content.decoded,
        content.request,
        fields=content.fields,
        value_count=value_count,
    )
    return content._replace(seen=seen, similar=similar)


def _decode_new_turns(text: bytes, repeated: RepeatedTurns) -> _BodyContent | None:
    """Decode the messages that follow those of an earlier body. None if more than that may differ."""
    raw_turns = _split_new_turns(text, repeated)
    if raw_turns is None:
        return None
    similar = repeated.seen
    decoded, new_bytes = _decode_turns(repeated.turns, raw_turns, NO_TURNS, similar.name)
    request = {**similar.request, similar.name: list(decoded.values)}
    return _BodyContent(request, decoded, new_bytes, similar.fields)


def _decode_scan(scan: _BodyScan, repeated: DecodedTurns, similar: SeenRequest | None) -> _BodyContent:
    """Decode the fields of a body, and the messages after those that are decoded already."""
    for name in FOREIGN_FIELDS:
        if name in scan.fields:
            raise Refusal(400, f"the field {name!r} is not allowed: the gateway's settings choose the server")
    request: dict[str, Any] = {}
    fields: dict[bytes, Any] = {}
    decoded = NO_TURNS
    new_bytes = 0
    for name, source in scan.fields.items():
        if name == scan.name:
            earlier = NO_TURNS
            if similar is not None:
                earlier = similar.turns
            decoded, new_bytes = _decode_turns(repeated, scan.raw_turns, earlier, name)
            request[name] = list(decoded.values)
            continue
        text = bytes(source)
        if similar is not None and text in similar.fields:  # long ones, as tools, are the same each time
            request[name] = similar.fields[text]
        else:
            request[name] = decode_value(text, name).value
        if len(text) >= LONG_FIELD:
            fields[text] = request[name]
    tools = request.get("tools")
    if isinstance(tools, list) and len(tools) > limits.TOOLS:
        raise Refusal(413, f"tools has {len(tools):,} items; the limit is {limits.TOOLS:,}")
    return _BodyContent(request, decoded, new_bytes, fields)


def encode_body(request: Mapping[str, Any], body: RequestBody) -> bytes:
    """The JSON of a changed request. Messages that did not change keep the bytes in which they came."""
    fields = dict(request)
    for name in TURN_FIELDS:
        turns = fields.get(name)
        if isinstance(turns, list | tuple):
            fields[name] = _encode_turns(turns, body)
    return msgspec.json.encode(fields)


def _encode_turns(turns: Sequence[Any], body: RequestBody) -> Any:
    """The messages of a request, each as it came if it is the same object.

    Most requests have the same messages at the same places, but for a few that are marked. Then no step of
    Python is taken for the others.
    """
    if len(turns) != len(body.turns):
        sources = body.sources()
        return [_reuse_source(turn, sources) for turn in turns]
    pieces = list(body.decoded.sources)
    is_same = list(map(is_, turns, body.turns))
    for _ in range(is_same.count(False)):
        place = is_same.index(False)
        is_same[place] = True
        pieces[place] = msgspec.json.encode(turns[place])
    return msgspec.Raw(b"[%b]" % b",".join(pieces))


def _reuse_source(turn: Any, sources: Mapping[int, bytes]) -> Any:
    source = sources.get(id(turn))
    if source is None:
        return turn
    return msgspec.Raw(source)


class _BodyScan(NamedTuple):
    """A body whose values are not decoded yet.

    `name` is the field that has the messages, "" without one, `start` is where its list begins in the text,
    and `raw_turns` are the messages.
    """

    fields: Mapping[str, msgspec.Raw]
    name: str = ""
    start: int = 0
    raw_turns: Sequence[bytes] = ()


def _scan_body(text: bytes) -> _BodyScan:
    """Find the fields of a body, and the messages in the field that has the conversation.

    A field that is there twice is refused: servers differ in which of the two they read.
    """
    try:
        fields = _RAW_FIELDS.decode(text)
    except DECODE_ERRORS as error:
        raise refuse_json(text, "the body is not a JSON object", error) from None
    places = _find_values(text, fields)
    name = ""
    for field in fields:
        if field in TURN_FIELDS and text.startswith(b"[", places[field]):
            name = field
    if not name:
        return _BodyScan(fields)
    try:
        raw_turns = _RAW_LIST.decode(fields[name])
    except DECODE_ERRORS as error:
        raise refuse_json(text, "the body is not JSON", error) from None
    return _BodyScan(fields, name, places[name], list(map(bytes, raw_turns)))


def _split_new_turns(text: bytes, repeated: RepeatedTurns) -> Sequence[bytes] | None:
    """The messages that a body has besides those of an earlier one. None if more than that may differ.

    `{"messages":[a,b],"n":1}` was decoded before, and `{"messages":[a,b,c],"n":1}` ends as it did: with
    `],"n":1}`. Then what is between must be the rest of a list, and `[c]` is decoded as one.
    """
    seen, _, end = repeated
    new_end = len(text) - len(seen.tail)
    if new_end < end or not text.endswith(seen.tail):
        return None
    if new_end == end:
        return ()
    if not text.startswith(seen.gap, end):
        return None
    try:
        raw_turns = _RAW_LIST.decode(b"[%b]" % text[end + len(seen.gap) : new_end])
    except DECODE_ERRORS:
        return None
    return list(map(bytes, raw_turns)) or None


def _scan_rest(text: bytes, repeated: RepeatedTurns) -> _BodyScan | None:
    """Find the fields of a body whose first messages are decoded already. None if all of it must be read.

    What is read is the text without these messages: `{"messages":[a,b,c],"n":1}` is read as
    `{"messages":[c],"n":1}`. It is JSON if the text is. A text that is not JSON may look like it only if a
    comma is missing after `b`, or follows it with nothing behind. So after a comma there must be a message.
    """
    seen, _, end = repeated
    continues = text.startswith(seen.gap, end)
    if continues:
        end += len(seen.gap)
    try:
        scan = _scan_body(seen.head + text[end:])
    except Refusal:
        return None
    if scan.name != seen.name or scan.start >= len(seen.head):
        return None  # another field has the messages
    if continues != bool(scan.raw_turns):
        return None
    return scan


def _find_values(text: bytes, fields: Mapping[str, msgspec.Raw]) -> dict[str, int]:
    """Where the value of each field begins. Raises Refusal if the body has the same key twice.

    The decoder keeps the last value of a key. So if the text has another value where a key is read first,
    or more keys than were decoded, one of them is there twice.
    """
    position = text.index(b"{") + 1
    places: dict[str, int] = {}
    while match := _KEY.match(text, position):
        key = msgspec.json.decode(match[1], type=str)
        value = bytes(fields[key])
        place = match.end()
        if key in places or not text.startswith(value, place):
            raise Refusal(400, f"the body has the key {key[:40]!r} twice")
        places[key] = place
        comma = _COMMA.match(text, place + len(value))
        position = comma.end() if comma else len(text)
    return places


def _decode_turns(
    decoded: DecodedTurns,
    raw_turns: Sequence[bytes],
    earlier: DecodedTurns,
    name: str,
) -> tuple[DecodedTurns, int]:
    """Decode messages and add them to the others. Also the bytes of those that no `earlier` request had."""
    index = len(decoded.sources)
    count = index + len(raw_turns)
    if count > limits.TURNS:
        raise Refusal(413, f"{name} has {count:,} items; the limit is {limits.TURNS:,}")
    earlier_turns = dict(zip(earlier.sources, map(DecodedTurn, *earlier), strict=True))
    new_turns: list[DecodedTurn] = []
    new_bytes = 0
    for source in raw_turns:
        turn = earlier_turns.get(source)
        if turn is None:
            new_bytes += len(source)
            turn = decode_value(source, f"{name}[{index}]")
        new_turns.append(turn)
        index += 1
    return decoded.extend(new_turns), new_bytes


COUNTED_BYTES = 1 << 16
"""Bytes of a text in which values are counted at a time."""

MEDIA_TOKENS = 5_000
"""More than an image or a file that is only named takes."""

_MEDIA = re.compile(r"^(?:input_)?image|_url$|file_?(?:id|uri)|inline_?data|^document$", re.ASCII)
_LONGEST_NAME = 40
"""How the names of fields and types read, in lower case, that hold or name an image or a file."""

_HALF_CHARACTER = re.compile(rb"(?<!\\)\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")
"""An escape for the first half of a character beyond the first 65,536, without the second half after it."""

DECODE_ERRORS = (msgspec.DecodeError, ValueError, RecursionError)
"""What a text that is not JSON raises, or one that is nested too deeply for the decoder."""

_ANY = msgspec.json.Decoder()


def count_values(text: bytes) -> int:
    """How many values a JSON text has at all depths, counted before any of them is decoded.

    A decoded value may take twenty times the memory of its text, as in `[[],[],[]]`, and 200,000 parts in one
    message took a minute of CPU. Signs inside strings count too, unless there are so many of them that it
    matters: the result is never too low, and if it is above the limit it is exact.
    """
    count = _count_signs(text)
    if count > limits.VALUES:
        count = _count_outside_strings(text)
    return count


def _count_outside_strings(text: bytes) -> int:
    """As `_count_signs`, without what stands in strings. Piece by piece: a text may have millions of them."""
    text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    count = 0
    inside = 0
    for start in range(0, len(text), COUNTED_BYTES):
        parts = text[start : start + COUNTED_BYTES].split(b'"')
        count += _count_signs(b"".join(parts[inside::2]))
        inside = (inside + len(parts) - 1) % 2
    return count


def _count_signs(text: bytes) -> int:
    return text.count(b",") + text.count(b"{") + text.count(b"[")


def decode_value(source: bytes, place: str) -> DecodedTurn:
    """Decode a value. It has no more tokens than bytes, and those of each image or file that it names."""
    try:
        value = _ANY.decode(source)
    except DECODE_ERRORS as error:
        raise refuse_json(source, f"{place} is not JSON", error) from None
    if type(value) is not dict and type(value) is not list:
        return DecodedTurn(source, value, len(source))
    media = _count_media(value)
    if media is None:
        raise Refusal(400, f"{place} is nested deeper than {limits.DEPTH} levels")
    _check_repeated_keys(source, value, place)
    return DecodedTurn(source, value, len(source) + MEDIA_TOKENS * media)


def _count_media(value: dict[str, Any] | list[Any]) -> int | None:
    """How often a value names an image or a file; None if it is nested deeper than it may be."""
    # Level by level, not by recursion: the client chooses how deep it is.
    media = 0
    level: list[dict[str, Any] | list[Any]] = [value]
    for _ in range(limits.DEPTH):
        inner: list[dict[str, Any] | list[Any]] = []
        for container in level:
            items: Iterable[Any] = container
            if type(container) is dict:
                items = chain(container, container.values())
            for item in items:
                kind = type(item)
                if kind is str:
                    if len(item) <= _LONGEST_NAME and _names_media(item):
                        media += 1
                elif kind is dict or kind is list:
                    inner.append(item)
        if not inner:
            return media
        level = inner
    return None


@lru_cache(maxsize=1024)
def _names_media(name: str) -> bool:
    return _MEDIA.search(lower_ascii(name)) is not None


def refuse_json(text: bytes, problem: str, error: Exception) -> Refusal:
    """Why a text cannot be decoded. Clients that cut texts anywhere send halves of characters."""
    half = _HALF_CHARACTER.search(text)
    if half is None:
        return Refusal(400, f"{problem}: {error}")
    escape = half[0].decode("ascii")
    return Refusal(400, f"{problem}: {escape} is half of a character; a text was cut in the middle of it")


def _check_repeated_keys(source: bytes, value: Any, place: str) -> None:
    """Refuse a value with an object, at any depth, that has the same key twice.

    A value that is encoded to the bytes that it came from has lost nothing. Any other one, as most with
    blanks in it, is read once more by a slower decoder that sees every key.
    """
    if msgspec.json.encode(value) == source:
        return

    def check_pairs(pairs: list[tuple[str, Any]]) -> None:
        if len(pairs) == len(dict(pairs)):
            return
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise Refusal(400, f"{place} has the key {repeated[:40]!r} twice")

    try:
        json.loads(source, object_pairs_hook=check_pairs, parse_int=_skip_number, parse_float=_skip_number)
    except RecursionError:
        raise Refusal(400, f"{place} is nested too deeply to be read") from None


def _skip_number(_: str) -> None:
    """Stands for a number, whose digits do not matter here."""
