"""The rules of the Messages API that a request can be held against without asking it.

Each rule is a function from a request to its breaches, and one row of `RULES`; its docstring begins with
the rule's number, by which documents and tests cite it. A request that cannot be read at all breaks
`readable` and is not looked at further. Sizes, prices and what a tool's schema allows are not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

from lamina.core.bound_thinking import thinks
from lamina.core.build import build
from lamina.core.hashing import stem
from lamina.core.text.characters import is_blank
from lamina.core.values import Digest, Head, Ledger, Segment
from lamina.dialects.anthropic.blocks import LISTS, Block, is_safe_name, plain
from lamina.dialects.anthropic.mark import (
    FIELD,
    LONG,
    MOST,
    THOUGHTS,
    Placed,
    marks_after,
    marks_before,
    marks_on,
)
from lamina.dialects.anthropic.messages import (
    begins_compacted,
    content_of,
    ends_in_server_result,
    is_directive,
    opening,
)
from lamina.dialects.anthropic.model import model_of, refuses_system_messages, rejects_prefill
from lamina.dialects.anthropic.parse import parse
from lamina.dialects.port import CheckMemo, Request, Violation
from lamina.dialects.rechecking import recheck
from lamina.errors import BadInput


class MessageReading:
    """A message, read once for all rules: its blocks, and apart from them its calls, results and thoughts.

    These come with their position in the message; `block_place` says where that is in the request.
    """

    __slots__ = ("at", "blocks", "calls", "marks", "message", "results", "role", "thoughts")

    def __init__(self, message: Any, at: int) -> None:
        given = message if isinstance(message, dict) else plain(message) or {}
        self.at, self.message, self.role = at, message, str(given.get("role"))
        self.blocks = [b if isinstance(b, dict) else plain(b) or {} for b in content_of(given)]
        self.calls: list[tuple[int, Block]] = []
        self.results: list[tuple[int, Block]] = []
        self.thoughts: list[tuple[int, Block]] = []
        self.marks: list[Placed] = []
        for i, block in enumerate(self.blocks):
            sort = block.get("type")
            if sort == "tool_use":
                self.calls.append((i, block))
            elif sort == "tool_result":
                self.results.append((i, block))
            elif sort in THOUGHTS:
                self.thoughts.append((i, block))
            if FIELD in block or (sort == "tool_result" and not isinstance(block.get("content"), str)):
                self.marks += marks_on(block, self.block_place(i))

    @property
    def place(self) -> str:
        return f"messages[{self.at}]"

    def block_place(self, at: int) -> str:
        return f"messages[{self.at}].content[{at}]"

    @property
    def directive(self) -> bool:
        """Whether it is a system message without words, which only sets something."""
        return self.role == "system" and not self.blocks and is_directive(self.message)


class EarlierMessages:
    """What the rules need to know of earlier messages: the ids of their calls, and their markers."""

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self.marks: list[Placed] = []

    def add(self, turn: MessageReading) -> None:
        self.ids |= _ids(turn.calls, "id")
        self.marks += turn.marks


class MessagesReading(NamedTuple):
    """A request, read once for all rules: the turns to look at, all markers, and what is known of the past.

    `resumes`: there are turns before those to look at.
    """

    request: Request
    turns: Sequence[MessageReading]
    marks: Sequence[Placed]
    past: EarlierMessages
    resumes: bool
    ledger: Ledger | None = None


Breaches = Iterator[tuple[str, str]]
"""Places, and what is wrong there."""


def check(request: Request, *, ledger: Ledger | None = None) -> list[Violation]:
    """What the API would refuse, in the order of the rules. With `ledger`, bound thinking is verified too."""
    try:
        parse(request)
    except BadInput as error:
        rule = "roles" if error.place.endswith(".role") else "readable"
        return [Violation(rule=rule, place=error.place, message=f"{error.problem}; {error.hint}")]
    return _checked(request, None, ledger)


def check_again(request: Request, memo: CheckMemo | None = None) -> list[Violation]:
    """The same for a request that was parsed or rendered here: that it can be read is not tried again."""
    return _checked(request, memo, None)


def _checked(request: Request, memo: CheckMemo | None, ledger: Ledger | None) -> list[Violation]:
    def apply_rules(past: EarlierMessages, count: int, turns: list[MessageReading]) -> list[Violation]:
        new = [mark for turn in turns for mark in turn.marks]
        marks = [*marks_before(request), *past.marks, *new, *marks_after(request)]
        reading = MessagesReading(request, turns, marks, past, count > 0, ledger)
        return [
            Violation(rule=name, place=place, message=message)
            for name, rule in RULES.items()
            for place, message in rule(reading)
        ]

    return recheck(
        request["messages"],
        memo,
        basis=model_of(request),
        past=EarlierMessages,
        view=MessageReading,
        seam=_answers_user,
        rules=apply_rules,
    )


def _answers_user(before: MessageReading, turn: MessageReading) -> bool:
    return turn.role == "assistant" and before.role == "user"


def has_limit(reading: MessagesReading) -> Breaches:
    """A request says how long the answer may be."""
    limit = reading.request.get("max_tokens")
    if not isinstance(limit, int) or limit < 0:
        yield "max_tokens", "max_tokens: field required, as a number"


def begins_with_user(reading: MessagesReading) -> Breaches:
    """A1: the first message is the user's, or a compaction."""
    if reading.resumes:
        return
    if not reading.turns:
        yield "messages", "at least one message is required"
    elif reading.turns[0].role == "assistant" and not begins_compacted(reading.turns[0].message):
        yield "messages[0].role", "the first message must use the user role"


def ends_with_user(reading: MessagesReading) -> Breaches:
    """A2: models from 4.6 on take no assistant prefill."""
    last = reading.turns[-1] if reading.turns else None
    if last is not None and last.role == "assistant" and rejects_prefill(model_of(reading.request)):
        yield last.place, "this model does not support assistant message prefill; end with a user message"


def calls_are_answered(reading: MessagesReading) -> Breaches:
    """A3: every tool_use has its tool_result in the next message."""
    for i, turn in enumerate(reading.turns):
        if not turn.calls:
            continue
        after = reading.turns[i + 1] if i + 1 < len(reading.turns) else None
        answered = _ids(after.results, "tool_use_id") if after is not None else _NONE
        for at, call in turn.calls:
            if call.get("id") not in answered:
                told = f"`tool_use` id {call.get('id')!r} without a `tool_result` immediately after"
                yield turn.block_place(at), told


def results_have_their_call(reading: MessagesReading) -> Breaches:
    """A4: every tool_result answers a tool_use of the message before it."""
    before: MessageReading | None = None
    for turn in reading.turns:
        if turn.results:
            asked = _ids(before.calls, "id") if before is not None else _NONE
            for at, result in turn.results:
                if result.get("tool_use_id") not in asked:
                    told = f"unexpected `tool_use_id` {result.get('tool_use_id')!r}: no such call just before"
                    yield turn.block_place(at), told
        before = turn


def results_come_once(reading: MessagesReading) -> Breaches:
    """A4: a call has one result."""
    for turn in reading.turns:
        if len(turn.results) > 1:
            yield from _repeated(turn, turn.results, "tool_use_id", set(), "a second result for")


def call_ids_are_unique(reading: MessagesReading) -> Breaches:
    """A5: no two tool_use blocks share an id."""
    seen: set[str] = set()
    for turn in reading.turns:
        if not turn.calls:
            continue
        yield from _repeated(
            turn, turn.calls, "id", seen, "`tool_use` ids must be unique:", before=reading.past.ids
        )


def _ids(blocks: Sequence[tuple[int, Block]], name: str) -> set[str]:
    return {id_ for _, block in blocks if isinstance(id_ := block.get(name), str)}


_NONE: frozenset[str] = frozenset()


def _repeated(
    turn: MessageReading,
    blocks: Sequence[tuple[int, Block]],
    name: str,
    seen: set[str],
    what: str,
    *,
    before: Collection[str] = _NONE,
) -> Breaches:
    for at, block in blocks:
        id_ = block.get(name)
        if isinstance(id_, str):
            if id_ in seen or id_ in before:
                yield turn.block_place(at), f"{what} {id_!r}"
            seen.add(id_)


def results_come_first(reading: MessagesReading) -> Breaches:
    """A6: in a user message, results stand before everything else."""
    for turn in reading.turns:
        for position, (at, _) in enumerate(turn.results):
            if at != position:  # something else stands before it
                yield turn.block_place(at), "`tool_result` blocks must come before other content"


def nothing_is_empty(reading: MessagesReading) -> Breaches:
    """A8: no blank text, and no message without content."""
    for turn in reading.turns:
        if not turn.blocks and not turn.directive:
            yield turn.place, "messages must have non-empty content"
        for at, block in enumerate(turn.blocks):
            for inside in _blank(block):
                yield f"{turn.block_place(at)}{inside}", "text content blocks must be non-empty"
    for at, block in enumerate(_system_blocks(reading.request)):
        for inside in _blank(block):
            yield f"system[{at}]{inside}", "system: text content blocks must be non-empty"


def _system_blocks(request: Request) -> list[Block]:
    system = request.get("system")
    return [plain(block) or {} for block in system] if isinstance(system, LISTS) else []


def _blank(block: Block) -> Iterator[str]:
    """Where a block has a blank text: itself, or inside, if it is a result."""
    sort = block.get("type")
    if sort == "text":
        if is_blank(str(block.get("text"))):
            yield ""
    elif sort == "tool_result" and isinstance(block.get("content"), LISTS):
        for at, piece in enumerate(block["content"]):
            inner = piece if isinstance(piece, dict) else plain(piece) or {}
            if inner.get("type") == "text" and is_blank(str(inner.get("text"))):
                yield f".content[{at}]"


def thinking_is_whole(reading: MessagesReading) -> Breaches:
    """A9, by shape: thinking has its signature, redacted thinking its data."""
    for turn in reading.turns:
        for at, block in turn.thoughts:
            sort = block["type"]
            needed = "signature" if sort == "thinking" else "data"
            if not isinstance(block.get(needed), str) or not block[needed]:
                yield turn.block_place(at), f"`{sort}` blocks cannot be modified: {needed} is missing"


def thinking_is_bound(reading: MessagesReading) -> Breaches:
    """A10: what stands before bound thinking is what stood there when it was first sent.

    The stream is hashed again and compared with the ledger. Rendering may have put a user message first.
    It may have moved system messages, and where the ledger has repairs, messages are not those that were
    hashed: nothing is said of such requests, nor of equal thoughts, which cannot be told apart.
    """
    ledger, turns = reading.ledger, reading.turns
    if ledger is None or not ledger.bound or ledger.repairs:
        return
    if any(turn.role == "system" for turn in turns):
        return
    parsed = parse(reading.request)
    first = turns[0].message if turns else None
    loose = _unbound(parsed.log, parsed.head, ledger)
    if loose and first == opening():
        rest = [segment for segment in parsed.log if segment.meta["wire"].get("message") is not first]
        loose &= _unbound(rest, parsed.head, ledger)
    places = [turn.block_place(at) for turn in turns for at, _ in turn.thoughts]
    for at in sorted(loose):
        yield places[at], "invalid `signature` in `thinking` block: bound to a different conversation"


def _unbound(log: Sequence[Segment], head: Head, ledger: Ledger) -> set[int]:
    """Which thoughts, counted from 0, stand after something else than the ledger has."""
    envelope = build(log, head=head)
    befores = [envelope.root, *(entry.prefix for entry in envelope.entries)]
    stands = [(e, before) for e, before in zip(envelope.entries, befores, strict=False) if thinks(e)]
    known: dict[str, list[Digest]] = {}
    for ref, before in ledger.bound.items():
        known.setdefault(stem(ref), []).append(before)
    unbound: set[int] = set()
    for number, (entry, now) in enumerate(stands):
        then = known.get(stem(entry.ref), [])
        if len(then) == 1 and then != [now]:
            unbound.add(number)
    return unbound


def system_messages_stand_right(reading: MessagesReading) -> Breaches:
    """A11: after the user, or a server tool's result; last, or before the assistant.

    One without words may stand before the user too, so it is passed over when its neighbours are looked at.
    """
    if all(turn.role != "system" for turn in reading.turns):
        return
    before: MessageReading | None = None
    open_ended: MessageReading | None = None
    for turn in reading.turns:
        if open_ended is not None and not turn.directive:
            if turn.role != "assistant":
                yield (
                    open_ended.place,
                    "a system message must be last, or stand before an assistant message",
                )
            open_ended = None
        if turn.role == "system" and not _may_follow(before, turn):
            yield turn.place, "a system message must follow a user message"
        if not turn.directive:
            before = turn
            open_ended = turn if turn.role == "system" else None


def system_messages_are_taken(reading: MessagesReading) -> Breaches:
    """A11: models before 4.8 have no system messages, only `system`."""
    if not refuses_system_messages(model_of(reading.request)):
        return
    for turn in reading.turns:
        if turn.role == "system":
            yield turn.place, 'this model takes no messages with the role "system"'


def _may_follow(before: MessageReading | None, turn: MessageReading) -> bool:
    if before is None:
        return False
    return before.role == "user" or _served(before) or (turn.directive and before.role == "system")


def _served(turn: MessageReading) -> bool:
    return turn.role == "assistant" and ends_in_server_result(turn.message)


def marks_are_few(reading: MessagesReading) -> Breaches:
    """A12: at most four cache markers, the one for the whole request included."""
    found = len(reading.marks)
    if found > MOST:
        yield reading.marks[MOST].place, f"at most {MOST} blocks may have cache_control; found {found}"


def long_marks_come_first(reading: MessagesReading) -> Breaches:
    """A12: markers with ttl 1h stand before those with 5m."""
    short = False
    for placed in reading.marks:
        if placed.lifetime == LONG and short:
            yield placed.place, "a ttl='1h' cache_control block must not come after a ttl='5m' one"
        short = short or placed.lifetime != LONG


def marks_are_allowed(reading: MessagesReading) -> Breaches:
    """A12: no marker on thinking."""
    for placed in reading.marks:
        if placed.refused:
            yield placed.place, "cache_control cannot be set for thinking blocks"


def names_are_allowed(reading: MessagesReading) -> Breaches:
    """A16: names of tools and ids of calls have letters, digits, `_` and `-`, at most 128."""
    for i, tool in enumerate(reading.request.get("tools") or ()):
        if "name" in tool and not _allowed(tool["name"]):
            yield f"tools[{i}].name", "tool names should match '^[a-zA-Z0-9_-]{1,128}$'"
    for turn in reading.turns:
        for at, call in turn.calls:
            for field in ("name", "id"):
                if not _allowed(call.get(field)):
                    told = f"tool_use.{field} should match '^[a-zA-Z0-9_-]{{1,128}}$'"
                    yield f"{turn.block_place(at)}.{field}", told


def _allowed(name: Any) -> bool:
    return isinstance(name, str) and is_safe_name(name)


Rule = Callable[[MessagesReading], Breaches]

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
        system_messages_are_taken,
        marks_are_few,
        long_marks_come_first,
        marks_are_allowed,
        names_are_allowed,
    )
}
