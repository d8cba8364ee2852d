"""The first two stages of a build: a log is repaired, and its entries are arranged.

An `Arranger` goes over the log once, from where the last build saved its place (see `draft`). A few logs are
arranged from their beginning, because something in them changes what stands before it: a hoisted library, a
summary that covers older segments, a promoted section of the system text, and repairs that merge messages or
strip tags.

Arranging decides places, never sizes: attachments stand beside their question (`turns`), and the system
text first. In the default layout an attachment stays where it first appeared and becomes HISTORY with its
turn. A later appearance of equal content refers to the one above it. `library="hoisted"` lifts earlier ones
into LIBRARY.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

import msgspec

from lamina.core.draft import Checkpoint, Draft, Saved, find_boundary, find_open_turn
from lamina.core.entries import (
    begins_with,
    count_same,
    find_attachments,
    find_last_sent,
    find_last_turn,
    find_position,
    find_prefix,
    find_sent,
    identify_attachment,
    omit,
    omit_by_ref,
)
from lamina.core.hashing import parts_digest
from lamina.core.kinds import has_tag
from lamina.core.layout import NO_FILTER, moves_sent_text, omit_covered, omit_filtered
from lamina.core.ledger import SAME_TEXT_LATER, Applied, apply_ledger, without_lines
from lamina.core.library import hoist_attachments
from lamina.core.options import BuildContext, Options
from lamina.core.references import ReferredLog, is_about_copies, lacks_later_copy, refer_to_earlier
from lamina.core.reminders import find_valid_reminders, lay_reminders, list_reminders
from lamina.core.repair import LogScan
from lamina.core.scale import weigh_entries
from lamina.core.system_text import list_sections, mark_replacing, promote_sections, put_system_first
from lamina.core.turns import (
    OWN_TURN_ONLY,
    age_entries,
    find_leaving,
    is_aside,
    order_turns,
    place_entries,
)
from lamina.core.values import Entry, Form, Ledger, LedgerLine, Ref, Role, Segment, ToolCall, ToolResult
from lamina.core.wording import Wording


def arrange_log(
    log: tuple[Segment, ...], context: BuildContext, checkpoint: Checkpoint | None = None
) -> Draft:
    """The draft of a log: each entry has its layer, turn, step and words, and the ledger is applied.

    Only what comes after the checkpoint is arranged. If it changes something before, the whole log is.
    """
    arranger = Arranger(log, context, checkpoint)
    arranger.repair()
    arranger.place()
    if arranger.checkpoint is not None and not arranger.continues():
        return arrange_log(log, context)
    arranger.omit_leaving()
    return arranger.finish(arranger.apply_ledger(arranger.word()))


class Arranger:
    """One pass over what comes after `front`, where the arranger of the last build stood.

    `entries` are those of the new part of the log, and the first `split` of them stand before the place where
    the next build may begin. `leaving` are the entries that stood in their own turn only, which is over now:
    positions in the open entries of the front and the new ones. The first `unchanged` entries of the front
    are as they were. `stream` are all entries, in their words; what is said of `copies` and `reminders` in a
    `Saved` holds for it.
    """

    def __init__(
        self, log: tuple[Segment, ...], context: BuildContext, checkpoint: Checkpoint | None
    ) -> None:
        self.log = log
        self.context = context
        self.checkpoint = checkpoint
        self.front = Saved() if checkpoint is None else checkpoint.saved
        start = self.front.boundary
        sections = self.front.sections + list_sections(log, start, len(log), context.kinds)
        self.ledger = promote_sections(log, sections, context)
        self.reaches_back = _reaches_back(log[start:], self.ledger, context.options)
        if self.reaches_back:
            self.checkpoint = None
            self.front = Saved()
        self.boundary = 0 if self.reaches_back else find_boundary(log, start)
        self.unchanged = self.front.count
        self.lines: dict[Ref, LedgerLine] = {}
        self.ended: frozenset[Ref] = frozenset()
        self.reworded = False

    def repair(self) -> None:
        """Make entries of the new part of the log. Calls and results pair in it."""
        options = self.context.options
        memory = self.front.scan.copy()
        scan = LogScan(self.ledger, options.wording, options.repairs, memory, keep_users=options.keep_users)
        scan.take_all(self.log[self.front.boundary : self.boundary])
        self.split = len(scan.entries)
        self.scan = memory.copy()
        scan.take_all(self.log[self.boundary :], ends=True)
        self.entries = scan.entries
        self.repairs = scan.new_repairs

    def place(self) -> None:
        """Give the new entries their order, turns, steps and layers, and find what leaves with its turn.

        The order comes first: a turn is counted by the entries as they are sent, not as they were logged.
        """
        kinds = self.context.kinds
        layout = self.context.options.layout
        entries = self.entries
        if find_attachments(entries, kinds):
            entries = order_turns(entries, self.ledger, layout, kinds)
        if self.front.boundary == 0:
            entries = put_system_first(entries, self.ledger.promoted, kinds)
        first, self.position_at_split = place_entries(
            entries[: self.split], kinds, position=self.front.position
        )
        second, self.position = place_entries(entries[self.split :], kinds, position=self.position_at_split)
        entries = first + second
        if layout.include != NO_FILTER or layout.exclude != NO_FILTER:
            entries = omit_filtered(entries, layout)
        self.entries = entries
        self.first_ref = entries[self.split].ref if second else None
        self.open_entries = self.front.stream[self.front.open_at : self.front.count]
        self.leaving = find_leaving(
            [*self.open_entries, *entries], kinds, layout, bound=self.context.binds_thinking
        )

    # What comes after a front can change it in a few ways. Each is looked for in the new part alone.

    def continues(self) -> bool:
        """Whether the front is still what arranging the whole log would give."""
        if self._takes_back() or self._returns_what_left():
            return False
        ledger = self.context.ledger
        if ledger.lines and self._lacks_repeated_text():
            return False
        return not self._changes_full_copies(ledger)

    def _takes_back(self) -> bool:
        """Whether a turn or step was taken back, so that what was old at the checkpoint is not old any more.

        A client that deletes its last messages makes an earlier question the prompt again.
        """
        # Thinking alone begins no step: what stands before it may be the last step again.
        new_steps = [entry.step for entry in self.entries if not is_aside(entry)]
        if max(new_steps, default=0) <= self.front.position.step:
            return True
        entries_before = () if self.checkpoint is None else self.checkpoint.entries
        return find_last_turn(self.entries or self.front.entries) < find_last_turn(entries_before)

    def _returns_what_left(self) -> bool:
        """Whether an entry has left the front with its turn, and would stay now.

        That happens if the client changed the rest of the turn. What a cut left out has a line, and stays
        out.
        """
        if OWN_TURN_ONLY not in map(attrgetter("why"), self.open_entries):
            return False
        lines = self.context.ledger.lines
        for at, entry in enumerate(self.open_entries):
            has_left = entry.form is Form.OMITTED and entry.why == OWN_TURN_ONLY
            if has_left and entry.ref not in lines and at not in self.leaving:
                return True
        return False

    def _lacks_repeated_text(self) -> bool:
        """Whether system text was left out because it stands again later, and the client has taken that away.

        Then the older text must be sent again, and the front does not have it.
        """
        front_entries = self.front.entries
        omitted_text = {entry.content for entry in front_entries if entry.why == SAME_TEXT_LATER}
        if not omitted_text:
            return False
        # A copy that is sent within the front stands for the older ones, whatever comes after it.
        omitted_text -= {entry.content for entry in find_sent(front_entries)}
        omitted_text -= {entry.content for entry in self.entries if entry.role is Role.SYSTEM}
        return bool(omitted_text)

    def _changes_full_copies(self, ledger: Ledger) -> bool:
        """Whether a copy in full is gone that something in the front refers to, or was lowered for.

        The copy left with its turn, or the client took a later one away.
        """
        lines = {ref: line for ref, line in ledger.lines.items() if is_about_copies(line)}
        if not lines:
            return False
        front_entries = self.front.entries
        refs = {entry.ref for entry in (*front_entries, *self.entries)}
        leaving = {entry.ref for at, entry in enumerate(self.open_entries) if at in self.leaving}
        copies = {copy.identity for copy in self.front.copies.values() if copy.ref in leaving}
        for entry in front_entries:
            line = lines.get(entry.ref)
            if line is None:
                continue
            if lacks_later_copy(line.why, refs) or identify_attachment(entry) in copies:
                return True
        return False

    def omit_leaving(self) -> None:
        """Leave out what stood in its own turn only, if that turn is over now.

        The front is left as it is up to the first entry that leaves. Only its last turn is weighed again: the
        turns before it keep their hashes.
        """
        if not self.leaving:
            return
        entries = [*self.open_entries, *self.entries]
        for at in self.leaving:
            entries[at] = _omit_with_turn(entries[at], self.context.ledger)
        open_entries = entries[: len(self.open_entries)]
        self.entries = entries[len(self.open_entries) :]
        self.unchanged = self.front.open_at + count_same(self.open_entries, open_entries)
        if self.unchanged == self.front.count:
            return
        before = list(self.front.stream[: self.front.open_at])
        self.front = self.front.replace_entries(before + self._weigh(open_entries, before), self.context)

    def word(self) -> list[Entry]:
        """The new entries in the words of their kinds; covers are in their places."""
        entries = omit_covered(self.entries, self.context.kinds)
        entries = word_entries(entries, wording=self.context.wording)
        entries = mark_replacing(entries, self.front, self.context)
        if self.context.options.layout.drops_results:
            entries = _omit_earlier_results(entries, self.position.turn)
        if self.context.options.repairs.merge:
            entries = _merge_neighbours(entries)
        return entries

    def apply_ledger(self, entries: list[Entry]) -> Applied:
        """The new entries as the ledger wants them, with the reminders that hold."""
        ledger = self.ledger
        placed = ReferredLog(entries=entries)
        if self.context.options.layout.library == "hoisted":
            with self.context.phase("library"):
                placed = hoist_attachments(entries, self.position.turn, ledger, self.context)
        applied = Applied(entries=placed.entries, ledger=without_lines(ledger, placed.ended))
        if ledger.lines or ledger.folds:
            applied = apply_ledger(
                placed.entries,
                applied.ledger,
                wording=self.context.wording,
                with_folds=self.checkpoint is None,
            )
        if ledger.reminders:
            applied = self._lay_reminders(applied)
        return msgspec.structs.replace(applied, followed=applied.followed | placed.lines)

    def _lay_reminders(self, applied: Applied) -> Applied:
        """The entries with the reminders that hold, each before its prompt.

        Those of the front stand in it already. The sources of one that is new to the front are in the front.
        Where a rewind or a promotion has brought a source back in full, its reminder ends as the digest did.
        """
        refs = {entry.ref for entry in applied.entries}
        reminders = applied.ledger.reminders
        if self.checkpoint is None:
            valid = find_valid_reminders(reminders, refs)
        else:
            in_front = self.front.reminders
            valid = tuple(each for each in reminders if each.key in in_front or each.before in refs)
        in_full = {entry.ref for entry in applied.entries if entry.form is Form.FULL}
        valid = tuple(each for each in valid if in_full.isdisjoint(each.sources))
        ledger = applied.ledger
        if len(valid) < len(reminders):
            ledger = msgspec.structs.replace(ledger, reminders=valid)
        entries = lay_reminders(applied.entries, valid, wording=self.context.wording)
        return msgspec.structs.replace(applied, entries=entries, ledger=ledger)

    def finish(self, applied: Applied) -> Draft:
        """The front and the new entries as one draft.

        Where the arranger stands before the second part of them is where the next build may begin: that part
        is still open, and may go on.
        """
        split = 0
        if not self.reaches_back:
            split = find_position(applied.entries, self.first_ref)
        self.stream = list(self.front.stream[: self.front.count])
        self.copies = dict(self.front.copies)
        self._add(applied.entries[:split])
        saved = self._save(self.front.reminders + list_reminders(applied.entries[:split]))
        self._add(applied.entries[split:])
        # As long as the last turn of the front goes on, nothing in it becomes history.
        if self.position.turn > self.front.position.turn:
            open_at = self.front.open_at
            self.stream[open_at:] = age_entries(self.stream[open_at:], self.position.turn)
        return Draft(
            log=self.log,
            entries=self.stream,
            tokens=sum(map(attrgetter("tokens"), self.stream)),
            ledger=without_lines(applied.ledger, self.ended),
            lines=applied.reworded | applied.followed | self.lines,
            folds=applied.ledger.folds,
            repairs=self.repairs,
            reminders=applied.ledger.reminders,
            reworded=bool(applied.reworded) or self.reworded,
            unchanged=self.unchanged,
            next_front=None if self.reaches_back else saved,
        )

    def _add(self, entries: list[Entry]) -> None:
        """Add entries to the stream; those of content that stands in full above refer to it."""
        if find_attachments(entries, self.context.kinds):
            referred = refer_to_earlier(entries, self.ledger, self.copies, self.context)
            entries = referred.entries
            self.lines |= referred.lines
            self.ended |= referred.ended
            self.reworded |= referred.reworded
        self.stream += self._weigh(entries, self.stream)

    def _weigh(self, entries: list[Entry], before: list[Entry]) -> list[Entry]:
        prefix = find_prefix(before, self.context.root)
        return weigh_entries(entries, self.context.scale, prefix=prefix, last_sent=find_last_sent(before))

    def _save(self, reminders: tuple[str, ...]) -> Saved:
        new_sections = list_sections(self.log, self.front.boundary, self.boundary, self.context.kinds)
        open_at = self.front.open_at
        if max(self.position_at_split.turn, 0) > self.front.position.turn:
            open_at = find_open_turn(self.stream, self.position_at_split)
        return Saved(
            stream=self.stream,
            count=len(self.stream),
            boundary=self.boundary,
            scan=self.scan,
            position=self.position_at_split,
            open_at=open_at,
            copies=dict(self.copies),
            reminders=reminders,
            sections=self.front.sections + new_sections,
            first_ref=self.first_ref,
        )


def _reaches_back(log: Sequence[Segment], ledger: Ledger, options: Options) -> bool:
    """Whether something in this log, or in its layout, changes what stands before it.

    Then nothing that an earlier build made of the beginning can be used again, and the log is one piece.
    """
    if moves_sent_text(options.layout) or ledger.promoted:
        return True
    if options.repairs.merge or options.repairs.strip_tags:
        return True
    return any(segment.covers for segment in log)


def _omit_with_turn(entry: Entry, ledger: Ledger) -> Entry:
    """The entry, omitted with its turn. If a cut omitted it, the reason in the ledger stays.

    So the same entry is explained in the same way by every build. A line about another copy gives no reason:
    the client may have taken that copy away, and a build without a memo has not looked for copies yet.
    """
    line = ledger.lines.get(entry.ref)
    if line is not None and is_about_copies(line):
        return omit(entry, OWN_TURN_ONLY)
    is_omitted_by_cut = line is not None and line.form is Form.OMITTED
    if entry.form is Form.OMITTED or is_omitted_by_cut:
        return entry
    return omit(entry, OWN_TURN_ONLY)


def _omit_earlier_results(entries: list[Entry], turn: int) -> list[Entry]:
    """The entries without what tool loops of turns before `turn` asked for and fetched."""
    reasons: dict[Ref, str] = {}
    for entry in entries:
        if entry.turn < turn and begins_with(entry.parts, ToolCall | ToolResult):
            reasons[entry.ref] = OWN_TURN_ONLY
    return omit_by_ref(entries, reasons)


def _merge_neighbours(entries: Iterable[Entry]) -> list[Entry]:
    """The entries, of which those that became neighbours are one message: what stood between is left out.

    Repair has merged those that were neighbours in the log.
    """
    result: list[Entry] = []
    last_role: Role | None = None
    was_omitted = False
    for entry in entries:
        if entry.form is Form.OMITTED:
            was_omitted = True
            result.append(msgspec.structs.replace(entry, opens=False))
            continue
        is_plain = entry.role in (Role.USER, Role.ASSISTANT) and not begins_with(entry.parts, ToolResult)
        if was_omitted and is_plain and entry.role is last_role:
            result.append(msgspec.structs.replace(entry, opens=False))
        elif was_omitted:
            result.append(msgspec.structs.replace(entry, opens=entry.opens or entry.role is not last_role))
        else:
            result.append(entry)
        last_role = entry.role
        was_omitted = False
    return result


# The words of their kind.


def word_entries(entries: Iterable[Entry], *, wording: Wording) -> list[Entry]:
    """Entries in full, in the words of their kind. What is sent as it is stays the same object.

    So a message that nobody changed leaves a dialect as the very object that came in.
    """
    return [_word_entry(entry, wording) for entry in entries]


def _word_entry(entry: Entry, wording: Wording) -> Entry:
    """One entry in the words of its kind, if its kind has any.

    A late result speaks in another voice than its segment, and has its words already.
    """
    has_own_voice = entry.role is entry.segment.role
    if entry.form is not Form.FULL or not has_own_voice:
        return entry
    if not is_worded(entry.segment, wording):
        return entry
    parts = wording(entry.source, Form.FULL, entry.content)
    return msgspec.structs.replace(entry, parts=parts, sent=parts_digest(entry.role, parts))


def is_worded(segment: Segment, wording: Wording) -> bool:
    """Whether a segment in full is sent in other words than its own: in a tag, or as its kind is worded.

    Plain messages are not: they leave as they came.
    """
    if wording.tagged or segment.kind in wording.words:
        return True
    return has_tag(wording.kinds, segment)
