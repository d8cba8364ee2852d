"""Rules of the Messages API about thinking blocks. Each docstring begins with the rule's number."""

from __future__ import annotations

from collections.abc import Sequence

from lamina.core.bound_thinking import is_thinking
from lamina.core.build import build
from lamina.core.hashing import stem_of
from lamina.core.values import Digest, Head, Ledger, Segment
from lamina.dialects.anthropic.messages import Message, make_opening_message
from lamina.dialects.anthropic.parse import parse
from lamina.dialects.anthropic.readings import Breaches, MessagesReading
from lamina.dialects.json_values import text_or_empty


def thinking_is_whole(reading: MessagesReading) -> Breaches:
    """A9, by shape: thinking has its signature, redacted thinking its data."""
    for message, block_index, block in reading.thoughts():
        block_type = block["type"]
        field = "signature" if block_type == "thinking" else "data"
        if not text_or_empty(block.get(field)):
            problem = f"`{block_type}` blocks cannot be modified: {field} is missing"
            yield message.block_place(block_index), problem


def thinking_is_bound(reading: MessagesReading) -> Breaches:
    """A10: what comes before bound thinking is what came before it when it was first sent.

    The request is hashed again and compared with the ledger. `render` may have put a user message first, so
    the request is also tried without it. Some requests cannot be judged, and nothing is reported for them: if
    there are system messages, which `render` may have moved; if the ledger has repairs, since then the
    messages are not those that were hashed; and equal thoughts, which cannot be told apart.
    """
    ledger = reading.ledger
    if ledger is None or not ledger.bound or ledger.repairs:
        return
    if any(message.role == "system" for message in reading.messages):
        return
    parsed = parse(reading.request)
    unbound = _find_unbound_thoughts(parsed.log, parsed.head, ledger)
    if unbound and reading.messages:
        rest = _drop_opening(parsed.log, reading.messages[0].message)
        if len(rest) < len(parsed.log):
            unbound &= _find_unbound_thoughts(rest, parsed.head, ledger)
    places = [message.block_place(block_index) for message, block_index, _ in reading.thoughts()]
    for number in sorted(unbound):
        yield places[number], "invalid `signature` in `thinking` block: bound to a different conversation"


def _drop_opening(log: Sequence[Segment], first_message: Message) -> Sequence[Segment]:
    """The log without the user message that `render` may have put first."""
    if first_message != make_opening_message():
        return log
    return [segment for segment in log if segment.meta["wire"].get("message") is not first_message]


def _find_unbound_thoughts(log: Sequence[Segment], head: Head, ledger: Ledger) -> set[int]:
    """The numbers of thoughts, counted from 0, that do not come after what the ledger says."""
    recorded_prefixes: dict[str, list[Digest]] = {}
    for ref, prefix in ledger.bound.items():
        recorded_prefixes.setdefault(stem_of(ref), []).append(prefix)

    unbound: set[int] = set()
    envelope = build(log, head=head)
    number = 0
    prefix = envelope.root
    for entry in envelope.entries:
        if is_thinking(entry):
            recorded = recorded_prefixes.get(stem_of(entry.ref), [])
            if len(recorded) == 1 and recorded[0] != prefix:
                unbound.add(number)
            number += 1
        prefix = entry.prefix
    return unbound
