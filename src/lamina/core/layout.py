"""How a caller wants a request laid out: where attachments stand, what is sent, and how much of it.

What a filter names is left out, and so is what a summary covers. A call and its result are left out together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from lamina.core.entries import is_message, omit_by_ref, pair_calls
from lamina.core.hashing import handle
from lamina.core.kinds import Kinds, Retention, kind_of, recoverable
from lamina.core.values import Entry, Form, Layer, Ref


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Chooses segments by kind, layer or key. An empty filter chooses nothing."""

    kinds: frozenset[str] = frozenset()
    layers: frozenset[Layer] = frozenset()
    keys: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.kinds or self.layers or self.keys)

    def matches(self, entry: Entry) -> str:
        """Which of the lists names the entry, such as "kind file"; "" if none does.

        The answer becomes the reason of an entry that is left out.
        """
        aspects = (
            ("kind", entry.segment.kind, self.kinds),
            ("layer", entry.layer, self.layers),
            ("key", entry.segment.key, self.keys),
        )
        for name, value, chosen in aspects:
            if value in chosen:
                return f"{name} {value}"
        return ""


NO_FILTER = Filter()


class Cap(msgspec.Struct, frozen=True, kw_only=True):
    """At most `tokens` of attachments, by priority; beyond it they are sent in `form`."""

    tokens: int
    form: Form = Form.STUB


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """How a request is laid out. `context` says where a turn's attachments stand to its question.

    With `include`, only what it names is sent, besides the system text; `exclude` wins over it. In the
    hoisted library an attachment has at most `prior_limit` characters, or what `prior_limits` says for its
    kind. `results` says how long tool calls and their results are sent: "kept" from turn to turn, or only in
    their own "turn". By default they leave with their turn in the hoisted layout alone, which moves bytes at
    each turn anyway.
    """

    library: Literal["in_place", "hoisted"] = "in_place"
    context: Literal["before", "after", "logged"] = "before"
    include: Filter = NO_FILTER
    exclude: Filter = NO_FILTER
    attachments: Cap | None = None
    prior_limit: int = 5_000
    prior_limits: dict[str, int] = {}
    results: Literal["kept", "turn"] | None = None

    @property
    def drops_results(self) -> bool:
        """Whether tool calls and their results leave with their turn."""
        if self.results is None:
            return self.library == "hoisted"
        return self.results == "turn"


def moves_sent_text(layout: Layout) -> bool:
    """Whether the end of a turn moves or leaves out what was sent, so that each turn begins an epoch."""
    return layout.library == "hoisted" or layout.drops_results


def omit_filtered(entries: list[Entry], layout: Layout) -> list[Entry]:
    """Leave out what the caller chose to leave out, each with the choice as its reason.

    A call and its result are left out together, whichever of the two the filter names.
    """
    reasons: dict[Ref, str] = {}
    for entry in entries:
        reason = _find_filter_reason(entry, layout)
        if reason:
            reasons[entry.ref] = reason
    if not reasons:
        return entries
    _add_partners(reasons, entries)
    return omit_by_ref(entries, reasons)


def _add_partners(reasons: dict[Ref, str], entries: Sequence[Entry]) -> None:
    """Give the result of a call that is left out a reason too, and the call of such a result.

    No provider takes one of the two without the other.
    """
    for call_at, result_at in pair_calls(entries):
        call_ref = entries[call_at].ref
        result_ref = entries[result_at].ref
        if call_ref in reasons:
            reasons.setdefault(result_ref, f"{reasons[call_ref]} (its call)")
        elif result_ref in reasons:
            reasons[call_ref] = f"{reasons[result_ref]} (its result)"


def _find_filter_reason(entry: Entry, layout: Layout) -> str:
    """Why the layout leaves an entry out; "" if it does not.

    Excluding wins over including. System text is sent unless it is excluded.
    """
    if entry.form is Form.OMITTED:
        return ""
    excluded_by = layout.exclude.matches(entry)
    if excluded_by:
        return f"filtered: {excluded_by} excluded"
    if not layout.include or entry.layer is Layer.SYSTEM:
        return ""
    if layout.include.matches(entry):
        return ""
    return "filtered: not included"


def omit_covered(entries: list[Entry], kinds: Kinds) -> list[Entry]:
    """Put each summary in the place of what it covers. What may not be summarised stays as it is.

    Of several summaries each works on what the ones before it left.
    """
    sent = [entry for entry in entries if entry.form is Form.FULL]
    # A digest has covers as well, but a fold of the ledger lays it.
    covers = [entry for entry in sent if entry.segment.covers and not entry.segment.is_own]
    for cover in covers:
        entries = _apply_cover(entries, cover, kinds)
    return entries


def _apply_cover(entries: list[Entry], cover: Entry, kinds: Kinds) -> list[Entry]:
    """Put one summary in the place of the first entry that it covers, and omit all that it covers.

    A call whose result is not covered stays, and so does its result: pairs are covered as a whole.
    """
    cover_at = entries.index(cover)
    covered = _find_covered(entries[:cover_at], cover, kinds)
    pairs = pair_calls(entries)
    for call_at, result_at in pairs:
        # No provider takes a call without its result.
        if call_at not in covered or result_at not in covered:
            covered -= {call_at, result_at}
    if not covered:
        return entries
    first = min(covered)
    if any(call_at < first < result_at for call_at, result_at in pairs):
        # One of several calls made at once: the summary may not stand between the others and their results.
        first = next(at for at, entry in enumerate(entries) if entry.step == entries[first].step)
    why = f"covered by {_name_of(cover)}"
    reasons = {entries[at].ref: why for at in covered}
    moved = msgspec.structs.replace(cover, turn=entries[first].turn, step=entries[first].step)
    rest = omit_by_ref(entries, reasons)
    del rest[cover_at]
    return [*rest[:first], moved, *rest[first:]]


def _find_covered(entries: Sequence[Entry], cover: Entry, kinds: Kinds) -> set[int]:
    """Positions of the entries that a cover names and may stand for."""
    keys = frozenset(cover.segment.covers)
    covered: set[int] = set()
    for at, entry in enumerate(entries):
        names = (_name_of(entry), entry.segment.key, entry.ref)
        if not keys.isdisjoint(names) and _may_cover(entry, kinds):
            covered.add(at)
    return covered


def _name_of(entry: Entry) -> str:
    """The name by which a summary covers an entry: its key, or its handle if it has none."""
    return entry.segment.key or handle(entry.content)


def _may_cover(entry: Entry, kinds: Kinds) -> bool:
    """Whether a summary may stand for an entry: it is sent, recoverable, and need not be sent in full.

    A summary loses words, so the user's own words and other critical text may not be under one.
    """
    if not is_message(entry) or entry.segment.pinned:
        return False
    if kind_of(kinds, entry.segment).retention is Retention.CRITICAL:
        return False
    return recoverable(kinds, entry.segment)
