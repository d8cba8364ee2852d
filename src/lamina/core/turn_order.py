"""The order inside a turn: attachments beside their question, in whatever order they were logged.

What stands in its own turn only comes last of all: it leaves when its turn is over, and nothing that a cache
holds may stand behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from lamina.core.entries import identify_attachment, is_attachment, may_repeat, omit
from lamina.core.kinds import Kinds
from lamina.core.layout import Layout
from lamina.core.turns import continues_message, ends_turn, is_from_user, is_question
from lamina.core.values import Digest, Entry, Form, Ledger, Ref

ATTACHED_TWICE = "attached twice with one question"
"""Why an attachment is left out that the same question has already."""


def order_turns(entries: list[Entry], ledger: Ledger, layout: Layout, kinds: Kinds) -> list[Entry]:
    """Each turn's attachments before its question, or after it. With `context="logged"`, nothing is moved.

    Of attachments with one key that came with one question, the last is sent, and once. What an earlier
    request sent as a reference stays one.
    """
    references = frozenset(ref for ref, line in ledger.lines.items() if line.reference)
    result: list[Entry] = []
    for run in _find_opening_runs(entries, kinds):
        result += _order_run(run, references, layout, kinds)
    return result


def _find_opening_runs(entries: Iterable[Entry], kinds: Kinds) -> Iterator[list[Entry]]:
    """Run of what the user's side put in before the model spoke; everything else by itself.

    `question, file, reply, question` are three runs: the question with its file, the reply, the question.
    """
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


def _order_run(run: list[Entry], references: frozenset[Ref], layout: Layout, kinds: Kinds) -> list[Entry]:
    """One run in its order: lasting attachments and the question, then what leaves with the turn."""
    if layout.context == "logged":
        return _omit_repeated(_keep_newest(run, _name_by_key(run, kinds)), references, kinds)
    lasting, leaving = _split_leaving(run, kinds)
    lasting = _keep_newest(lasting, _name_by_key(lasting, kinds))
    if layout.context == "before":
        lasting = _put_question_last(lasting, kinds)
    else:
        lasting = _put_question_first(lasting, kinds)
    lasting = _omit_repeated(lasting, references, kinds)
    return lasting + _keep_newest(leaving, _name_by_kind_and_key(leaving), replace_equal=True)


def _put_question_last(run: list[Entry], kinds: Kinds) -> list[Entry]:
    """Move the attachments that came after the question before it; sections stay behind it.

    A question of several blocks, of which the later ones join the first, moves as a whole.
    """
    questions = [at for at, entry in enumerate(run) if is_question(entry, kinds)]
    if not questions:
        return run
    end = questions[-1] + 1
    start = questions[-1]
    while start > 0 and run[start].segment.joins:
        start -= 1
    attached, sections = _split_attachments(run[end:], kinds)
    return run[:start] + attached + run[start:end] + sections


def _put_question_first(run: list[Entry], kinds: Kinds) -> list[Entry]:
    """Move all attachments behind everything else."""
    attached, rest = _split_attachments(run, kinds)
    return rest + attached


def _split_attachments(entries: Iterable[Entry], kinds: Kinds) -> tuple[list[Entry], list[Entry]]:
    """The attachments among these entries, and the rest of them, each in their order."""
    attached: list[Entry] = []
    rest: list[Entry] = []
    for entry in entries:
        if is_attachment(entry, kinds):
            attached.append(entry)
        else:
            rest.append(entry)
    return attached, rest


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


def _keep_newest(run: list[Entry], names: list[str], *, replace_equal: bool = False) -> list[Entry]:
    """A run in which older content of a name is replaced by the newest. An entry named "" has no name.

    Content that did not change stays, and the newer entry refers to it later. With `replace_equal`, the older
    entry is replaced even then. What was replaced once does not come back when the newest says it again.
    """
    newest = dict(zip(names, run, strict=True))
    changed: set[str] = set()
    result: list[Entry] = []
    # From the end: once some content of a name was replaced, all that came before it stays replaced.
    for entry, name in zip(reversed(run), reversed(names), strict=True):
        newer = newest[name]
        is_newest = newer.ref == entry.ref
        may_stay = not replace_equal and identify_attachment(newer) == identify_attachment(entry)
        if name and not is_newest and not may_stay:
            changed.add(name)
        if name in changed:
            result.append(omit(entry, f"replaced in the same turn by {newer.ref}"))
        else:
            result.append(entry)
    return result[::-1]


def _omit_repeated(run: list[Entry], references: frozenset[Ref], kinds: Kinds) -> list[Entry]:
    """A run in which an attachment that came twice with one question is sent once.

    If a question stands between the two, the second one becomes a reference later: that question names it.
    """
    with_question: set[Digest] = set()
    result: list[Entry] = []
    for entry in run:
        if is_question(entry, kinds):
            with_question.clear()
        if entry.form is Form.OMITTED or not is_attachment(entry, kinds):
            result.append(entry)
            continue
        identity = identify_attachment(entry)
        is_repeated = identity in with_question and entry.ref not in references
        if is_repeated and not may_repeat(entry):
            result.append(omit(entry, ATTACHED_TWICE))
        else:
            result.append(entry)
        with_question.add(identity)
    return result


def _name_by_key(run: Sequence[Entry], kinds: Kinds) -> list[str]:
    """The key of each attachment, "" for everything else.

    Only attachments replace each other: two messages with one key are two messages.
    """
    names: list[str] = []
    for entry in run:
        name = ""
        if is_attachment(entry, kinds):
            name = entry.segment.key
        names.append(name)
    return names


def _name_by_kind_and_key(run: Sequence[Entry]) -> list[str]:
    """Of two entries of one kind without a key, such as two times, the newer replaces the older."""
    return [f"{entry.segment.kind} {entry.segment.key}" for entry in run]
