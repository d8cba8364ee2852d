"""What must hold of every turn: each oracle is a function from a turn to what it found wrong.

An oracle gives pairs: the rule that is broken, "" where it has only one, and a detail for the reader. They
look at what goes over the wire and at the ledger as JSON, and know nothing of how lamina works. Those in
`OF_SENT` are asked when a request came back, those in `OF_REFUSED` when an error did.
"""

from __future__ import annotations

import json
import re
from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile
from typing import Any

from lamina.errors import BudgetExceeded, LaminaError, LawBroken
from tests.fuzzing.counting import count, floor, tolerance
from tests.fuzzing.history import Piece
from tests.fuzzing.reading import AUTHORITY, Block
from tests.fuzzing.turns import Turn, Violation, hash_before
from tests.fuzzing.validity import breaches
from tests.fuzzing.validity.anthropic import OPEN_LOOP
from tests.fuzzing.validity.breach import is_blank
from tests.fuzzing.words import canaries

Found = Iterator[tuple[str, str]]
Oracle = Callable[[Turn], Found]

_HANDLE = re.compile(r'recall(?:\(|=)\\?"([^"\\\s]{1,120})\\?"')
_KEY = re.compile(r"fold-[0-9a-f]{8,}|(?:k[a-z2-7]{16}|.+@[0-9a-f]{20})(?:~[0-9a-f]*)?(?:#[0-9]+)?")
_OWN_TAG = re.compile(r"<(digest_notes|digest|late_result|reference|reminder_notes)[ >]")
_ITEM_ID = re.compile(r'"id":"[^"]*",?')
_LATE = re.compile(r"<late_result |\[end of the late result\]")
_PLAIN_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
_STRICT = re.compile(r"claude-(?:fable-5-[1-9]|opus-5-[5-9]|sonnet-5-[5-9])")
_BEGINS = 16
"""Characters by which a shortened text is known to be the beginning of one that came."""

_UNDER = 0.45
"""Of the room: a request below this is far from any trigger, and so is each result in it."""

_SLACK = 60
"""Tokens that lamina may need beyond the hand-made floor, and a twentieth of the room: digests differ."""

_SLACK_OF_A_MEND = 100
"""Tokens more for each rule that a client's request breaks: answers for calls, quotations of late results."""


def judge(turn: Turn) -> list[Violation]:
    """Everything that is wrong with a turn."""
    oracles = OF_SENT if turn.outcome.error is None else OF_REFUSED
    return [
        Violation(oracle=name, rule=rule, turn=turn.number, detail=detail[:300])
        for name, oracle in oracles.items()
        for rule, detail in oracle(turn)
    ]


def valid(turn: Turn) -> Found:
    """The API takes what was sent."""
    told: set[str] = set()
    if _STRICT.match(turn.settings.model) and _was_unbound(turn):
        told.add(OPEN_LOOP)  # to keep it would be refused as well
    broken_before = {breach.rule for breach in turn.came_breaches}
    for breach in breaches(turn.sent_request, turn.dialect, turn.came_request):
        if breach.rule in told:
            continue
        told.add(breach.rule)
        detail = str(breach)
        if breach.rule in broken_before:
            detail += " (so in what the client sent)"
        yield breach.rule, detail


def prompt(turn: Turn) -> Found:
    """The newest words of the user are there in full, and in their place."""
    wanted, before = _prompt(turn.came_blocks)
    if not wanted:
        return
    end = len(turn.sent_blocks)
    for block in reversed(wanted):
        end = _position(turn.sent_blocks, block, end)
        if end < 0:
            yield "gone", f"not sent: {block.data[:80]!r}"
            return
    at = _position(turn.sent_blocks, wanted[-1], len(turn.sent_blocks))
    later = {block.data for block in turn.came_blocks[len(before) + len(wanted) :]}
    earlier = {block.data for block in before} - later
    for block in turn.sent_blocks[at + 1 :]:
        movable = block.role == "system"  # where the API wants them after the user's message
        if not movable and block.data in earlier and canaries(block.data):
            yield "moved", f"what stood before it stands after it: {block.data[:80]!r}"
            return


def last_step(turn: Turn) -> Found:
    """Calls of the last step are as they were, and each of its results is there in some form."""
    if not turn.in_a_tool_loop:
        return
    messages = turn.messages
    at = max(i for i, message in enumerate(messages) if message.voice == "assistant")
    ids = Tally(piece.id for message in messages for piece in message.of("call"))
    answered = {piece.id for message in messages[at + 1 :] for piece in message.of("result")}
    calls = [block for block in turn.sent_blocks if block.sort == "call"]
    for piece in messages[at].of("call"):
        if ids[piece.id] > 1 or not _PLAIN_NAME.fullmatch(piece.name):
            continue
        sent = _sent_call(piece, calls, by_id=turn.settings.call_ids)
        if sent is None:
            yield "call", f"{piece.name}({piece.text[:60]}) is not sent as it was"
        elif piece.id in answered and not _answered(sent, turn.sent_blocks):
            yield "result", f"the result of {piece.name}({piece.text[:60]}) is gone"
    after = turn.sent_blocks[_last_call(turn.sent_blocks) :]
    own = [block for block in after if block.sort == "text" and block.data not in turn.came_data]
    added = [block for block in own if not _LATE.match(block.text)]  # of a request that came without it
    if added and not turn.came_breaches:
        yield "after", f"lamina's own text stands after the last step: {added[0].data[:100]!r}"


def system(turn: Turn) -> Found:
    """All system text is there, as it was and in its order; of equal messages the newest is enough."""
    wanted = _in_order(turn.came_blocks)
    sent = _in_order(turn.sent_blocks)
    for data in wanted:
        if data not in sent and not _said_otherwise(turn, data):
            yield "gone", f"not sent: {data[:100]!r}"
            return
    wanted = [data for data in wanted if data in sent]
    if [data for data in sent if data in wanted] != wanted:
        yield "order", f"{len(wanted)} texts stand in another order"


def order(turn: Turn) -> Found:
    """What is sent as it was stands in the order in which it came, and once.

    System text has an order of its own, also where a model takes it in the user's voice only.
    """
    times = Tally(block.data for block in turn.came_blocks)
    said = [block for block in turn.came_blocks if block.role != "system" and times[block.data] == 1]
    places = {block.data: i for i, block in enumerate(said)}
    latest = -1
    for block in turn.sent_blocks:
        if block.sort not in ("text", "call") or block.role not in ("user", "assistant"):
            continue
        place = places.get(block.data, latest + 1)
        if place == latest:
            yield "twice", f"sent twice: {block.data[:100]!r}"
            return
        if place < latest:
            yield "moved", f"stands after what came later: {block.data[:100]!r}"
            return
        if block.data in places:
            latest = place


def fence(turn: Turn) -> Found:
    """In a text of lamina's own, what it quotes neither closes its tag nor opens one like it."""
    for block in turn.sent_blocks:
        tag = _OWN_TAG.match(block.text)
        if tag is None or block.data in turn.came_data or _imitates(turn, block):
            continue
        opened, closed = block.text.count(f"<{tag[1]}"), block.text.count(f"</{tag[1]}>")
        if (opened, closed) != (1, 1):
            yield tag[1], f"opened {opened} times, closed {closed} times: {block.text[:100]!r}"
            return


def _imitates(turn: Turn, block: Block) -> bool:
    """Whether a text begins with a tag that its own author wrote: shortened, it has no end any more."""
    begins = block.text[:_BEGINS]
    return any(came.role == block.role and came.text.startswith(begins) for came in turn.came_blocks)


def pairs(turn: Turn) -> Found:
    """Each call has one result, and nothing stands between them that did not stand there before.

    What stood there may be lowered: a picture, a long text.
    """
    if not turn.settings.call_ids:
        return  # without ids only the order pairs them, which is the API's own rule
    between_before = dict(_between(turn.came_blocks))
    results = Tally(block.id for block in turn.sent_blocks if block.sort == "result")
    calls = Tally(block.id for block in turn.sent_blocks if block.sort == "call")
    if calls != results:
        odd = sorted((calls - results) + (results - calls))
        yield "unequal", f"{calls.total()} calls, {results.total()} results; alone: {odd[:3]}"
        return
    allowed = {data for between in between_before.values() for data in between}
    answered = {block.id for block in turn.came_blocks if block.sort == "result"}
    allowed |= {
        block.data for id_ in between_before.keys() - answered for block in _same_turn(turn.came_blocks, id_)
    }
    allowed |= {_ITEM_ID.sub("", data) for data in allowed}  # an item may lose its id
    for id_, between in _between(turn.sent_blocks):
        new = [data for data in between if data not in allowed]
        room_for_lowered = len(between_before.get(id_, ())) - (len(between) - len(new))
        lowered = [data for data in new if _HANDLE.search(data)]
        if len(lowered) < len(new) or len(new) > max(room_for_lowered, 0):
            yield "between", f"between call {id_!r} and its result: {new[0][:80]!r}"
            return


def room(turn: Turn) -> Found:
    """No more tokens than the room has, by the counter in use."""
    tokens = count(turn.sent_request, turn.dialect, turn.counter, turn.calibration)
    allowed = turn.room + tolerance(turn.sent_request, turn.dialect)
    if tokens > allowed:
        yield "", f"{tokens:,} tokens in a room of {turn.room:,}, by {turn.counter.name}"


def prefix(turn: Turn) -> Found:
    """Without a new cut, the last request is the beginning of this one."""
    if turn.before is None or turn.new_cuts:
        return
    past, now = turn.before.sent_stream, turn.sent_stream
    if now[: len(past)] == past:
        return
    at = next((i for i, (one, other) in enumerate(zip(past, now, strict=False)) if one != other), len(now))
    was = past[at][:100]
    is_now = now[at][:100] if at < len(now) else "nothing"
    rule = "appended" if turn.only_appended else "changed"
    yield rule, f"the client {rule}; block {at} was {was!r}, is {is_now!r}"


def forms(turn: Turn) -> Found:
    """While the client only adds, what was sent lowered does not come back in full."""
    if turn.before is None or not turn.only_appended:
        return
    times = Tally(block.data for block in turn.came_blocks)
    for block in turn.before.came_blocks:
        lowered = block.data not in turn.before.sent_data
        if lowered and block.data in turn.sent_data and times[block.data] == 1:
            yield block.sort, f"was lowered, is in full again: {block.data[:80]!r}"
            return


def untouched(turn: Turn) -> Found:
    """A valid request that is far below the trigger, with nothing decided before, passes as it is."""
    fresh = turn.ledger_before == "null" and turn.settings.breakpoints == "keep"
    if not fresh or turn.came_breaches:
        return
    tokens = count(turn.came_request, turn.dialect, turn.counter, None, side="high")
    if tokens < turn.room * _UNDER and turn.came_request != turn.sent_request:
        yield "", f"{tokens:,} tokens in a room of {turn.room:,}, and what was sent differs"


def recall(turn: Turn) -> Found:
    """What is not sent as it is can be had by a name that the request or the ledger shows."""
    yield from _dead_handles(turn)
    if not (turn.new_cuts or turn.last):
        return
    missing = _missing(turn)
    if not missing:
        return
    names = iter(_names(turn))
    recalled: list[str] = []
    for block, text in missing:
        while not any(text in whole for whole in recalled):
            name = next(names, None)
            if name is None:
                yield f"{block.role} {block.sort}", f"cannot be had again: {text[:80]!r}"
                return
            recalled.append(turn.recalled(name) or "")


def deleted(turn: Turn) -> Found:
    """What the client no longer has is neither sent nor kept."""
    for where, text in (("request", turn.outcome.sent), ("ledger", turn.outcome.ledger)):
        gone = canaries(text) - turn.came_canaries
        if gone:
            word = min(gone)
            at = text.index(word)
            yield where, f"{len(gone)} words that the client deleted: …{text[max(at - 60, 0) : at + 20]}…"


def voice(turn: Turn) -> Found:
    """No text gains authority: not a tool's in the user's voice, not the user's in the system's.

    What a tool said may be quoted in the model's voice, in a tag of lamina's.
    """
    highest: dict[str, Block] = {}
    for block in turn.came_blocks:
        for word in canaries(block.text):
            if word not in highest or AUTHORITY[block.role] > AUTHORITY[highest[word].role]:
                highest[word] = block
    told: set[str] = set()
    for block in turn.sent_blocks:
        quotes = block.role == "assistant" and _OWN_TAG.match(block.text) is not None
        for word in sorted(canaries(block.text)):
            origin = highest.get(word)
            rule = f"{origin.role} as {block.role}" if origin else ""
            if rule == "tool as assistant" and quotes:
                continue
            if origin and AUTHORITY[block.role] > AUTHORITY[origin.role] and rule not in told:
                told.add(rule)
                at = block.text.index(word)
                yield rule, f"{block.text[:40]!r} … {block.text[max(at - 60, 0) : at + 30]!r}"


def bound(turn: Turn) -> Found:
    """A10: thinking of models that bind it stands after what it was bound to.

    The message whose results the model waits for must come back whole. If the server is asked to drop what no
    longer fits, thinking in that message may have another past, and so may what was sent before.
    """
    if not _STRICT.match(turn.settings.model) or turn.came_breaches:
        return  # what is mended stands before the thinking, and the client does not know of it
    bindings = {
        piece.signature or piece.data: message.bound_to
        for message in turn.messages
        for piece in message.of("thinking", "redacted")
    }
    first_dropped = _find_first_dropped(turn)
    sent_before = turn.before.sent_data if turn.before and _asks_to_drop(turn) else ()
    for i, block in enumerate(turn.sent_blocks):
        if i >= first_dropped:
            return
        if block.data in sent_before:
            continue
        to = bindings.get(block.id, "") if block.sort == "thinking" else ""
        model, _, before = to.partition(" ")
        if before and model == turn.settings.model and before != hash_before(turn.sent_blocks[:i]):
            loop = " in the open tool loop" if turn.in_a_tool_loop else ""
            how = "appended" if turn.only_appended else "changed"
            yield how, f"thinking at block {i} of {len(turn.sent_blocks)} is bound to another past{loop}"
            return


def _find_first_dropped(turn: Turn) -> int:
    """The first block of the message whose results are sent, from which the server may drop thinking.

    Words may stand beside the results: the message has to come back whole all the same.
    """
    blocks = turn.sent_blocks
    last = max((i for i, block in enumerate(blocks) if block.role == "assistant"), default=len(blocks))
    waits = any(block.sort == "result" for block in blocks[last + 1 :])
    if not waits or not _asks_to_drop(turn):
        return len(blocks)
    while last > 0 and blocks[last - 1].role == "assistant":
        last -= 1
    return last


def _asks_to_drop(turn: Turn) -> bool:
    """Whether the server is asked to drop thinking whose past has changed."""
    match turn.sent_request.get("thinking"):
        case {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}:
            return True
    return False


def cuts(turn: Turn) -> Found:
    """Cuts are only added, at most one a turn, each with a reason.

    None says that the client edited its history where it only appended.
    """
    before, now = turn.cuts_before, turn.cuts
    if now[: len(before)] != before:
        yield "rewritten", f"{len(before)} cuts before, {len(now)} now"
    if len(turn.new_cuts) > 1:
        yield "several", "; ".join(str(cut.get("reason")) for cut in turn.new_cuts)
    for cut in turn.new_cuts:
        reason = cut.get("reason", "")
        if not reason:
            yield "no reason", str(cut)[:200]
        if "edited" in reason and turn.only_appended:
            yield "blames the client", f"{reason!r}, and the client only appended"


def memo(turn: Turn) -> Found:
    """A memo changes nothing."""
    other = turn.without_memo
    if other is None or other.words == turn.outcome.words:
        return
    if other.error is not None or turn.outcome.error is not None:
        yield "error", f"with a memo {turn.outcome.error!r:.120}, without {other.error!r:.120}"
    elif other.sent != turn.outcome.sent:
        yield "request", _difference(other.sent, turn.outcome.sent)
    else:
        yield "ledger", _difference(other.ledger, turn.outcome.ledger)


def repeat(turn: Turn) -> Found:
    """The same arguments give the same bytes."""
    other, first = turn.repeated, turn.without_memo
    if other is not None and first is not None and other.words != first.words:
        yield "", _difference(first.words, other.words)


def retry(turn: Turn) -> Found:
    """The same request, sent again with the ledger that came back, stays the same."""
    if turn.same_arguments and turn.before is not None and turn.sent_stream != turn.before.sent_stream:
        reasons = [cut.get("reason") for cut in turn.new_cuts]
        yield "", f"another request than a moment ago; cuts: {reasons}"


def mutation(turn: Turn) -> Found:
    """Nothing that the client passed in was changed."""
    if turn.came_after != turn.came:
        yield "request", _difference(turn.came, turn.came_after)
    if turn.ledger_before_after != turn.ledger_before:
        yield "ledger", _difference(turn.ledger_before, turn.ledger_before_after)


def raises(turn: Turn) -> Found:
    """Only errors that lamina means to raise."""
    error = turn.outcome.error
    if not isinstance(error, LaminaError):
        yield type(error).__name__, f"{error!r:.250}"
    elif isinstance(error, LawBroken):
        yield "LawBroken", f"{error!s:.250}"


def refuses(turn: Turn) -> Found:
    """A valid request is not refused, except for its size."""
    error = turn.outcome.error
    typed = isinstance(error, LaminaError) and not isinstance(error, LawBroken | BudgetExceeded)
    if typed and not turn.came_breaches:
        yield type(error).__name__, f"a valid request: {error!s:.250}"


def budget(turn: Turn) -> Found:
    """BudgetExceeded only where even the smallest request does not fit."""
    error = turn.outcome.error
    if not isinstance(error, BudgetExceeded):
        return
    if _STRICT.match(turn.settings.model) and turn.ends_with_results:
        return  # thinking that is bound forbids every change before it
    if turn.came_breaches and turn.ends_blank:
        return  # no request can be made of it that the API takes
    needed = floor(turn.messages, turn.settings, turn.counter)
    needed = needed * max(turn.reported_share, 1_000) // 1_000
    slack = _SLACK + turn.room // 20 + _SLACK_OF_A_MEND * len(turn.came_breaches)
    if needed + slack < turn.room:
        yield "", f"{needed:,} tokens would do in a room of {turn.room:,}: {error!s:.200}"


OF_SENT: Mapping[str, Oracle] = {
    oracle.__name__: oracle
    for oracle in (
        valid,
        prompt,
        last_step,
        system,
        order,
        fence,
        pairs,
        room,
        prefix,
        forms,
        untouched,
        recall,
        deleted,
        voice,
        bound,
        cuts,
        memo,
        repeat,
        retry,
        mutation,
    )
}

OF_REFUSED: Mapping[str, Oracle] = {
    oracle.__name__: oracle for oracle in (raises, refuses, budget, memo, repeat, mutation)
}


def _prompt(blocks: list[Block]) -> tuple[list[Block], list[Block]]:
    """The blocks of the user's newest message, and those before it; nothing if the message is blank."""
    spoke = [block for block in blocks if block.role == "user"]
    said = [block for block in spoke if _says(block)]
    if not said or said[-1].message != spoke[-1].message:
        return [], []
    message = said[-1].message
    first = next(i for i, block in enumerate(blocks) if block.message == message)
    return [block for block in said if block.message == message], blocks[:first]


def _says(block: Block) -> bool:
    return block.sort != "text" or not is_blank(block.text)


def _in_order(blocks: list[Block]) -> list[str]:
    """System texts, each once, where the last of equal ones stands."""
    texts = [b.data for b in blocks if b.role == "system" and b.sort == "text" and _says(b)]
    return list(reversed(dict.fromkeys(reversed(texts))))


def _said_otherwise(turn: Turn, data: str) -> bool:
    """Whether a system message is there in another voice, for a model that takes none, now or before."""
    if turn.dialect != "anthropic":
        return False
    text = data.removeprefix("text:")
    return any(text in block.text for block in turn.sent_blocks)


def _was_unbound(turn: Turn) -> bool:
    """Whether the client changed what its newest thinking is bound to, now or before."""
    if turn.before is None or not turn.only_appended:
        return True
    thoughts = [block.data for block in turn.before.came_blocks if block.sort == "thinking"]
    return bool(thoughts) and thoughts[-1] not in turn.before.sent_data


def _position(blocks: list[Block], wanted: Block, end: int) -> int:
    """The last place of a block before `end`; -1 if there is none."""
    for i in range(end - 1, -1, -1):
        if blocks[i].data == wanted.data and blocks[i].role == wanted.role:
            return i
    return -1


def _sent_call(piece: Piece, calls: list[Block], *, by_id: bool) -> Block | None:
    arguments = json.loads(piece.text)
    for call in reversed(calls):
        same = call.name == piece.name and json.loads(call.text) == arguments
        if same and (not by_id or call.id == piece.id):
            return call
    return None


def _last_call(blocks: list[Block]) -> int:
    return max((i for i, block in enumerate(blocks) if block.sort == "call"), default=0)


def _answered(call: Block, blocks: list[Block]) -> bool:
    after = blocks[blocks.index(call) + 1 :]
    return any(block.sort == "result" and (block.id == call.id or not call.id) for block in after)


def _between(blocks: list[Block]) -> Iterator[tuple[str, list[str]]]:
    """For each call, what stands between its message and its result; calls, results and reasoning may."""
    for i, call in enumerate(blocks):
        if call.sort != "call":
            continue
        between: list[str] = []
        for block in blocks[i + 1 :]:
            if block.sort == "result" and block.id == call.id:
                break
            if block.sort not in ("call", "result", "thinking") and block.message != call.message:
                between.append(block.data)
        yield call.id, between


def _same_turn(blocks: list[Block], id_: str) -> Iterator[Block]:
    """What the model said right after a call that nobody answered: its result may stand behind that, too."""
    at = next(i for i, block in enumerate(blocks) if block.sort == "call" and block.id == id_)
    return takewhile(lambda block: block.role == "assistant", blocks[at + 1 :])


def _missing(turn: Turn) -> list[tuple[Block, str]]:
    """Texts of the client's that are not in the request as they are."""
    sent = [text for block in turn.sent_blocks for text in block.texts]
    there = set(sent)
    missing = []
    for block in turn.came_blocks:
        if block.sort not in ("definition", "other"):
            gone = [text for text in _said(block) if not is_blank(text) and text not in there]
            missing += [(block, text) for text in gone if not any(text in whole for whole in sent)]
    return missing


def _said(block: Block) -> list[str]:
    """What must be had again: all text; of a call its words, since its JSON may be written in another way."""
    return sorted(canaries(block.text)) if block.sort == "call" else list(block.texts)


def _names(turn: Turn) -> list[str]:
    """Every name by which something may be recalled, folds first: they hold most."""
    shown = [name for block in turn.sent_blocks for text in block.texts for name in _HANDLE.findall(text)]
    names = dict.fromkeys([*_keys(turn.ledger), *shown])
    return sorted(names, key=lambda name: not name.startswith("fold-"))


def _keys(value: Any) -> Iterator[str]:
    """Every string in a ledger that looks like a key."""
    if isinstance(value, str):
        if _KEY.fullmatch(value):
            yield value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _keys(name)
            yield from _keys(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _keys(inner)


def _dead_handles(turn: Turn) -> Found:
    """Handles that lamina shows lead somewhere; those that the client's own text imitates need not."""
    for block in turn.sent_blocks:
        for name in _HANDLE.findall(block.text):
            if name not in turn.came and turn.recalled(name) is None:
                yield "dead handle", f"nothing answers to {name!r}"
                return


def _difference(one: str, other: str) -> str:
    """Where two texts begin to differ."""
    at = next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    start = max(at - 40, 0)
    return f"…{one[start : at + 60]}… against …{other[start : at + 60]}…"
