"""Rules of the Messages API about thinking blocks. Each docstring begins with the rule's number."""

from __future__ import annotations

from collections.abc import Sequence

from lamina.core.bound_thinking import thinks
from lamina.core.build import build
from lamina.core.hashing import stem
from lamina.core.values import Digest, Head, Ledger, Segment
from lamina.dialects.anthropic.messages import make_opening_message
from lamina.dialects.anthropic.parse import parse
from lamina.dialects.anthropic.readings import Breaches, MessagesReading


def thinking_is_whole(reading: MessagesReading) -> Breaches:
    """A9, by shape: thinking has its signature, redacted thinking its data."""
    for message in reading.messages:
        for block_index, block in message.thoughts:
            block_type = block["type"]
            field = "signature" if block_type == "thinking" else "data"
            if not isinstance(block.get(field), str) or not block[field]:
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
        first = reading.messages[0].message
        if first == make_opening_message():
            rest = [segment for segment in parsed.log if segment.meta["wire"].get("message") is not first]
            unbound &= _find_unbound_thoughts(rest, parsed.head, ledger)
    places: list[str] = []
    for message in reading.messages:
        places += [message.block_place(block_index) for block_index, _ in message.thoughts]
    for number in sorted(unbound):
        yield places[number], "invalid `signature` in `thinking` block: bound to a different conversation"


def _find_unbound_thoughts(log: Sequence[Segment], head: Head, ledger: Ledger) -> set[int]:
    """The numbers of thoughts, counted from 0, that do not come after what the ledger says."""
    recorded_prefixes: dict[str, list[Digest]] = {}
    for ref, prefix in ledger.bound.items():
        recorded_prefixes.setdefault(stem(ref), []).append(prefix)

    unbound: set[int] = set()
    envelope = build(log, head=head)
    number = 0
    prefix = envelope.root
    for entry in envelope.entries:
        if thinks(entry):
            recorded = recorded_prefixes.get(stem(entry.ref), [])
            if len(recorded) == 1 and recorded[0] != prefix:
                unbound.add(number)
            number += 1
        prefix = entry.prefix
    return unbound
