"""Finds thoughts that no longer come after what they came after when they were first sent (rule A10).

The API binds a block of thinking to everything before it. The ledger has the hash of that for each thought,
and here the request is hashed again to compare. `check` asks this only if the ledger has bound thinking.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lamina.core.bound_thinking import is_thinking
from lamina.core.build import build
from lamina.core.hashing import stem_of
from lamina.core.values import Digest, Ledger, RequestHead, Segment
from lamina.dialects.anthropic.model import NAME
from lamina.dialects.anthropic.parse import parse
from lamina.dialects.origins import read_origin_in
from lamina.dialects.port import Request
from lamina.dialects.words import OPENING

OPENING_MESSAGE = {"role": "user", "content": OPENING}
"""What `render` puts first where the assistant would begin: the API wants the user first."""


def find_unbound_thoughts(request: Request, ledger: Ledger) -> list[int]:
    """The numbers of thoughts, counted from 0, that do not come after what the ledger says.

    `render` may have put a user message first, which was not there when the thinking was bound. So a request
    that begins with it is also tried without it.
    """
    parsed = parse(request)
    unbound = _compare_prefixes(parsed.log, parsed.head, ledger)
    first_message = next(iter(request["messages"]), None)
    if unbound and first_message == OPENING_MESSAGE:
        rest = _drop_message(parsed.log, first_message)
        unbound &= _compare_prefixes(rest, parsed.head, ledger)
    return sorted(unbound)


def _drop_message(log: Iterable[Segment], message: Any) -> list[Segment]:
    """The log without the segments that came from this message.

    They are told by the object itself: an equal message is another one.
    """
    return [segment for segment in log if read_origin_in(segment, NAME).message is not message]


def _compare_prefixes(log: Sequence[Segment], head: RequestHead, ledger: Ledger) -> set[int]:
    """The numbers of thoughts of this log that do not come after what the ledger says.

    The request is built as it was when its thinking was bound, and each thought is compared with the prefix
    that the ledger has for it. A thought that the ledger names twice, or not at all, is not judged.
    """
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
            if len(recorded) == 1 and prefix not in recorded:
                unbound.add(number)
            number += 1
        prefix = entry.prefix
    return unbound
