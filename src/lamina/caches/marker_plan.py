"""Where cache markers go: the last step before a request is sent, after everything else is decided.

On a cache that knows only what a marker ended (`breakpoints`) a marker does three things: it leaves an entry,
it keeps one alive, and from it the cache is searched backwards, a limited number of positions. So the end of
the request is marked for the next one, the end of tools and system text for other conversations, the end of
the message before the last one for a request that takes the last one back, and whatever finds the last
request again where it is out of reach of these. The place that is left goes in turns to the end of the
tools and to the end of what the last cut left as it was: an entry lives longer than two requests are apart.
The next cut most likely leaves as much (docs/caching.md has the count). On a cache that writes the end of
each turn by itself (`tail`): the end of the system text, of what the last cut left, and a key. On any other:
nothing.

A marker before the smallest prefix that is cached is free and does nothing. Whether one is, nobody can say to
the token, so such places are marked too, where no better one is left. It knows rules and blocks, and no wire
format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, takewhile
from typing import NamedTuple

import msgspec

from lamina.caches.breakpoints import positions_of
from lamina.caches.stream import Stream, StreamBlock
from lamina.caches.values import CacheRules
from lamina.errors import BadInput

HEAD = ("tool", "system")
RUNS = ("call", "result")


class MarkerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Markers to place: the lifetime at each block's `place`, "" for the provider's own, and the reasons.

    `key` is the routing key to set, "" where the request has one or the cache takes none.
    """

    places: Mapping[str, str] = {}
    reasons: Mapping[str, str] = {}
    key: str = ""


def plan(
    stream: Stream,
    rules: CacheRules,
    *,
    model: str = "",
    stable: str = "",
    tail: str = "",
    last: int | None = None,
    kept: int | None = None,
    cut: bool = False,
    key: str = "",
) -> MarkerPlan:
    """The markers for a weighed stream.

    `stable` and `tail` are lifetimes: for what stays until the next cut, and for the end of a request. What
    is known of the past are numbers of blocks: `last` of the last block of the request before this one, if
    this one continues it; `kept` of the last block that the last cut left as it was. `cut`: that cut was made
    for this very request. `key` is used where the cache routes by one and the request has none.
    """
    for word in (stable, tail):
        if word and word not in rules.lifetimes:
            taken = ", ".join(rules.lifetimes) or "none"
            raise BadInput(f"lifetime {word!r}", place="plan", hint=f"the cache of {rules.name} has: {taken}")
    if not stream.blocks or not rules.markers or rules.match not in ("breakpoints", "tail"):
        return MarkerPlan()
    past = EarlierRequests(last=last, kept=kept, cut=cut)
    chosen = _chosen(stream, rules, past, least=rules.least(model or stream.model))
    order = sorted(chosen)
    words = _falling([stable if chosen[at] in LASTING else tail for at in order], rules)
    places = [stream.blocks[at].place for at in order]
    routed = rules.match == "tail" and rules.key and not stream.key
    return MarkerPlan(
        places=dict(zip(places, words, strict=True)),
        reasons=dict(zip(places, (chosen[at] for at in order), strict=True)),
        key=_key(stream, key) if routed else "",
    )


class EarlierRequests(NamedTuple):
    """What is known of the requests before this one, as numbers of blocks; see `plan`."""

    last: int | None = None
    kept: int | None = None
    cut: bool = False


STABLE, TOOLS = "the end of tools and system text", "the end of the tools"
KEPT = "the end of what the last cut left as it was"
TAIL, LAST = "the end of the request", "the end of the last request"
ANSWERED = "the end of what was answered last"
SECOND = "the end of the message before the last"
BEHIND = "within the look-back of the end"
SPOKEN = "the end of what the user said before"
LASTING = frozenset((STABLE, TOOLS, KEPT))

UNSURE = 1.5
"""A count of tokens may be this many times too low: below the minimum is what is below it even so."""


def _chosen(stream: Stream, rules: CacheRules, past: EarlierRequests, *, least: int) -> dict[int, str]:
    """The blocks to mark, and why; as many as the rules allow, those that are surely too short last."""
    markable = _markable(stream.blocks)
    sums = list(accumulate(block.tokens for block in stream.blocks))
    most = rules.markers - _by_itself(stream, rules)
    wanted = [(markable[min(at, len(markable) - 1)], why) for at, why in _wanted(stream, rules, past)]
    allowed = [(at, why) for at, why in wanted if at >= 0]
    short = [(at, why) for at, why in allowed if why != TAIL and sums[at] * UNSURE < least]
    chosen: dict[int, str] = {}
    for at, why in [*(place for place in allowed if place not in short), *short]:
        if len(chosen) < most:
            chosen.setdefault(at, why)
    return chosen


def _wanted(stream: Stream, rules: CacheRules, past: EarlierRequests) -> Iterator[tuple[int, str]]:
    """Blocks to mark, the most useful first."""
    end, head = len(stream.blocks) - 1, _head(stream.blocks)
    if not _by_itself(stream, rules):
        yield end, TAIL
    if head:
        yield head - 1, STABLE
    kept = [past.kept] if past.kept is not None and head <= past.kept < end else []
    second = _second(stream.blocks, head)
    if rules.match == "tail" or past.cut:
        # whatever a cut left in the cache ends there, or somewhere before it
        yield from ((at, KEPT) for at in kept)
    if rules.match == "tail":
        return
    if not (past.cut and kept):
        yield from _found_again(stream, rules, past, [end, *second])
    yield from ((at, SECOND) for at in second)
    yield from _by_turns(stream.blocks, head, kept)
    if past.last is None:
        yield from ((at, BEHIND) for at in _behind(stream.blocks, rules) if at >= head)


def _second(blocks: Sequence[StreamBlock], head: int) -> list[int]:
    """The end of the message before the last one, if there is one."""
    openings = [at for at in range(head, len(blocks)) if blocks[at].opens]
    return [openings[-1] - 1] if len(openings) > 1 else []


def _found_again(
    stream: Stream, rules: CacheRules, past: EarlierRequests, marked: list[int]
) -> Iterator[tuple[int, str]]:
    """The end of the last request, where no other marker reaches it.

    Some models drop their earlier thinking when the user speaks: then the last request is not found again,
    and the end of what the user said before it is.
    """
    blocks, spoken = stream.blocks, _spoken(stream.blocks)
    drops = rules.strips(stream.model) and len(spoken) > 1 and spoken[-1] == len(blocks) - 1
    if drops and any(block.sort == "thinking" for block in blocks[spoken[-2] :]):
        at, why = spoken[-2], SPOKEN
    elif past.last is not None:
        at, why = past.last, LAST
    else:
        at, why = _answered(blocks), ANSWERED
    if 0 <= at < len(blocks) - 1 and not _is_reached(blocks, rules, at, marked):
        yield at, why


def _answered(blocks: Sequence[StreamBlock]) -> int:
    """Where a request most likely ended whose answer stands here last; -1 without an answer."""
    answers = (
        at for at in range(len(blocks) - 1, -1, -1) if blocks[at].opens and blocks[at].role == "assistant"
    )
    return next(answers, 0) - 1


def _is_reached(blocks: Sequence[StreamBlock], rules: CacheRules, at: int, marked: list[int]) -> bool:
    """Whether a block is found from one of these markers."""
    positions = list(positions_of(blocks, runs=rules.runs))
    return any(0 <= positions[mark] - positions[at] < rules.look_back for mark in marked if mark >= at)


def _by_turns(blocks: Sequence[StreamBlock], head: int, kept: Sequence[int]) -> Iterator[tuple[int, str]]:
    """The end of the tools and the end of what the last cut left: now the one first, then the other."""
    tools = sum(block.sort == "tool" for block in blocks[:head])
    places = [(tools - 1, TOOLS)] if 0 < tools < head else []
    places += [(at, KEPT) for at in kept]
    answers = sum(block.opens and block.role == "assistant" for block in blocks)
    yield from places if answers % 2 else reversed(places)


def _behind(blocks: Sequence[StreamBlock], rules: CacheRules) -> Iterator[int]:
    """Blocks from which looking back begins where the marker after them stops looking, from the end on."""
    if rules.look_back < 2:
        return
    walked = 0
    for at in range(len(blocks) - 1, 0, -1):
        if walked == rules.look_back - 1 and blocks[at].markable:
            yield at
            walked = 0
        if not (rules.runs and blocks[at].sort in RUNS and blocks[at].sort == blocks[at - 1].sort):
            walked = min(walked + 1, rules.look_back - 1)


def _markable(blocks: Sequence[StreamBlock]) -> list[int]:
    """For each block the nearest one, it or one before it, that may carry a marker; -1 without one."""
    allowed = (at if block.markable else -1 for at, block in enumerate(blocks))
    return list(accumulate(allowed, max))


def _head(blocks: Sequence[StreamBlock]) -> int:
    """How many blocks are tools and system text that stand before everything said."""
    return sum(1 for _ in takewhile(lambda block: block.sort in HEAD, blocks))


def _by_itself(stream: Stream, rules: CacheRules) -> bool:
    """Whether the cache marks the end of a request by itself, with one of the places."""
    return rules.match == "tail" and "explicit" not in stream.automatic


def _spoken(blocks: Sequence[StreamBlock]) -> list[int]:
    """Where each message ends in which the user speaks, and no tool answers."""
    ends: list[int] = []
    end = len(blocks)
    for at in range(len(blocks) - 1, -1, -1):
        if blocks[at].opens:
            if blocks[at].role == "user" and all(block.sort != "result" for block in blocks[at:end]):
                ends.append(end - 1)
            end = at
    return ends[::-1]


def _falling(words: Sequence[str], rules: CacheRules) -> list[str]:
    """The lifetimes, where each is at least as long as every later one: shorter ones must come last."""
    result: list[str] = []
    for word in reversed(words):
        after = result[-1] if result else word
        result.append(word if rules.seconds(word) >= rules.seconds(after) else after)
    return result[::-1]


def _key(stream: Stream, given: str) -> str:
    """What was given, else a name of the stable head: conversations with the same head share a cache."""
    if given:
        return given
    head = stream.blocks[: _head(stream.blocks)] or stream.blocks[:1]
    links = msgspec.structs.replace(stream, blocks=head).chain(root=stream.model.encode())
    return f"lamina-{links[-1].hex()}"
