"""What a request costs in tokens: text by a counter, everything else by a framing.

A `Counter` turns text into tokens, a `Framing` says what a provider puts around the text on the wire. Both
are plain values that callers pass along. All arithmetic is on integers, rounded up, so the same parts cost
the same on every machine. This file knows no models and no dialects.

`scale` weighs the entries of one build with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Literal

import msgspec

from lamina.core.hashing import canonical_json
from lamina.core.opaque_blocks import OpaqueBlock, is_read_by_program
from lamina.core.text.estimate import (
    FAMILIES,
    bytes_by_3_5,
    bytes_by_4,
    chars_by_4,
    estimate_tokens,
    utf8_size,
)
from lamina.core.text.media import count_media_tokens
from lamina.core.tool_definitions import definition_texts
from lamina.core.values import Calibration, Document, Image, Part, Raw, Text, Thinking, ToolCall, ToolResult
from lamina.errors import BadInput

COUNTING = 3
"""The version of what is counted in a request. Raise it if the same request would be counted differently."""

SEALED_BYTES, SEALED_FRAME = 4, 200
"""Characters of sealed reasoning for one token, and those around it that hold none: see notes/counting.md."""

COVERED_CHARACTERS = 64
"""Characters of an id, or of a tool's name in a result, that the framing covers: APIs allow no more."""


class Count(msgspec.Struct, frozen=True):
    """A number of tokens, and whether it comes from the model's own tokenizer."""

    tokens: int
    exact: bool


class Framing(msgspec.Struct, frozen=True, kw_only=True):
    """What a request costs besides its text.

    `part` is for each part of a message that is not one lone text. `padding` is text counted with each
    call and result. `image` is the cost of an image of unknown size, `document` that of a page. `tools` is
    paid once if there are any. `scale` is the whole in thousandths; `tool_scale` lengthens the text of each
    tool definition, in thousandths of its bytes.
    """

    name: str = "plain"
    request: int = 0
    message: int = 4
    part: int = 0
    call: int = 0
    result: int = 0
    padding: str = ""
    image: int = 2000
    document: int = 3000
    tools: int = 0
    tool: int = 8
    scale: int = 1000
    tool_scale: int = 1000


Basis = Literal["exact", "measured", "estimated"]


class Counter(msgspec.Struct, frozen=True, kw_only=True):
    """Counts text with `count`, and says what its numbers rest on.

    `exact`: the model's own tokenizer. `measured`: no published one, but counts that the provider reported
    agree. Neither: an estimate, which reported usage calibrates.
    """

    name: str
    count: Callable[[str], int]
    exact: bool = False
    measured: bool = False
    framing: Framing = Framing()

    @property
    def basis(self) -> Basis:
        """What the numbers rest on, as reports say it.

        The model's own tokenizer is exact. Counts that a provider reported make a counter measured.
        """
        if self.exact:
            return "exact"
        if self.measured:
            return "measured"
        return "estimated"

    @property
    def identity(self) -> str:
        """What the ledger calls it: two counters of one identity count every request alike."""
        return f"{self.name} {self.framing.name} {COUNTING}"

    def __call__(self, text: str) -> Count:
        """The tokens of a text, and whether they are exact."""
        return Count(self.count(text), self.exact)


def part_cost(part: Part, counter: Counter) -> int:
    """One part, without message framing and without `framing.part`.

    Of thinking, the larger of its text and its signature counts.
    """
    framing = counter.framing
    match part:
        case Text(text):
            cost = counter.count(text)
        case Thinking():
            cost = max(counter.count(part.text), sealed_cost(part.signature))
        case ToolCall():
            call_text = part.name + part.arguments + framing.padding
            cost = framing.call + counter.count(call_text) + _overlong_cost(part.id, counter)
        case ToolResult():
            cost = framing.result + _result_cost(part, counter)
        case Image():
            cost = framing.image if part.tokens is None else part.tokens
        case Document():
            cost = _document_cost(part, counter)
        case Raw():
            cost = raw_cost(part.data, counter)
    return cost


def sealed_cost(sealed: str) -> int:
    """What only the provider can read, in base64: a signature, redacted thinking, encrypted content."""
    content_characters = max(len(sealed) - SEALED_FRAME, 0)
    return divide_up(content_characters, SEALED_BYTES)


def raw_cost(data: Any, counter: Counter) -> int:
    """A provider's own block: its text as JSON, and the sealed content, pictures and files in it.

    A result that only a program reads takes no tokens. A tool that is defined among the messages, as one that
    was loaded later, costs what it costs in the list of tools.
    """
    if is_read_by_program(data):
        return 0
    match data:
        case {"type": "tool_definition", "definition": dict() as definition}:
            return _definitions_cost([definition], counter)
    block = OpaqueBlock(data)
    framing = counter.framing
    cost = counter.count(canonical_json(block.text).decode())
    cost += block.pictures * framing.image
    cost += block.documents * framing.document
    for sealed in block.sealed:
        cost += sealed_cost(sealed)
    for file_data, media_type in block.media:
        cost += count_media_tokens(file_data, media_type, page=framing.document, count=counter.count)
    return cost


def _result_cost(result: ToolResult, counter: Counter) -> int:
    """A result: its texts counted as one, since a provider joins them, and each other part by itself."""
    texts: list[str] = []
    cost = _overlong_cost(result.id, counter) + _overlong_cost(result.name, counter)
    for part in result.content:
        if isinstance(part, Text):
            texts.append(part.text)
        else:
            cost += part_cost(part, counter)
    return cost + counter.count("".join(texts) + counter.framing.padding)


def _document_cost(document: Document, counter: Counter) -> int:
    """A document by its tokens, if they are known; else by its text, by its data, or as one page."""
    if document.tokens is not None:
        return document.tokens
    cost = counter.count(document.name) + counter.count(document.context)
    if document.text:
        return cost + counter.count(document.text)
    page = counter.framing.document
    if not document.data:
        return cost + page
    return cost + count_media_tokens(document.data, document.media_type, page=page, count=counter.count)


def _overlong_cost(name: str, counter: Counter) -> int:
    """What a name costs beyond the characters that the framing covers.

    Ids and names are short in every API, but nothing stops a client from sending a long one.
    """
    if len(name) <= COVERED_CHARACTERS:
        return 0
    return counter.count(name[COVERED_CHARACTERS:])


def tools_cost(tools: Sequence[dict[str, Any]], counter: Counter) -> int:
    """A whole list of tool definitions, in any provider's shape. Not to be scaled again.

    `framing.tools` is paid once, if there is any tool, and `framing.tool` for each of them. A tool that is
    loaded later costs nothing here.
    """
    cost = _definitions_cost(tools, counter)
    if not cost:
        return 0
    return counter.framing.tools + cost


def _definitions_cost(tools: Sequence[dict[str, Any]], counter: Counter) -> int:
    """Tool definitions without what is paid once for all of them."""
    framing = counter.framing
    cost = 0
    for tool in tools:
        for text in definition_texts(tool):
            cost += framing.tool + counter.count(_lengthen(text, framing))
    return cost


def _lengthen(text: str, framing: Framing) -> str:
    """The text with as many letters more as `tool_scale` says."""
    more = utf8_size(text) * (framing.tool_scale - 1000) // 1000
    return text + "x" * more


def formats_cost(formats: Sequence[Any], counter: Counter) -> int:
    """The formats that the answer must have, as the provider takes them. Not to be scaled again."""
    return sum(counter.count(canonical_json(answer_format).decode()) for answer_format in formats)


def others_cost(others: Mapping[str, Any], counter: Counter) -> int:
    """Other parameters that the model reads. Not to be scaled again."""
    if not others:
        return 0
    return counter.count(canonical_json(others).decode())


def scale_tokens(raw: int, counter: Counter, calibration: Calibration | None) -> int:
    """A sum of costs with the framing's scale and the calibration applied, rounded up once.

    Both are in thousandths, so no rounding of floats can differ between two machines.
    """
    millis = 1000
    if calibration is not None:
        millis = calibration.millis
    return divide_up(raw * counter.framing.scale * millis, 1_000_000)


def divide_up(dividend: int, divisor: int) -> int:
    """The quotient, rounded up."""
    return -(-dividend // divisor)


def calibration_for(counter: Counter, learnt: Calibration | None) -> Calibration | None:
    """What was learnt, if it says something about this counter.

    Without a sample, only a factor that somebody set by hand says something.
    """
    if learnt is None or learnt.counter not in ("", counter.identity):
        return None
    if not learnt.samples and learnt.millis == 1000:
        return None
    return learnt


@cache
def estimate_for(family: str) -> Counter:
    """The byte-class estimate fitted to one family of tokenizers."""
    if family not in FAMILIES:
        families = ", ".join(sorted(FAMILIES))
        raise BadInput(f"unknown family {family!r}", place="estimate_for", hint=f"use one of {families}")
    return Counter(name=f"estimate:{family}", count=partial(estimate_tokens, family=family))


RFC = Counter(
    name="rfc",
    count=bytes_by_3_5,
    framing=Framing(name="rfc", message=8, part=3, padding="x" * 30, scale=1050, tool_scale=1200),
)
"""Bytes / 3.5 with fixed framing and 5 % on top, for comparison with systems that count so."""

CHARS4 = Counter(name="chars4", count=chars_by_4, framing=Framing(name="none", message=0, tool=0))
"""Characters / 4, rounded up."""

BYTES4 = Counter(name="bytes4", count=bytes_by_4, framing=Framing(name="none", message=0, tool=0))
"""Bytes / 4, rounded down: a text of three bytes is free."""

STRICT = Counter(name="strict", count=utf8_size)
"""UTF-8 bytes: no byte-level tokenizer can make more tokens than that."""

ESTIMATE = estimate_for("o200k")
"""The default where no exact counter is installed."""
