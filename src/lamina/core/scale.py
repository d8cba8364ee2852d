"""What the entries of one build weigh, and where they stand in the stream.

Every token of a request belongs to exactly one line of the account: an entry, the tool definitions, the
format of the answer, other parameters, the request's own framing, or the margin that scaling adds. So the
parts always sum to the total.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from lamina.core.entries import begins_with, is_empty
from lamina.core.hashing import digest, extend_chain
from lamina.core.parameters import find_read_parameters
from lamina.core.repair import find_side
from lamina.core.tokens import (
    Basis,
    Counter,
    calibration_for,
    formats_cost,
    others_cost,
    part_cost,
    scale_tokens,
    tools_cost,
)
from lamina.core.values import (
    Calibration,
    Digest,
    Entry,
    Form,
    Ref,
    RequestHead,
    Role,
    Segment,
    Text,
    ToolResult,
)


class TokenAccount(msgspec.Struct, frozen=True, kw_only=True):
    """Where the tokens of a request are, and which counter counted them.

    `answer` is the format that the answer must have. `parameters` are the other parameters that the model
    reads. `margin` is what the counter's scale and the calibration add.
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
        """Whether the model's own tokenizer counted this request."""
        return self.basis == "exact"

    @property
    def head(self) -> int:
        """What stands before the messages: tools, the format of the answer, parameters, the framing."""
        return self.tools + self.answer + self.parameters + self.request

    @property
    def total(self) -> int:
        """All tokens of the request, by the counter in use."""
        return self.entries + self.head + self.margin


class _BesideParts(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider's message has for the model besides the parts of an entry."""

    tokens: int
    digest: Digest


class Scale(msgspec.Struct, kw_only=True):
    """Weighs entries. `opening` is the cost of a message that will stand before them.

    `counts` and `besides` remember what was weighed, and change no result. `counts` has the tokens of parts,
    by the digest of what is sent; `besides` has what is sent beside the parts, by ref.
    """

    counter: Counter
    calibration: Calibration | None = None
    tools: int = 0
    answer: int = 0
    parameters: int = 0
    opening: int = 0
    counts: dict[Digest, int] = {}
    besides: dict[Ref, _BesideParts] = {}

    def body(self, entry: Entry) -> int:
        """The parts of an entry and what is sent beside them, without the framing of its message.

        Equal parts are counted once, in this build and, with a memo, in all builds of a conversation. What
        only a program reads is in no prompt, so it takes no tokens.
        """
        if entry.segment.unread:
            return 0
        tokens = self.counts.get(entry.sent)
        if tokens is None:
            tokens = sum(part_cost(part, self.counter) for part in entry.parts)
            self.counts[entry.sent] = tokens
        if entry.segment.beside:
            tokens += self._weigh_beside(entry).tokens
        return tokens

    def gain(self, entry: Entry, lowered: Entry) -> int:
        """The tokens that are freed if `lowered` is sent in the place of an entry."""
        if not lowered.parts:
            return self.body(entry)
        return self.body(entry) - self.body(lowered)

    def sent(self, entry: Entry) -> Digest:
        """The digest of what is sent of an entry and beside its parts: its link in the chain.

        Most entries have nothing beside their parts, and then it is the digest of the parts alone.
        """
        uncounted = entry.segment.uncounted
        if uncounted:
            return digest((entry.sent, self._weigh_beside(entry).digest, uncounted))
        if not entry.segment.beside:
            return entry.sent
        return digest((entry.sent, self._weigh_beside(entry).digest))

    def _weigh_beside(self, entry: Entry) -> _BesideParts:
        """Weigh what is sent beside an entry, once in a build: there, a ref names one segment."""
        beside = self.besides.get(entry.ref)
        if beside is None:
            parts = entry.segment.beside
            tokens = sum(part_cost(part, self.counter) for part in parts)
            beside = _BesideParts(tokens=tokens, digest=digest(parts))
            self.besides[entry.ref] = beside
        return beside

    def head_rows(self) -> list[tuple[str, int]]:
        """What makes up the head, for an error that names what does not fit.

        Rows of no tokens are left out.
        """
        rows = (("tools", self.tools), ("answer format", self.answer), ("parameters", self.parameters))
        return [(name, tokens) for name, tokens in rows if tokens]

    def account(self, entries: int) -> TokenAccount:
        """The account of a request whose entries have this many tokens."""
        request = self.counter.framing.request + self.opening
        raw = entries + request
        margin = scale_tokens(raw, self.counter, self.calibration) - raw
        basis: Basis = "estimated"
        if self.calibration is None:
            basis = self.counter.basis
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
        """The tokens of a request whose entries have this many tokens."""
        return self.account(entries).total


def make_scale(
    counter: Counter,
    head: RequestHead,
    calibration: Calibration | None,
    counts: dict[Digest, int],
    *,
    opening: str = "",
) -> Scale:
    """The scale of one build. A calibration of another counter is not applied.

    `opening` is what will stand before the first message, in a message of its own.
    """
    parameters = find_read_parameters(head.parameters)
    opening_tokens = 0
    if opening:
        opening_tokens = counter.framing.message + counter.count(opening)
    return Scale(
        counter=counter,
        calibration=calibration_for(counter, calibration),
        tools=tools_cost(head.tools, counter),
        answer=formats_cost(parameters.formats, counter),
        parameters=others_cost(parameters.others, counter),
        opening=opening_tokens,
        counts=counts,
    )


def begins_with_assistant(log: Iterable[Segment]) -> bool:
    """Whether the assistant speaks first. Blank messages and results without a call are not sent.

    Some wire formats must begin with the user, and put a line of their own before such a log.
    """
    for segment in log:
        if segment.role is Role.SYSTEM or is_empty(segment.parts):
            continue
        if begins_with(segment.parts, ToolResult):
            continue
        return segment.role is Role.ASSISTANT
    return False


def weigh_entries(
    entries: Iterable[Entry], scale: Scale, *, prefix: Digest, last_sent: Entry | None = None
) -> list[Entry]:
    """Entries with their message boundaries, tokens and prefix hash, continuing a stream at `prefix`.

    `last_sent` is the last entry that is sent before these.
    """
    result = _set_openings(list(entries), last_sent)
    lone = _find_lone_texts(result)
    framing = scale.counter.framing
    for at, entry in enumerate(result):
        if entry.form is Form.OMITTED:
            if entry.prefix != prefix or entry.tokens:
                result[at] = msgspec.structs.replace(entry, prefix=prefix, tokens=0)
            continue
        prefix = extend_chain(prefix, scale.sent(entry), opens=entry.opens)
        tokens = scale.body(entry)
        if entry.opens:
            tokens += framing.message
        if framing.part and not lone[at] and not entry.segment.unread:
            tokens += framing.part * len(entry.parts)
        # Most entries of a growing log weigh what they weighed, and stay the same objects.
        if entry.prefix != prefix or entry.tokens != tokens:
            result[at] = msgspec.structs.replace(entry, prefix=prefix, tokens=tokens)
    return result


def _set_openings(entries: list[Entry], last_sent: Entry | None) -> list[Entry]:
    """Say of each entry whether it opens a message, after some entries were left out.

    An omitted entry that opened a message hands that on to the next entry of its side. So leaving out the
    first block of a message never joins the rest to the message before.
    """
    must_open = False
    sent_side = ""
    if last_sent is not None:
        sent_side = find_side(last_sent.role)
    logged_side = sent_side
    for at, entry in enumerate(entries):
        entry_side = find_side(entry.role)
        if entry.form is Form.OMITTED:
            joined = entry.segment.joins and entry_side == logged_side  # as when it was drafted
            opens = entry.opens and not joined
            if opens != entry.opens:
                entries[at] = msgspec.structs.replace(entry, opens=opens)
            must_open = must_open or opens
        else:
            if not entry.opens and (must_open or entry_side != sent_side):
                entries[at] = msgspec.structs.replace(entry, opens=True)
            must_open = False
            sent_side = entry_side
        if not entry.segment.is_own:
            logged_side = entry_side
    return entries


def _find_lone_texts(entries: Sequence[Entry]) -> list[bool]:
    """Which entries are one lone text in a message of their own.

    For such a text `framing.part` is not paid.
    """
    lone = [False] * len(entries)
    last: int | None = None
    for at, entry in enumerate(entries):
        if entry.form is Form.OMITTED:
            continue
        if not entry.opens and last is not None:
            lone[last] = False
        is_one_text = len(entry.parts) == 1 and isinstance(entry.parts[0], Text)
        lone[at] = entry.opens and is_one_text
        last = at
    return lone
