"""The request before this one, also where another process sent it: the store has all that it was built of.

Log, setup and ledger are kept, and the same of these give the same bytes. So the request is built again only
when somebody asks for a report, and nothing more has to be stored. The hashes in the ledger show whether it
is the one that was sent.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from lamina.core.build import build
from lamina.core.envelope import Envelope, prefix_at
from lamina.core.epochs import NEW_SUMMARIES
from lamina.core.values import Ledger, Segment
from lamina.errors import LaminaError
from lamina.sessions.request_builder import RequestBuilder
from lamina.sessions.setup import Setup


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was built, and the dialect that it was sent in."""

    envelope: Envelope
    dialect: str


class StoredRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a store has of the last request. The log may have grown since, by an answer for one."""

    log: tuple[Segment, ...]
    setup: Setup
    ledger: Ledger


def rebuilt(stored: StoredRequest, desk: RequestBuilder) -> Request | None:
    """The request that was sent; None where it cannot be built any more, after a rewind for one."""
    mark = stored.ledger.mark
    if mark is None:
        return None
    try:
        past = RequestBuilder(stored.setup, desk.ways, desk.workspace)
    except LaminaError:
        return None
    options = msgspec.structs.replace(past.options, window=None)  # what the window took out has lines
    for log in _logs_as_of(stored):
        try:
            envelope = build(log, head=past.head, ledger=stored.ledger, counter=past.counter, options=options)
        except LaminaError:
            continue
        if prefix_at(envelope.entries, mark.sent, envelope.root) == mark.prefix:
            not_sent_yet = len(envelope.sent) - mark.sent
            sent = msgspec.structs.replace(envelope, tail=not_sent_yet)
            return Request(envelope=sent, dialect=past.dialect.name)
    return None


def _logs_as_of(stored: StoredRequest) -> Iterator[tuple[Segment, ...]]:
    """The log as it may have been when the request was built.

    What was appended since stands behind the request, except for a summary, which stands before its end.
    """
    log = list(stored.log)
    yield tuple(log)
    summaries = [i for i, segment in enumerate(log) if segment.covers]
    for index in reversed(summaries[-NEW_SUMMARIES:]):
        del log[index]
        yield tuple(log)
