"""Where cache markers go: the last step before a request is sent, after everything else is decided.

On a cache that knows only what a marker ended (`breakpoints`): the end of tools and system text, the end of
what the last cut lowered, the end of the last request, and the end of this one. Every one of them stays where
it was written while the conversation grows, so it is found again. On a cache that writes the end of each turn
by itself (`tail`): the end of the system text, of what was lowered, and a key. On any other: nothing.
It knows rules and blocks, and no wire format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, takewhile

import msgspec

from lamina.errors import BadInput
from lamina.rules.values import Rules
from lamina.stream import Block, Stream

HEAD = ("tool", "system")
RUNS = ("call", "result")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Markers to place: the lifetime at each block's `place`, "" for the provider's own, and the reasons.

    `key` is the routing key to set, "" where the request has one or the cache takes none.
    """

    places: Mapping[str, str] = {}
    reasons: Mapping[str, str] = {}
    key: str = ""


def plan(
    stream: Stream, rules: Rules, *, model: str = "", stable: str = "", tail: str = "",
    cut: int | None = None, last: int | None = None, key: str = "",
) -> Plan:  # fmt: skip
    """The markers for a weighed stream.

    `stable` and `tail` are lifetimes: for what stays until the next cut, and for the end of a request. `cut`
    is the number of the last block that a cut lowered, `last` of the last block of the request before this
    one, where they are known. `key` is used where the cache routes by one and the request has none.
    """
    for word in (stable, tail):
        if word and word not in rules.lifetimes:
            known = ", ".join(rules.lifetimes) or "none"
            raise BadInput(f"lifetime {word!r}", place="plan", hint=f"the cache of {rules.name} has: {known}")
    if not stream.blocks or not rules.markers or rules.match not in ("breakpoints", "tail"):
        return Plan()
    chosen: dict[int, str] = {}
    eligible = _eligible(stream.blocks, rules.least(model or stream.model))
    most = rules.markers - _by_itself(stream, rules)
    for at, reason in _wanted(stream, rules, cut=cut, last=last):
        found = eligible[min(at, len(eligible) - 1)]
        if found >= 0 and len(chosen) < most:
            chosen.setdefault(found, reason)
    order = sorted(chosen)
    words = _falling([stable if chosen[at] in LASTING else tail for at in order], rules)
    places = [stream.blocks[at].place for at in order]
    return Plan(
        places=dict(zip(places, words, strict=True)),
        reasons=dict(zip(places, (chosen[at] for at in order), strict=True)),
        key=_key(stream, key) if rules.match == "tail" and rules.key and not stream.key else "",
    )


STABLE, TOOLS = "the end of tools and system text", "the end of the tools"
LOWERED = "the end of what was lowered"
TAIL, LAST = "the end of the request", "the end of the last request"
BEHIND = "within the look-back of the end"
SPOKEN = "the end of what the user said before"
LASTING = frozenset((STABLE, TOOLS, LOWERED))


def _wanted(stream: Stream, rules: Rules, *, cut: int | None, last: int | None) -> Iterator[tuple[int, str]]:
    """Blocks to mark, the most useful first."""
    end, head = len(stream.blocks) - 1, _head(stream.blocks)
    if not _by_itself(stream, rules):
        yield end, TAIL
    if head:
        yield head - 1, STABLE
    if rules.match == "breakpoints":
        yield from _before(stream, rules, last)
    if cut is not None and cut >= head:
        yield cut, LOWERED
    if rules.match == "breakpoints":
        yield from _spare(stream.blocks, rules, head, sliding=last is None)


def _before(stream: Stream, rules: Rules, last: int | None) -> Iterator[tuple[int, str]]:
    """The end of the last request, or what is left of it.

    Some models drop their earlier thinking when the user speaks: the last request is not found again, and
    the end of what the user said before it is.
    """
    blocks, spoken = stream.blocks, _spoken(stream.blocks)
    drops = rules.strips(stream.model) and len(spoken) > 1 and spoken[-1] == len(blocks) - 1
    if drops and any(block.sort == "thinking" for block in blocks[spoken[-2] :]):
        yield spoken[-2], SPOKEN
    elif last is not None and 0 <= last < len(blocks) - 1:
        yield last, LAST


def _spare(blocks: Sequence[Block], rules: Rules, head: int, *, sliding: bool) -> Iterator[tuple[int, str]]:
    """What places that are left over are good for: a longer look-back, a changed system text."""
    if sliding:
        yield from ((at, BEHIND) for at in _behind(blocks, rules) if at >= head)
    tools = sum(block.sort == "tool" for block in blocks[:head])
    if 0 < tools < head:
        yield tools - 1, TOOLS


def _behind(blocks: Sequence[Block], rules: Rules) -> Iterator[int]:
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


def _eligible(blocks: Sequence[Block], least: int) -> list[int]:
    """For each block the nearest one, it or one before it, that may end a cached prefix; -1 without one."""
    sums = accumulate(block.tokens for block in blocks)
    allowed = (
        at if block.markable and tokens >= least else -1
        for at, (block, tokens) in enumerate(zip(blocks, sums, strict=True))
    )  # fmt: skip
    return list(accumulate(allowed, max))


def _head(blocks: Sequence[Block]) -> int:
    """How many blocks are tools and system text that stand before everything said."""
    return sum(1 for _ in takewhile(lambda block: block.sort in HEAD, blocks))


def _by_itself(stream: Stream, rules: Rules) -> bool:
    """Whether the cache marks the end of a request by itself, with one of the places."""
    return rules.match == "tail" and "explicit" not in stream.automatic


def _spoken(blocks: Sequence[Block]) -> list[int]:
    """Where each message ends in which the user speaks, and no tool answers."""
    ends: list[int] = []
    end = len(blocks)
    for at in range(len(blocks) - 1, -1, -1):
        if blocks[at].opens:
            if blocks[at].role == "user" and all(block.sort != "result" for block in blocks[at:end]):
                ends.append(end - 1)
            end = at
    return ends[::-1]


def _falling(words: Sequence[str], rules: Rules) -> list[str]:
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
