"""Marks the last request of a conversation in the ledger of the next one.

Most requests pass as they came, and leave no ledger. When a conversation is fitted for the first time, most
of the request was sent before: a cut may lower a large result in it, but must not treat it as new.
"""

from __future__ import annotations

import msgspec

from lamina.core.entries import find_logged
from lamina.core.epochs import prefix_at
from lamina.core.values import Form, SentMark
from lamina.fitting.request import Fitted
from lamina.gateway.conversations import ConversationMatch


def mark_last_request(match: ConversationMatch, whole: Fitted) -> SentMark | None:
    """The mark of the last request. `whole` is this request with nothing lowered, so it begins with it."""
    mark = whole.ledger.mark
    if mark is None:
        return None
    earlier_count = len(find_logged(whole.envelope.entries)) - match.new_segments
    sent = 0
    for entry in whole.envelope.entries:
        if not entry.segment.is_own:
            earlier_count -= 1
        if earlier_count < 0:
            break
        sent += entry.form is not Form.OMITTED
    prefix = prefix_at(whole.envelope.entries, sent, whole.envelope.root)
    if prefix is None:
        return None
    return msgspec.structs.replace(mark, sent=sent, prefix=prefix, tokens=0)
