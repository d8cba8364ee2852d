"""The rules of the Messages API that a request can be held against without asking it.

Each rule is a function from a request to its breaches, and one row of `RULES`; its docstring begins with
the rule's number, by which documents and tests cite it. A request that cannot be read at all breaks
`readable` and is not looked at further. Sizes, prices and what a tool's schema allows are not known here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lamina.core.bind import thinks
from lamina.core.build import build
from lamina.core.values import Head, Ledger, Segment
from lamina.dialects.anthropic.blocks import LISTS, Block, plain
from lamina.dialects.anthropic.messages import (
    begins_compacted,
    content_of,
    dot,
    ends_in_server_result,
    role_of,
)
from lamina.dialects.anthropic.model import model_of, rejects_prefill
from lamina.dialects.anthropic.parse import parse
from lamina.dialects.port import Parsed, Request, Violation
from lamina.errors import BadInput
from lamina.text.characters import is_blank

MARKS = 4
"""Cache markers that a request may have."""

THOUGHTS = ("thinking", "redacted_thinking")

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")


class Turn(NamedTuple):
    """A message, read: its place in the request, its role, and its blocks with their places."""

    place: str
    role: str
    blocks: list[tuple[str, Block]]
    message: Any

    def of(self, *sorts: str) -> list[tuple[str, Block]]:
        """The blocks of some types."""
        return [found for found in self.blocks if found[1].get("type") in sorts]

    def ids(self, sort: str, name: str) -> frozenset[str]:
        ids = (block.get(name) for _, block in self.of(sort))
        return frozenset(id_ for id_ in ids if isinstance(id_, str))


class Reading(NamedTuple):
    """A request, read once for all rules."""

    request: Request
    parsed: Parsed
    turns: list[Turn]
    ledger: Ledger | None


Breaches = Iterator[tuple[str, str]]
"""Places, and what is wrong there."""


def check(request: Request, *, ledger: Ledger | None = None) -> list[Violation]:
    """What the API would refuse, in the order of the rules. With `ledger`, bound thinking is verified too."""
    try:
        parsed = parse(request)
    except BadInput as error:
        rule = "roles" if error.place.endswith(".role") else "readable"
        return [Violation(rule=rule, place=error.place, message=f"{error.problem}; {error.hint}")]
    messages = request["messages"]
    turns = [_turn(i, message) for i, message in enumerate(messages)]
    reading = Reading(request, parsed, turns, ledger)
    return [
        Violation(rule=name, place=place, message=message)
        for name, rule in RULES.items()
        for place, message in rule(reading)
    ]


def _turn(index: int, message: Any) -> Turn:
    place = f"messages[{index}]"
    blocks = [(f"{place}.content[{i}]", plain(block) or {}) for i, block in enumerate(content_of(message))]
    return Turn(place, role_of(message), blocks, message)


def has_limit(reading: Reading) -> Breaches:
    """A request says how long the answer may be."""
    limit = reading.request.get("max_tokens")
    if not isinstance(limit, int) or limit < 0:
        yield "max_tokens", "max_tokens: field required, as a number"


def begins_with_user(reading: Reading) -> Breaches:
    """A1: the first message is the user's, or a compaction."""
    if not reading.turns:
        yield "messages", "at least one message is required"
    elif reading.turns[0].role == "assistant" and not begins_compacted(reading.turns[0].message):
        yield "messages[0].role", "the first message must use the user role"


def ends_with_user(reading: Reading) -> Breaches:
    """A2: models from 4.6 on take no assistant prefill."""
    last = reading.turns[-1:]
    if last and last[0].role == "assistant" and rejects_prefill(model_of(reading.request)):
        yield last[0].place, "this model does not support assistant message prefill; end with a user message"


def calls_are_answered(reading: Reading) -> Breaches:
    """A3: every tool_use has its tool_result in the next message."""
    for turn, after in zip(reading.turns, [*reading.turns[1:], None], strict=False):
        answered = after.ids("tool_result", "tool_use_id") if after else frozenset()
        for place, call in turn.of("tool_use"):
            if call.get("id") not in answered:
                yield place, f"`tool_use` id {call.get('id')!r} without a `tool_result` immediately after"


def results_have_their_call(reading: Reading) -> Breaches:
    """A4: every tool_result answers a tool_use of the message before it."""
    for turn, before in zip(reading.turns, [None, *reading.turns], strict=False):
        known = before.ids("tool_use", "id") if before else frozenset()
        for place, result in turn.of("tool_result"):
            if result["tool_use_id"] not in known:
                yield place, f"unexpected `tool_use_id` {result['tool_use_id']!r}: no such call just before"


def results_come_once(reading: Reading) -> Breaches:
    """A4: a call has one result."""
    for turn in reading.turns:
        yield from _repeated(turn.of("tool_result"), "tool_use_id", set(), "a second result for")


def call_ids_are_unique(reading: Reading) -> Breaches:
    """A5: no two tool_use blocks share an id."""
    seen: set[str] = set()
    for turn in reading.turns:
        yield from _repeated(turn.of("tool_use"), "id", seen, "`tool_use` ids must be unique:")


def _repeated(blocks: list[tuple[str, Block]], name: str, seen: set[str], what: str) -> Breaches:
    for place, block in blocks:
        id_ = block.get(name)
        if isinstance(id_, str):
            if id_ in seen:
                yield place, f"{what} {id_!r}"
            seen.add(id_)


def results_come_first(reading: Reading) -> Breaches:
    """A6: in a user message, results stand before everything else."""
    for turn in reading.turns:
        began = False
        for place, block in turn.blocks:
            if block.get("type") != "tool_result":
                began = True
            elif began:
                yield place, "`tool_result` blocks must come before other content"


def nothing_is_empty(reading: Reading) -> Breaches:
    """A8: no blank text, and no message without content."""
    for turn in reading.turns:
        if not turn.blocks:
            yield turn.place, "messages must have non-empty content"
        for place, block in turn.blocks:
            yield from ((where, "text content blocks must be non-empty") for where in _blank(block, place))
    for place, block in _system_blocks(reading):
        yield from (
            (where, "system: text content blocks must be non-empty") for where in _blank(block, place)
        )


def _system_blocks(reading: Reading) -> list[tuple[str, Block]]:
    system = reading.request.get("system")
    blocks = system if isinstance(system, LISTS) else ()
    return [(f"system[{i}]", plain(block) or {}) for i, block in enumerate(blocks)]


def _blank(block: Block, place: str) -> list[str]:
    """The places of blank texts: the block itself, or what a result holds."""
    here = [(place, block), *_inner(block, place)]
    return [p for p, b in here if b.get("type") == "text" and is_blank(str(b.get("text")))]


def thinking_is_whole(reading: Reading) -> Breaches:
    """A9, by shape: thinking has its signature, redacted thinking its data."""
    for turn in reading.turns:
        for sort, needed in (("thinking", "signature"), ("redacted_thinking", "data")):
            for place, block in turn.of(sort):
                if not isinstance(block.get(needed), str) or not block[needed]:
                    yield place, f"`{sort}` blocks cannot be modified: {needed} is missing"


def thinking_is_bound(reading: Reading) -> Breaches:
    """A10: what stands before bound thinking is what stood there when it was first sent.

    The stream is hashed again and compared with the ledger. Rendering may have put a user message first.
    It may have moved system messages, and where the ledger has repairs, messages are not those that were
    hashed: nothing is said of such requests, nor of equal thoughts, which cannot be told apart.
    """
    ledger, turns = reading.ledger, reading.turns
    moved = any(turn.role == "system" for turn in turns)
    if ledger is None or not ledger.bound or ledger.repairs or moved:
        return
    log, first = reading.parsed.log, turns[0].message if turns else None
    loose = _unbound(log, reading.parsed.head, ledger)
    if loose and first == dot():
        rest = [segment for segment in log if segment.meta["wire"].get("message") is not first]
        loose &= _unbound(rest, reading.parsed.head, ledger)
    places = [place for turn in turns for place, _ in turn.of(*THOUGHTS)]
    for at in sorted(loose):
        yield places[at], "invalid `signature` in `thinking` block: bound to a different conversation"


def _unbound(log: Sequence[Segment], head: Head, ledger: Ledger) -> set[int]:
    """Which thoughts, counted from 0, stand after something else than the ledger has."""
    envelope = build(log, head=head)
    befores = [envelope.root, *(entry.prefix for entry in envelope.entries)]
    stands = [(e, before) for e, before in zip(envelope.entries, befores, strict=False) if thinks(e)]
    bound = [(ledger.bound.get(e.ref), before) for e, before in stands]
    twice = [e.ref.partition("#")[0] + "#1" in ledger.bound for e, _ in stands]
    return {i for i, (then, now) in enumerate(bound) if then is not None and then != now and not twice[i]}


def system_messages_stand_right(reading: Reading) -> Breaches:
    """A11: after the user, or a server tool's result; last, or before the assistant."""
    for i, turn in enumerate(reading.turns):
        if turn.role != "system":
            continue
        before = reading.turns[i - 1] if i else None
        after = reading.turns[i + 1] if i + 1 < len(reading.turns) else None
        if before is None or not (before.role == "user" or _served(before)):
            yield turn.place, "a system message must follow a user message"
        if after is not None and after.role != "assistant":
            yield turn.place, "a system message must be last, or stand before an assistant message"


def _served(turn: Turn) -> bool:
    return turn.role == "assistant" and ends_in_server_result(turn.message)


def marks_are_few(reading: Reading) -> Breaches:
    """A12: at most four cache markers."""
    marks = [place for place, _ in _marks(reading)]
    if reading.request.get("cache_control"):
        marks.append("cache_control")
    if len(marks) > MARKS:
        yield marks[MARKS], f"at most {MARKS} blocks may have cache_control; found {len(marks)}"


def long_marks_come_first(reading: Reading) -> Breaches:
    """A12: markers with ttl 1h stand before those with 5m."""
    short = False
    for place, block in _marks(reading):
        mark = block["cache_control"]
        hour = isinstance(mark, Mapping) and mark.get("ttl") == "1h"
        if hour and short:
            yield place, "a ttl='1h' cache_control block must not come after a ttl='5m' one"
        short = short or not hour


def marks_are_allowed(reading: Reading) -> Breaches:
    """A12: no marker on thinking or on empty text."""
    for place, block in _marks(reading):
        if block.get("type") in THOUGHTS:
            yield place, "cache_control cannot be set for thinking blocks"


def _marks(reading: Reading) -> Iterator[tuple[str, Block]]:
    """Blocks with a marker, in the order of the stream."""
    tools = [(f"tools[{i}]", tool) for i, tool in enumerate(reading.parsed.head.tools)]
    yield from (found for found in [*tools, *_system_blocks(reading)] if _marked(found[1]))
    for turn in reading.turns:
        for place, block in turn.blocks:
            yield from (found for found in [*_inner(block, place), (place, block)] if _marked(found[1]))


def _inner(block: Block, place: str) -> list[tuple[str, Block]]:
    """The blocks inside a result."""
    inner = block.get("content") if block.get("type") == "tool_result" else ()
    pieces = inner if isinstance(inner, LISTS) else ()
    return [(f"{place}.content[{i}]", plain(piece) or {}) for i, piece in enumerate(pieces)]


def _marked(block: Block) -> bool:
    return block.get("cache_control") is not None


def names_are_allowed(reading: Reading) -> Breaches:
    """A16: names of tools and ids of calls have letters, digits, `_` and `-`, at most 128."""
    for i, tool in enumerate(reading.parsed.head.tools):
        if "name" in tool and not _allowed(tool["name"]):
            yield f"tools[{i}].name", "tool names should match '^[a-zA-Z0-9_-]{1,128}$'"
    for turn in reading.turns:
        for place, call in turn.of("tool_use"):
            for field in ("name", "id"):
                if not _allowed(call.get(field)):
                    yield f"{place}.{field}", f"tool_use.{field} should match '^[a-zA-Z0-9_-]{{1,128}}$'"


def _allowed(name: Any) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


Rule = Callable[[Reading], Breaches]

RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        has_limit,
        begins_with_user,
        ends_with_user,
        calls_are_answered,
        results_have_their_call,
        results_come_once,
        call_ids_are_unique,
        results_come_first,
        nothing_is_empty,
        thinking_is_whole,
        thinking_is_bound,
        system_messages_stand_right,
        marks_are_few,
        long_marks_come_first,
        marks_are_allowed,
        names_are_allowed,
    )
}
