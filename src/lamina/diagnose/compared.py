"""Reads one of two compared requests into a stream with token counts.

`weigh_request` takes requests of a provider, fitted requests, envelopes and streams. A counter, if there is
one, counts each block. Without one its bytes do: that is good enough to say how much was lost, in a fraction
of the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from lamina.caches.stream import Sort, Stream, StreamBlock, encode_block, remove_markers
from lamina.core.envelope import Envelope
from lamina.core.hashing import canonical_json
from lamina.core.tokens import Counter, Framing, scale_tokens
from lamina.core.tool_definitions import is_deferred
from lamina.core.values import Document, Entry, Image, Layer, Text, Thinking, ToolCall, ToolResult
from lamina.core.wording import describe_segment
from lamina.dialects import DIALECTS, recognise
from lamina.dialects.json_values import find_model, list_or_empty, mapping_or_empty, text_or_empty
from lamina.dialects.port import Dialect
from lamina.errors import BadInput
from lamina.models.framing import framing_for

BYTES_PER_TOKEN = 4
"""Bytes of a token where there is no counter: about so in English, in code, and in Chinese."""

_MARKERS = frozenset(("cache_control", "cachePoint"))
_SORTS: dict[type, Sort] = {
    Text: "text",
    ToolCall: "call",
    ToolResult: "result",
    Thinking: "thinking",
    Image: "image",
    Document: "document",
}


class ComparedRequest(NamedTuple):
    """One of the two requests. `counts` are the tokens of each block, `head` those before all blocks.

    `total` is the sum.
    """

    stream: Stream
    counts: list[int]
    head: int
    total: int
    envelope: Envelope | None = None

    @property
    def tools(self) -> int:
        """How many tool definitions it begins with.

        A cache reads them before everything else.
        """
        for index, block in enumerate(self.stream.blocks):
            if block.sort != "tool":
                return index
        return len(self.stream.blocks)

    @property
    def counted_stream(self) -> Stream:
        """The stream with each block's tokens. The tokens before all blocks are added to the first.

        So the sum over the blocks is that of the whole request.
        """
        counts = list(self.counts)
        if counts:
            counts[0] += self.head
        return self.stream.weighed(counts)


def weigh_request(
    value: Any,
    *,
    dialect: str | Dialect | None,
    counter: Counter | None,
    earlier: ComparedRequest | None = None,
) -> ComparedRequest:
    """Prepare one of two requests. The later one uses the dialect of the earlier if it can."""
    if isinstance(value, Stream):
        return _count_stream(value, counter)
    envelope = value if isinstance(value, Envelope) else getattr(value, "envelope", None)
    if isinstance(envelope, Envelope):
        # the earlier one has only what lasts: the time of day, say, leaves with its turn
        compared_entries = envelope.lasting if earlier is None else envelope.sent
        return _read_envelope(envelope, compared_entries)
    if not isinstance(value, Mapping):
        hint = "pass two requests as dicts, two fitted ones, two envelopes, or two streams"
        raise BadInput(f"diff cannot compare a {type(value).__name__}", place="diff", hint=hint)
    return _count_stream(_choose_dialect(value, dialect, earlier).cache.stream(value), counter)


def _choose_dialect(
    request: Mapping[str, Any], dialect: str | Dialect | None, earlier: ComparedRequest | None
) -> Dialect:
    """The dialect that the caller names, else that of the earlier request, else by recognition."""
    if isinstance(dialect, Dialect):
        return dialect
    if dialect is not None:
        if dialect not in DIALECTS:
            hint = f"use one of {', '.join(DIALECTS)}"
            raise BadInput(f"unknown dialect {dialect!r}", place="dialect", hint=hint)
        return DIALECTS[dialect]
    # some requests look like those of two APIs, and both of a comparison are of one
    if earlier is not None:
        earlier_dialect = DIALECTS.get(earlier.stream.dialect)
        if earlier_dialect is not None and earlier_dialect.recognises(request):
            return earlier_dialect
    return recognise(request)


def _count_stream(stream: Stream, counter: Counter | None) -> ComparedRequest:
    """Count or estimate the blocks, unless they are counted already."""
    counts = [block.tokens for block in stream.blocks]
    if any(counts):
        return ComparedRequest(stream, counts, 0, sum(counts))
    framing = framing_for(stream.model) if counter is None else counter.framing
    counts = [_count_block(block, framing, counter) for block in stream.blocks]
    head = _count_framing(stream, framing)
    total = head + sum(counts)
    if counter is not None:
        total = scale_tokens(total, counter, None)
    return ComparedRequest(stream, counts, head, total)


def _count_framing(stream: Stream, framing: Framing) -> int:
    """The tokens that belong to no block: those of the request, and those around all tools."""
    if any(block.sort == "tool" for block in stream.blocks):
        return framing.request + framing.tools
    return framing.request


def _count_block(block: StreamBlock, framing: Framing, counter: Counter | None) -> int:
    """The tokens of a block with the framing around it. Without a counter its bytes say how many."""
    around = framing.message if block.opens else 0
    if block.sort == "tool":
        around = framing.tool
    fixed_counts = {"image": framing.image, "document": framing.document}
    # a document may be text, which is counted as such
    has_text = b'"text"' in block.data[:64]
    if block.sort in fixed_counts and not has_text:
        return around + fixed_counts[block.sort]
    if counter is None:
        return around + len(block.data) // BYTES_PER_TOKEN
    return around + counter.count(_read_text(block))


def _read_text(block: StreamBlock) -> str:
    """The text of a block. If it is more than one text, its JSON; for a result, all its texts.

    `{"type": "text", "text": "Hi"}` is `Hi`. A call is its JSON, since the model reads names and values.
    """
    value = msgspec.json.decode(block.data)
    text = mapping_or_empty(value).get("text")
    if isinstance(text, str):
        return text
    content = None
    if block.sort == "result":
        content = mapping_or_empty(value).get("content")
    pieces = [str(mapping_or_empty(piece).get("text", "")) for piece in list_or_empty(content)]
    return "".join(pieces) or block.data.decode()


def _read_envelope(envelope: Envelope, entries: Sequence[Entry]) -> ComparedRequest:
    """A block for each tool and each of these entries, which are the first that are sent."""
    tools = enumerate(envelope.head.tools)
    blocks = [_tool_block(tool, index) for index, tool in tools if not is_deferred(tool)]
    blocks += map(_entry_block, entries)
    model = find_model(envelope.head.parameters)
    stream = Stream(dialect="", model=model, blocks=tuple(blocks))
    # an envelope has counted its entries already
    counts = [block.tokens for block in blocks]
    left_out = sum(entry.tokens for entry in envelope.sent[len(entries) :])
    return ComparedRequest(stream, counts, envelope.account.head, envelope.tokens - left_out, envelope)


def _tool_block(tool: Mapping[str, Any], index: int) -> StreamBlock:
    """The block of a tool definition. Some dialects put its name into a field `function`."""
    named = tool.get("function")
    if not isinstance(named, Mapping):
        named = tool
    return StreamBlock(
        sort="tool",
        role="tool",
        data=encode_block(remove_markers(tool, _MARKERS)),
        place=f"tools[{index}]",
        opens=True,
        name=text_or_empty(named.get("name")),
    )


def _entry_block(entry: Entry) -> StreamBlock:
    """The block of an entry. Its place is the entry's ref."""
    sort = _SORTS.get(type(entry.parts[0]), "raw")
    if entry.layer is Layer.SYSTEM:
        sort = "system"
    return StreamBlock(
        sort=sort,
        role=entry.role,
        data=canonical_json(entry.parts),
        place=entry.ref,
        opens=entry.opens,
        name=describe_segment(entry.segment),
        tokens=entry.tokens,
        form=entry.form,
    )
