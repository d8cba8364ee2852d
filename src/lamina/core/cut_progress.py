"""A cut in the making: the value that its steps pass along, and the request that it would send now.

`find_untouchable` and `find_spared` say which positions it may not touch, and which it would rather spare.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any

import msgspec

from lamina.core.bound_thinking import is_held_by_thinking, omit_thinking_after_cut
from lamina.core.cut_target import CutLimits, Sparing
from lamina.core.digests import VERBATIM_PART, is_digest, lay_folds, mark_rules, read_run
from lamina.core.draft import Draft
from lamina.core.entries import begins_with, find_sent, index_by_ref, is_users_text
from lamina.core.options import BuildContext
from lamina.core.references import is_named_in_library
from lamina.core.run_text import RunText
from lamina.core.scale import Scale, weigh_entries
from lamina.core.system_text import find_later_sections, put_system_first, unmark_promoted
from lamina.core.text.standing_rules import find_rules
from lamina.core.text.user_words import LaterRule
from lamina.core.tool_rules import find_silent, map_rules
from lamina.core.turns import current_turn
from lamina.core.values import Cut, Entry, Fold, Layer, LedgerLine, Ref, Role, ToolResult
from lamina.core.wording import text_of


class UserWords(msgspec.Struct, frozen=True, kw_only=True):
    """What the user said in a conversation, as far as a cut needs to know it.

    `may_stand`: all of it together takes so little of the room that digests quote it word for word. `rules`
    are the standing rules in it, each with the position of its message; `position_of` has the positions by
    ref.
    """

    may_stand: bool = False
    rules: tuple[tuple[int, LaterRule], ...] = ()
    position_of: dict[Ref, int] = {}

    def rules_after(self, ref: Ref) -> tuple[LaterRule, ...]:
        """The rules that the user gave after this entry."""
        position = self.position_of.get(ref, 0)
        return tuple(rule for at, rule in self.rules if at > position)


def read_user_words(entries: Sequence[Entry], room: int, context: BuildContext) -> UserWords:
    """What the user said, and whether it takes at most its part of the room."""
    most_verbatim = room // VERBATIM_PART
    tokens = 0
    rules: list[tuple[int, LaterRule]] = []
    for at, entry in enumerate(entries):
        if not is_users_text(entry):
            continue
        text = text_of(entry.segment.parts)
        if tokens <= most_verbatim:
            tokens += _count_words(entry, text, context.scale)
        rules += [(at, LaterRule(entry.turn + 1, rule, entry.ref)) for rule in find_rules(text)]
    return UserWords(may_stand=tokens <= most_verbatim, rules=tuple(rules), position_of=index_by_ref(entries))


def _count_words(entry: Entry, text: str, scale: Scale) -> int:
    """The tokens of what the user said. A lone text that stands in full was counted when it was weighed."""
    if len(entry.parts) == 1 and entry.parts == entry.segment.parts:
        weighed = scale.counts.get(entry.sent)
        if weighed is not None:
            return weighed
    return scale.counter.count(text)


class CutProgress:
    """A cut in the making. `evolve` gives it with changes; each step of a cut takes one and returns another.

    `draft` is what the cut begins with, and `words` what the user said in it. `entries_before` and
    `tokens_before` are those of the request before the cut. `earlier` are the folds of earlier cuts, with
    marks at rules that the user replaced since. `entries` are its entries with the moves taken so far,
    `folded` the positions that go under digests, `lines` the new lines and `folds` all folds, old and new.
    `request` are the entries as they would be sent now, and `tokens` their size. `exhausted`: nothing more
    could be lowered to reach the goal. `took_last_resort`: what cannot be recovered was lowered, or might
    have been.

    `number` is the one that the cut will have in the ledger. `current` are the positions of the prompt and
    the last step, `held` those that a rule of tools holds. `tool_rules` has the rules of tools by position,
    and `silent` the entries of which no digest says anything. Only digests of nothing but `mergeable`
    segments may be written anew; None allows all.

    `written` remembers the digests of this cut, by what they cover and their limits: while the cut spares
    less and less, most of them would be written again word for word. `runs` and `reader` remember what was
    read for them: an order is asked again and again.
    """

    def __init__(
        self,
        draft: Draft,
        limits: CutLimits,
        context: BuildContext,
        *,
        mergeable: frozenset[Ref] | None = None,
    ) -> None:
        self.draft = draft
        self.limits = limits
        self.context = context
        self.mergeable = mergeable
        self.number = len(draft.ledger.cuts) + 1
        self.words = read_user_words(draft.entries, limits.working, context)
        self.earlier = draft.ledger.folds
        if not is_held_by_thinking(draft.entries, context.options.binding):
            self.earlier = _mark_earlier(draft, self.words, mergeable)
        self.current = current_turn(draft.entries)
        self.reader = context.find_reader()
        self.held = frozenset(at for at, entry in enumerate(draft.entries) if entry.ref in draft.held)
        self.tool_rules = map_rules(draft.entries, context.options.tools)
        self.silent = find_silent(draft.entries, context.options.tools)
        self.written: dict[tuple[tuple[Ref, ...], int | None, int | None, int], Fold] = {}
        self.runs: dict[tuple[Ref, ...], RunText] = {}
        self.entries_before = self.entries = self.request = draft.entries
        self.tokens_before = self.tokens = context.scale.total(draft.tokens)
        self.folded: frozenset[int] = frozenset()
        self.lines: dict[Ref, LedgerLine] = {}
        self.folds = draft.ledger.folds
        self.exhausted = False
        self.took_last_resort = False

    def evolve(self, **changes: Any) -> CutProgress:
        """The same cut with these attributes."""
        progress = copy(self)
        progress.__dict__.update(changes)
        return progress

    def read_run(self, run: Sequence[Entry]) -> RunText:
        """What is in a run of entries that a digest may show, read once in this cut."""
        name = tuple(entry.ref for entry in run)
        run_text = self.runs.get(name)
        if run_text is None:
            later_rules = self.words.rules_after(run[-1].ref)
            run_text = read_run(run, self.reader, silent=self.silent, later_rules=later_rules)
            self.runs[name] = run_text
        return run_text

    @property
    def changed(self) -> list[Entry]:
        """Entries of the request before the cut that are sent differently now, or not at all.

        Digests are not among them: they are new.
        """
        sent_now = {entry.ref: entry.sent for entry in self.request}
        sent_before = find_sent(self.entries_before)
        return [entry for entry in sent_before if sent_now.get(entry.ref) != entry.sent]


def _mark_earlier(draft: Draft, words: UserWords, mergeable: frozenset[Ref] | None) -> tuple[Fold, ...]:
    """The folds of earlier cuts, with marks at rules that the user replaced since.

    A digest may stand for many cuts before it merges, and the model would go on following such a rule.
    """
    folds = draft.ledger.folds
    if not words.rules or not any(fold.rules for fold in folds):
        return folds
    entry_of = {entry.ref: entry for entry in draft.entries}
    marked: list[Fold] = []
    for fold in folds:
        if mergeable is None or mergeable.issuperset(fold.covers):
            later_rules = words.rules_after(fold.covers[-1])
            marked.append(mark_rules(fold, entry_of, later_rules))
        else:
            marked.append(fold)
    return tuple(marked)


def finish_cut(progress: CutProgress, reason: str) -> Draft:
    """The draft as the cut leaves it.

    Thinking is left out here, and sections are promoted, since both need to know what the cut has changed.
    """
    draft = progress.draft
    context = progress.context
    entries = progress.request
    lines = draft.lines | progress.lines
    if context.binds_thinking:
        entries, thinking_lines = omit_thinking_after_cut(
            entries, progress.entries_before, binding=context.options.binding, cut=progress.number
        )
        # How a digest ends depends on who speaks next, and that may have been thinking that is left out now.
        laid = lay_folds(without_digests(entries), progress.folds, wording=context.wording)
        entries = weigh_entries(laid, context.scale, prefix=context.root)
        lines |= thinking_lines
    promoted = find_later_sections(entries, context.kinds)
    if promoted:
        entries = unmark_promoted(entries, promoted, context)
        entries = put_system_first(entries, draft.ledger.promoted + promoted, context.kinds)
        entries = weigh_entries(entries, context.scale, prefix=context.root)
    tokens = sum(entry.tokens for entry in entries)
    changed = progress.changed
    cut = Cut(
        number=progress.number,
        reason=reason,
        before=progress.tokens_before,
        after=context.scale.total(tokens),
        first=changed[0].ref if changed else "",
        lowered=len(changed),
        floor=progress.exhausted,
    )
    return msgspec.structs.replace(
        draft,
        entries=entries,
        tokens=tokens,
        lines=lines,
        folds=progress.folds,
        promoted=promoted,
        cut=cut,
        standing_tokens=None,
        unchanged=0,
    )


def lay_request(progress: CutProgress, folds: tuple[Fold, ...]) -> CutProgress:
    """The progress with these folds, and the request as it would be sent with them."""
    context = progress.context
    laid = lay_folds(without_digests(progress.entries), folds, wording=context.wording)
    request = weigh_entries(laid, context.scale, prefix=context.root)
    tokens = context.scale.total(sum(entry.tokens for entry in request))
    return progress.evolve(folds=folds, request=request, tokens=tokens)


def count_digest_tokens(entries: Iterable[Entry]) -> int:
    """Tokens of all digests among these entries."""
    return sum(entry.tokens for entry in entries if is_digest(entry))


def without_digests(entries: Sequence[Entry]) -> list[Entry]:
    """The entries of the log, and those of lamina's own that belong to no fold.

    Digests are laid anew whenever the folds change.
    """
    return [entry for entry in entries if not is_digest(entry)]


def find_untouchable(entries: Sequence[Entry], current: frozenset[int]) -> frozenset[int]:
    """Positions that no cut may touch: system text, what is pinned, digests, the prompt, the last step.

    `current` are those of the prompt and the last step. An attachment of the prompt may be lowered. A digest
    is written anew, or joined with others, but no order may lower it.
    """
    positions: set[int] = set()
    for at, entry in enumerate(entries):
        is_system_text = entry.role is Role.SYSTEM or entry.layer is Layer.SYSTEM
        # What came with the prompt stands in the layer TURN, and may be lowered.
        is_said_now = at in current and entry.layer in (Layer.PROMPT, Layer.STEPS)
        if is_system_text or is_said_now or is_digest(entry) or entry.segment.pinned:
            positions.add(at)
    return frozenset(positions)


def find_spared(entries: Sequence[Entry], sparing: Sparing, current: frozenset[int]) -> frozenset[int]:
    """Positions that a cut would rather spare: the last steps, and what came with the prompt.

    `current` are those of the prompt and the last step. In the hoisted layout, what came with the prompt may
    stand in the library, with equal content.
    """
    if not sparing:
        return frozenset()
    if sparing.steps:
        first_step = _find_first_of_last_steps(entries, sparing.steps)
    else:
        first_step = _find_first_step_within(entries, sparing, current)
    attached_now = {entry.content for entry in entries if is_named_in_library(entry)}
    positions: set[int] = set()
    for at, entry in enumerate(entries):
        came_with_prompt = entry.layer is Layer.TURN or entry.content in attached_now
        if came_with_prompt or entry.step >= first_step:
            positions.add(at)
    return frozenset(positions)


def _find_first_step_within(entries: Sequence[Entry], sparing: Sparing, current: frozenset[int]) -> int:
    """The first of the newest steps that together have at most the tokens to spare, besides the last one.

    No cut touches the last step and the prompt, so they do not count. A large result counts as the cut may
    leave it.
    """
    left = sparing.tokens
    first_step = entries[-1].step if entries else 0
    for at in range(len(entries) - 1, -1, -1):
        entry = entries[at]
        if at in current or entry.layer is Layer.SYSTEM or is_digest(entry):
            continue
        tokens = entry.tokens
        if sparing.largest and begins_with(entry.parts, ToolResult):
            tokens = min(tokens, sparing.largest)
        left -= tokens
        if left < 0:
            # A step is spared as a whole or not at all, even if some of its entries would have fitted.
            return max(first_step, entry.step + 1)
        first_step = min(first_step, entry.step)
    return first_step


def _find_first_of_last_steps(entries: Sequence[Entry], keep: int) -> int:
    """The first of the last `keep` steps in which the assistant speaks.

    If there are fewer than `keep`, it is the first step of all.
    """
    spoken: set[int] = set()
    for entry in find_sent(entries):
        # A message that repair made of several counts as one, though each of them is a step.
        is_models = entry.segment.role is Role.ASSISTANT and entry.opens
        if is_models and entry.segment.kind != "digest":
            spoken.add(entry.step)
    if len(spoken) < keep:
        return 0
    return sorted(spoken)[-keep]
