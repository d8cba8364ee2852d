"""The system text: which sections of it stand first, and when one that came later takes its place there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import islice

import msgspec

from lamina.core.draft import Draft, Saved
from lamina.core.entries import is_empty, omit, omit_by_ref
from lamina.core.hashing import parts_digest
from lamina.core.kinds import Kinds, is_section, kind_of
from lamina.core.options import BuildContext
from lamina.core.recall import identify_segments
from lamina.core.scale import weigh_entries
from lamina.core.text.tags import make_inert
from lamina.core.values import Entry, Form, Layer, Ledger, Ref, Role, Segment, Text
from lamina.core.wording import text_of

FORGETS = "forgets"
"""Whether a section lacks what somebody asked to forget, in its `meta`: the older one leaves at once."""


def promote_sections(log: Sequence[Segment], sections: Sequence[Segment], context: BuildContext) -> Ledger:
    """The ledger, in which every section that is due is promoted: its place is in the system text.

    As long as nothing was sent, that is every section. Later, to promote one moves bytes that were sent. So
    a section waits for the next cut then, unless an instruction must hold at once. `sections` are those of
    the log after its beginning.
    """
    ledger = context.ledger
    # Naming a whole log is slow. Where nothing can be due, it is not done.
    if not _are_due(sections, context):
        return ledger
    later: dict[Ref, Segment] = {}
    for each in islice(identify_segments(log), _count_leading(log), None):
        if is_section(context.kinds, each.segment) and each.ref not in ledger.promoted:
            later[each.ref] = each.segment
    if not _are_due(list(later.values()), context):
        return ledger
    return msgspec.structs.replace(ledger, promoted=(*ledger.promoted, *later))


def list_sections(log: Sequence[Segment], start: int, end: int, kinds: Kinds) -> tuple[Segment, ...]:
    """The sections from `start` to `end`, without those of the system text with which the log begins."""
    first = max(start, _count_leading(log))
    return tuple(segment for segment in log[first:end] if is_section(kinds, segment))


def _count_leading(log: Sequence[Segment]) -> int:
    """How many segments at the beginning of a log are system text."""
    for position, segment in enumerate(log):
        if segment.role is not Role.SYSTEM:
            return position
    return len(log)


def _are_due(sections: Sequence[Segment], context: BuildContext) -> bool:
    """Whether these later sections must be promoted now, and cannot wait for the next cut.

    As long as nothing was sent, nothing waits. The hoisted layout moves bytes at each turn anyway, and has
    every section in its place at once. Where the API takes system text in the middle, one changed instruction
    may stand there. If it changes once more, three versions of it would stand in one request. What somebody
    asked to forget waits for no cut.
    """
    if not sections:
        return False
    if context.ledger.mark is None or context.options.layout.library == "hoisted":
        return True
    if any(segment.meta.get(FORGETS) for segment in sections):
        return True
    instructions = [segment for segment in sections if kind_of(context.kinds, segment).instructs]
    if not context.options.late_system:
        return bool(instructions)
    versions = Counter((segment.kind, segment.key) for segment in instructions)
    return any(count > 1 for count in versions.values())


def promote_later_sections(draft: Draft, context: BuildContext) -> Draft:
    """The draft with every section that came later in the system text.

    What was sent has changed already, so moving them costs nothing more.
    """
    later = find_later_sections(draft.entries, context.kinds)
    if not later:
        return draft
    promoted = draft.ledger.promoted + later
    entries = unmark_promoted(draft.entries, later, context)
    entries = put_system_first(entries, promoted, context.kinds)
    entries = weigh_entries(entries, context.scale, prefix=context.root)
    return msgspec.structs.replace(
        draft,
        entries=entries,
        tokens=sum(entry.tokens for entry in entries),
        ledger=msgspec.structs.replace(draft.ledger, promoted=promoted),
        standing_tokens=None,
        unchanged=0,
        next_front=None,
    )


REPLACES = 'From here on this holds, in place of the text above that begins with "{beginning}":'
"""The first line of a section that came later, while the older one stands above it."""

TAKEN_BACK = 'From here on the text above that begins with "{beginning}" no longer holds.'
"""The text of a section that was emptied, while the older one stands above it."""

_BEGINNING = 60
"""Characters of the older text that these lines quote."""


def mark_replacing(entries: list[Entry], front: Saved, context: BuildContext) -> list[Entry]:
    """The entries, in which a section that came later says which older text it replaces or takes back.

    Both are sent until a cut puts the newer one into the place of the older.
    """
    kinds = context.kinds
    late = frozenset(find_later_sections(entries, kinds))
    if not late:
        return [_omit_if_empty(entry) for entry in entries]
    newest: dict[str, Entry] = {}
    result: list[Entry] = []
    for at, entry in enumerate((*front.entries, *entries)):
        key = entry.segment.key
        older = newest.get(key)
        if entry.ref in late and older is not None and older.content != entry.content:
            entry = _mark_entry(entry, older, context)  # noqa: PLW2901 - the same entry, with one line more
        else:
            entry = _omit_if_empty(entry)  # noqa: PLW2901
        if key and is_section(kinds, entry.segment):
            newest[key] = entry
        if at >= front.count:
            result.append(entry)
    return result


def _mark_entry(entry: Entry, older: Entry, context: BuildContext) -> Entry:
    """The entry with a first line that says which text it replaces."""
    if is_empty(older.segment.parts):  # it was taken back already
        return _omit_if_empty(entry)
    beginning = make_inert(text_of(older.segment.parts), _BEGINNING)
    line = TAKEN_BACK.format(beginning=beginning)
    if not is_empty(entry.segment.parts):
        line = f"{REPLACES.format(beginning=beginning)}\n{text_of(entry.source.parts)}"
    marked = msgspec.structs.replace(entry.source, parts=(Text(line),))
    return _word_section(entry, marked, context)


def _omit_if_empty(entry: Entry) -> Entry:
    """The entry; left out if it is system text without a word."""
    if entry.role is Role.SYSTEM and entry.form is Form.FULL and is_empty(entry.segment.parts):
        return omit(entry, "empty")
    return entry


def unmark_promoted(
    entries: Sequence[Entry], promoted: Collection[Ref], context: BuildContext
) -> list[Entry]:
    """The entries, of which those that are promoted say no more what they replace: it is gone."""
    result: list[Entry] = []
    for entry in entries:
        if entry.ref in promoted:
            result.append(_word_section(entry, entry.source, context))
        else:
            result.append(entry)
    return result


def _word_section(entry: Entry, source: Segment, context: BuildContext) -> Entry:
    parts = context.wording(source, Form.FULL, entry.content)
    return msgspec.structs.replace(entry, parts=parts, sent=parts_digest(entry.role, parts))


def find_later_sections(entries: Sequence[Entry], kinds: Kinds) -> tuple[Ref, ...]:
    """Sections that stand where they came. At a cut they take their place in the system text."""
    later: list[Ref] = []
    for entry in entries:
        if entry.form is not Form.FULL or entry.layer is Layer.SYSTEM:
            continue
        if is_section(kinds, entry.segment):
            later.append(entry.ref)
    return tuple(later)


def put_system_first(entries: list[Entry], promoted: tuple[Ref, ...], kinds: Kinds) -> list[Entry]:
    """The system text, most stable section first, then the rest in order.

    A section that came later stands where it came until a cut promotes it. From then on it stands in the
    system text, in the place of the first section with its key.
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
    first_places = _find_first_places(system, kinds)
    system = _keep_newest_sections(system, kinds)
    system.sort(key=lambda entry: (kind_of(kinds, entry.segment).stability, first_places[entry.ref]))
    system = [_omit_if_empty(msgspec.structs.replace(entry, layer=Layer.SYSTEM)) for entry in system]
    return system + rest


def _find_first_places(system: Sequence[Entry], kinds: Kinds) -> dict[Ref, int]:
    """The place of each entry, by its ref. Sections with one key share the place of the first of them."""
    place_of_key: dict[str, int] = {}
    places: dict[Ref, int] = {}
    for place, entry in enumerate(system):
        key = entry.segment.key
        if key and is_section(kinds, entry.segment):
            place = place_of_key.setdefault(key, place)  # noqa: PLW2901 - it has the place of another
        places[entry.ref] = place
    return places


def _keep_newest_sections(system: list[Entry], kinds: Kinds) -> list[Entry]:
    """Of sections with one key, only the newest is sent.

    The older ones stay entries, omitted with a reason: nothing of a log disappears.
    """
    newest: dict[str, Ref] = {}
    for entry in system:
        if entry.segment.key and is_section(kinds, entry.segment):
            newest[entry.segment.key] = entry.ref
    reasons: dict[Ref, str] = {}
    for entry in system:
        newest_ref = newest.get(entry.segment.key, entry.ref)
        if newest_ref != entry.ref:
            reasons[entry.ref] = f"replaced by {newest_ref}"
    return omit_by_ref(system, reasons)
