"""What becomes of references if a cut lowered what they refer to: the full form moves to the newest of them.

The cut then begins anew, with the draft that is made here. Content is as old as its newest appearance, so a
cut that still needs its room lowers it there.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamina.core.draft import Draft
from lamina.core.entries import (
    IN_FULL,
    find_last_turn,
    identify_attachment,
    is_attachment,
    may_repeat,
    name_attachment,
    omit,
)
from lamina.core.kinds import Kinds
from lamina.core.ledger import without_lines
from lamina.core.library import lay_lists
from lamina.core.lowering import make_line
from lamina.core.options import BuildContext
from lamina.core.references import (
    ATTACHED_AGAIN,
    SENT_AGAIN,
    is_named_in_library,
    is_reference,
    lower_to_stub,
    raise_to_full,
)
from lamina.core.scale import weigh_entries
from lamina.core.turns import current_turn
from lamina.core.values import Entry, Form, Layer, Ref


def move_full_forms(draft: Draft, lost: Sequence[Entry], context: BuildContext) -> Draft:
    """The draft, in which the newest reference to the content of each lost one has the full form.

    Older appearances are lowered. If the newest content of a name is another one, nobody needs the older one
    in full: then only the references to it are lowered. What is lowered in the prompt's own turn stays so,
    even if the turn is sent again: its line has no cut.
    """
    kinds = context.kinds
    entries = list(draft.entries)
    identities = {identify_attachment(entry) for entry in lost}
    newest = {name_attachment(entry): entry for entry in entries if _is_shown(entry, kinds)}
    current = current_turn(entries)
    lines = dict(draft.lines)
    raised: set[Ref] = set()
    for at, entry in enumerate(draft.entries):
        if not _is_shown(entry, kinds) or identify_attachment(entry) not in identities:
            continue
        newer = newest[name_attachment(entry)]
        if newer is entry and is_reference(entry, kinds):
            why = SENT_AGAIN if is_named_in_library(entry) else IN_FULL
            entries[at] = raise_to_full(entry, context, why)
            lines.pop(entry.ref, None)
            raised.add(entry.ref)
        elif is_reference(entry, kinds) or _gives_full_form(entry, newer):
            why = f"{ATTACHED_AGAIN}{newer.ref}"
            # A reference that is left out stays so: its handle would be a higher form.
            is_left_out = entry.form is Form.OMITTED
            if is_left_out:
                entries[at] = omit(entry, why)
            else:
                entries[at] = lower_to_stub(entry, why, context)
            line_cut = 0 if at in current else len(draft.ledger.cuts) + 1
            lines[entry.ref] = make_line(entries[at], cut=line_cut)
    if context.options.layout.library == "hoisted":
        entries = lay_lists(entries, find_last_turn(entries), context)
    weighed = weigh_entries(entries, context.scale, prefix=context.root)
    return msgspec.structs.replace(
        draft,
        entries=weighed,
        tokens=sum(entry.tokens for entry in weighed),
        ledger=without_lines(draft.ledger, frozenset(raised)),
        lines=lines,
    )


def _is_shown(entry: Entry, kinds: Kinds) -> bool:
    """Whether an attachment is sent, or is a reference that is left out for its length."""
    if not is_attachment(entry, kinds):
        return False
    return entry.form is not Form.OMITTED or is_reference(entry, kinds)


def _gives_full_form(entry: Entry, newer: Entry) -> bool:
    """Whether a copy is lowered, since a newer appearance of the same content is in full now."""
    if identify_attachment(newer) != identify_attachment(entry):
        return False
    if entry.layer is Layer.LIBRARY:
        return entry.form > Form.STUB
    return entry.form is Form.FULL and not may_repeat(entry)
