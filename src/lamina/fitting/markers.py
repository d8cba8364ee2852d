"""Cache markers: the last stage before the check. It changes nothing that the model reads.

`lamina.caches.marker_plan` plans where the markers go, and the dialect writes them. This module passes the
planner what it needs from the ledger: where the last cut began and where the last request ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Literal

import msgspec

from lamina.caches import CacheRules
from lamina.caches.lifetimes import AUTO, choose_lifetime
from lamina.caches.marker_plan import UNSURE, MarkerPlan, plan_markers
from lamina.caches.stream import Stream, StreamBlock
from lamina.core.entries import EntryTally, find_sent
from lamina.core.envelope import Envelope
from lamina.core.tokens import ESTIMATE, Counter
from lamina.core.tool_definitions import drop_deferred
from lamina.core.values import Cut, Entry, Form, Ledger, RequestHead, SentMark
from lamina.dialects.json_values import find_model
from lamina.dialects.memos import StreamMemo
from lamina.dialects.port import Dialect, Marking
from lamina.errors import BadInput


class Lifetimes(msgspec.Struct, frozen=True, kw_only=True):
    """How long the cache should keep what is marked, in the provider's words ("5m", "1h").

    `stable` is for tools, system text and what a cut lowered, `tail` for the end of each request. With ""
    the provider chooses. With "auto" a wrapped client and the gateway choose the one that costs least, from
    the pauses of this client so far; `fit_request` knows no pauses, so there the provider chooses.
    """

    stable: str = ""
    tail: str = ""


Breakpoints = Literal["auto", "keep", "plan", "none"] | Lifetimes
"""What to do with cache markers.

"auto" leaves the caller's own. If the request brings none, and its cache keeps nothing without a marker, it
gets lamina's, unless it is too short to be cached. "keep" leaves the caller's own, or none. "plan" replaces
them by lamina's, and so does `Lifetimes`, which also says how long they live. "none" removes them.
"""

_WORDS = ("auto", "keep", "plan", "none")


def resolve_lifetimes(
    breakpoints: Breakpoints, pauses: Sequence[float], rules: CacheRules, model: str
) -> Breakpoints:
    """What to do with cache markers, with a lifetime chosen from these pauses for each "auto"."""
    if not isinstance(breakpoints, Lifetimes) or AUTO not in (breakpoints.stable, breakpoints.tail):
        return breakpoints
    return _replace_auto(breakpoints, choose_lifetime(pauses, rules, model))


class Marked(msgspec.Struct, frozen=True, kw_only=True):
    """A request with its markers. `plan` gives the reason for each, if lamina planned them."""

    request: dict[str, Any]
    plan: MarkerPlan | None = None


def check_breakpoints(breakpoints: Any, place: str) -> None:
    """Raise BadInput unless this is a value of `Breakpoints`."""
    if isinstance(breakpoints, Lifetimes) or breakpoints in _WORDS:
        return
    hint = 'use "auto", "keep", "plan", "none" or Lifetimes(...)'
    raise BadInput(f"breakpoints is {breakpoints!r:.100}", place=place, hint=hint)


def place_markers(
    request: Mapping[str, Any],
    envelope: Envelope,
    dialect: Dialect,
    *,
    breakpoints: Breakpoints,
    counter: Counter,
    rules: CacheRules,
    before: SentMark | None,
    cut: Cut | None,
    memo: StreamMemo | None = None,
    same_entries: int = 0,
) -> Marked:
    """The request with the markers that `breakpoints` asks for.

    If nothing is to be marked, or the model's cache takes no markers, it is the same object. `before` is the
    mark of the last request. `cut` is the one that was made for this request. The envelope may not know it:
    a request that is built again from its ledger repeats the cut and makes none. With a memo, a request that
    grows is read only at its end; its first `same_entries` are those that the memo has counted.
    """
    memo = memo or StreamMemo()
    unmarked = Marked(request=request)  # type: ignore[arg-type]
    markers = dialect.cache.markers
    lifetimes = Lifetimes()
    if markers is None:
        return unmarked
    if breakpoints == "keep":
        return unmarked
    if breakpoints == "none":
        return Marked(request=markers.put(request, Marking()))
    if isinstance(breakpoints, Lifetimes):
        lifetimes = _replace_auto(breakpoints, "")
    # The rules of a cache belong to the model, which may be served behind another provider's wire format.
    if not rules.markers or markers.cache != rules.match:
        return unmarked
    if breakpoints == "auto":
        unmarked_stream = _stream_without_markers(request, envelope, dialect, rules, memo)
        if unmarked_stream is None:
            return unmarked
        stream = unmarked_stream
    else:
        stream = _read_stream(request, dialect, memo)
    weights = _weigh_start(
        stream, request, dialect, counter=counter, least=rules.least(stream.model), memo=memo
    )
    stream = stream.weighed(weights)
    # The entries of the tail are sent only this once, so nobody would read a cache entry that ends there.
    if envelope.tail:
        tail_blocks = _count_parts(_find_last_sent(envelope.entries, envelope.tail))
        stream = msgspec.structs.replace(stream, blocks=stream.blocks[: len(stream.blocks) - tail_blocks])
    last_sent_block = None
    if before is not None and cut is None:
        last_sent_block = _last_block_before_new(envelope, before, memo, same_entries)
    marker_plan = plan_markers(
        stream,
        rules,
        stable=lifetimes.stable,
        tail=lifetimes.tail,
        last=last_sent_block,
        kept=_last_block_before_cut(envelope),
        cut=cut is not None and bool(cut.first),
    )
    marking = Marking(places=marker_plan.places, key=marker_plan.key, is_bare=memo.is_bare)
    return Marked(request=markers.put(request, marking), plan=marker_plan)


LOOSE = 2
"""A tokenizer counts at most so many times more than the estimate, or less."""


def mark_whole(
    request: Mapping[str, Any],
    dialect: Dialect,
    *,
    rules: CacheRules,
    last_block: int | None,
    memo: StreamMemo,
) -> Mapping[str, Any]:
    """The request with the markers that `place_markers` gives one without any that is sent as it came.

    It is not built, and only its first blocks are weighed. They are estimated, since a tokenizer may be slow:
    the weights only say which prefixes are too short to be cached, and a marker there is free and does
    nothing. `last_block` is the last block of the request before it.
    """
    markers = dialect.cache.markers
    if markers is None:
        return request
    stream = _read_stream(request, dialect, memo)
    least = rules.least(stream.model)
    missing = LOOSE * least - sum(memo.weights)
    if missing > 0:
        more = _weigh_start(
            stream, request, dialect, counter=ESTIMATE, least=missing, memo=memo, first=len(memo.weights)
        )
        memo.weights += more
    if sum(memo.weights) * UNSURE < least:
        return request
    plan = plan_markers(stream.weighed(memo.weights), rules, last=last_block)
    return markers.put(request, Marking(places=plan.places, is_bare=memo.is_bare))


def _replace_auto(lifetimes: Lifetimes, word: str) -> Lifetimes:
    """The lifetimes with this word for each "auto"."""
    stable = lifetimes.stable
    tail = lifetimes.tail
    if stable == AUTO:
        stable = word
    if tail == AUTO:
        tail = word
    return Lifetimes(stable=stable, tail=tail)


def _stream_without_markers(
    request: Mapping[str, Any], envelope: Envelope, dialect: Dialect, rules: CacheRules, memo: StreamMemo
) -> Stream | None:
    """The blocks of a request that wants markers; None if it does not.

    It wants them if it has none, nothing of it is cached without one, and it may be long enough.
    """
    if not keeps_only_marked(rules):
        return None
    if envelope.tokens * UNSURE < rules.least(find_model(request)):
        return None
    if _has_late_marker(request, dialect):
        return None
    try:
        stream = _read_stream(request, dialect, memo)
    except BadInput:
        return None  # it has values of an SDK that a cache never sees
    message_count = len(memo.blocks)
    other_blocks = stream.blocks[: len(stream.blocks) - message_count]
    if stream.automatic or memo.is_marked or any(block.marker for block in other_blocks):
        return None
    return stream


LATE = 8
"""Messages at the end in which a client that marks its requests has a marker."""


def has_marker(request: Mapping[str, Any], dialect: Dialect) -> bool:
    """Whether a request has a marker, wherever it may stand."""
    markers = dialect.cache.markers
    if markers is None or markers.find is None:
        return False
    return _has_late_marker(request, dialect) or bool(markers.find(request))


def _has_late_marker(request: Mapping[str, Any], dialect: Dialect) -> bool:
    """Whether there is a marker in the head, or in the last messages.

    Clients move their markers with each request, so that a memo knows nothing of the messages after them.
    """
    markers = dialect.cache.markers
    messages = request.get("messages")
    if markers is None or markers.find is None or not isinstance(messages, list | tuple):
        return False
    return bool(markers.find({**request, "messages": messages[-LATE:]}))


def _read_stream(request: Mapping[str, Any], dialect: Dialect, memo: StreamMemo) -> Stream:
    markers = dialect.cache.markers
    if markers is None or markers.stream is None:
        return dialect.cache.stream(request)
    return markers.stream(request, memo=memo)


def keeps_only_marked(rules: CacheRules) -> bool:
    """Whether a cache keeps nothing of a request without markers.

    OpenAI's keeps the end of each turn by itself. A request for it is left as it came.
    """
    return rules.match == "breakpoints"


def _weigh_start(
    stream: Stream,
    request: Mapping[str, Any],
    dialect: Dialect,
    *,
    counter: Counter,
    least: int,
    memo: StreamMemo,
    first: int = 0,
) -> tuple[int, ...]:
    """The tokens of the blocks from the `first` on, until they exceed the smallest prefix that is cached.

    The plan only needs to know which blocks are below that minimum, so the rest is not counted.
    """
    blocks_without_data = len(memo.blocks) - memo.data_count
    end_of_data = len(stream.blocks) - blocks_without_data
    known_counts = memo.counts.get(counter, {})
    counts: dict[bytes, int] = {}
    total = 0
    tokens: list[int] = []
    for index, block in enumerate(islice(stream.blocks, first, None), first):
        if total >= least:
            break
        if index == end_of_data:
            stream = dialect.cache.stream(request)
            block = stream.blocks[index]  # noqa: PLW2901 - the same block with its data
        framing = _framing_tokens(block, counter, is_first=index == 0)
        data_tokens = known_counts.get(block.data)
        if data_tokens is None:
            data_tokens = counter.count(block.data.decode())
        counts[block.data] = data_tokens
        block_tokens = framing + data_tokens
        tokens.append(block_tokens)
        total += block_tokens
    memo.counts = {counter: counts}
    return tuple(tokens)


def _framing_tokens(block: StreamBlock, counter: Counter, *, is_first: bool) -> int:
    """What the provider counts around the text of a block: for the request, the tools, a message.

    The framing of the request, and that of all tools together, counts with the first block.
    """
    framing = counter.framing
    is_tool = block.sort == "tool"
    tokens = 0
    if is_tool:
        tokens += framing.tool
    elif block.opens:
        tokens += framing.message
    if is_first:
        tokens += framing.request
    if is_first and is_tool:
        tokens += framing.tools
    return tokens


def _last_block_before_cut(envelope: Envelope) -> int | None:
    """The number of the last block that the last cut left as it was; None if there is none."""
    # A cut that only records a change of the client's, such as a new tool, names no entry that it changed.
    cut = next((cut for cut in reversed(envelope.ledger.cuts) if cut.first), None)
    if cut is None:
        return None
    unchanged_entries = find_entries_before(cut, envelope.entries, envelope.ledger)
    if len(unchanged_entries) == len(envelope.entries):
        return None  # what the cut changed is not in this request
    sent_entries = find_sent(unchanged_entries)
    if not sent_entries:
        return None
    return find_last_block(envelope.head, _count_parts(sent_entries))


def find_entries_before(cut: Cut, entries: Sequence[Entry], ledger: Ledger) -> Sequence[Entry]:
    """The entries before the first one that this cut has changed; all of them if it changed none of these."""
    digest_keys = {fold.key for fold in ledger.folds if fold.cut == cut.number}
    for index, entry in enumerate(entries):
        # A cut names the first entry that it lowered. A digest that it wrote may stand before that entry.
        if entry.ref == cut.first or entry.segment.key in digest_keys:
            return entries[:index]
    return entries


def _last_block_before_new(envelope: Envelope, before: SentMark, memo: StreamMemo, start: int) -> int:
    """The number of the last block that the last request sent. Parts before `start` were counted before."""
    start = min(start, len(memo.parts.entries))  # the memo may have forgotten them since
    parts = memo.parts.total - _count_parts(memo.parts.entries[start:])
    parts += _count_parts(envelope.entries[start:])
    memo.parts = EntryTally(envelope.entries, parts)
    sent = before.sent
    if envelope.ledger.mark is not None:
        sent = envelope.ledger.mark.sent + envelope.tail
    new_entries = _find_last_sent(envelope.entries, sent - before.sent)
    return find_last_block(envelope.head, parts - _count_parts(new_entries))


def _find_last_sent(entries: Sequence[Entry], count: int) -> list[Entry]:
    """The last entries that are sent, at most so many."""
    sent_backwards = (entry for entry in reversed(entries) if entry.form is not Form.OMITTED)
    return list(islice(sent_backwards, max(count, 0)))


def _count_parts(entries: Sequence[Entry]) -> int:
    """Blocks of entries. Those that are not sent have none."""
    return sum(len(entry.parts) for entry in entries)


def find_last_block(head: RequestHead, parts: int) -> int:
    """The number of the last block of the first entries, which have so many parts, behind this head.

    It depends on nothing that comes after them, so it stays the same from request to request.
    """
    return len(drop_deferred(head.tools)) + parts - 1
