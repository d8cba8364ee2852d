"""Compares two requests: where and why they part, and what that cost.

Whether a cache was lost, why, and for how much, is what every other view says of the later request. The bytes
of both requests show where they part.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence

import msgspec

from lamina.caches.prefix_path import count_common_items
from lamina.caches.stream import StreamBlock
from lamina.conversations import lost_caches
from lamina.conversations.lost_caches import ADVICE, CUT, explain_by_bytes
from lamina.diagnose.values import Difference
from lamina.dialects import DIALECTS, Usage
from lamina.inspector.sent_requests import SentRequestBuild
from lamina.inspector.sent_sessions import SentCall, SentSession
from lamina.inspector.views import Inspector, Json, find_call

MOST_ROWS = 60
"""Rows of differing blocks that the page gets."""

LONGEST_SIDE = 6_000
"""Characters of one block on one side."""

AROUND_BYTE = 60
"""Bytes before and after the first differing one."""

_NOT_COMPARED = Difference(
    cause="not kept", at=0, sentence="the bytes of both requests are not there to be compared"
)

_WORD = re.compile(r"\w+|\s+|[^\w\s]")


def compare_requests(inspector: Inspector, session_id: str, before: int, after: int) -> Json:
    """Where and why two requests part, what that costs, and what to do.

    The requests are compared as they are sent, under the rules of the cache. If lamina made a cut between
    them, its own reason is the cause. Blocks are compared one by one, and the words inside of those that
    differ. If a body is not kept, `note` says so, and the answer is what the record alone knows.
    """
    opened = inspector.open(session_id)
    calls = [find_call(opened, before), find_call(opened, after)]
    requests = [inspector.read(opened, number) for number in (before, after)]
    notes = [each.note for each in requests if not each.request]
    gap = _measure_gap(calls)
    difference = None
    if not notes:
        difference = _find_difference(opened, calls, requests, gap)
    answer: Json = msgspec.to_builtins(difference or _NOT_COMPARED)
    answer["note"] = next(iter(notes), "")
    calls_since = [call for call in opened.calls if before < call.number <= after]
    cuts = [call.cut for call in calls_since if call.cut]
    if cuts:
        # What lamina did itself, it knows better than the bytes say.
        answer |= {
            "cause": CUT,
            "sentence": f"lamina made a cut: {cuts[-1]}",
            "advice": ADVICE[CUT],
            "name": "",
        }
    answer["before"] = before
    answer["after"] = after
    answer["gap"] = gap
    answer["reported"] = None
    if len(calls_since) <= 1:  # of two requests that are apart, the cache knew one between them better
        answer |= _show_reported(calls, difference)
    answer |= _compare_blocks(opened, requests)
    return answer


def _measure_gap(calls: Sequence[SentCall]) -> float | None:
    """Seconds between two calls; None where a time is not recorded."""
    start = calls[0].at
    end = calls[1].at
    if start is None or end is None:
        return None
    return max(end - start, 0.0)


def _find_difference(
    opened: SentSession, calls: Sequence[SentCall], requests: Sequence[SentRequestBuild], gap: float | None
) -> Difference:
    """The cause by the bytes and the rules, as far as it agrees with what was reported."""
    earlier, later = calls
    usage = Usage()
    if later.reported is not None:
        usage = Usage(cached=later.read, written=later.written)
    return lost_caches.compare_requests(
        requests[0].request,
        requests[1].request,
        rules=opened.rules,
        gap=gap,
        tokens=earlier.reported,
        dialect=DIALECTS[opened.sent.dialect],
        usage=usage,
        has_markers=not opened.sent.is_log,
    )


def _show_reported(calls: Sequence[SentCall], difference: Difference | None) -> Json:
    """What the provider reported of both requests, and the loss that it shows, with its one price.

    The `difference` of their bytes may say why; None if they are not kept.
    """
    earlier, later = calls
    if later.reported is None or earlier.reported is None:
        return {}
    reported = {"shared": min(earlier.reported, later.reported), "read": later.read, "loss": None}
    if later.loss is None:
        return {"reported": reported, "price": None}
    loss = later.loss
    if difference is not None:
        loss = explain_by_bytes(loss, difference)
    return {
        "reported": reported | {"shared": loss.tokens + later.read, "loss": msgspec.to_builtins(loss)},
        "cause": loss.cause,
        "sentence": loss.why,
        "advice": loss.advice,
        "price": None,
    }


def _compare_blocks(opened: SentSession, requests: Sequence[SentRequestBuild]) -> Json:
    """The blocks of two requests: how many are the same at the start, which differ, and the first byte."""
    streams: list[Sequence[StreamBlock]] = [(), ()]
    if all(each.request for each in requests):
        dialect = DIALECTS[opened.sent.dialect]
        streams = [dialect.cache.stream(each.request).blocks for each in requests]
    shared = count_common_items(_list_keys(streams[0]), _list_keys(streams[1]))
    before = streams[0][shared:]
    after = streams[1][shared:]
    rows = list(_list_rows(before, after))
    return {
        "shared": shared,
        "blocks": [len(stream) for stream in streams],
        "rows": rows[:MOST_ROWS],
        "more_rows": max(len(rows) - MOST_ROWS, 0),
        "first_byte": _show_first_byte(before, after),
    }


def _list_keys(blocks: Sequence[StreamBlock]) -> list[tuple[str, str, bytes]]:
    """What a cache compares of blocks: neither their places nor their markers."""
    return [(block.sort, block.role, block.data) for block in blocks]


def _list_rows(before: Sequence[StreamBlock], after: Sequence[StreamBlock]) -> Iterator[Json]:
    """The blocks after the common beginning: removed, added, or changed, with their words compared."""
    matcher = difflib.SequenceMatcher(None, _list_keys(before), _list_keys(after), autojunk=False)
    for operation, start, end, new_start, new_end in matcher.get_opcodes():
        if operation == "equal":
            yield {"operation": "same", "count": end - start}
            continue
        pairs = min(end - start, new_end - new_start)
        for at in range(pairs):
            yield _show_pair(before[start + at], after[new_start + at])
        for block in before[start + pairs : end]:
            yield {"operation": "removed", "before": _show_block(block), "after": None}
        for block in after[new_start + pairs : new_end]:
            yield {"operation": "added", "before": None, "after": _show_block(block)}


def _show_pair(before: StreamBlock, after: StreamBlock) -> Json:
    words = list(compare_words(_read_block(before), _read_block(after)))
    return {
        "operation": "changed",
        "before": _show_block(before),
        "after": _show_block(after),
        "words": words,
    }


def compare_words(before: str, after: str) -> Iterator[tuple[str, str]]:
    """Both texts in pieces: " " for what is in both, "-" for what is gone, "+" for what is new."""
    one = _WORD.findall(before)
    other = _WORD.findall(after)
    matcher = difflib.SequenceMatcher(None, one, other, autojunk=len(one) * len(other) > 1_000_000)
    for operation, start, end, new_start, new_end in matcher.get_opcodes():
        if operation == "equal":
            yield " ", "".join(one[start:end])
            continue
        if end > start:
            yield "-", "".join(one[start:end])
        if new_end > new_start:
            yield "+", "".join(other[new_start:new_end])


def _show_block(block: StreamBlock) -> Json:
    text = _read_block(block)
    return {"sort": block.sort, "role": block.role, "place": block.place, "name": block.name, "text": text}


def _read_block(block: StreamBlock) -> str:
    return block.data.decode("utf-8", "replace")[:LONGEST_SIDE]


def _show_first_byte(before: Sequence[StreamBlock], after: Sequence[StreamBlock]) -> Json | None:
    """What stands around the first byte that differs; None if the later request only adds to the earlier."""
    if not before:
        return None
    new = b""
    place = before[0].place
    if after:
        new = after[0].data
        place = after[0].place
    old = before[0].data
    at = count_common_items(old, new)
    start = max(at - AROUND_BYTE, 0)
    return {
        "place": place,
        "byte": at,
        "same": old[start:at].decode("utf-8", "replace"),
        "before": old[at : at + AROUND_BYTE].decode("utf-8", "replace"),
        "after": new[at : at + AROUND_BYTE].decode("utf-8", "replace"),
    }
