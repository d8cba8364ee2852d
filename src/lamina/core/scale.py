"""What each entry costs and where it stands in the stream: tokens, message boundaries, the prefix chain.

Every token of a request belongs to exactly one line of the account: an entry, the tool definitions, the
format of the answer, other parameters, the request's own framing, or the margin that scaling adds. So the
parts sum to the total, always.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from lamina.core.hashing import chain, digest
from lamina.core.parameters import speaking
from lamina.core.repair import empty, side
from lamina.core.tokens import (
    Basis,
    Counter,
    calibration_for,
    formats_cost,
    others_cost,
    part_cost,
    scaled,
    tools_cost,
)
from lamina.core.values import (
    Calibration,
    Digest,
    Entry,
    Form,
    Head,
    Ref,
    Role,
    Segment,
    Text,
    ToolResult,
)


class TokenAccount(msgspec.Struct, frozen=True, kw_only=True):
    """Where the tokens of a request are, and which counter says so.

    `answer` is the format that the answer must have, `parameters` what else the model reads of them, and
    `margin` what the counter's scale and the calibration add.
    """

    entries: int
    tools: int
    request: int
    margin: int
    basis: Basis
    counter: str = ""
    answer: int = 0
    parameters: int = 0

    @property
    def exact(self) -> bool:
        return self.basis == "exact"

    @property
    def head(self) -> int:
        """What stands before the messages: tools, the format of the answer, parameters, the framing."""
        return self.tools + self.answer + self.parameters + self.request

    @property
    def total(self) -> int:
        return self.entries + self.head + self.margin


class _Beside(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider's message has for the model besides the parts of an entry."""

    tokens: int
    digest: Digest


class Scale(msgspec.Struct, kw_only=True):
    """Weighs entries; `opening` is the cost of a message that will stand before them.

    `counts` and `besides` remember what was weighed, and change no result: bodies, by the digest of what is
    sent, and what stands beside them, by ref.
    """

    counter: Counter
    calibration: Calibration | None = None
    tools: int = 0
    answer: int = 0
    parameters: int = 0
    opening: int = 0
    counts: dict[Digest, int] = {}
    besides: dict[Ref, _Beside] = {}

    def body(self, entry: Entry) -> int:
        """The parts of an entry and what is sent beside them, without the framing of its message."""
        known = self.counts.get(entry.sent)
        if known is None:
            known = self.counts[entry.sent] = sum(part_cost(part, self.counter) for part in entry.parts)
        return known + self._beside(entry).tokens if entry.segment.beside else known

    def sent(self, entry: Entry) -> Digest:
        """What is sent of an entry, with what stands beside its parts: the link that it is in the chain."""
        if not entry.segment.beside:
            return entry.sent
        return digest((entry.sent, self._beside(entry).digest))

    def _beside(self, entry: Entry) -> _Beside:
        """Weighed once in a build, in which a ref names one segment."""
        known = self.besides.get(entry.ref)
        if known is None:
            parts = entry.segment.beside
            tokens = sum(part_cost(part, self.counter) for part in parts)
            known = self.besides[entry.ref] = _Beside(tokens=tokens, digest=digest(parts))
        return known

    def head_rows(self) -> list[tuple[str, int]]:
        """What makes up the head, for an error that names what does not fit."""
        rows = (("tools", self.tools), ("answer format", self.answer), ("parameters", self.parameters))
        return [row for row in rows if row[1]]

    def account(self, entries: int) -> TokenAccount:
        framing = self.counter.framing
        request = framing.request + self.opening
        raw = entries + request
        margin = scaled(raw, self.counter, self.calibration) - raw
        basis = self.counter.basis if self.calibration is None else "estimated"
        return TokenAccount(
            entries=entries,
            tools=self.tools,
            request=request,
            margin=margin,
            basis=basis,
            counter=self.counter.identity,
            answer=self.answer,
            parameters=self.parameters,
        )

    def total(self, entries: int) -> int:
        return self.account(entries).total


def scale_for(
    counter: Counter,
    head: Head,
    calibration: Calibration | None,
    counts: dict[Digest, int],
    *,
    opening: str = "",
) -> Scale:
    """The scale of one build. A calibration of another counter is not applied.

    `opening` is what will stand before the first message, in a message of its own.
    """
    read = speaking(head.parameters)
    framing = counter.framing
    return Scale(
        counter=counter,
        calibration=calibration_for(counter, calibration),
        tools=tools_cost(head.tools, counter),
        answer=formats_cost(read.formats, counter),
        parameters=others_cost(read.others, counter),
        opening=framing.message + counter.count(opening) if opening else 0,
        counts=counts,
    )


def begins_with_assistant(log: Iterable[Segment]) -> bool:
    """Whether the assistant speaks first. Blank messages and results without a call are not sent."""
    for segment in log:
        is_result = bool(segment.parts) and isinstance(segment.parts[0], ToolResult)
        if segment.role is Role.SYSTEM or is_result or empty(segment.parts):
            continue
        return segment.role is Role.ASSISTANT
    return False


def settled(
    entries: Iterable[Entry], scale: Scale, *, prefix: Digest, before: Role | None = None
) -> list[Entry]:
    """Entries with their message boundaries, tokens and prefix hash, continuing a stream at `prefix`.

    An omitted entry that opened a message hands that on to the next one of its side, so dropping the
    first block of a message never glues the rest to the message before.
    """
    result = _opened(list(entries), before)
    alone = _alone(result)
    framing = scale.counter.framing
    for i, entry in enumerate(result):
        if entry.form is Form.OMITTED:
            if entry.prefix != prefix or entry.tokens:
                result[i] = msgspec.structs.replace(entry, prefix=prefix, tokens=0)
            continue
        prefix = chain(prefix, scale.sent(entry), opens=entry.opens)
        tokens = scale.body(entry) + (framing.message if entry.opens else 0)
        if framing.part and not alone[i]:
            tokens += framing.part * len(entry.parts)
        if entry.prefix != prefix or entry.tokens != tokens:
            result[i] = msgspec.structs.replace(entry, prefix=prefix, tokens=tokens)
    return result


def _opened(entries: list[Entry], before: Role | None) -> list[Entry]:
    owed = False
    now = left = side(before) if before is not None else ""
    for i, entry in enumerate(entries):
        here = side(entry.role)
        if entry.form is Form.OMITTED:
            opens = entry.opens and not (entry.segment.joins and here == left)  # as drafted
            if opens != entry.opens:
                entries[i] = msgspec.structs.replace(entry, opens=opens)
            owed = owed or opens
        else:
            if not entry.opens and (owed or here != now):
                entries[i] = msgspec.structs.replace(entry, opens=True)
            owed, now = False, here
        if entry.segment.origin != "lamina":
            left = here
    return entries


def _alone(entries: Sequence[Entry]) -> list[bool]:
    """Which entries are one lone text in a message of their own."""
    alone = [False] * len(entries)
    last: int | None = None
    for i, entry in enumerate(entries):
        if entry.form is Form.OMITTED:
            continue
        if not entry.opens and last is not None:
            alone[last] = False
        alone[i] = entry.opens and len(entry.parts) == 1 and isinstance(entry.parts[0], Text)
        last = i
    return alone
