"""Attachments that come again: once in full, then by reference.

In place, a later appearance of equal content refers to the one above it. Hoisted, the attachments of
earlier turns stand compacted in LIBRARY, newest content in first-seen order, and later turns refer to
them there: the layout of chat applications that keep a context library in the system prompt. Their
role stays the user's: a dialect may print the layer beside the system text, lamina gives it no authority.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from lamina.core.arrange import OWN_TURN_ONLY, Layout
from lamina.core.hashing import parts_digest
from lamina.core.kinds import Kinds, is_turn_scoped, recoverable, row
from lamina.core.repair import omitted, own
from lamina.core.scale import Scale
from lamina.core.text.tags import escape
from lamina.core.values import Digest, Entry, Form, Layer, Ledger, LedgerLine, Ref, Role, Segment, Text
from lamina.core.wording import Wording, text_of
from lamina.core.wording import named as shown_name

LIBRARY_TITLE = "## Context Library\n\nThe following notes are available for reference:"
IN_LIBRARY = "Context attached to this message:\n{names}\n\nFind them in the Context Library above."


IN_THE_LIBRARY = "stands in the library"
NAMED_IN_THE_LIST = "stands in the library, named in the list"
"""Why an attachment of this turn is not sent where it came."""


def referred(
    entries: list[Entry],
    ledger: Ledger,
    shown: dict[Digest, Ref],
    *,
    kinds: Kinds,
    wording: Wording,
    scale: Scale,
) -> tuple[list[Entry], dict[Ref, LedgerLine]]:
    """Later appearances of content that stands in full, as references, and the ledger lines that keep them.

    What is pinned stands in full, since what it would refer to may be lowered. `shown` maps content to where
    it stands in full; it is brought up to date.
    """
    lines: dict[Ref, LedgerLine] = {}
    result: list[Entry] = []
    for entry in entries:
        above = shown.get(entry.content)
        if entry.form is not Form.FULL or not row(kinds, entry.segment).attachment:
            result.append(entry)
        elif above is None or entry.segment.pinned or entry.segment.meta.get("override"):
            shown[entry.content] = entry.ref
            result.append(entry)
        else:
            reference = _reference(entry, above, wording, scale)
            result.append(reference)
            if entry.ref not in ledger.lines:
                lines[entry.ref] = _reference_line(reference, wording)
    return result, lines


def _reference(entry: Entry, above: Ref, wording: Wording, scale: Scale) -> Entry:
    """What stands for content that stands in full above; nothing, where that is smaller than any words."""
    why = f"same content as {above} above"
    parts = wording.reference(entry.segment, entry.content)
    sent = parts_digest(entry.role, parts)
    reference = msgspec.structs.replace(entry, form=Form.STUB, parts=parts, sent=sent, why=why)
    return reference if scale.body(reference) < scale.body(entry) else omitted(entry, why)


def _reference_line(reference: Entry, wording: Wording) -> LedgerLine:
    return LedgerLine(
        form=reference.form,
        why=reference.why,
        wording=wording.version,
        sent=reference.sent,
        reference=reference.form is Form.STUB,
    )


def worded(entries: Iterable[Entry], *, kinds: Kinds, wording: Wording) -> list[Entry]:
    """Entries in full, in the words of their kind; what is said as it is stays the same object."""
    return [_in_words(e, kinds, wording) for e in entries]


def _in_words(entry: Entry, kinds: Kinds, wording: Wording) -> Entry:
    kind = row(kinds, entry.segment)
    plain = not (wording.tagged or kind.attachment or kind.section or entry.segment.kind in wording.words)
    if plain or entry.form is not Form.FULL or entry.role is not entry.segment.role:
        return entry
    parts = wording(entry.source, Form.FULL, entry.content)
    return msgspec.structs.replace(entry, parts=parts, sent=parts_digest(entry.role, parts))


def hoisted(
    entries: list[Entry],
    turn: int,
    ledger: Ledger,
    *,
    layout: Layout,
    kinds: Kinds,
    wording: Wording,
    scale: Scale,
) -> list[Entry]:
    """Attachments of turns before `turn` in LIBRARY; those of this turn that stand there, as references."""
    low = frozenset(ref for ref, line in ledger.lines.items() if line.form < Form.COMPACT)
    shelf: dict[str, Entry] = {}
    rest: list[Entry] = []
    for entry in entries:
        if not row(kinds, entry.segment).attachment or entry.form is Form.OMITTED:
            rest.append(entry)
        elif entry.turn < turn:
            rest += _shelve(entry, shelf, low, layout=layout, kinds=kinds, wording=wording)
        else:
            rest.append(entry)
    if not shelf:
        return rest
    at = next((i for i, e in enumerate(rest) if e.layer is not Layer.SYSTEM), len(rest))
    library = [_title(), *shelf.values()]
    standing = {name: e for name, e in shelf.items() if e.ref not in low}
    return rest[:at] + library + _pointing(rest[at:], standing, turn, kinds=kinds, scale=scale)


def _shelve(
    entry: Entry,
    shelf: dict[str, Entry],
    low: frozenset[Ref],
    *,
    layout: Layout,
    kinds: Kinds,
    wording: Wording,
) -> list[Entry]:
    """Puts one attachment on the shelf; returns what that leaves behind in its old place.

    Equal content that a cut has lowered to a handle (it is in `low`) makes way for the new appearance.
    """
    kind = row(kinds, entry.segment)
    goes_with_turn = is_turn_scoped(kinds, entry.segment) or not kind.carried
    if goes_with_turn or not recoverable(kinds, entry.segment):
        return [omitted(entry, OWN_TURN_ONLY)]
    name = entry.segment.key or entry.content
    before = shelf.get(name)
    if before is not None and before.content == entry.content and before.ref not in low:
        return [omitted(entry, f"stands in the library as {before.ref}")]
    limit = layout.prior_limit_of(entry.segment.kind)
    parts = wording.prior(entry.source, entry.content, limit=limit)
    form = Form.FULL if len(text_of(entry.source.parts)) <= limit else Form.COMPACT
    shelf[name] = msgspec.structs.replace(
        entry,
        layer=Layer.LIBRARY,
        parts=parts,
        sent=parts_digest(entry.role, parts),
        form=form,
        why="in the library",
    )
    return [] if before is None else [omitted(before, f"newer content stands in the library as {entry.ref}")]


def _pointing(
    rest: list[Entry], shelf: dict[str, Entry], turn: int, *, kinds: Kinds, scale: Scale
) -> list[Entry]:
    """Attachments of this turn that stand unchanged in the library, as one list of names.

    The list is a line of its own; where it would be longer than what it names, there is none.
    """
    here = {entry.ref for entry in rest if _stands_in(shelf, entry, turn, kinds)}
    if not here:
        return rest
    named = [entry for entry in rest if entry.ref in here]
    pointer = _list_of_names(named)
    if scale.body(pointer) >= sum(scale.body(entry) for entry in named):
        return [omitted(entry, IN_THE_LIBRARY) if entry.ref in here else entry for entry in rest]
    result: list[Entry] = []
    for entry in rest:
        if entry.ref == named[0].ref:
            result.append(pointer)
        result.append(omitted(entry, NAMED_IN_THE_LIST) if entry.ref in here else entry)
    return result


def _stands_in(shelf: dict[str, Entry], entry: Entry, turn: int, kinds: Kinds) -> bool:
    """Whether an attachment of this turn stands in the library as it is."""
    if entry.turn != turn or entry.form is not Form.FULL or not row(kinds, entry.segment).attachment:
        return False
    standing = shelf.get(entry.segment.key or entry.content)
    return standing is not None and standing.content == entry.content


def _list_of_names(named: list[Entry]) -> Entry:
    first = named[0]
    names = "\n".join(f"- {escape(shown_name(entry.segment) or entry.segment.key)}" for entry in named)
    segment = Segment(
        role=first.role,
        kind="user",
        parts=(Text(IN_LIBRARY.format(names=names)),),
        key=f"{first.ref}!list",
        origin="lamina",
    )
    why = "names what stands in the library"
    return own(segment, why, layer=first.layer, turn=first.turn, step=first.step, opens=first.opens)


def _title() -> Entry:
    parts = (Text(LIBRARY_TITLE),)
    segment = Segment(role=Role.USER, kind="user", parts=parts, key="library", origin="lamina")
    return own(segment, "introduces the library", layer=Layer.LIBRARY)
