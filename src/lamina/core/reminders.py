"""Where reminders stand in a request: each right before the prompt that it was written for.

A reminder speaks in two voices, as a digest does: the user's words in a message of the user, and what the
model, the tools and files said quoted in a message of the model. `remind` says what a reminder quotes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from lamina.core.entries import make_own_entry
from lamina.core.text.tags import wrap_in_tag
from lamina.core.values import OWN_ORIGIN, Entry, Layer, Ref, Reminder, Role, Segment, Text
from lamina.core.wording import Wording, guard

KIND = "reminder"
_LINE = re.compile("^  ([0-9]+)", re.MULTILINE)  # other lines of a quotation have four spaces before them
TITLE = "Quoted from earlier in this conversation, since the next message may be about it:"


def lay_reminders(
    entries: Sequence[Entry], reminders: Sequence[Reminder], *, wording: Wording
) -> list[Entry]:
    """The entries, with each reminder before the prompt that it was written for."""
    before = {reminder.before: reminder for reminder in reminders}
    result: list[Entry] = []
    for entry in entries:
        reminder = before.get(entry.ref)
        if reminder is not None:
            result += make_entries(reminder, at=entry, wording=wording)
        result.append(entry)
    return result


def find_valid_reminders(reminders: Iterable[Reminder], refs: Collection[Ref]) -> tuple[Reminder, ...]:
    """The reminders whose prompt and sources are all in a log with these refs.

    If the user changed or took back one of them, the reminder goes with it.
    """
    logged = frozenset(refs)
    return tuple(each for each in reminders if logged.issuperset((each.before, *each.sources)))


def is_reminder(entry: Entry) -> bool:
    """Whether an entry is a part of a reminder."""
    return entry.segment.kind == KIND and entry.segment.is_own


def list_reminders(entries: Iterable[Entry]) -> tuple[str, ...]:
    """The keys of the reminders among these entries."""
    return tuple(entry.segment.key for entry in entries if is_reminder(entry) and entry.role is Role.USER)


def _explain(reminder: Reminder) -> str:
    """Where its lines come from, and why: `quotes turn 12 for the words 'invoice', 'date'` of the prompt."""
    turns = list(dict.fromkeys(_LINE.findall(f"{reminder.text}\n{reminder.notes}")))
    named = f"turn {turns[0]}"
    if len(turns) > 1:
        named = f"turns {', '.join(turns[:-1])} and {turns[-1]}"
    if not reminder.about:
        return f"quotes {named}: rules in force that could not be read"
    return f"quotes {named} for the words {', '.join(map(repr, reminder.about))}"


def make_entries(reminder: Reminder, *, at: Entry, wording: Wording) -> list[Entry]:
    """The messages of a reminder: the user's words under a title, and what others said."""
    why = _explain(reminder)
    body = "\n".join(filter(None, (TITLE, guard(reminder.text, wording.kinds))))
    texts = [(Role.USER, reminder.key, wrap_in_tag(KIND, {}, body))]
    if reminder.notes:
        notes = wrap_in_tag("reminder_notes", {}, guard(reminder.notes, wording.kinds))
        texts.append((Role.ASSISTANT, f"{reminder.key}!notes", notes))
    entries: list[Entry] = []
    for role, key, text in texts:
        segment = Segment(
            role=role, kind=KIND, parts=(Text(text),), key=key, origin=OWN_ORIGIN, covers=reminder.sources
        )
        entries.append(make_own_entry(segment, why, layer=Layer.TURN, turn=at.turn, step=at.step))
    return entries
