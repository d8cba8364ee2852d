"""What a turn did to the prefix, and what building it took.

Hashes are per layer and combined; `lamina.diagnose` finds the reason why a prefix changed. Times
come from a timer that the caller gives, so a test can hold it still.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from lamina.caches.stream import Stream
from lamina.core.envelope import Envelope
from lamina.core.hashing import digest
from lamina.core.values import Cut, Digest, Form, Layer
from lamina.diagnose.compared import side
from lamina.diagnose.differences import Difference, diff
from lamina.formats.tagged_context import failed_tags
from lamina.sessions.previous_request import Request

Timer = Callable[[], float]


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """What a build took, by phase in seconds, and what became of the segments.

    `referenced` and `lowered` are shares of all segments: sent as a reference to equal content above, or in
    any other lower form. `left_out` counts what was not found, or did not belong here. `unparsed` counts, by
    tag, what an importer of foreign prompts could not parse in the text that stands here.
    """

    seconds: dict[str, float]
    segments: dict[Layer, int]
    referenced: float = 0.0
    lowered: float = 0.0
    left_out: int = 0
    unparsed: dict[str, int] = {}


class TurnReport(msgspec.Struct, frozen=True, kw_only=True):
    """The prefix of one request against that of the request before it.

    `layers` are hashes of each layer by itself, `prefix` that of the whole stream. `changed` are the layers
    in which something that was sent is not there as it was. `parting` says where and why; None for the first
    request of a conversation, and where the request before cannot be built again. `cut` is the cut that this
    request made, with its reason, if it made one; or that of a ledger which was lost before it.
    """

    layers: dict[Layer, Digest]
    prefix: Digest
    changed: tuple[Layer, ...] = ()
    parting: Difference | None = None
    cut: Cut | None = None
    metrics: Metrics = Metrics(seconds={}, segments={})

    @property
    def continues(self) -> bool:
        """Whether everything that the last request sent stands as it was, for the same model."""
        if self.parting is None:
            return self.cut is None
        return self.parting.continues


class Stopwatch:
    """Seconds by phase, of the turn under way."""

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start = self._timer()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + self._timer() - start


def report(
    request: Request, before: Request | None, *, cut: Cut | None, seconds: dict[str, float], left_out: int
) -> TurnReport:
    """The report of a request, against the one before it."""
    envelope = request.envelope
    parting = None
    changed: tuple[Layer, ...] = ()
    if before is not None:
        parting = _parting(before, request)
        if not parting.continues:
            changed = _changed(before.envelope, envelope)
    return TurnReport(
        layers=_layers(envelope),
        prefix=envelope.prefix,
        changed=changed,
        parting=parting,
        cut=cut,
        metrics=metrics(envelope, seconds=seconds, left_out=left_out),
    )


def _parting(before: Request, after: Request) -> Difference:
    """Where and why two requests part. An envelope has no dialect, so another one is said with the stream."""
    if before.dialect == after.dialect:
        return diff(before.envelope, after.envelope)
    return diff(_stream(before), _stream(after))


def _stream(request: Request) -> Stream:
    stream = side(request.envelope, dialect=None, counter=None).stream
    return msgspec.structs.replace(stream, dialect=request.dialect)


def metrics(envelope: Envelope, *, seconds: dict[str, float], left_out: int) -> Metrics:
    entries, lines = envelope.entries, envelope.ledger.lines
    lowered = [entry for entry in entries if entry.form is not Form.FULL]
    references = sum(1 for entry in lowered if (line := lines.get(entry.ref)) and line.reference)
    total = max(len(entries), 1)
    return Metrics(
        seconds=dict(seconds),
        segments=dict(Tally(entry.layer for entry in entries)),
        referenced=references / total,
        lowered=(len(lowered) - references) / total,
        left_out=left_out,
        unparsed=dict(Tally(tag for entry in entries for tag in failed_tags(entry.segment))),
    )


def _layers(envelope: Envelope) -> dict[Layer, Digest]:
    sent = envelope.sent
    found = {layer: [entry.sent for entry in sent if entry.layer is layer] for layer in Layer}
    return {layer: digest(digests) for layer, digests in found.items() if digests}


def _changed(before: Envelope, after: Envelope) -> tuple[Layer, ...]:
    """The layers of what stood in the last request and does not stand as it was in this one."""
    now = Tally(entry.sent for entry in after.sent)
    gone: set[Layer] = set()
    for entry in before.lasting:
        if now[entry.sent]:
            now[entry.sent] -= 1
        else:
            gone.add(entry.layer)
    return tuple(layer for layer in Layer if layer in gone)
