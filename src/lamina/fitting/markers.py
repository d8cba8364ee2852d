"""Cache markers on a request that is otherwise finished: the last step, which changes nothing that is read.

Where they stand is planned by `rules.plan`, how they are written is the dialect's; here the two meet the
ledger, which knows where the last cut began and where the last request ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from lamina.caches import CacheRules
from lamina.caches.marker_plan import MarkerPlan, plan
from lamina.caches.stream import Stream
from lamina.core.envelope import Envelope
from lamina.core.tokens import Counter
from lamina.core.values import Entry, Form, SentMark
from lamina.dialects.port import Dialect, Marking
from lamina.errors import BadInput


class Lifetimes(msgspec.Struct, frozen=True, kw_only=True):
    """How long what is marked should be kept, in the provider's words ("5m", "1h"); "" is its own choice.

    `stable` is for tools, system text and what a cut lowered, `tail` for the end of each request.
    """

    stable: str = ""
    tail: str = ""


Breakpoints = Literal["keep", "plan", "none"] | Lifetimes
"""Cache markers: the client's own stay; lamina plans them, perhaps with lifetimes; or there are none."""


class Marked(msgspec.Struct, frozen=True, kw_only=True):
    """A request with its markers, and why each stands where it does, if they were planned."""

    request: dict[str, Any]
    plan: MarkerPlan | None = None


def marked(
    request: Mapping[str, Any],
    envelope: Envelope,
    dialect: Dialect,
    *,
    breakpoints: Breakpoints,
    counter: Counter,
    rules: CacheRules,
    before: SentMark | None,
) -> Marked:
    """The request with the markers that were asked for; as it is where its cache takes none."""
    if breakpoints == "keep":
        return Marked(request=request)  # type: ignore[arg-type]
    if breakpoints == "none":
        return Marked(request=dialect.mark(request, Marking()))
    wished = breakpoints if isinstance(breakpoints, Lifetimes) else Lifetimes()
    if not rules.markers or _MARKED_BY.get(dialect.name) != rules.match:
        return Marked(request=request)  # type: ignore[arg-type]
    stream = _without_tail(dialect.stream(request), envelope)
    planned = plan(
        _weighed(stream, counter, rules.least(stream.model)),
        rules,
        stable=wished.stable,
        tail=wished.tail,
        last=_last(envelope, before),
        kept=_kept(envelope),
        cut=envelope.cut is not None and bool(envelope.cut.first),
    )
    marking = Marking(places=planned.places, key=planned.key)
    return Marked(request=dialect.mark(request, marking), plan=planned)


def known_breakpoints(breakpoints: Any) -> None:
    """Raises BadInput for what says nothing about markers."""
    if breakpoints not in ("keep", "plan", "none") and not isinstance(breakpoints, Lifetimes):
        hint = 'use "keep", "plan", "none" or Lifetimes(...)'
        raise BadInput(f"breakpoints is {breakpoints!r}", place="fit_request", hint=hint)


_MARKED_BY = {"anthropic": "breakpoints", "openai_chat": "tail", "openai_responses": "tail"}
"""The sort of cache whose markers a dialect has words for: a model may be behind another's wire format."""


def _weighed(stream: Stream, counter: Counter, least: int) -> Stream:
    """The stream with tokens on as many blocks as it takes to say what is below the minimum.

    A provider counts what stands around the text too: of the request, of tools, of each message.
    """
    framing, total = counter.framing, 0
    tokens: list[int] = []
    for block in stream.blocks:
        if total >= least:
            tokens.append(0)
            continue
        around = framing.message if block.opens and block.sort != "tool" else 0
        if block.sort == "tool":
            around = framing.tool
        if not tokens:
            around += framing.request + (framing.tools if block.sort == "tool" else 0)
        tokens.append(around + counter.count(block.data.decode()))
        total += tokens[-1]
    return stream.weighed(tokens)


def _without_tail(stream: Stream, envelope: Envelope) -> Stream:
    """The stream up to where the next request goes on: a marker behind that would mark what is never read."""
    tail = envelope.sent[len(envelope.sent) - envelope.tail :]
    blocks = sum(len(entry.parts) for entry in tail)
    return msgspec.structs.replace(stream, blocks=stream.blocks[: len(stream.blocks) - blocks])


def _last(envelope: Envelope, before: SentMark | None) -> int | None:
    """The number of the last block of the request before this one, if this one continues it."""
    if before is None or envelope.cut is not None:
        return None
    return _block(envelope, envelope.sent[: before.sent])


def _kept(envelope: Envelope) -> int | None:
    """The number of the last block before the first one that the last cut changed; None without one."""
    cut = next((cut for cut in reversed(envelope.ledger.cuts) if cut.first), None)
    if cut is None:
        return None
    digests = {fold.key for fold in envelope.ledger.folds if fold.cut == cut.number}
    same: list[Entry] = []
    for entry in envelope.entries:
        if entry.ref == cut.first or entry.segment.key in digests:
            return _block(envelope, same) if same else None
        if entry.form is not Form.OMITTED:
            same.append(entry)
    return None


def _block(envelope: Envelope, sent: Sequence[Entry]) -> int:
    """The number of the last block of these entries. It depends on nothing after them, so it stays."""
    return len(envelope.head.tools) + sum(len(entry.parts) for entry in sent) - 1
