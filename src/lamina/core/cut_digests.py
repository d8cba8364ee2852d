"""The digests of a cut: written for what it folds, and merged where they take too much of the room."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from lamina.core.cut_progress import CutProgress, lay_request
from lamina.core.folds import (
    FOLD_VERSION,
    NO_DIGEST,
    DigestSize,
    bound_digest,
    find_digest_size,
    find_neighbours,
    find_runs,
    is_digest,
    make_fold,
    map_covered,
    measure_fold,
)
from lamina.core.folds import SHARE as DIGEST_SHARE
from lamina.core.values import Entry, Fold, Ref
from lamina.core.wishes import list_notes

_SHARES = (1, 4)
"""A digest may have its whole size, or else one part in this many of it."""

_TRIES, _MOST_TRIES = 3, 6
"""How often a digest is written shorter or longer until its size in tokens is right too; more often while it
is too long."""

_LEAST_PART = 3
"""A new digest has at least one part in so many of what all digests may have. If that is too much, they
merge."""

ONLY_RULES, ONE_LINE = 0, -1
"""Limits of a digest in characters that leave the rules of the user, and that leave one line."""


def write_digests(progress: CutProgress, digest_limit: int | None) -> CutProgress:
    """Writes the digests of what is to be folded, and weighs the request as it would be sent.

    A `digest_limit` bounds each digest in characters, even the user's words in it.
    """
    old_folds = progress.earlier
    most_tokens = None
    if digest_limit is None and progress.limits.room:  # a cut for a window of history has no room to keep to
        digest_tokens = progress.limits.free // DIGEST_SHARE
        most_tokens = digest_tokens - sum(_digest_sizes(_find_entries_before(progress)).values())
        most_tokens = max(most_tokens, digest_tokens // _LEAST_PART)
    new_folds: list[Fold] = []
    for run in find_runs(progress.entries, progress.folded):
        fold = _fold_run([progress.entries[at] for at in run], progress, digest_limit, most_tokens)
        if fold is not None:
            new_folds.append(fold)
    return _merge_digests(lay_request(progress, old_folds + tuple(new_folds)), digest_limit)


def _find_entries_before(progress: CutProgress) -> Sequence[Entry]:
    """The entries before the cut. If rules are marked now, the digests are larger by these marks."""
    if progress.earlier == progress.draft.ledger.folds:
        return progress.draft.entries
    return lay_request(progress, progress.earlier).request


def _fold_run(
    run: Sequence[Entry], progress: CutProgress, digest_limit: int | None, most_tokens: int | None
) -> Fold | None:
    """A digest of the run that is smaller than it; None if there is none.

    A digest of its whole size is tried first, then one of a quarter. What cannot be folded stays as it is.
    """
    run_tokens = sum(entry.tokens for entry in run)
    for share in _SHARES:
        fold = _write_digest(run, progress, digest_limit, share, most_tokens)
        if _pays(fold, run, run_tokens, progress):
            return fold
    return None


def _write_digest(
    run: Sequence[Entry],
    progress: CutProgress,
    digest_limit: int | None,
    share: int = 1,
    most_tokens: int | None = None,
) -> Fold:
    """A digest that keeps its size in tokens: names and dense scripts take more tokens than prose.

    `most_tokens` bounds it as it is sent, with its tags. Each try is shorter by as much as the last one was
    too long, and longer if there is room for more of what was said. A digest of one line cannot be
    shorter.
    """
    context = progress.context
    size = choose_digest_size(progress, digest_limit).scale(1, share)
    name = (tuple(entry.ref for entry in run), size, most_tokens)
    if name in progress.written:
        return progress.written[name]
    verbatim = digest_limit is None and progress.words.may_stand
    later_rules = progress.words.rules_after(run[-1].ref)
    run_text = progress.read_run(run)
    characters = size.total
    best: Fold | None = None
    best_tokens = 0
    for attempt in range(1, _MOST_TRIES + 1):
        fold, complete = make_fold(
            run,
            run_text,
            size=size,
            cut=progress.number,
            later_rules=later_rules,
            verbatim=verbatim,
            noted=list_notes(run, progress.draft.wishes),
        )
        tokens = _measure(fold, run, progress, as_sent=most_tokens is not None)
        # Without a limit in tokens, a digest may have one for every two of its characters.
        limit = characters // 2
        if most_tokens is not None:
            limit = most_tokens
        if verbatim and fold.whole:
            # The words must stand; what was done and names have what is left, or a line each.
            limit = max(limit, context.scale.counter.count(fold.text) + _AROUND_WORDS)
        if best is None or _is_better(tokens, best_tokens, limit):
            best = fold
            best_tokens = tokens
        may_grow = most_tokens is not None and not complete
        next_size = _resize(size, fold, tokens, limit, may_grow=may_grow)
        has_its_size = attempt >= _TRIES and best_tokens <= limit
        if next_size is None or next_size == size or has_its_size:
            break
        size = next_size
    progress.written[name] = best or fold
    return best or fold


def _measure(fold: Fold, run: Sequence[Entry], progress: CutProgress, *, as_sent: bool) -> int:
    """The tokens of a digest, with its tags as it is sent, or of its text alone."""
    scale = progress.context.scale
    if as_sent:
        return measure_fold(fold, run, scale, progress.context.wording)
    return scale.counter.count(fold.text) + scale.counter.count(fold.notes)


def _is_better(tokens: int, best_tokens: int, limit: int) -> bool:
    """Whether a digest has a better size than the best so far: the largest within the limit, or the least."""
    if tokens > limit:
        return tokens < best_tokens
    return best_tokens > limit or tokens > best_tokens


_AROUND_WORDS = 120
"""Tokens of a digest besides the words of the user and what was done: its tags and the closing line."""


def _resize(size: DigestSize, fold: Fold, tokens: int, limit: int, *, may_grow: bool) -> DigestSize | None:
    """The size for the next try; None if this one is right."""
    if size.rules or not size.total:
        return None
    if tokens > limit:
        # Tags and headings do not shrink with the size, so the rest has to shrink by more.
        around = min(_AROUND_WORDS, limit // 2)
        return size.scale(max(limit - around, 1), tokens - around)
    missing = limit - tokens
    if not may_grow or missing * 16 < limit:
        return None
    characters = len(fold.text) + len(fold.notes)
    return size._replace(words=size.words + missing * characters // max(tokens, 1))


def choose_digest_size(progress: CutProgress, digest_limit: int | None) -> DigestSize:
    """The size of one digest: a share of the free room, or what is left of it as a last resort."""
    free = progress.limits.free
    if digest_limit is None:
        return find_digest_size(free)
    if digest_limit == ONE_LINE:
        return NO_DIGEST
    return bound_digest(digest_limit, free)


def _pays(fold: Fold, run: Sequence[Entry], run_tokens: int, progress: CutProgress) -> bool:
    """Whether a digest is smaller than what it stands for."""
    context = progress.context
    return measure_fold(fold, run, context.scale, context.wording) < run_tokens


def _merge_digests(progress: CutProgress, digest_limit: int | None) -> CutProgress:
    """Merges digests side by side where they take too much of the room, or if nothing else helps.

    A message that stays between two digests keeps them apart. Then each is written anew with its part of the
    size, so that all of them together stay bounded, however many there are. Digests of an older version are
    written anew too: they did not keep the voices apart.
    """
    groups = _find_groups_to_merge(progress, digest_limit)
    if not groups:
        return progress
    sizes = _digest_sizes(progress.request)
    by_ref = {entry.ref: entry for entry in progress.request}
    folds = progress.folds
    most_tokens = None
    if digest_limit is None and progress.limits.room:  # a cut for a window of history has no room to keep to
        most_tokens = _count_tokens_left(groups, sizes, progress) // len(groups)
    for group in groups:
        run = _find_covered(group, by_ref)
        merged = _write_digest(run, progress, digest_limit, share=len(groups), most_tokens=most_tokens)
        group_tokens = sum(sizes.get(fold.key, 0) for fold in group)
        if _has_old_version(group) or _pays(merged, run, group_tokens, progress):
            folds = _replace_folds(folds, group, merged)
    return lay_request(progress, folds)


def _count_tokens_left(
    groups: Iterable[Iterable[Fold]], sizes: Mapping[str, int], progress: CutProgress
) -> int:
    """What merged digests may take: of the share of all digests, what those that stay as they are leave."""
    merged_keys = {fold.key for group in groups for fold in group}
    other_tokens = sum(tokens for key, tokens in sizes.items() if key not in merged_keys)
    return progress.limits.free // DIGEST_SHARE - other_tokens


def _find_groups_to_merge(progress: CutProgress, digest_limit: int | None) -> list[list[Fold]]:
    """Groups of neighbouring folds that should have one digest; a fold without neighbours is a group too.

    A cut for a window of history has no room to keep to: it merges neighbours, and leaves the others.
    """
    digest_tokens = sum(_digest_sizes(progress.request).values())
    is_bounded = digest_limit is not None
    is_crowded = is_bounded or digest_tokens > progress.limits.free // DIGEST_SHARE
    has_room = is_bounded or progress.limits.room > 0
    fewest = 1 if has_room else 2
    groups: list[list[Fold]] = []
    for group in find_neighbours(progress.request, _mergeable_folds(progress)):
        may_merge = is_crowded and len(group) >= fewest
        if may_merge or _has_old_version(group):
            groups.append(group)
    return groups


def _has_old_version(folds: Iterable[Fold]) -> bool:
    """Whether one of these digests was written by a release that did not keep the voices apart."""
    return any(fold.version < FOLD_VERSION for fold in folds)


def _find_covered(folds: Sequence[Fold], by_ref: Mapping[Ref, Entry]) -> list[Entry]:
    """The entries that these folds cover, in their order.

    An entry that the request does not have, since a window took it out, is passed over.
    """
    covered: list[Entry] = []
    for fold in folds:
        covered += [by_ref[ref] for ref in fold.covers if ref in by_ref]
    return covered


def _mergeable_folds(progress: CutProgress) -> Sequence[Fold]:
    """The folds that may be written anew.

    A cut for a window of history may not touch the digests of what is inside of the window.
    """
    if progress.mergeable is None:
        return progress.folds
    return [fold for fold in progress.folds if progress.mergeable.issuperset(fold.covers)]


def join_digests(progress: CutProgress, digest_limit: int) -> CutProgress:
    """Joins digests with what stands between them, where that is lowered as far as it can be.

    Two digests with a few stubs between them become one, which is smaller than all of them. A run of which
    everything is folded already is left alone.
    """
    owner = map_covered(progress.folds)
    sizes = _digest_sizes(progress.request)
    folds = progress.folds
    for run in _find_foldable_runs(progress, owner):
        group: dict[str, Fold] = {}
        unfolded_tokens = 0
        has_unfolded = False
        for entry in run:
            fold = owner.get(entry.ref)
            if fold is None:
                has_unfolded = True
                unfolded_tokens += entry.tokens
            else:
                group[fold.key] = fold
        if not group or not has_unfolded:
            continue
        merged = _write_digest(run, progress, digest_limit)
        run_tokens = unfolded_tokens + sum(sizes.get(key, 0) for key in group)
        if _pays(merged, run, run_tokens, progress):
            folds = _replace_folds(folds, list(group.values()), merged)
    return lay_request(progress, folds)


def _find_foldable_runs(progress: CutProgress, owner: Mapping[Ref, Fold]) -> list[list[Entry]]:
    """Entries in a row that are folded, or that this cut would fold.

    The digests that stand for them now are passed over, so that two folds with a few stubs between them are
    one run.
    """
    entries: list[Entry] = []
    foldable: set[int] = set()
    for at, entry in enumerate(progress.entries):
        if is_digest(entry):
            continue
        if at in progress.folded or entry.ref in owner:
            foldable.add(len(entries))
        entries.append(entry)
    runs = find_runs(entries, frozenset(foldable))
    return [[entries[at] for at in run] for run in runs]


def _digest_sizes(request: Sequence[Entry]) -> dict[str, int]:
    """Tokens of each fold's digest in the request, by the key of the fold.

    A digest has up to three entries: the user's words, the notes, and the line that ends them.
    """
    sizes: dict[str, int] = {}
    for entry in request:
        if is_digest(entry):
            key = entry.segment.key.partition("!")[0]  # fold-1a2b!notes is a part of the digest of fold-1a2b
            sizes[key] = sizes.get(key, 0) + entry.tokens
    return sizes


def _replace_folds(folds: tuple[Fold, ...], group: Sequence[Fold], merged: Fold) -> tuple[Fold, ...]:
    """The folds with `merged` in the place of a group. It answers to the keys of all that it replaces.

    The model may still recall a digest by the key that it saw in an earlier request.
    """
    first = folds.index(group[0])
    answers_to: list[str] = []
    for fold in group:
        answers_to += [fold.key, *fold.merged]
    replaced = frozenset(fold.key for fold in group)
    rest = [fold for fold in folds if fold.key not in replaced]
    other_keys = tuple(key for key in answers_to if key != merged.key)
    return (*rest[:first], msgspec.structs.replace(merged, merged=other_keys), *rest[first:])
