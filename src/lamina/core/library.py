"""The hoisted layout: attachments of earlier turns stand compacted in LIBRARY, and later turns refer to them.

The library has the newest content of each, in the order in which they were first seen. Chat applications that
keep a context library in the system prompt are laid out like this. The role stays the user's: a dialect may
print the layer beside the system text, but lamina gives it no authority.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamina.core.entries import (
    find_position,
    identify_attachment,
    is_attachment,
    make_own_entry,
    name_attachment,
    omit,
    omit_by_ref,
)
from lamina.core.kinds import Kinds, is_turn_scoped, kind_of, recoverable
from lamina.core.layout import Layout
from lamina.core.lowering import replace_parts
from lamina.core.scale import Scale
from lamina.core.text.tags import escape_attribute
from lamina.core.turns import OWN_TURN_ONLY
from lamina.core.values import OWN_ORIGIN, Entry, Form, Layer, Ledger, Role, Segment, Text
from lamina.core.wording import Wording, WordingPlace, name_of, text_of

LIBRARY_TITLE = "## Context Library\n\nThe following notes are available for reference:"
IN_LIBRARY = "Context attached to this message:\n{names}\n\nFind them in the Context Library above."

IN_THE_LIBRARY = "stands in the library"
NAMED_IN_THE_LIST = "stands in the library, named in the list"
"""Why an attachment of this turn is not sent where it came."""

LIST_ENDING = "!list"
"""How the key of the list of names ends."""

SAME_IN_LIBRARY = "stands in the library as "
NEWER_IN_LIBRARY = "newer content stands in the library as "
"""Why an earlier attachment is not in the library itself. The ref of the one that is there follows."""

SENT_AGAIN = "sent again: a cut left its handle in the library"
"""Why an attachment of this turn is sent although the library has its name."""


def hoist_attachments(
    entries: list[Entry],
    turn: int,
    ledger: Ledger,
    *,
    layout: Layout,
    kinds: Kinds,
    wording: Wording,
    scale: Scale,
) -> list[Entry]:
    """Attachments of turns before `turn` in LIBRARY; those of this turn that stand there, as references.

    The library stands behind the system text, under a title. What an attachment leaves behind in its old
    place is omitted with a reason.
    """
    library = _Library(ledger, layout, kinds, wording, scale)
    rest: list[Entry] = []
    for entry in entries:
        is_earlier = entry.turn < turn and entry.form is not Form.OMITTED
        if is_earlier and is_attachment(entry, kinds):
            rest += library.add(entry)
        else:
            rest.append(entry)
    if not library.attachments:
        return rest
    after_system = 0
    while after_system < len(rest) and rest[after_system].layer is Layer.SYSTEM:
        after_system += 1
    return [
        *rest[:after_system],
        _make_title(),
        *library.attachments.values(),
        *_refer_to_library(rest[after_system:], library, turn, scale=scale),
    ]


class _Library:
    """The attachments of earlier turns, by their key, or by their content if they have none.

    `lowered` are the refs of entries of which a cut left a handle at most.
    """

    def __init__(self, ledger: Ledger, layout: Layout, kinds: Kinds, wording: Wording, scale: Scale) -> None:
        self.layout = layout
        self.kinds = kinds
        self.wording = wording
        self.scale = scale
        self.attachments: dict[str, Entry] = {}
        self.lowered = frozenset(ref for ref, line in ledger.lines.items() if line.form < Form.COMPACT)

    def add(self, entry: Entry) -> list[Entry]:
        """Add one attachment, and return what that leaves behind in its old place.

        If a cut has lowered equal content to a handle, the new appearance takes its place.
        """
        kind = kind_of(self.kinds, entry.segment)
        if is_turn_scoped(self.kinds, entry.segment) or not kind.carried:
            return [omit(entry, OWN_TURN_ONLY)]
        name = name_attachment(entry)
        older = self.attachments.get(name)
        if older is None:
            self.attachments[name] = self._shorten(entry)
            return []
        is_same = identify_attachment(older) == identify_attachment(entry)
        if is_same and older.ref not in self.lowered:
            return [omit(entry, f"{SAME_IN_LIBRARY}{older.ref}")]
        self.attachments[name] = self._shorten(entry)
        return [omit(older, f"{NEWER_IN_LIBRARY}{entry.ref}")]

    def find(self, entry: Entry) -> Entry | None:
        """The same attachment as it stands here; None if it does not, or has other content."""
        same_name = self.attachments.get(name_attachment(entry))
        if same_name is None or identify_attachment(same_name) != identify_attachment(entry):
            return None
        return same_name

    def _shorten(self, entry: Entry) -> Entry:
        """The attachment as it stands in the library, at most as long as the layout allows.

        What cannot be recovered, such as text that the user marked, stays word for word.
        """
        size = len(text_of(entry.source.parts))
        limit = self.layout.prior_limits.get(entry.segment.kind, self.layout.prior_limit)
        in_full = self._word(entry, size, limit=size, form=Form.FULL)
        if size <= limit or not recoverable(self.kinds, entry.segment):
            return in_full
        compact = self._word(entry, size, limit=limit, form=Form.COMPACT)
        # The handle takes more than a text loses that is hardly longer than the limit.
        if self.scale.body(compact) >= self.scale.body(in_full):
            return in_full
        return compact

    def _word(self, entry: Entry, size: int, *, limit: int, form: Form) -> Entry:
        """The attachment in the words of the library, in at most so many characters of its text."""
        place = WordingPlace(turn=entry.turn, size=size, in_library=True)
        parts = self.wording.prior(entry.source, entry.content, limit=limit, place=place)
        return replace_parts(
            msgspec.structs.replace(entry, layer=Layer.LIBRARY), form, parts, "in the library"
        )


def _refer_to_library(rest: Sequence[Entry], library: _Library, turn: int, *, scale: Scale) -> list[Entry]:
    """Attachments of this turn that stand unchanged in the library, as one list of names."""
    result = list(rest)
    in_library: list[Entry] = []
    for at, entry in enumerate(rest):
        came_now = entry.turn == turn and entry.form is Form.FULL
        if not came_now or not is_attachment(entry, library.kinds):
            continue
        hoisted = library.find(entry)
        if hoisted is None:
            continue
        if hoisted.ref in library.lowered:
            # A cut has left only its handle in the library, so its words are sent where they are asked for.
            result[at] = msgspec.structs.replace(entry, why=SENT_AGAIN)
        else:
            in_library.append(entry)
    return name_in_list(result, in_library, scale)


def name_in_list(entries: list[Entry], in_library: Sequence[Entry], scale: Scale) -> list[Entry]:
    """The entries, of which those that stand in the library are named in one list, before the first of them.

    If the list would be longer than what it names, there is none.
    """
    if not in_library:
        return entries
    refs = [entry.ref for entry in in_library]
    names = _make_list_of_names(in_library)
    tokens = sum(scale.body(entry) for entry in in_library)
    if scale.body(names) >= tokens:
        return omit_by_ref(entries, dict.fromkeys(refs, IN_THE_LIBRARY))
    named = omit_by_ref(entries, dict.fromkeys(refs, NAMED_IN_THE_LIST))
    first_at = find_position(entries, refs[0])
    return [*named[:first_at], names, *named[first_at:]]


def is_named_in_library(entry: Entry) -> bool:
    """Whether an attachment of this turn is not sent, since its words stand in the library."""
    return entry.why in (IN_THE_LIBRARY, NAMED_IN_THE_LIST)


def _make_list_of_names(entries: Sequence[Entry]) -> Entry:
    """One line of lamina's own that names these attachments, in the message of the first."""
    first = entries[0]
    names: list[str] = []
    for entry in entries:
        name = name_of(entry.segment) or entry.segment.key
        names.append(f"- {escape_attribute(name)}")
    segment = Segment(
        role=first.role,
        kind="user",
        parts=(Text(IN_LIBRARY.format(names="\n".join(names))),),
        key=f"{first.ref}{LIST_ENDING}",
        origin=OWN_ORIGIN,
    )
    why = "names what stands in the library"
    return make_own_entry(
        segment, why, layer=first.layer, turn=first.turn, step=first.step, opens=first.opens
    )


def _make_title() -> Entry:
    parts = (Text(LIBRARY_TITLE),)
    segment = Segment(role=Role.USER, kind="user", parts=parts, key="library", origin=OWN_ORIGIN)
    return make_own_entry(segment, "introduces the library", layer=Layer.LIBRARY)
