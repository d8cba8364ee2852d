"""Where every entry stands: layers, turns and steps, the order inside a turn, and what is left out by choice.

Arrange decides places, never sizes. In the default layout an attachment stays where it first
appeared and becomes HISTORY with its turn; `library="hoisted"` lifts earlier ones into LIBRARY.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from lamina.core.hashing import short_handle
from lamina.core.kinds import Kinds, Retention, is_section, is_turn_scoped, recoverable, row
from lamina.core.repair import omitted
from lamina.core.values import Entry, Form, Layer, Ref, Role, Segment, Thinking, ToolCall, ToolResult

OWN_TURN_ONLY = "stands in its own turn only"
"""Why something is not sent any more whose turn is over."""


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Chooses segments by kind, layer or key; empty chooses nothing."""

    kinds: frozenset[str] = frozenset()
    layers: frozenset[Layer] = frozenset()
    keys: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.kinds or self.layers or self.keys)

    def matches(self, entry: Entry) -> str:
        """Which of its lists names the entry, or nothing."""
        if entry.segment.kind in self.kinds:
            return f"kind {entry.segment.kind}"
        if entry.layer in self.layers:
            return f"layer {entry.layer}"
        return f"key {entry.segment.key}" if entry.segment.key in self.keys else ""


class Cap(msgspec.Struct, frozen=True, kw_only=True):
    """At most `tokens` of attachments, by priority; beyond it they are sent in `form`."""

    tokens: int
    form: Form = Form.STUB


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """How a request is laid out. `context` says where a turn's attachments stand to its question.

    With `include`, only what it names is sent, besides the system text; `exclude` wins over it. In the
    hoisted library an attachment has at most `prior_limit` characters, or what `prior_limits` says of its
    kind.
    """

    library: Literal["in_place", "hoisted"] = "in_place"
    context: Literal["before", "after", "logged"] = "before"
    include: Filter = Filter()
    exclude: Filter = Filter()
    attachments: Cap | None = None
    prior_limit: int = 5_000
    prior_limits: dict[str, int] = {}

    def prior_limit_of(self, kind: str) -> int:
        """Characters of an attachment of this kind in the library; longer ones are shortened."""
        return self.prior_limits.get(kind, self.prior_limit)


class TurnPosition(msgspec.Struct, frozen=True, kw_only=True):
    """How far the counting of turns and steps has come."""

    turn: int = -1
    step: int = -1
    opening: bool = False
    talking: bool = False


START = TurnPosition()


def ordered(entries: list[Entry], layout: Layout, kinds: Kinds) -> list[Entry]:
    """Each turn's attachments before its question (or after it), whatever order they were logged in.

    Of attachments with one key that came with one question, the last stands. What stands in its own turn
    only comes last of all: it leaves when its turn is over, and nothing that a cache holds may stand behind
    it. In the order in which they were logged, nothing is moved.
    """
    if not any(row(kinds, e.segment).attachment for e in entries):
        return entries
    result: list[Entry] = []
    for run in _opening_runs(entries, kinds):
        if layout.context == "logged":
            result += _newest_of_each_name(run, _keys(run, kinds))
            continue
        lasting, leaving = _parted(run, kinds)
        lasting = _newest_of_each_name(lasting, _keys(lasting, kinds))
        if layout.context == "before":
            result += _question_last(lasting, kinds)
        else:
            result += _question_first(lasting, kinds)
        result += _newest_of_each_name(leaving, _keys_and_kinds(leaving), equal=True)
    return result


def _newest_of_each_name(run: list[Entry], names: list[str], *, equal: bool = False) -> list[Entry]:
    """A run in which older content of a name makes way for the newest; "" is no name.

    Content that did not change since stays, unless that too makes way (`equal`): the newer is referred to it
    later. What was replaced once does not come back when the newest says the same again.
    """
    newest = dict(zip(names, run, strict=True))
    changed: set[str] = set()
    result: list[Entry] = []
    for entry, name in zip(reversed(run), reversed(names), strict=True):
        later = newest[name]
        same = later.ref == entry.ref if equal else later.content == entry.content
        if name and not same:
            changed.add(name)
        replaced = name in changed
        result.append(omitted(entry, f"replaced in the same turn by {later.ref}") if replaced else entry)
    return result[::-1]


def _keys(run: Sequence[Entry], kinds: Kinds) -> list[str]:
    """The key of each attachment, "" for all else."""
    return [entry.segment.key if row(kinds, entry.segment).attachment else "" for entry in run]


def _keys_and_kinds(run: Sequence[Entry]) -> list[str]:
    """Of two times that have no key, the newer replaces the older."""
    return [f"{entry.segment.kind} {entry.segment.key}" for entry in run]


def _parted(run: list[Entry], kinds: Kinds) -> tuple[list[Entry], list[Entry]]:
    """A run without what ends its turn, and that.

    What continued the message that such an entry opened, opens it instead. Where all of the run was one
    message, it still is.
    """
    lasting: list[Entry] = []
    leaving: list[Entry] = []
    opening_owed = False
    one_message = False
    for entry in run:
        if ends_turn(entry, kinds):
            leaving.append(entry)
            opening_owed = opening_owed or entry.opens
        elif opening_owed and not entry.opens:
            lasting.append(msgspec.structs.replace(entry, opens=True))
            opening_owed = False
            one_message = not entry.segment.joins
        else:
            lasting.append(entry)
            opening_owed = False
    if one_message:
        leaving = [msgspec.structs.replace(entry, opens=False) for entry in leaving]
    return lasting, leaving


def ends_turn(entry: Entry, kinds: Kinds) -> bool:
    """Whether an entry stands at the end of its own turn, and leaves with it."""
    theirs = entry.role is Role.USER and row(kinds, entry.segment).attachment
    return theirs and is_turn_scoped(kinds, entry.segment)


def leaving_tail(entries: Sequence[Entry], kinds: Kinds, layout: Layout) -> int:
    """How many of the entries that are sent, counted from the end, leave when this turn is over."""
    if layout.context == "logged":
        return 0
    tail = 0
    for entry in reversed(entries):
        if entry.form is Form.OMITTED:
            continue
        if not ends_turn(entry, kinds):
            break
        tail += 1
    return tail


def leaving(entries: Sequence[Entry], kinds: Kinds, layout: Layout, *, bound: bool) -> frozenset[int]:
    """Positions of what stood in its own turn only, where its turn is over and leaving it out costs nothing.

    It was the last thing sent if the model then answered at once, without a call: no cache holds anything
    behind it. After a call the next request went on behind it, so it stays until a cut leaves it out. It
    also stays if the answer has thinking that is `bound` to all that was sent before it, and if it came
    without a question. Only the log decides, not the forms of its entries: so it is decided the same way
    ever after. The last turn is not over.
    """
    if layout.context == "logged" or not entries:
        return frozenset()
    last_turn = entries[-1].turn
    turns: dict[int, list[int]] = {}
    for at, entry in enumerate(entries):
        if entry.turn != last_turn and not _stands_elsewhere(entry, kinds):
            turns.setdefault(entry.turn, []).append(at)
    return frozenset(at for turn in turns.values() for at in _leaving_turn(entries, turn, kinds, bound=bound))


def _stands_elsewhere(entry: Entry, kinds: Kinds) -> bool:
    """Whether an entry stands where it is put: a digest, a summary, a section that a cut may promote."""
    return entry.segment.origin == "lamina" or bool(entry.segment.covers) or is_section(kinds, entry.segment)


def _leaving_turn(
    entries: Sequence[Entry], turn: Sequence[int], kinds: Kinds, *, bound: bool
) -> Sequence[int]:
    """The positions of one turn at which something leaves.

    Read from its end, such a turn is: what opened no turn, the answer, what leaves, the question.
    """
    found: list[int] = []
    answer: int | None = None
    for at in reversed(turn):
        entry = entries[at]
        speaks = entry.segment.role is Role.ASSISTANT
        if speaks and not found and answer in (None, entry.step) and _answers(entry.segment, bound=bound):
            answer = entry.step
        elif answer is None and (_said(entry, kinds) or entry.segment.role is Role.SYSTEM):
            continue  # a reminder, or an attachment that newer content of the next turn replaces
        elif answer is not None and ends_turn(entry, kinds):
            found.append(at)
        else:
            asked = _said(entry, kinds) and _asks(entry, kinds)
            return found if asked else ()
    return ()


def _answers(segment: Segment, *, bound: bool) -> bool:
    """Whether the model ends its turn with this: it calls nothing, and is not bound to what came before."""
    binds = any(isinstance(part, Thinking) for part in segment.parts) and bound
    return not binds and not any(isinstance(part, ToolCall) for part in segment.parts)


def _opening_runs(entries: Iterable[Entry], kinds: Kinds) -> Iterable[list[Entry]]:
    """Runs of what the user's side put in before the model spoke; everything else by itself."""
    run: list[Entry] = []
    for entry in entries:
        if _said(entry, kinds) and (run or not _continues(entry)):
            run.append(entry)
            continue
        if run:
            yield run
            run = []
        yield [entry]
    if run:
        yield run


def _question_last(run: list[Entry], kinds: Kinds) -> list[Entry]:
    last = max((i for i, e in enumerate(run) if _asks(e, kinds)), default=-1)
    start = last
    while start > 0 and run[start].segment.joins:
        start -= 1
    if last < 0:
        return run
    attached = [e for e in run[last + 1 :] if row(kinds, e.segment).attachment]
    sections = [e for e in run[last + 1 :] if not row(kinds, e.segment).attachment]
    return run[:start] + attached + run[start : last + 1] + sections


def _asks(entry: Entry, kinds: Kinds) -> bool:
    kind = row(kinds, entry.segment)
    return not (kind.attachment or is_section(kinds, entry.segment))


def _question_first(run: list[Entry], kinds: Kinds) -> list[Entry]:
    asked = [e for e in run if not row(kinds, e.segment).attachment]
    return asked + [e for e in run if row(kinds, e.segment).attachment]


def _said(entry: Entry, kinds: Kinds) -> bool:
    """Put in by the user's side: a message, an attachment, or a changed section of the system text."""
    if is_section(kinds, entry.segment):
        return True
    theirs = entry.role is Role.USER and entry.segment.role is Role.USER
    return theirs and entry.segment.origin != "lamina"


def _continues(entry: Entry) -> bool:
    return entry.segment.joins and not entry.opens


def placed(
    entries: Iterable[Entry], kinds: Kinds, *, place: TurnPosition = START
) -> tuple[list[Entry], TurnPosition]:
    """Entries with turn, step and their layer inside that turn, and where the counting stands after them."""
    turn, step, opening, talking = place.turn, place.step, place.opening, place.talking
    result: list[Entry] = []
    for entry in entries:
        stands = entry.form is Form.OMITTED or entry.segment.covers  # for others, or not at all
        if stands or (is_section(kinds, entry.segment) and not opening):
            pass  # nor is a changed section a question: these open no turn
        elif _said(entry, kinds) and (opening or not _continues(entry)):
            if not opening:
                turn, step = turn + 1, step + 1
            opening, talking = True, False
        elif entry.segment.role is Role.ASSISTANT:
            if entry.opens or not talking:
                step += 1
            opening, talking = False, True
        elif entry.role is not Role.SYSTEM:
            opening, talking = False, False
        layer = _layer(entry, kinds, opening=opening)
        result.append(msgspec.structs.replace(entry, turn=max(turn, 0), step=max(step, 0), layer=layer))
    return result, TurnPosition(turn=turn, step=step, opening=opening, talking=talking)


def _layer(entry: Entry, kinds: Kinds, *, opening: bool) -> Layer:
    if entry.layer in (Layer.SYSTEM, Layer.LIBRARY):
        return entry.layer
    if not opening or entry.role is Role.SYSTEM:
        return Layer.TURN if is_section(kinds, entry.segment) else Layer.STEPS
    return Layer.TURN if row(kinds, entry.segment).attachment else Layer.PROMPT


def aged(entries: Iterable[Entry], turn: int) -> list[Entry]:
    """What belongs to a turn before `turn` is HISTORY; what has its layer already stays the same object."""
    return [msgspec.structs.replace(e, layer=Layer.HISTORY) if _over(e, turn) else e for e in entries]


def _over(entry: Entry, turn: int) -> bool:
    return entry.turn < turn and entry.layer in (Layer.TURN, Layer.PROMPT, Layer.STEPS)


def system_first(entries: list[Entry], promoted: tuple[Ref, ...], kinds: Kinds) -> list[Entry]:
    """The system text, most stable section first, then the rest in order.

    A section that came later stands where it came until a cut promotes it; from then on it stands in
    the system text, in place of the older section with its key.
    """
    leading = next((i for i, e in enumerate(entries) if e.role is not Role.SYSTEM), len(entries))
    lifted = frozenset(promoted)
    system = [e for i, e in enumerate(entries) if i < leading or e.ref in lifted]
    rest = [e for i, e in enumerate(entries) if i >= leading and e.ref not in lifted]
    newest = {e.segment.key: e.ref for e in system if is_section(kinds, e.segment) and e.segment.key}
    system = [_current(e, newest) for e in system]
    system.sort(key=lambda e: row(kinds, e.segment).stability)
    return [msgspec.structs.replace(e, layer=Layer.SYSTEM) for e in system] + rest


def _current(entry: Entry, newest: dict[str, Ref]) -> Entry:
    stands = newest.get(entry.segment.key, entry.ref)
    return entry if stands == entry.ref else omitted(entry, f"replaced by {stands}")


def filtered(entries: list[Entry], layout: Layout) -> list[Entry]:
    """What the caller chose to leave out, each with the choice as its reason; pairs stay whole."""
    if not layout.include and not layout.exclude:
        return entries
    return with_partners(entries, [_filter_reason(e, layout) for e in entries])


def _filter_reason(entry: Entry, layout: Layout) -> str:
    if entry.form is Form.OMITTED:
        return ""
    if layout.exclude and (named := layout.exclude.matches(entry)):
        return f"filtered: {named} excluded"
    wanted = not layout.include or layout.include.matches(entry) or entry.layer is Layer.SYSTEM
    return "" if wanted else "filtered: not included"


def with_partners(entries: list[Entry], reasons: list[str]) -> list[Entry]:
    """Omits what has a reason, and with each call or result its partner."""
    if any(reasons):
        for call, result in pairs(entries):
            if reasons[call] or reasons[result]:
                reasons[call] = reasons[call] or f"{reasons[result]} (its result)"
                reasons[result] = reasons[result] or f"{reasons[call]} (its call)"
    return [omitted(e, why) if why else e for e, why in zip(entries, reasons, strict=True)]


def pairs(entries: Sequence[Entry]) -> list[tuple[int, int]]:
    """Positions of each sent call and its result."""
    found: list[tuple[int, int]] = []
    waiting: dict[str, list[int]] = {}
    for i, entry in enumerate(entries):
        if not entry.parts:
            continue
        first = entry.parts[0]
        if isinstance(first, ToolCall):
            waiting.setdefault(first.id, []).append(i)
        elif isinstance(first, ToolResult) and waiting.get(first.id):
            found.append((waiting[first.id].pop(), i))
    return found


def covered(entries: list[Entry], kinds: Kinds, *, name: Callable[[Entry], str]) -> list[Entry]:
    """Summaries in the place of what they cover; what may not be summarised stays as it is."""
    for cover in [
        e for e in entries if e.segment.covers and e.form is Form.FULL and e.segment.origin != "lamina"
    ]:
        entries = _cover(entries, cover, kinds, name)
    return entries


def _cover(entries: list[Entry], cover: Entry, kinds: Kinds, name: Callable[[Entry], str]) -> list[Entry]:
    at = entries.index(cover)
    keys = frozenset(cover.segment.covers)
    meant = [i < at and _is_named(e, keys, name) and _may_cover(e, kinds) for i, e in enumerate(entries)]
    for call, result in pairs(entries):
        meant[call] = meant[result] = meant[call] and meant[result]
    if not any(meant):
        return entries
    first = meant.index(True)
    why = f"covered by {name(cover)}"
    rest = [omitted(e, why) if meant[i] else e for i, e in enumerate(entries) if i != at]
    here = msgspec.structs.replace(cover, turn=entries[first].turn, step=entries[first].step)
    return [*rest[:first], here, *rest[first:]]


def _is_named(entry: Entry, keys: frozenset[str], name: Callable[[Entry], str]) -> bool:
    """Whether a cover means this entry; older releases wrote short handles."""
    return not keys.isdisjoint((name(entry), entry.segment.key, entry.ref, short_handle(entry.content)))


def _may_cover(entry: Entry, kinds: Kinds) -> bool:
    return (
        entry.form is not Form.OMITTED
        and entry.role is not Role.SYSTEM
        and not entry.segment.pinned
        and recoverable(kinds, entry.segment)
        and row(kinds, entry.segment).retention is not Retention.CRITICAL
    )
