"""The request before this one, built again if another process sent it.

The store has log, setup and ledger, and the same of these give the same bytes. So the request is built again
only when somebody asks for a report, and nothing more has to be stored. The hashes in the ledger show whether
it is the one that was sent.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from lamina.core.build import build
from lamina.core.envelope import Envelope
from lamina.core.epochs import NEW_SUMMARIES, prefix_at
from lamina.core.values import Ledger, Segment
from lamina.errors import LaminaError
from lamina.sessions.request_builder import RequestBuilder
from lamina.sessions.setup import Setup


class BuiltRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was built, and the dialect that it was sent in."""

    envelope: Envelope
    dialect: str


class StoredRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a store has of the last request. The log may have grown since, by an answer for example."""

    log: tuple[Segment, ...]
    setup: Setup
    ledger: Ledger


def rebuild_request(stored: StoredRequest, builder: RequestBuilder) -> BuiltRequest | None:
    """Build the request that was sent. Returns None if that is not possible, after a rewind for example.

    The log may have grown since. Its earlier lengths are tried until the prefix is the one that the
    ledger marks.
    """
    mark = stored.ledger.mark
    if mark is None:
        return None
    try:
        past_builder = RequestBuilder(
            stored.setup, builder.policy, builder.runtime, builder.inputs, builder.workspace
        )
    except LaminaError:
        return None
    # The ledger has what the window over history took out. The window must not take out more.
    options = past_builder.options
    if options.window is not None:
        options = msgspec.structs.replace(options, window=options.window.at_rest)
    for log in _earlier_logs(stored):
        try:
            envelope = build(
                log,
                head=past_builder.head,
                ledger=stored.ledger,
                counter=past_builder.counter,
                options=options,
            )
        except LaminaError:
            continue
        if prefix_at(envelope.entries, mark.sent, envelope.root) == mark.prefix:
            not_sent_yet = len(envelope.sent) - mark.sent
            sent = msgspec.structs.replace(envelope, tail=not_sent_yet)
            return BuiltRequest(envelope=sent, dialect=past_builder.dialect.name)
    return None


def _earlier_logs(stored: StoredRequest) -> Iterator[tuple[Segment, ...]]:
    """Yield the log as it may have been when the request was built.

    Segments that were appended since come after the request and do no harm. A summary is an exception: its
    place is before the end of the request. So the last summaries are taken out one after the other.
    """
    log = list(stored.log)
    yield tuple(log)
    summary_indices = [index for index, segment in enumerate(log) if segment.covers]
    for index in reversed(summary_indices[-NEW_SUMMARIES:]):
        del log[index]
        yield tuple(log)
