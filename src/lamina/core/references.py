"""References: an attachment that came again points to the copy of it that is sent in full.

A reference is of use only while that copy stands in full above it, in the same request, and no other content
of its name stands between the two. So every build decides anew what is a reference, whatever the ledger says.
If a cut lowers the copy, the full form moves to the newest reference (`moved_copies`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import NamedTuple

import msgspec

from lamina.core.entries import (
    IN_FULL,
    find_attachments,
    identify_attachment,
    is_attachment,
    may_repeat,
    name_attachment,
    omit,
)
from lamina.core.kinds import Kinds
from lamina.core.lowering import lower_entry, make_line, replace_parts
from lamina.core.options import BuildContext
from lamina.core.values import Digest, Entry, Form, Layer, Ledger, LedgerLine, Ref

SHORT_REFERENCE = 1
"""The limit in the ledger line of a reference that only names what it refers to."""

SAME_CONTENT = "same content as "
"""Why an attachment is only a reference. The ref of the copy in full follows."""

SAME_IN_LIBRARY = "stands in the library as "
"""Why an attachment is not sent where it came, in the hoisted layout. The ref of the one there follows."""

SENT_AGAIN = "sent again: a cut left its handle in the library"
"""Why an attachment of the last turn is sent although the library has its name."""

ATTACHED_AGAIN = "attached again later as "
"""Why an older appearance was lowered when the full form moved to a newer one, whose ref follows."""


class FullCopy(NamedTuple):
    """The copy of an attachment that is sent in full: what it is (`identify_attachment`), and which entry."""

    identity: Digest
    ref: Ref


class ReferredLog(msgspec.Struct, frozen=True, kw_only=True):
    """Entries in which repeated attachments are references, and the lines of new ones.

    `ended` are entries that were references once, and are sent in full now. `reworded`: this release words
    some references differently than they were sent.
    """

    entries: list[Entry]
    lines: dict[Ref, LedgerLine] = {}
    ended: frozenset[Ref] = frozenset()
    reworded: bool = False


def is_reference(entry: Entry, kinds: Kinds) -> bool:
    """Whether an entry refers to equal content above it, or is left out because even that would be longer."""
    refers = entry.why.startswith(SAME_CONTENT) or is_named_in_library(entry)
    return refers and is_attachment(entry, kinds)


def is_named_in_library(entry: Entry) -> bool:
    """Whether an attachment of the last turn is not sent, since its words stand in the library."""
    return entry.layer is Layer.TURN and entry.why.startswith(SAME_IN_LIBRARY)


def is_reference_line(line: LedgerLine) -> bool:
    """Whether a line is of a reference. One that is left out has no words, and so no flag."""
    return line.reference or line.why.startswith((SAME_CONTENT, SAME_IN_LIBRARY))


def is_about_copies(line: LedgerLine) -> bool:
    """Whether a line holds only while another copy of its attachment is in the log."""
    return is_reference_line(line) or line.why.startswith(ATTACHED_AGAIN)


def lacks_later_copy(why: str, refs: Container[Ref]) -> bool:
    """Whether this is why an older appearance was lowered, and the newer one is not among these entries."""
    if not why.startswith(ATTACHED_AGAIN):
        return False
    return Ref(why.removeprefix(ATTACHED_AGAIN)) not in refs


def note_copy(entry: Entry, copies: dict[str, FullCopy]) -> None:
    """Bring the newest copy in full of each name up to date with one more attachment.

    Other content of the same name hides the older copy: a reader would take the newer one. That holds in
    whatever form it is sent. Otherwise what is in full now would be a reference once a cut took it out.
    """
    name = name_attachment(entry)
    identity = identify_attachment(entry)
    if entry.form is Form.FULL:
        copies[name] = FullCopy(identity, entry.ref)
    elif name in copies and copies[name].identity != identity:
        del copies[name]


def find_copies(attachments: Iterable[Entry]) -> dict[str, FullCopy]:
    """The newest copy in full of each attachment, by name, which later appearances may refer to."""
    copies: dict[str, FullCopy] = {}
    for entry in attachments:
        note_copy(entry, copies)
    return copies


def refer_to_earlier(
    entries: list[Entry],
    ledger: Ledger,
    copies: dict[str, FullCopy],
    context: BuildContext,
) -> ReferredLog:
    """The entries, of which later appearances of content that stands in full are references.

    What is pinned is sent in full, since what it would refer to may be lowered. `copies` are those above
    these entries; they are brought up to date.
    """
    lines: dict[Ref, LedgerLine] = {}
    ended: set[Ref] = set()
    reworded = False
    result: list[Entry] = []
    for entry in entries:
        if not is_attachment(entry, context.kinds):
            result.append(entry)
            continue
        line = ledger.lines.get(entry.ref)
        copy = copies.get(name_attachment(entry))
        is_repeated = copy is not None and copy.identity == identify_attachment(entry)
        if copy is None or not is_repeated or entry.form is not Form.FULL or may_repeat(entry):
            note_copy(entry, copies)
            result.append(entry)
            if line is not None and is_reference_line(line) and entry.form is Form.FULL:
                ended.add(entry.ref)
            continue
        reference, limit = _refer(entry, copy, line, context)
        result.append(reference)
        # After an edit the second of two equal attachments may have the ref that the first one had. Then the
        # line is one of a cut for the first, which no longer applies, and the reference needs its own.
        if line is None or line.sent != reference.sent:
            reworded = reworded or (line is not None and is_reference_line(line))
            is_worded = reference.form is Form.STUB
            lines[entry.ref] = make_line(reference, limit=limit, reference=is_worded)
    return ReferredLog(entries=result, lines=lines, ended=frozenset(ended), reworded=reworded)


def _refer(entry: Entry, copy: FullCopy, line: LedgerLine | None, context: BuildContext) -> tuple[Entry, int]:
    """A reference to this copy, and the limit for its ledger line. One that was sent stays as it is."""
    # One that was sent keeps its words, even if a shorter one would do now: the counter may have changed.
    if line is not None and is_reference_line(line) and not line.why.startswith(SAME_IN_LIBRARY):
        if line.form is Form.OMITTED:
            return omit(entry, line.why), line.limit
        return _word_reference(entry, line.why, line.limit, context), line.limit
    # A short attachment that is attached again is still named: "And this one?" would refer to nothing else.
    why = f"{SAME_CONTENT}{copy.ref} above"
    for limit in (0, SHORT_REFERENCE):
        reference = _word_reference(entry, why, limit, context)
        if context.scale.body(reference) < context.scale.body(entry):
            return reference, limit
    return omit(entry, why), 0


def _word_reference(entry: Entry, why: str, limit: int, context: BuildContext) -> Entry:
    parts = context.wording.reference(entry.segment, entry.content, short=limit == SHORT_REFERENCE)
    return replace_parts(entry, Form.STUB, parts, why)


# References whose copy was lowered.


def find_lost_references(entries: Iterable[Entry], kinds: Kinds) -> list[Entry]:
    """References whose copy is not sent in full above them, or is not the newest of its name.

    In the library, a copy may be shortened.
    """
    above: dict[str, FullCopy] = {}
    in_library: dict[str, FullCopy] = {}
    lost: list[Entry] = []
    for entry in find_attachments(entries, kinds):
        name = name_attachment(entry)
        identity = identify_attachment(entry)
        if is_reference(entry, kinds):
            copy = (in_library if is_named_in_library(entry) else above).get(name)
            if copy is None or copy.identity != identity:
                lost.append(entry)
            continue
        note_copy(entry, above)
        if entry.layer is Layer.LIBRARY and entry.form >= Form.COMPACT:
            in_library[name] = FullCopy(identity, entry.ref)
    return lost


def raise_to_full(entry: Entry, context: BuildContext, why: str = IN_FULL) -> Entry:
    """A reference in full again, as if it had never been one."""
    return replace_parts(entry, Form.FULL, context.wording(entry.source, Form.FULL, entry.content), why)


def lower_to_stub(entry: Entry, why: str, context: BuildContext) -> Entry:
    """An appearance of content that stands in full elsewhere, or nowhere: by its handle.

    If the handle would be longer than the content itself, it is left out.
    """
    stub = lower_entry(entry, Form.STUB, why, wording=context.wording)
    if context.scale.body(stub) < context.scale.body(raise_to_full(entry, context)):
        return stub
    return omit(entry, why)
