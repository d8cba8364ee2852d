"""Plans where cache markers go: the last step before a request is sent, after everything else is decided.

On a cache with entries at markers (`breakpoints`) a marker does three things: it leaves an entry, it keeps an
entry alive, and the cache is searched backwards from it, a limited number of positions. So we mark, the most
useful first:

1. the end of the request, for the next request;
2. the end of tools and system text, for other conversations;
3. a place from which the last request is found again, if it is out of reach of the other markers;
4. the end of the message before the last one, for a request that takes the last message back; or, if the
   last request is not known, the end of the user's message before it, from which earlier requests are found;
5. by turns the end of the tools and the end of what the last cut left unchanged. One marker serves both,
   since an entry lives longer than the time between two requests. The next cut most likely leaves as much
   unchanged as the last one did (docs/caching.md has the count).

On a cache that writes the end of each turn by itself (`tail`) we mark the end of the system text and the end
of what the last cut left unchanged, and set a key. On any other cache we mark nothing.

A marker before the smallest prefix that is cached is free and does nothing. Nobody can say to the token
whether a marker is too early, so such places are marked too if no better one is left. This module knows rules
and blocks. It knows no wire format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from lamina.caches.breakpoints import EXPLICIT, number_positions
from lamina.caches.prefix_path import user_messages_backwards
from lamina.caches.rules import CacheRules
from lamina.caches.stream import Stream, StreamBlock
from lamina.errors import BadInput

HEAD = ("tool", "system")
RUNS = ("call", "result")


class MarkerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Markers to place: the lifetime at each block's `place`, "" for the provider's own, and the reasons.

    `key` is the routing key to set, "" if the request has one or the cache takes none.
    """

    places: Mapping[str, str] = {}
    reasons: Mapping[str, str] = {}
    key: str = ""


def plan_markers(
    stream: Stream,
    rules: CacheRules,
    *,
    stable: str = "",
    tail: str = "",
    last: int | None = None,
    kept: int | None = None,
    cut: bool = False,
) -> MarkerPlan:
    """Plan the markers for a stream whose blocks are counted.

    `stable` and `tail` are lifetimes: for what stays until the next cut, and for the end of a request.

    The past is described by indexes of blocks: `last` is the last block of the request before this one, if
    this one continues it; `kept` is the last block that the last cut left unchanged. `cut`: that cut was made
    for this very request.
    """
    _check_lifetime(stable, rules)
    _check_lifetime(tail, rules)
    takes_markers = rules.match in ("breakpoints", "tail") and rules.markers > 0
    if not stream.blocks or not takes_markers:
        return MarkerPlan()
    past = EarlierRequests(last_block=last, uncut_block=kept, cut=cut)
    chosen = _choose_blocks(stream, rules, past, least=rules.least(stream.model))
    reasons = {stream.blocks[index].place: chosen[index] for index in sorted(chosen)}
    lifetimes = [stable if reason in LASTING else tail for reason in reasons.values()]
    return MarkerPlan(
        places=dict(zip(reasons, _make_falling(lifetimes, rules), strict=True)),
        reasons=reasons,
        key=_choose_routing_key(stream, rules),
    )


def _check_lifetime(word: str, rules: CacheRules) -> None:
    """Raise BadInput for a lifetime that the cache does not have. "" is the provider's own."""
    if not word or word in rules.lifetimes:
        return
    choices = ", ".join(rules.lifetimes) or "none"
    hint = f"the cache of {rules.name} has: {choices}"
    raise BadInput(f"lifetime {word!r}", place="plan", hint=hint)


def _choose_routing_key(stream: Stream, rules: CacheRules) -> str:
    """The routing key to set, made of the head; "" if the request has one or the cache takes none."""
    takes_key = rules.match == "tail" and rules.key
    if stream.key or not takes_key:
        return ""
    return _hash_head(stream)


class EarlierRequests(NamedTuple):
    """What we know about the requests before this one, as indexes of blocks. `plan` explains each field."""

    last_block: int | None = None
    uncut_block: int | None = None
    cut: bool = False

    def find_uncut_end(self, head: int, end: int) -> list[MarkerPlace]:
        """The end of what the last cut left unchanged, if it stands between the head and the end."""
        if self.uncut_block is None or not head <= self.uncut_block < end:
            return []
        return [MarkerPlace(self.uncut_block, LAST_CUT_END)]


class MarkerPlace(NamedTuple):
    """A block to mark, and why."""

    block: int
    reason: str


HEAD_END = "the end of tools and system text"
TOOLS = "the end of the tools"
LAST_CUT_END = "the end of what the last cut left as it was"
REQUEST_END = "the end of the request"
LAST_REQUEST_END = "the end of the last request"
ANSWERED = "the end of what was answered last"
MESSAGE_BEFORE_LAST = "the end of the message before the last"
BEHIND = "within the look-back of the end"
SPOKEN = "the end of what the user said before"
LASTING = frozenset((HEAD_END, TOOLS, LAST_CUT_END))
"""Reasons of markers that hold until the next cut, and so get the `stable` lifetime."""

UNSURE = 1.5
"""Our count of tokens may be this many times too low. A prefix is surely too short only if this much more
would still be below the minimum."""


def _choose_blocks(stream: Stream, rules: CacheRules, past: EarlierRequests, *, least: int) -> dict[int, str]:
    """The blocks to mark, and why. Those that are surely too short to be cached come last."""
    shortest = _count_too_short(stream.blocks, least)
    long_enough: list[MarkerPlace] = []
    too_short: list[MarkerPlace] = []
    for place in _rank_places(stream, rules, past):
        # a block that cannot carry a marker passes it to the nearest one before it that can
        index = _find_markable(stream.blocks, place.block)
        if index is None:
            continue
        if place.reason != REQUEST_END and index < shortest:
            too_short.append(MarkerPlace(index, place.reason))
        else:
            long_enough.append(MarkerPlace(index, place.reason))
    chosen: dict[int, str] = {}
    for place in (*long_enough, *too_short):
        chosen.setdefault(place.block, place.reason)
    most_markers = rules.markers - _marks_end_by_itself(stream, rules)
    return dict(islice(chosen.items(), most_markers))


def _count_too_short(blocks: Sequence[StreamBlock], least: int) -> int:
    """How many blocks at the beginning are surely too short to be cached, even together."""
    total = 0
    for index, block in enumerate(blocks):
        total += block.tokens
        if total * UNSURE >= least:
            return index
    return len(blocks)


def _find_markable(blocks: Sequence[StreamBlock], index: int) -> int | None:
    """The nearest block that can carry a marker, at this one or before it."""
    for candidate in range(index, -1, -1):
        if blocks[candidate].markable:
            return candidate
    return None


def _rank_places(stream: Stream, rules: CacheRules, past: EarlierRequests) -> Iterator[MarkerPlace]:
    """The places to mark, the most useful first.

    The docstring of this module says why each of them is useful. Some may be the same block, and then the
    first reason counts.
    """
    blocks = stream.blocks
    end = len(blocks) - 1
    head = _count_head(blocks)
    if not _marks_end_by_itself(stream, rules):
        yield MarkerPlace(end, REQUEST_END)
    if head:
        yield MarkerPlace(head - 1, HEAD_END)
    uncut = past.find_uncut_end(head, end)
    if rules.match == "tail":
        yield from uncut
        return
    spare = _choose_spare(blocks, head, past)
    if past.cut and uncut:
        yield from uncut  # whatever the cut left in the cache ends there, or somewhere before it
    else:
        place = _end_of_last_request(stream, rules, past)
        marked = [end, *(other.block for other in spare)]
        if 0 <= place.block < end and not _is_reached(blocks, rules, place.block, marked):
            yield place
    yield from spare
    yield from _take_turns(blocks, head, uncut)
    if past.last_block is None:
        yield from _space_by_look_back(blocks, head, rules)


def _choose_spare(blocks: Sequence[StreamBlock], head: int, past: EarlierRequests) -> list[MarkerPlace]:
    """The marker that is left beside those of the head and of the end; none if there is only one message.

    If the last request is known, a marker finds it already, and the spare one stands before the last message,
    for a request that takes that back. If it is not known, the user's message before the last answer most
    likely ended it. If that request was never seen here, the one before it is found from there, and from
    nowhere later: between the two are all blocks of one answer and of its results.
    """
    if past.last_block is None and not past.cut:
        answered = _end_of_answered(blocks)
        if answered.block >= 0:
            return [answered]
    openings_backwards = (index for index in range(len(blocks) - 1, head - 1, -1) if blocks[index].opens)
    last_openings = list(islice(openings_backwards, 2))
    if len(last_openings) < 2:
        return []
    return [MarkerPlace(last_openings[0] - 1, MESSAGE_BEFORE_LAST)]


def _end_of_answered(blocks: Sequence[StreamBlock]) -> MarkerPlace:
    """The end of the message that the last answer was for; -1 if there is no answer yet."""
    for index in range(len(blocks) - 1, -1, -1):
        if _opens_answer(blocks[index]):
            return MarkerPlace(index - 1, ANSWERED)
    return MarkerPlace(-1, ANSWERED)


def _end_of_last_request(stream: Stream, rules: CacheRules, past: EarlierRequests) -> MarkerPlace:
    """Where the last request ended, or most likely ended."""
    blocks = stream.blocks
    if rules.drops_thinking(stream.model):
        spoken = _end_of_words_before_thinking(blocks)
        if spoken is not None:
            return MarkerPlace(spoken, SPOKEN)
    if past.last_block is not None:
        return MarkerPlace(past.last_block, LAST_REQUEST_END)
    return _end_of_answered(blocks)


def _end_of_words_before_thinking(blocks: Sequence[StreamBlock]) -> int | None:
    """The end of what the user said before the last time, if the model has thought since; else None."""
    if not blocks or blocks[-1].sort == "result":
        return None  # a tool spoke last; an agent may run for thousands of steps, so they are not walked
    messages_backwards = user_messages_backwards(blocks)
    last = next(messages_backwards, range(0))
    before = range(0)
    if last.stop == len(blocks):
        before = next(messages_backwards, before)
    if not before:
        return None
    # such a model drops its thinking when the user speaks: the cache does not find the last request again,
    # but it does find the end of what the user said before it
    sorts_since = {block.sort for block in blocks[before.stop :]}
    if "thinking" in sorts_since:
        return before.stop - 1
    return None


def _opens_answer(block: StreamBlock) -> bool:
    """Whether a message of the model begins with this block."""
    return block.opens and block.role == "assistant"


def _is_reached(blocks: Sequence[StreamBlock], rules: CacheRules, index: int, marked: list[int]) -> bool:
    """Whether the cache finds a block from one of these markers.

    With a look-back of 20 a marker finds entries that end at most 19 positions before it.
    """
    later_marks = [mark for mark in marked if mark >= index]
    if not later_marks:
        return False
    between = blocks[index : min(later_marks) + 1]
    *_, distance = number_positions(between, runs=rules.runs)
    return distance < rules.look_back


def _take_turns(
    blocks: Sequence[StreamBlock], head: int, uncut: Sequence[MarkerPlace]
) -> Iterator[MarkerPlace]:
    """The end of the tools and the end of what the last cut left; each comes first at every other answer.

    If there is room for one of them only, both are written and read in turns, and both stay alive. After an
    even number of answers the end of the cut comes first.
    """
    places = []
    tools = sum(block.sort == "tool" for block in blocks[:head])
    if 0 < tools < head:
        places.append(MarkerPlace(tools - 1, TOOLS))
    places += uncut
    if len(places) > 1:
        answers = sum(map(_opens_answer, blocks))
        if answers % 2 == 0:
            places.reverse()
    yield from places


def _space_by_look_back(blocks: Sequence[StreamBlock], head: int, rules: CacheRules) -> Iterator[MarkerPlace]:
    """Places behind the head, from the end backwards, each where the search from the next one stops.

    With a look-back of 20 these are the positions 19, 38, 57 and so on before the end. A block that cannot be
    marked passes the marker on to the one before it.
    """
    if rules.look_back < 2:
        return
    furthest = rules.look_back - 1
    walked = 0
    for index in range(len(blocks) - 1, max(head, 1) - 1, -1):
        block = blocks[index]
        if walked == furthest and block.markable:
            yield MarkerPlace(index, BEHIND)
            walked = 0
        in_run = rules.runs and block.sort in RUNS and block.sort == blocks[index - 1].sort
        if not in_run:
            walked = min(walked + 1, furthest)


def _count_head(blocks: Sequence[StreamBlock]) -> int:
    """How many blocks at the beginning are tools and system text.

    A system message between the messages is not part of the head.
    """
    for index, block in enumerate(blocks):
        if block.sort not in HEAD:
            return index
    return len(blocks)


def _marks_end_by_itself(stream: Stream, rules: CacheRules) -> bool:
    """Whether the cache marks the end of a request without being told to. That takes one of the markers."""
    return rules.match == "tail" and EXPLICIT not in stream.automatic


def _make_falling(words: Sequence[str], rules: CacheRules) -> list[str]:
    """The lifetimes, each raised to the longest that follows it: an API refuses longer ones after shorter.

    `["5m", "1h", "5m"]` becomes `["1h", "1h", "5m"]`.
    """
    longest = ""
    raised: list[str] = []
    for word in reversed(words):
        if not raised or rules.seconds(word) >= rules.seconds(longest):
            longest = word
        raised.append(longest)
    raised.reverse()
    return raised


def _hash_head(stream: Stream) -> str:
    """A routing key from the head, so that conversations with the same head share a cache.

    Requests of one application have the same tools and system text, and so the same key.
    """
    head = stream.blocks[: _count_head(stream.blocks)] or stream.blocks[:1]
    links = msgspec.structs.replace(stream, blocks=head).chain(root=stream.model.encode())
    return f"lamina-{links[-1].hex()}"
