"""The laws, as code: each takes a case and yields what breaks it.

`seal` checks on every build what the build could have changed; `audit` checks everything, on one
request or on two in a row. What needs a second build is compared in `lamina.testing`.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterator

import msgspec

from lamina.core.envelope import Envelope, prefix_at
from lamina.core.fit import untouchable
from lamina.core.fold import keeps
from lamina.core.hashing import handle
from lamina.core.kinds import KINDS, Kinds, row
from lamina.core.ladder import goes_last
from lamina.core.recall import names, refs
from lamina.core.tokens import ESTIMATE, Counter, part_cost
from lamina.core.values import Entry, Form, Layer, Role, Segment, ToolCall, ToolResult
from lamina.core.wording import tag_balance
from lamina.errors import LawBroken


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A request, the log that it was built from, and the request before it, if any."""

    log: tuple[Segment, ...]
    envelope: Envelope
    before: Envelope | None = None
    counter: Counter = ESTIMATE
    kinds: Kinds = KINDS


def audit(case: Case) -> None:
    """Raises LawBroken with the first law that does not hold."""
    for name, law in LAWS.items():
        for detail in law(case):
            raise LawBroken(name, detail)


def deterministic(case: Case) -> Iterator[str]:
    """The hashes say what was sent: the chain, computed again, is the same."""
    if prefix_at(case.envelope.entries, len(case.envelope.sent), case.envelope.root) != case.envelope.prefix:
        yield "the prefix hash is not that of the last entry sent"


def within_the_room(case: Case) -> Iterator[str]:
    if case.envelope.room is not None and case.envelope.tokens > case.envelope.room:
        yield f"{case.envelope.tokens} tokens in a room of {case.envelope.room}"


def append_only_within_an_epoch(case: Case) -> Iterator[str]:
    """Without a new cut, the last stream is a prefix of this one."""
    before, after = case.before, case.envelope
    if before is None or len(after.ledger.cuts) > len(before.ledger.cuts):
        return
    count = len(before.sent)
    if [(e.sent, e.opens) for e in before.sent] != [(e.sent, e.opens) for e in after.sent[:count]]:
        yield "bytes already sent have changed and no cut is recorded"


def forms_never_rise(case: Case) -> Iterator[str]:
    if case.before is None:
        return
    then = {e.ref: e for e in case.before.entries}
    cut = len(case.envelope.ledger.cuts) > len(case.before.ledger.cuts)
    for entry in case.envelope.entries:
        was = then.get(entry.ref)
        if was is None or entry.segment.origin == "lamina":
            continue
        if entry.form > was.form:
            yield f"{entry.ref} rose from {was.form} to {entry.form}"
        if entry.form is was.form and entry.sent != was.sent and not cut:
            yield f"{entry.ref} was reworded"


def calls_and_results_pair(case: Case) -> Iterator[str]:
    """Each call has its one result before anything else is said; no result stands alone."""
    waiting: list[str] = []
    talking = False
    for entry in case.envelope.sent:
        first = entry.parts[0]
        if isinstance(first, ToolResult):
            talking = False
            if first.id in waiting:
                waiting.remove(first.id)
            else:
                yield f"result {entry.ref} has no call before it"
        elif waiting and not (talking and not entry.opens and entry.role is Role.ASSISTANT):
            yield f"{entry.ref} stands between a call and its result"
        elif isinstance(first, ToolCall):
            waiting.append(first.id)
            talking = True
        else:
            talking = entry.role is Role.ASSISTANT
    if waiting:
        yield f"calls without a result: {waiting}"


def conservation(case: Case) -> Iterator[str]:
    """Every segment is exactly one entry with a reason, and the parts sum to the total."""
    mine = Tally(e.ref for e in case.envelope.entries if e.segment.origin != "lamina")
    logged = Tally(ref for ref, _ in refs(case.log))
    if mine != logged:
        yield f"segments and entries differ: {sorted((mine - logged) + (logged - mine))[:5]}"
    for entry in case.envelope.entries:
        if not entry.why:
            yield f"{entry.ref} has no reason"
        if (entry.form is Form.OMITTED) is bool(entry.parts) or (entry.form is Form.OMITTED and entry.tokens):
            yield f"{entry.ref} is {entry.form} with {len(entry.parts)} parts and {entry.tokens} tokens"
    if sum(e.tokens for e in case.envelope.entries) != case.envelope.account.entries:
        yield "tokens of the entries do not sum to the account"


def nothing_is_lost(case: Case) -> Iterator[str]:
    """What was lowered comes back in full by its handle."""
    known = names(refs(case.log))
    for entry in case.envelope.entries:
        if entry.form is Form.FULL or entry.segment.origin == "lamina":
            continue
        found = known.get(handle(entry.content))
        if found is None or found.parts != entry.segment.parts:
            yield f"{entry.ref} does not come back"


def what_cannot_be_recovered_goes_last(case: Case) -> Iterator[str]:
    """Never summarised; lowered only when everything else that may be lowered is."""
    folds = {ref: fold for fold in case.envelope.ledger.folds for ref in fold.covers}
    mine = [e for e in case.envelope.entries if _unrecoverable(e, case) and e.form is not Form.FULL]
    lost = [e for e in mine if e.ref not in folds or not keeps(folds[e.ref].text, [e.segment])]
    for entry in lost:
        if entry.form is Form.COMPACT or entry.why.startswith("covered by"):
            yield f"{entry.ref} is summarised"
    if case.envelope.cut is None or not any(_lowered_now(e, case) for e in lost):
        return
    fixed = untouchable(case.envelope.entries)
    for i, entry in enumerate(case.envelope.entries):
        large = entry.form is Form.FULL and entry.tokens > SMALL and entry.segment.origin != "lamina"
        if large and i not in fixed and not _unrecoverable(entry, case):
            yield f"{lost[0].ref} was lowered while {entry.ref} stands in full"


SMALL = 100
"""Tokens below which lowering may not pay, so an entry may stand in full at the floor."""


def _unrecoverable(entry: Entry, case: Case) -> bool:
    mine = entry.segment.origin != "lamina" and entry.layer is not Layer.SYSTEM
    return mine and goes_last(entry, case.kinds) and entry.why not in BY_CHOICE


BY_CHOICE = frozenset(("empty", "stands in its own turn only"))


def _lowered_now(entry: Entry, case: Case) -> bool:
    ledger, cut = case.envelope.ledger, case.envelope.cut
    line = ledger.lines.get(entry.ref)
    folded = (
        any(entry.ref in fold.covers and fold.cut == cut.number for fold in ledger.folds) if cut else False
    )
    return folded or (line is not None and cut is not None and line.cut == cut.number)


def once_in_full(case: Case) -> Iterator[str]:
    """Equal content of attachments stands in full once."""
    shown: dict[str, Entry] = {}
    for entry in case.envelope.sent:
        if entry.form is not Form.FULL or not row(case.kinds, entry.segment).attachment:
            continue
        if entry.content in shown and len(str(entry.parts)) > 300 and not entry.segment.meta.get("override"):
            yield f"{entry.ref} stands in full twice"
        shown[entry.content] = entry


def lowering_shrinks(case: Case) -> Iterator[str]:
    for entry in case.envelope.entries:
        if (
            entry.form in (Form.FULL, Form.OMITTED)
            or entry.segment.origin == "lamina"
            or entry.layer is Layer.LIBRARY
        ):
            continue
        full = sum(part_cost(p, case.counter) for p in entry.segment.parts)
        now = sum(part_cost(p, case.counter) for p in entry.parts)
        if now > full and not row(case.kinds, entry.segment).attachment:
            yield f"{entry.ref} has {now} tokens lowered and {full} in full"
    cut = case.envelope.cut
    if cut is not None and cut.lowered and cut.after >= cut.before:
        yield f"cut {cut.number} went from {cut.before} to {cut.after} tokens"


def untouched_means_untouched(case: Case) -> Iterator[str]:
    """A message that was not lowered or mended has the parts that it came with."""
    mended = case.envelope.ledger.repairs
    for entry in case.envelope.entries:
        kind = row(case.kinds, entry.segment)
        if (
            entry.form is Form.FULL
            and not (kind.attachment or kind.section)
            and entry.role is entry.segment.role
        ):
            renamed = f"{entry.ref}:id" in mended or isinstance(entry.parts[0], ToolResult)
            if entry.parts != entry.segment.parts and not renamed:
                yield f"{entry.ref} was changed"


def no_authority_is_gained(case: Case) -> Iterator[str]:
    """No content becomes system text, and none closes its tag or opens another."""
    for entry in case.envelope.sent:
        if entry.role is Role.SYSTEM and entry.segment.role is not Role.SYSTEM:
            yield f"{entry.ref} became system text"
        kind = row(case.kinds, entry.segment)
        if (kind.attachment or kind.section) and not tag_balance(entry.parts, case.kinds):
            yield f"{entry.ref} breaks out of its tag"


LAWS: dict[str, Callable[[Case], Iterator[str]]] = {
    law.__name__: law
    for law in (
        deterministic,
        within_the_room,
        append_only_within_an_epoch,
        forms_never_rise,
        calls_and_results_pair,
        conservation,
        nothing_is_lost,
        what_cannot_be_recovered_goes_last,
        once_in_full,
        lowering_shrinks,
        untouched_means_untouched,
        no_authority_is_gained,
    )
}
