"""Whatever is compared, as streams with tokens: requests of a provider, fitted ones, envelopes, or streams.

A counter that is given counts each block. Without one a sample is estimated and the rest follows by its
bytes: enough to say how much was lost, in a fraction of the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from lamina.caches.stream import Sort, Stream, StreamBlock, data_of, remove_markers
from lamina.core.envelope import Envelope
from lamina.core.hashing import canonical
from lamina.core.tokens import ESTIMATE, Counter, Framing, scaled
from lamina.core.values import Document, Entry, Image, Layer, Text, Thinking, ToolCall, ToolResult
from lamina.core.wording import described
from lamina.dialects import DIALECTS, recognise
from lamina.dialects.port import Dialect
from lamina.errors import BadInput
from lamina.models.framing import framing_for

SAMPLES, PIECE = 32, 400
"""How many blocks are estimated where no counter is given, and how many bytes of each."""

_MARKERS = frozenset(("cache_control", "cachePoint"))
_SORTS: dict[type, Sort] = {
    Text: "text",
    ToolCall: "call",
    ToolResult: "result",
    Thinking: "thinking",
    Image: "image",
    Document: "document",
}


class Side(NamedTuple):
    """One of two. `counts` are the tokens of each block, `head` those before all blocks, `total` their sum.

    `rate` is thousandths of a token for a byte, where they were not counted.
    """

    stream: Stream
    counts: list[int]
    head: int
    total: int
    envelope: Envelope | None = None
    rate: int = 0

    @property
    def tools(self) -> int:
        """How many tool definitions it begins with."""
        blocks = self.stream.blocks
        return next((i for i, block in enumerate(blocks) if block.sort != "tool"), len(blocks))

    @property
    def weighed(self) -> Stream:
        """The stream with each block's tokens; what stands before all blocks is counted with the first."""
        first, *rest = self.counts or [0]
        counts = [first + self.head, *rest] if self.counts else []
        return self.stream.weighed(counts)


def side(
    given: Any, *, dialect: str | Dialect | None, counter: Counter | None, earlier: Side | None = None
) -> Side:
    """One side of a comparison; the later one takes the rate of the earlier, and its dialect if it can."""
    rate = earlier.rate if earlier else 0
    if isinstance(given, Stream):
        return _weighed(given, counter, rate)
    found = given if isinstance(given, Envelope) else getattr(given, "envelope", None)
    if isinstance(found, Envelope):
        compared = found.lasting if earlier is None else found.sent
        return _of_envelope(found, compared)
    if not isinstance(given, Mapping):
        hint = "pass two requests as dicts, two fitted ones, two envelopes, or two streams"
        raise BadInput(f"{type(given).__name__} is nothing to compare", place="part", hint=hint)
    likely = DIALECTS.get(earlier.stream.dialect) if earlier and dialect is None else None
    speaks = likely if likely and likely.recognises(given) else _dialect(given, dialect)
    return _weighed(speaks.stream(given), counter, rate)


def _dialect(request: Mapping[str, Any], dialect: str | Dialect | None) -> Dialect:
    if isinstance(dialect, Dialect):
        return dialect
    if dialect is None:
        return recognise(request)
    if dialect not in DIALECTS:
        hint = f"use one of {', '.join(DIALECTS)}"
        raise BadInput(f"unknown dialect {dialect!r}", place="dialect", hint=hint)
    return DIALECTS[dialect]


def _weighed(stream: Stream, counter: Counter | None, rate: int) -> Side:
    known = [block.tokens for block in stream.blocks]
    if any(known):
        return Side(stream, known, 0, sum(known))
    framing = counter.framing if counter else framing_for(stream.model)
    if counter:
        counts = [_cost(block, counter) for block in stream.blocks]
    else:
        rate = rate or _rate(stream)
        counts = _by_bytes(stream, framing, rate)
    head = framing.request + (framing.tools if any(block.sort == "tool" for block in stream.blocks) else 0)
    raw = head + sum(counts)
    return Side(stream, counts, head, scaled(raw, counter, None) if counter else raw, rate=rate)


def _cost(block: StreamBlock, counter: Counter) -> int:
    framing = counter.framing
    around = framing.message if block.opens and block.sort != "tool" else 0
    if block.sort == "tool":
        return framing.tool + counter.count(block.data.decode())
    if block.sort in ("image", "document") and b'"text"' not in block.data[:64]:
        return around + (framing.image if block.sort == "image" else framing.document)
    return around + counter.count(_said(block))


def _said(block: StreamBlock) -> str:
    """The text of a block: what it says, without the JSON around it where it is one text."""
    value = msgspec.json.decode(block.data)
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        return str(value["text"])
    if isinstance(value, dict) and block.sort == "result":
        return _texts(value.get("content")) or block.data.decode()
    return block.data.decode()


def _texts(content: Any) -> str:
    pieces = content if isinstance(content, list) else ()
    return "".join(str(piece.get("text", "")) for piece in pieces if isinstance(piece, dict))


def _rate(stream: Stream) -> int:
    """Thousandths of a token for a byte, in a sample from all over the stream."""
    texts = [block.data for block in stream.blocks if block.sort not in ("image", "document")]
    pieces = [data[:PIECE] for data in texts[:: len(texts) // SAMPLES + 1]]
    count = ESTIMATE.count(b"".join(pieces).decode("utf-8", "ignore"))
    return 1000 * count // max(sum(map(len, pieces)), 1) or 1


def _by_bytes(stream: Stream, framing: Framing, rate: int) -> list[int]:
    large, message = {"image": framing.image, "document": framing.document}, framing.message
    return [
        large.get(block.sort) or (message if block.opens else 0) + len(block.data) * rate // 1000
        for block in stream.blocks
    ]


def _of_envelope(envelope: Envelope, entries: Sequence[Entry]) -> Side:
    """A block for each tool and each of these entries, the first that are sent; `place` is its ref."""
    tools = [
        StreamBlock(
            sort="tool",
            role="tool",
            data=data_of(remove_markers(tool, _MARKERS)),
            place=f"tools[{i}]",
            opens=True,
            name=_tool_name(tool),
        )
        for i, tool in enumerate(envelope.head.tools)
    ]
    blocks = (*tools, *(_of_entry(entry) for entry in entries))
    model = envelope.head.parameters.get("model")
    stream = Stream(dialect="", model=model if isinstance(model, str) else "", blocks=blocks)
    account = envelope.account
    counts = [block.tokens for block in blocks]
    left_out = sum(entry.tokens for entry in envelope.sent[len(entries) :])
    return Side(stream, counts, account.head, envelope.tokens - left_out, envelope)


def _of_entry(entry: Entry) -> StreamBlock:
    sort: Sort = _SORTS.get(type(entry.parts[0]), "raw")
    return StreamBlock(
        sort="system" if entry.layer is Layer.SYSTEM else sort,
        role=entry.role,
        data=canonical(entry.parts),
        place=entry.ref,
        opens=entry.opens,
        name=described(entry.segment),
        tokens=entry.tokens,
        form=entry.form,
    )


def _tool_name(tool: Mapping[str, Any]) -> str:
    inner = tool.get("function")
    name = (inner if isinstance(inner, Mapping) else tool).get("name")
    return name if isinstance(name, str) else ""
