"""The hoisted layout: attachments of earlier turns stand compacted in LIBRARY, and later turns refer to them.

The library has the newest content of each, in the order in which they were first seen. Chat applications that
keep a context library in the system prompt are laid out like this. The role stays the user's: a dialect may
print the layer beside the system text, but lamina gives it no authority.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from lamina.core.entries import (
    find_position,
    identify_attachment,
    is_attachment,
    make_own_entry,
    may_repeat,
    name_attachment,
    omit_by_ref,
)
from lamina.core.kinds import is_turn_scoped, kind_of, recoverable
from lamina.core.ledger import find_valid_lines
from lamina.core.lowering import make_omitted_line, replace_parts
from lamina.core.options import BuildContext
from lamina.core.references import (
    SAME_IN_LIBRARY,
    SENT_AGAIN,
    ReferredLog,
    is_named_in_library,
    is_reference_line,
    raise_to_full,
)
from lamina.core.text.tags import escape_attribute
from lamina.core.turns import OWN_TURN_ONLY
from lamina.core.values import OWN_ORIGIN, Entry, Form, Layer, Ledger, LedgerLine, Ref, Role, Segment, Text
from lamina.core.wording import Wording, name_of, text_of

LIBRARY_TITLE = "## Context Library\n\nThe following notes are available for reference:"
IN_LIBRARY = "Context attached to this message:\n{names}\n\nFind them in the Context Library above."

LIST_ENDING = "!list"
"""How the key of the list of names ends."""

NEWER_IN_LIBRARY = "newer content stands in the library as "
"""Why an earlier attachment is not in the library any more. The ref of the one that is there follows."""


def hoist_attachments(entries: list[Entry], turn: int, ledger: Ledger, context: BuildContext) -> ReferredLog:
    """Attachments of turns before `turn` in LIBRARY; those of this turn that stand there, as references.

    Of each name the newest appearance that is no reference stands there, in the place of the first. The
    ledger says which are references. The library stands behind the system text, under a title.
    """
    kinds = context.kinds
    choice = _Choice(find_valid_lines(entries, ledger.lines))
    for entry in entries:
        if entry.form is Form.OMITTED or not is_attachment(entry, kinds):
            continue
        is_earlier = entry.turn < turn
        if is_earlier and (is_turn_scoped(kinds, entry.segment) or not kind_of(kinds, entry.segment).carried):
            choice.reasons[entry.ref] = OWN_TURN_ONLY
        else:
            choice.add(entry, is_earlier=is_earlier)
    library = [_shorten(entry, context) for entry in choice.standing.values()]
    refs = {entry.ref for entry in library}
    rest: list[Entry] = []
    for entry in omit_by_ref(entries, choice.reasons):
        if entry.ref in choice.sent_again:
            rest.append(msgspec.structs.replace(entry, why=SENT_AGAIN))
        elif entry.ref not in refs:
            rest.append(entry)
    rest = lay_lists(rest, turn, context)
    if library:
        library.insert(0, _make_title())
    after_system = 0
    while after_system < len(rest) and rest[after_system].layer is Layer.SYSTEM:
        after_system += 1
    return ReferredLog(
        entries=[*rest[:after_system], *library, *rest[after_system:]],
        lines=choice.new_lines,
        ended=frozenset(ref for ref in refs if ref in choice.lines and is_reference_line(choice.lines[ref])),
    )


class _Choice:
    """Which appearance of each attachment is in the library, by the lines of the ledger.

    `standing` has it by name, `reasons` why others are not sent. `new_lines` are those of new references, and
    `sent_again` what comes again, though the library has its name: a cut has left a handle there.
    """

    def __init__(self, lines: Mapping[Ref, LedgerLine]) -> None:
        self.lines = lines
        self.standing: dict[str, Entry] = {}
        self.reasons: dict[Ref, str] = {}
        self.new_lines: dict[Ref, LedgerLine] = {}
        self.sent_again: set[Ref] = set()

    def add(self, entry: Entry, *, is_earlier: bool) -> None:
        """Choose what becomes of the next attachment. One of this turn enters the library with the next."""
        name = name_attachment(entry)
        older = self.standing.get(name)
        if older is not None and self._refers(entry, older, is_earlier=is_earlier):
            why = f"{SAME_IN_LIBRARY}{older.ref}"
            self.reasons[entry.ref] = why
            if entry.ref not in self.lines:
                self.new_lines[entry.ref] = make_omitted_line(why, cut=0)
        elif is_earlier:
            if older is not None:
                self.reasons[older.ref] = f"{NEWER_IN_LIBRARY}{entry.ref}"
            self.standing[name] = entry
        elif older is not None and _is_repeated(entry, older):
            self.sent_again.add(entry.ref)

    def _refers(self, entry: Entry, older: Entry, *, is_earlier: bool) -> bool:
        """Whether an attachment refers to an appearance in the library, and is not sent itself.

        What was a reference stays one when its turn is over, even if a cut lowers that appearance. In its own
        turn it refers to what has its words there: if that is a handle, it is sent.
        """
        if not _is_repeated(entry, older):
            return False
        line = self.lines.get(entry.ref)
        if line is not None and (is_earlier or not is_reference_line(line)):
            return is_reference_line(line)
        line = self.lines.get(older.ref)
        return line is None or is_reference_line(line) or line.form >= Form.COMPACT


def _is_repeated(entry: Entry, older: Entry) -> bool:
    return identify_attachment(older) == identify_attachment(entry) and not may_repeat(entry)


def _shorten(entry: Entry, context: BuildContext) -> Entry:
    """The attachment as it stands in the library, at most as long as the layout allows.

    What cannot be recovered, such as text that the user marked, stays word for word.
    """
    layout = context.options.layout
    size = len(text_of(entry.source.parts))
    limit = layout.prior_limits.get(entry.segment.kind, layout.prior_limit)
    in_full = _word(entry, limit=size, form=Form.FULL, wording=context.wording)
    if size <= limit or not recoverable(context.kinds, entry.segment):
        return in_full
    compact = _word(entry, limit=limit, form=Form.COMPACT, wording=context.wording)
    # The handle takes more than a text loses that is hardly longer than the limit.
    if context.scale.body(compact) >= context.scale.body(in_full):
        return in_full
    return compact


def _word(entry: Entry, *, limit: int, form: Form, wording: Wording) -> Entry:
    """The attachment in the words of the library, in at most so many characters of its text."""
    parts = wording.prior(entry.source, entry.content, limit=limit)
    return replace_parts(msgspec.structs.replace(entry, layer=Layer.LIBRARY), form, parts, "in the library")


def lay_lists(entries: Iterable[Entry], turn: int, context: BuildContext) -> list[Entry]:
    """The entries with a list of what each question of this turn has in the library, before the first of it.

    If a list would be longer than what it names, there is none.
    """
    result = [entry for entry in entries if not entry.ref.endswith(LIST_ENDING)]
    by_question: dict[int, list[Entry]] = {}
    questions = 0
    for entry in result:
        questions += entry.layer is Layer.PROMPT
        if entry.turn == turn and is_named_in_library(entry):
            by_question.setdefault(questions, []).append(raise_to_full(entry, context))
    for named in by_question.values():
        names = _make_list_of_names(named)
        if context.scale.body(names) < sum(context.scale.body(entry) for entry in named):
            result.insert(find_position(result, named[0].ref), names)
    return result


def _make_list_of_names(entries: Sequence[Entry]) -> Entry:
    """One line of lamina's own that names these attachments, in the message of the first."""
    first = entries[0]
    names = [f"- {escape_attribute(name_of(entry.segment) or entry.segment.key)}" for entry in entries]
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
