"""Where digests stand in a request: the entries of each fold are omitted, and its digest takes their place.

A digest speaks in two voices. The user's words come first, in a message of the user. What the model and the
tools said follows, quoted in a message of the model. If the model speaks next, a closing line of the user's
side ends the quotation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lamina.core.entries import make_closing_line, make_own_entry, omit
from lamina.core.repair import find_side
from lamina.core.text.tags import wrap_in_tag
from lamina.core.values import Entry, Fold, Form, Layer, Ref, Role, Segment, Text
from lamina.core.wording import Wording, guard


def lay_folds(entries: Sequence[Entry], folds: Iterable[Fold], *, wording: Wording) -> list[Entry]:
    """Each fold's segments omitted, and its digest where the first of them stood.

    System text among them stays. It comes after the user's words and before what is said in the model's
    voice: every provider accepts it there.
    """
    owner = map_covered(folds)
    last_covered = {owner[entry.ref].key: entry.ref for entry in entries if entry.ref in owner}
    result: list[Entry] = []
    before: Role | None = None
    opened: set[str] = set()
    with_words: set[str] = set()
    for at, entry in enumerate(entries):
        fold = owner.get(entry.ref)
        if fold is None:
            result.append(entry)
            if _is_sent_message(entry):
                before = entry.role
            continue
        if fold.key not in opened:
            opened.add(fold.key)
            if _needs_words(fold, before):
                with_words.add(fold.key)
                result.append(_make_words_entry(fold, at=entry, wording=wording))
                before = Role.USER
        result.append(omit(entry, f"folded into {fold.key}"))
        if fold.notes and entry.ref == last_covered[fold.key]:
            stands_alone = fold.key not in with_words
            result.append(_make_notes_entry(fold, at=entry, wording=wording, stands_alone=stands_alone))
            before = Role.ASSISTANT
            if _next_role(entries, at + 1, owner) is Role.ASSISTANT:
                result.append(_make_closing_entry(fold, at=entry))
                before = Role.USER
    return result


def map_covered(folds: Iterable[Fold]) -> dict[Ref, Fold]:
    """The fold of each ref that a fold covers."""
    return {ref: fold for fold in folds for ref in fold.covers}


def is_digest(entry: Entry) -> bool:
    """Whether an entry is a part of a fold's digest."""
    return entry.segment.kind == "digest" and entry.segment.origin == "lamina"


def _is_sent_message(entry: Entry) -> bool:
    """Whether an entry is sent, and is not system text."""
    return entry.form is not Form.OMITTED and entry.role is not Role.SYSTEM


def _needs_words(fold: Fold, before: Role | None) -> bool:
    """Whether the first voice is needed: it has words of the user, or no message of the user comes before."""
    if fold.speaks or not fold.notes:
        return True
    return before is None or find_side(before) != "user"


def _next_role(entries: Sequence[Entry], start: int, owner: Mapping[Ref, Fold]) -> Role:
    """Who speaks after a digest. If nobody does, the model will."""
    for at in range(start, len(entries)):
        entry = entries[at]
        next_fold = owner.get(entry.ref)
        if next_fold is not None:
            return Role.USER if _needs_words(next_fold, Role.USER) else Role.ASSISTANT
        if _is_sent_message(entry):
            return entry.role
    return Role.ASSISTANT


def _make_words_entry(fold: Fold, *, at: Entry, wording: Wording) -> Entry:
    """What a digest says in the user's voice: fenced data, in a message of its own."""
    text = wrap_in_tag("digest", _digest_attributes(fold, wording), guard(fold.text, wording.kinds))
    why = f"stands for {len(fold.covers)} folded segments"
    segment = _make_segment(fold, key=fold.key, role=Role.USER, text=text)
    return make_own_entry(segment, why, layer=_digest_layer(at), turn=at.turn, step=at.step)


def _make_notes_entry(fold: Fold, *, at: Entry, wording: Wording, stands_alone: bool) -> Entry:
    """What a digest quotes of the model and the tools, in the model's voice.

    If it stands alone, its tag has the attributes that the tag of the user's words would have.
    """
    attributes: dict[str, str] = {}
    if stands_alone:
        attributes = _digest_attributes(fold, wording)
    text = wrap_in_tag("digest_notes", attributes, guard(fold.notes, wording.kinds))
    why = f"says what was done in {len(fold.covers)} folded segments"
    segment = _make_segment(fold, key=f"{fold.key}!notes", role=Role.ASSISTANT, text=text)
    return make_own_entry(segment, why, layer=_digest_layer(at), turn=at.turn, step=at.step)


def _make_closing_entry(fold: Fold, *, at: Entry) -> Entry:
    """The line of the user's side that ends the quotation."""
    return make_closing_line(
        f"{fold.key}!end",
        "[end of the digest]",
        kind="digest",
        layer=_digest_layer(at),
        turn=at.turn,
        step=at.step,
    )


def _digest_attributes(fold: Fold, wording: Wording) -> dict[str, str]:
    """How many segments a digest stands for, and the key to recall them by."""
    attributes = {"covers": str(len(fold.covers))}
    if wording.handles:
        attributes["recall"] = fold.key
    return attributes


def _make_segment(fold: Fold, *, key: str, role: Role, text: str) -> Segment:
    return Segment(
        role=role, kind="digest", parts=(Text(text),), key=key, origin="lamina", covers=fold.covers
    )


def _digest_layer(at: Entry) -> Layer:
    """The layer of what the digest covers; a digest never stands in the system text or the library."""
    if at.layer in (Layer.SYSTEM, Layer.LIBRARY):
        return Layer.HISTORY
    return at.layer
