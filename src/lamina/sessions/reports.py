"""What a turn did to the prefix, and what building it took.

There is a hash for each layer and one for the whole prefix. `lamina.diagnose` finds out why a prefix changed.
The caller gives the timer, so that a test can stop it.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from lamina.caches.stream import Stream
from lamina.core.entries import find_logged
from lamina.core.envelope import Envelope
from lamina.core.epochs import layers_end
from lamina.core.hashing import digest
from lamina.core.references import is_reference_line
from lamina.core.values import Cut, Digest, Form, Layer
from lamina.diagnose.compared import weigh_request
from lamina.diagnose.differences import diff
from lamina.diagnose.values import Difference
from lamina.dialects.json_values import list_or_empty
from lamina.sessions.request_builder import SessionRequest
from lamina.sessions.setup import Timer


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """How long a build took, in seconds by phase, and what became of the segments.

    The phases "library" and "compaction" are a part of "build".
    `segments` counts what is sent in each layer. `referenced` and `lowered` are shares of all segments: those
    of which equal content stands above or in the library, and those in any other lower form. `left_out`
    counts attachments that were not found or belong to another workspace.
    `unparsed` counts, by tag, what an importer of foreign prompts could not parse: the tags that it lists in
    `meta["failures"]` of a segment.
    """

    seconds: dict[str, float]
    segments: dict[Layer, int]
    referenced: float = 0.0
    lowered: float = 0.0
    left_out: int = 0
    unparsed: dict[str, int] = {}


class TurnReport(msgspec.Struct, frozen=True, kw_only=True):
    """The prefix of one request compared with that of the request before it.

    `layers` has the hash of each layer by itself, `stable` that of system text and library together, and
    `prefix` that of the whole stream. `changed` are the layers
    that lost something which was sent before. `parting` says where and why the two requests differ; it is
    None for the first request of a conversation, and if the request before cannot be built again. `cut` is
    the cut that this request made, or that the loss of the ledger made before it.
    """

    layers: dict[Layer, Digest]
    stable: Digest
    prefix: Digest
    changed: tuple[Layer, ...] = ()
    parting: Difference | None = None
    cut: Cut | None = None
    metrics: Metrics = Metrics(seconds={}, segments={})

    @property
    def continues(self) -> bool:
        """Whether everything that the last request sent is sent again unchanged, to the same model."""
        if self.parting is None:
            return self.cut is None
        return self.parting.continues


class Stopwatch:
    """The seconds of each phase of one turn."""

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


def report_turn(
    request: SessionRequest,
    before: SessionRequest | None,
    *,
    cut: Cut | None,
    seconds: dict[str, float],
    left_out: int,
) -> TurnReport:
    """Compare a request with the one before it."""
    envelope = request.envelope
    difference = None
    changed: tuple[Layer, ...] = ()
    if before is not None:
        difference = _compare_requests(before, request)
        if not difference.continues:
            changed = _list_changed_layers(before.envelope, envelope)
    return TurnReport(
        layers=_hash_layers(envelope),
        stable=layers_end(envelope.entries, envelope.root, Layer.LIBRARY),
        prefix=envelope.prefix,
        changed=changed,
        parting=difference,
        cut=cut,
        metrics=_measure(envelope, seconds=seconds, left_out=left_out),
    )


def _compare_requests(before: SessionRequest, after: SessionRequest) -> Difference:
    """Say where and why two requests differ.

    An envelope has no dialect. So if the dialect changed, the streams are compared, which name it.
    """
    if before.dialect == after.dialect:
        return diff(before.envelope, after.envelope)
    return diff(_stream_of(before), _stream_of(after))


def _stream_of(request: SessionRequest) -> Stream:
    stream = weigh_request(request.envelope, dialect=None, counter=None).stream
    return msgspec.structs.replace(stream, dialect=request.dialect)


def _measure(envelope: Envelope, *, seconds: dict[str, float], left_out: int) -> Metrics:
    """Count what became of the segments of a request.

    A segment that refers to an equal one is not lowered: its content is there.
    """
    lines = envelope.ledger.lines
    referenced = 0
    lowered = 0
    unparsed = Tally[str]()
    for entry in envelope.entries:
        unparsed.update(map(str, list_or_empty(entry.segment.meta.get("failures"))))
        if entry.form is Form.FULL:
            continue
        line = lines.get(entry.ref)
        if line and is_reference_line(line):
            referenced += 1
        else:
            lowered += 1
    total = max(len(find_logged(envelope.entries)), 1)
    return Metrics(
        seconds=dict(seconds),
        segments=dict(Tally(entry.layer for entry in envelope.sent)),
        referenced=referenced / total,
        lowered=lowered / total,
        left_out=left_out,
        unparsed=dict(unparsed),
    )


def _hash_layers(envelope: Envelope) -> dict[Layer, Digest]:
    """One hash for each layer, of what is sent in it. A layer with nothing sent has none."""
    hashes_by_layer: dict[Layer, list[Digest]] = {layer: [] for layer in Layer}
    for entry in envelope.sent:
        hashes_by_layer[entry.layer].append(entry.sent)
    return {layer: digest(hashes) for layer, hashes in hashes_by_layer.items() if hashes}


def _list_changed_layers(before: Envelope, after: Envelope) -> tuple[Layer, ...]:
    """The layers of entries that the last request sent and this one does not send as they were.

    Entries are compared by what is sent, so one that only moved counts as unchanged.
    """
    sent_now = Tally(entry.sent for entry in after.sent)
    changed: set[Layer] = set()
    for entry in before.lasting:
        if sent_now[entry.sent]:
            sent_now[entry.sent] -= 1
        else:
            changed.add(entry.layer)
    return tuple(layer for layer in Layer if layer in changed)
