"""What becomes of references if a cut lowered what they refer to: the full form moves to the newest of them.

The cut then begins anew, with the draft that is made here. Content is as old as its newest appearance, so a
cut that still needs its room lowers it there.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamina.core.draft import Draft
from lamina.core.entries import identify_attachment, is_attachment, may_repeat, name_attachment
from lamina.core.kinds import Kinds
from lamina.core.ledger import without_lines
from lamina.core.library import LIST_ENDING, SENT_AGAIN, is_named_in_library, name_in_list
from lamina.core.lowering import make_line
from lamina.core.options import BuildContext
from lamina.core.references import ATTACHED_AGAIN, is_reference, lower_to_stub, raise_to_full
from lamina.core.scale import weigh_entries
from lamina.core.turns import current_turn
from lamina.core.values import Digest, Entry, Form, Layer, Ref


def move_full_forms(draft: Draft, lost: frozenset[Digest], context: BuildContext) -> Draft:
    """The draft, in which the newest reference to each lost content has the full form.

    Older appearances are lowered. If the newest content of a name is another one, nobody needs the older one
    in full: then only the references to it are lowered.
    """
    kinds = context.kinds
    entries = list(draft.entries)
    newest = {name_attachment(entry): at for at, entry in enumerate(entries) if _is_shown(entry, kinds)}
    for at, entry in enumerate(draft.entries):
        if not _is_shown(entry, kinds) or identify_attachment(entry) not in lost:
            continue
        newest_at = newest[name_attachment(entry)]
        is_replaced = identify_attachment(draft.entries[newest_at]) != identify_attachment(entry)
        if at == newest_at and is_reference(entry, kinds):
            entries[at] = raise_to_full(entry, wording=context.wording)
            continue
        # A copy in full is lowered only if a newer appearance of the same content is in full now.
        gives_full_form = entry.form is Form.FULL and not is_replaced and not may_repeat(entry)
        if is_reference(entry, kinds) or gives_full_form:
            why = f"{ATTACHED_AGAIN}{draft.entries[newest_at].ref}"
            entries[at] = lower_to_stub(entry, why, wording=context.wording, scale=context.scale)
    return _replace_entries(draft, entries, context, cut=len(draft.ledger.cuts) + 1)


def _is_shown(entry: Entry, kinds: Kinds) -> bool:
    """Whether an attachment is sent, or is a reference that is left out for its length."""
    if not is_attachment(entry, kinds):
        return False
    return entry.form is not Form.OMITTED or is_reference(entry, kinds)


# The hoisted layout: a list names what stands in the library.


def find_lost_names(entries: Sequence[Entry]) -> frozenset[Digest]:
    """Attachments of this turn that are only named, and whose words are not in the library any more."""
    named = {identify_attachment(entry) for entry in entries if is_named_in_library(entry)}
    shelved = [entry for entry in entries if entry.layer is Layer.LIBRARY]
    return frozenset(named - {identify_attachment(entry) for entry in shelved if entry.form >= Form.COMPACT})


def send_again(draft: Draft, lost: frozenset[Digest], context: BuildContext, *, cut: int) -> Draft:
    """The draft, in which these attachments are sent in their turn, and the library has their handles.

    `cut` is the number of the cut that lowered them in the library; 0 if they entered lowered.
    """
    entries: list[Entry] = []
    named: list[Ref] = []
    newest = {identify_attachment(entry): entry.ref for entry in draft.entries if is_named_in_library(entry)}
    for entry in draft.entries:
        identity = identify_attachment(entry)
        if is_named_in_library(entry):
            why = SENT_AGAIN if identity in lost else entry.why
            entries.append(raise_to_full(entry, why, wording=context.wording))
            if identity not in lost:
                named.append(entry.ref)
        elif identity in lost and entry.layer is Layer.LIBRARY and entry.form > Form.STUB:
            why = f"{ATTACHED_AGAIN}{newest[identity]}"
            entries.append(lower_to_stub(entry, why, wording=context.wording, scale=context.scale))
        elif not entry.ref.endswith(LIST_ENDING):
            entries.append(entry)
    return _replace_entries(draft, name_in_list(entries, named, context.scale), context, cut=cut)


def _replace_entries(draft: Draft, entries: list[Entry], context: BuildContext, *, cut: int) -> Draft:
    """The draft with these entries, and with the ledger lines of those that are sent for another reason now.

    What is lowered in the prompt's own turn stays so, even if the turn is sent again: its line has no cut.
    """
    why_before = {entry.ref: entry.why for entry in draft.entries}
    current_refs = {draft.entries[at].ref for at in current_turn(draft.entries)}
    lines = dict(draft.lines)
    raised: set[Ref] = set()
    for entry in entries:
        if entry.segment.is_own or entry.why == why_before[entry.ref]:
            continue
        lines.pop(entry.ref, None)
        if entry.form is Form.FULL:
            raised.add(entry.ref)
        elif not is_named_in_library(entry):
            line_cut = 0 if entry.ref in current_refs else cut
            lines[entry.ref] = make_line(entry, cut=line_cut)
    weighed = weigh_entries(entries, context.scale, prefix=context.root)
    return msgspec.structs.replace(
        draft,
        entries=weighed,
        tokens=sum(entry.tokens for entry in weighed),
        ledger=without_lines(draft.ledger, frozenset(raised)),
        lines=lines,
    )
