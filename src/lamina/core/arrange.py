"""The order of a request: attachments beside their question, and the system text first.

Arranging decides places, never sizes. In the default layout an attachment stays where it first appeared and
becomes HISTORY with its turn; `library="hoisted"` lifts earlier ones into LIBRARY.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from lamina.core.entries import continues_message, ends_turn, is_from_user, is_question, omit
from lamina.core.kinds import Kinds, is_section, kind_of
from lamina.core.layout import Layout
from lamina.core.values import Entry, Layer, Ref, Role


def order_turns(entries: list[Entry], layout: Layout, kinds: Kinds) -> list[Entry]:
    """Each turn's attachments before its question (or after it), in whatever order they were logged.

    Of attachments with one key that came with one question, the last is sent. What stands in its own turn
    only comes last of all: it leaves when its turn is over, and nothing that a cache holds may stand behind
    it. With `context="logged"`, nothing is moved.
    """
    if not any(kind_of(kinds, entry.segment).attachment for entry in entries):
        return entries
    result: list[Entry] = []
    for run in _find_opening_runs(entries, kinds):
        result += _order_run(run, layout, kinds)
    return result


def _order_run(run: list[Entry], layout: Layout, kinds: Kinds) -> list[Entry]:
    """One run in its order: lasting attachments and the question, then what leaves with the turn."""
    if layout.context == "logged":
        return _keep_newest(run, _name_by_key(run, kinds))
    lasting, leaving = _split_leaving(run, kinds)
    lasting = _keep_newest(lasting, _name_by_key(lasting, kinds))
    if layout.context == "before":
        lasting = _put_question_last(lasting, kinds)
    else:
        lasting = _put_question_first(lasting, kinds)
    return lasting + _keep_newest(leaving, _name_by_kind_and_key(leaving), replace_equal=True)


def _find_opening_runs(entries: Iterable[Entry], kinds: Kinds) -> Iterator[list[Entry]]:
    """Runs of what the user's side put in before the model spoke; everything else by itself."""
    run: list[Entry] = []
    for entry in entries:
        if is_from_user(entry, kinds) and (run or not continues_message(entry)):
            run.append(entry)
            continue
        if run:
            yield run
            run = []
        yield [entry]
    if run:
        yield run


def _keep_newest(run: list[Entry], names: list[str], *, replace_equal: bool = False) -> list[Entry]:
    """A run in which older content of a name is replaced by the newest. An entry named "" has no name.

    Content that did not change stays, and the newer entry refers to it later. With `replace_equal`, the older
    entry is replaced even then. What was replaced once does not come back when the newest says it again.
    """
    newest = dict(zip(names, run, strict=True))
    changed: set[str] = set()
    result: list[Entry] = []
    for entry, name in zip(reversed(run), reversed(names), strict=True):
        newer = newest[name]
        is_newest = newer.ref == entry.ref
        may_stay = newer.content == entry.content and not replace_equal
        if name and not is_newest and not may_stay:
            changed.add(name)
        if name in changed:
            result.append(omit(entry, f"replaced in the same turn by {newer.ref}"))
        else:
            result.append(entry)
    return result[::-1]


def _name_by_key(run: Sequence[Entry], kinds: Kinds) -> list[str]:
    """The key of each attachment, "" for everything else."""
    names: list[str] = []
    for entry in run:
        is_attachment = kind_of(kinds, entry.segment).attachment
        names.append(entry.segment.key if is_attachment else "")
    return names


def _name_by_kind_and_key(run: Sequence[Entry]) -> list[str]:
    """Of two entries of one kind without a key, such as two times, the newer replaces the older."""
    return [f"{entry.segment.kind} {entry.segment.key}" for entry in run]


def _split_leaving(run: list[Entry], kinds: Kinds) -> tuple[list[Entry], list[Entry]]:
    """A run without what leaves with its turn, and what leaves.

    If an entry that leaves opened a message, the entry that continued it opens it now. If the whole run was
    one message, it stays one.
    """
    lasting: list[Entry] = []
    leaving: list[Entry] = []
    must_open = False
    is_one_message = False
    for entry in run:
        if ends_turn(entry, kinds):
            leaving.append(entry)
            must_open = must_open or entry.opens
            continue
        if must_open and not entry.opens:
            lasting.append(msgspec.structs.replace(entry, opens=True))
            is_one_message = not entry.segment.joins
        else:
            lasting.append(entry)
        must_open = False
    if is_one_message:
        leaving = [msgspec.structs.replace(entry, opens=False) for entry in leaving]
    return lasting, leaving


def _put_question_last(run: list[Entry], kinds: Kinds) -> list[Entry]:
    """Moves the attachments that came after the question before it; sections stay behind it."""
    questions = [at for at, entry in enumerate(run) if is_question(entry, kinds)]
    if not questions:
        return run
    end = questions[-1] + 1
    start = questions[-1]
    while start > 0 and run[start].segment.joins:
        start -= 1
    attached: list[Entry] = []
    sections: list[Entry] = []
    for entry in run[end:]:
        if kind_of(kinds, entry.segment).attachment:
            attached.append(entry)
        else:
            sections.append(entry)
    return run[:start] + attached + run[start:end] + sections


def _put_question_first(run: list[Entry], kinds: Kinds) -> list[Entry]:
    """Moves all attachments behind everything else."""
    attached: list[Entry] = []
    rest: list[Entry] = []
    for entry in run:
        if kind_of(kinds, entry.segment).attachment:
            attached.append(entry)
        else:
            rest.append(entry)
    return rest + attached


def put_system_first(entries: list[Entry], promoted: tuple[Ref, ...], kinds: Kinds) -> list[Entry]:
    """The system text, most stable section first, then the rest in order.

    A section that came later stands where it came until a cut promotes it. From then on it stands in the
    system text, in the place of the older section with its key.
    """
    promoted_refs = frozenset(promoted)
    system: list[Entry] = []
    rest: list[Entry] = []
    is_leading = True
    for entry in entries:
        is_leading = is_leading and entry.role is Role.SYSTEM
        if is_leading or entry.ref in promoted_refs:
            system.append(entry)
        else:
            rest.append(entry)
    system = _keep_newest_sections(system, kinds)
    system.sort(key=lambda entry: kind_of(kinds, entry.segment).stability)
    system = [msgspec.structs.replace(entry, layer=Layer.SYSTEM) for entry in system]
    return system + rest


def _keep_newest_sections(system: list[Entry], kinds: Kinds) -> list[Entry]:
    """Of sections with one key, only the newest is sent."""
    newest: dict[str, Ref] = {}
    for entry in system:
        if entry.segment.key and is_section(kinds, entry.segment):
            newest[entry.segment.key] = entry.ref
    result: list[Entry] = []
    for entry in system:
        newest_ref = newest.get(entry.segment.key, entry.ref)
        if newest_ref == entry.ref:
            result.append(entry)
        else:
            result.append(omit(entry, f"replaced by {newest_ref}"))
    return result
