"""What a request costs in tokens: text by a counter, everything else by a framing.

A `Counter` turns text into tokens, a `Framing` says what stands around the text on the wire. Both are
plain values that callers pass along. All arithmetic is on integers, rounded up, so the same parts cost
the same on every machine. This file does not know models, dialects or how parts become messages: who
builds a request adds `framing.request` once and `framing.message` per message, scales that sum with
`scaled`, and adds `tools_cost` after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any, Literal

import msgspec

from lamina.core.hashing import canonical
from lamina.core.values import Calibration, Document, Image, Part, Text, Thinking, ToolCall, ToolResult
from lamina.errors import BadInput
from lamina.text.estimate import FAMILIES, bytes_by_3_5, bytes_by_4, chars_by_4, estimate, size

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
    call and result; `image` and `document` stand in where nobody knows better; `tools` is paid once
    where there are any. `scale` is the whole in thousandths; `tool_scale` lengthens the text of each
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
        case Text(text) | Thinking(text=text):
            return count(text)
        case ToolCall():
            return framing.call + count(part.name + part.arguments + framing.padding)
        case ToolResult():
            return framing.result + _result_cost(part, counter)
        case Image():
            return framing.image if part.tokens is None else part.tokens
        case Document():
            return _document_cost(part, counter)
    return count(canonical(part.data).decode())


def tools_cost(tools: Sequence[dict[str, Any]], counter: Counter) -> int:
    """A whole list of tool definitions, in any provider's shape. Not to be scaled again."""
    texts = [text for tool in tools for text in _definitions(tool)]
    if not texts:
        return 0
    framing = counter.framing
    return framing.tools + sum(framing.tool + counter.count(_lengthened(text, framing)) for text in texts)


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
    rest = (part_cost(part, counter) for part in result.content if not isinstance(part, Text))
    return counter.count(text + counter.framing.padding) + sum(rest)


def _document_cost(document: Document, counter: Counter) -> int:
    if document.tokens is not None:
        return document.tokens
    return counter.count(document.text) if document.text else counter.framing.document


def _definitions(tool: dict[str, Any]) -> Iterator[str]:
    """The text of each function in a definition: name, description and schema, else the whole of it."""
    match tool:
        case {"functionDeclarations": [*declared]} | {"function_declarations": [*declared]}:
            for declaration in declared:
                yield _definition(declaration)
        case {"function": dict() as function}:
            yield _definition(function)
        case _:
            yield _definition(tool)


_SCHEMAS = ("input_schema", "parameters", "parametersJsonSchema", "parameters_json_schema")


def _definition(function: Any) -> str:
    if isinstance(function, dict) and isinstance(name := function.get("name"), str):
        for schema in _SCHEMAS:
            if schema in function:
                return f"{name}{function.get('description') or ''}{canonical(function[schema]).decode()}"
    return canonical(function).decode()


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
