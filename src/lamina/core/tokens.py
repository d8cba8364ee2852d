"""What a request costs in tokens: text by a counter, everything else by a framing.

A `Counter` turns text into tokens, a `Framing` says what stands around the text on the wire. Both are
plain values that callers pass along. All arithmetic is on integers, rounded up, so the same parts cost
the same on every machine. This file does not know models, dialects or how parts become messages: who
builds a request adds `framing.request` once and `framing.message` per message, scales that sum with
`scaled`, and adds `tools_cost`, `formats_cost` and `others_cost` after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, Literal

import msgspec

from lamina.core.hashing import canonical
from lamina.core.opaque_blocks import Foreign
from lamina.core.text.estimate import FAMILIES, bytes_by_3_5, bytes_by_4, chars_by_4, estimate, size
from lamina.core.text.media import count_media_tokens
from lamina.core.values import Calibration, Document, Image, Part, Raw, Text, Thinking, ToolCall, ToolResult
from lamina.errors import BadInput

COUNTING = 2
"""The version of what is counted in a request. A change that counts the same request otherwise raises it."""

MILLIS_LEAST, MILLIS_MOST = 500, 4000
"""A report outside these bounds is believed only when the next one says the same: see `calibrate`."""

SAMPLES = 8
"""How many reports a calibration remembers: enough to smooth, few enough to follow a changed model."""


class Count(msgspec.Struct, frozen=True):
    tokens: int
    exact: bool


class Framing(msgspec.Struct, frozen=True, kw_only=True):
    """What a request costs beside its text.

    `part` is for each part of a message that is not one lone text; `padding` is text counted with each
    call and result; `image` stands in where nobody knows better, and so does `document` for each page;
    `tools` is paid once where there are any. `scale` is the whole in thousandths; `tool_scale` lengthens
    the text of each tool definition, in thousandths of its bytes.
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
        return "exact" if self.exact else "measured" if self.measured else "estimated"

    @property
    def identity(self) -> str:
        """What the ledger calls it: two counters of one identity count every request alike."""
        return f"{self.name} {self.framing.name} {COUNTING}"

    def __call__(self, text: str) -> Count:
        return Count(self.count(text), self.exact)


def part_cost(part: Part, counter: Counter) -> int:
    """One part, without message framing and without `framing.part`."""
    count, framing = counter.count, counter.framing
    match part:
        case Text(text):
            cost = count(text)
        case Thinking():
            cost = max(count(part.text), sealed_cost(part.signature))
        case ToolCall():
            asked = part.name + part.arguments + framing.padding
            cost = framing.call + count(asked) + _beyond(part.id, count)
        case ToolResult():
            cost = framing.result + _result_cost(part, counter)
        case Image():
            cost = framing.image if part.tokens is None else part.tokens
        case Document():
            cost = _document_cost(part, counter)
        case Raw():
            cost = raw_cost(part.data, counter)
    return cost


SEALED_BYTES, SEALED_FRAME = 4, 200
"""Characters of sealed reasoning for one token, and those around it that hold none: see docs/counting.md."""


def sealed_cost(sealed: str) -> int:
    """What only the provider can read, in base64: a signature, redacted thinking, encrypted content."""
    return -(-max(len(sealed) - SEALED_FRAME, 0) // SEALED_BYTES)


NAMED = 64
"""Characters of an id, or of a tool's name in a result, that the framing covers: APIs allow no more."""


def _beyond(name: str, count: Callable[[str], int]) -> int:
    return count(name[NAMED:]) if len(name) > NAMED else 0


def raw_cost(data: Any, counter: Counter) -> int:
    """A provider's own block: its text as JSON, and what it holds that is no text."""
    block, framing = Foreign(data), counter.framing
    pages = (
        count_media_tokens(file, sort, page=framing.document, count=counter.count)
        for file, sort in block.media
    )
    return (
        counter.count(canonical(block.text).decode())
        + sum(map(sealed_cost, block.sealed))
        + block.pictures * framing.image
        + block.documents * framing.document
        + sum(pages)
    )


def tools_cost(tools: Sequence[dict[str, Any]], counter: Counter) -> int:
    """A whole list of tool definitions, in any provider's shape. Not to be scaled again."""
    texts = [text for tool in tools for text in _definitions(tool)]
    if not texts:
        return 0
    framing = counter.framing
    return framing.tools + sum(framing.tool + counter.count(_lengthened(text, framing)) for text in texts)


def formats_cost(formats: Sequence[Any], counter: Counter) -> int:
    """The formats that the answer must have, as the provider takes them. Not to be scaled again."""
    return sum(counter.count(canonical(each).decode()) for each in formats)


def others_cost(others: Mapping[str, Any], counter: Counter) -> int:
    """Other parameters that the model reads. Not to be scaled again."""
    return counter.count(canonical(others).decode()) if others else 0


def scaled(raw: int, counter: Counter, calibration: Calibration | None) -> int:
    """A sum of costs with the framing's scale and the calibration applied, rounded up once."""
    millis = 1000 if calibration is None else calibration.millis
    return -(-raw * counter.framing.scale * millis // 1_000_000)


def calibration_for(counter: Counter, learnt: Calibration | None) -> Calibration | None:
    """What was learnt, if it says something about this counter."""
    if learnt is None or learnt.counter not in ("", counter.identity):
        return None
    return learnt if learnt.samples or learnt.millis != 1000 else None


def calibrate(previous: Calibration | None, *, counted: int, reported: int, counter: str = "") -> Calibration:
    """Learn from one answer: `counted` is our total for it before calibration, `reported` the provider's.

    A running mean over the last samples, rounded up; the first sample stands alone. What was learnt with
    another counter is forgotten.

    A single report of less than half or more than four times our count says that something else was
    counted: it is noted as doubted, and changes nothing. If the next one is as far off to the same side,
    the counter is off, and the bound is learnt.
    """
    for name, value in (("counted", counted), ("reported", reported)):
        if value <= 0:
            raise BadInput(
                f"{name} is {value!r}", place="calibrate", hint="skip answers that report no input tokens"
            )
    known = Calibration(counter=counter)
    if previous is not None and previous.counter == counter:
        known = previous
    ratio = -(-1000 * reported // counted)
    sample = min(max(ratio, MILLIS_LEAST), MILLIS_MOST)
    if sample not in (ratio, known.doubted):
        return msgspec.structs.replace(known, doubted=sample)
    weight = min(max(known.samples, 0), SAMPLES - 1)
    mean = -(-(known.millis * weight + sample) // (weight + 1))
    doubted = 0 if sample == ratio else sample
    return Calibration(millis=mean, samples=weight + 1, counter=counter, doubted=doubted)


@cache
def estimate_for(family: str) -> Counter:
    """The byte-class estimate fitted to one family of tokenizers."""
    if family not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise BadInput(f"unknown family {family!r}", place="estimate_for", hint=f"use one of {known}")
    return Counter(name=f"estimate:{family}", count=partial(estimate, family=family))


def _result_cost(result: ToolResult, counter: Counter) -> int:
    text = "".join(part.text for part in result.content if isinstance(part, Text))
    rest = sum(part_cost(part, counter) for part in result.content if not isinstance(part, Text))
    named = _beyond(result.id, counter.count) + _beyond(result.name, counter.count)
    return counter.count(text + counter.framing.padding) + rest + named


def _document_cost(document: Document, counter: Counter) -> int:
    if document.tokens is not None:
        return document.tokens
    about = counter.count(document.name) + counter.count(document.context)
    if document.text:
        return about + counter.count(document.text)
    page = counter.framing.document
    if not document.data:
        return about + page
    return about + count_media_tokens(document.data, document.media_type, page=page, count=counter.count)


def _definitions(tool: dict[str, Any]) -> Iterator[str]:
    """The text of each function in a definition, and of whatever else there is in it."""
    match tool:
        case {"functionDeclarations": [*declared]} | {"function_declarations": [*declared]}:
            yield from map(_definition, declared)
            rest = _rest(tool, "functionDeclarations", "function_declarations")
        case {"type": "namespace", "tools": [*inner]}:
            yield _joined(tool.get("name"), tool.get("description"))
            for each in inner:
                yield from _definitions(each) if isinstance(each, dict) else (_definition(each),)
            rest = _rest(tool, "tools", "name", "description")
        case {"function": dict() as function}:
            yield _definition(function) + _rest(tool, "function")
            return
        case _:
            yield _definition(tool)
            return
    if rest:
        yield rest


_SCHEMAS = ("input_schema", "parameters", "parametersJsonSchema", "parameters_json_schema")

UNREAD_OF_TOOLS: Mapping[str, str] = {
    "type": "one of a few words",
    "strict": "a switch",
    "cache_control": "it marks a cache",
    "defer_loading": "a switch",
    "eager_input_streaming": "a switch",
}
"""Fields of a tool's definition that no model reads, each with the reason."""


def _definition(function: Any) -> str:
    """Name, description and schema as the model reads them, and the other fields; else the whole of it."""
    if isinstance(function, dict) and isinstance(name := function.get("name"), str):
        for schema in _SCHEMAS:
            if schema in function:
                said = _joined(name, function.get("description"))
                return (
                    said
                    + canonical(function[schema]).decode()
                    + _rest(function, "name", "description", schema)
                )
    return canonical(function).decode()


def _joined(*texts: Any) -> str:
    return "".join(text for text in texts if isinstance(text, str))


def _rest(holder: dict[str, Any], *counted: str) -> str:
    """The fields of an object that are not counted elsewhere and may be read, as text; none is no text."""
    if all(name in counted or name in UNREAD_OF_TOOLS for name in holder):
        return ""
    rest = {name: value for name, value in holder.items() if name not in counted and value is not None}
    rest = {name: value for name, value in rest.items() if name not in UNREAD_OF_TOOLS}
    return canonical(rest).decode() if rest else ""


def _lengthened(text: str, framing: Framing) -> str:
    return text + "x" * (size(text) * (framing.tool_scale - 1000) // 1000)


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

STRICT = Counter(name="strict", count=size)
"""UTF-8 bytes: no byte-level tokenizer can make more tokens than that."""

ESTIMATE = estimate_for("o200k")
"""The default where no exact counter is installed."""
