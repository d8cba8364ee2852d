"""The digests of a cut: written for what it folds, and merged where they take too much of the room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from lamina.core.cut_progress import CutProgress, lay_request
from lamina.core.folds import (
    FOLD_VERSION,
    find_digest_size,
    find_neighbours,
    find_runs,
    has_words,
    is_digest,
    make_fold,
    map_covered,
    measure_fold,
)
from lamina.core.folds import SHARE as DIGEST_SHARE
from lamina.core.orders import goes_last
from lamina.core.values import Entry, Fold, Ref

_SHARES = (1, 4)
"""A digest may have its whole size, or else one part in this many of it."""

_TRIES = 3
"""How often a digest is written shorter until its size in tokens is right too."""


def write_digests(progress: CutProgress, digest_limit: int | None) -> CutProgress:
    """Writes the digests of what is to be folded, and weighs the request as it would be sent.

    A `digest_limit` bounds each digest in characters, even the user's words in it; 0 leaves one line.
    """
    new_folds: list[Fold] = []
    for run in find_runs(progress.entries, progress.folded):
        fold = _fold_run([progress.entries[at] for at in run], progress, digest_limit)
        if fold is not None:
            new_folds.append(fold)
    folds = progress.draft.ledger.folds + tuple(new_folds)
    return _merge_digests(lay_request(progress, folds), digest_limit)


def _fold_run(run: Sequence[Entry], progress: CutProgress, digest_limit: int | None) -> Fold | None:
    """A digest of the run that is smaller than it and keeps the user's words; None if there is none."""
    run_tokens = sum(entry.tokens for entry in run)
    for share in _SHARES:
        fold = _write_digest(run, progress, digest_limit, share)
        if _pays(fold, run, run_tokens, progress, digest_limit):
            return fold
    return None


def _write_digest(
    run: Sequence[Entry], progress: CutProgress, digest_limit: int | None, share: int = 1
) -> Fold:
    """A digest that keeps its size in tokens too: in dense scripts a character takes several tokens."""
    context = progress.context
    counter = context.scale.counter
    is_bounded = digest_limit is not None
    size = find_digest_size(progress.limits.room) if digest_limit is None else digest_limit
    size //= share
    most_tokens = max(size // 2, 1)
    for _ in range(_TRIES):
        fold = make_fold(run, spare=size, cut=progress.number, kinds=context.kinds, bounded=is_bounded)
        tokens = counter.count(fold.notes) if fold.notes else 0
        if is_bounded:
            tokens += counter.count(fold.text)
        if tokens <= most_tokens or not size:
            break
        size = size * most_tokens // tokens
    return fold


def _pays(
    fold: Fold, run: Sequence[Entry], run_tokens: int, progress: CutProgress, digest_limit: int | None
) -> bool:
    """Whether a digest is smaller than its run. Unless it is bounded, it must also have the user's words."""
    context = progress.context
    if measure_fold(fold, run, context.scale, context.wording) >= run_tokens:
        return False
    if digest_limit is not None:
        return True
    users_words = [entry.segment for entry in run if goes_last(entry, context.kinds)]
    return has_words(fold.text, users_words)


def _merge_digests(progress: CutProgress, digest_limit: int | None) -> CutProgress:
    """Merges digests side by side where they take too much of the room, or if nothing else helps.

    Digests of an older version are written anew: they did not keep the voices apart.
    """
    sizes = _digest_sizes(progress.request)
    most_tokens = progress.limits.room // DIGEST_SHARE
    is_crowded = digest_limit is not None or sum(sizes.values()) > most_tokens
    outdated = {fold.key for fold in progress.folds if fold.version < FOLD_VERSION}
    if not is_crowded and not outdated:
        return progress
    # A bounded digest is shorter, even where it takes the place of only one.
    fewest = 2 if digest_limit is None else 1
    by_ref = {entry.ref: entry for entry in progress.request}
    folds = progress.folds
    for group in find_neighbours(progress.request, _mergeable_folds(progress)):
        is_outdated = any(fold.key in outdated for fold in group)
        may_merge = is_crowded and len(group) >= fewest
        if not is_outdated and not may_merge:
            continue
        run = _find_covered(group, by_ref)
        merged = _write_digest(run, progress, digest_limit)
        group_tokens = sum(sizes.get(fold.key, 0) for fold in group)
        if is_outdated or _pays(merged, run, group_tokens, progress, digest_limit):
            folds = _replace_folds(folds, group, merged)
    return lay_request(progress, folds)


def _find_covered(folds: Sequence[Fold], by_ref: Mapping[Ref, Entry]) -> list[Entry]:
    """The entries that these folds cover, in their order."""
    covered: list[Entry] = []
    for fold in folds:
        covered += [by_ref[ref] for ref in fold.covers if ref in by_ref]
    return covered


def _mergeable_folds(progress: CutProgress) -> Sequence[Fold]:
    """The folds that may be written anew."""
    if progress.mergeable is None:
        return progress.folds
    return [fold for fold in progress.folds if progress.mergeable.issuperset(fold.covers)]


def join_digests(progress: CutProgress) -> CutProgress:
    """Joins digests with what stands between them, where that is lowered as far as it can be."""
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
        merged = _write_digest(run, progress, 0)
        run_tokens = unfolded_tokens + sum(sizes.get(key, 0) for key in group)
        if _pays(merged, run, run_tokens, progress, 0):
            folds = _replace_folds(folds, list(group.values()), merged)
    return lay_request(progress, folds)


def _find_foldable_runs(progress: CutProgress, owner: Mapping[Ref, Fold]) -> list[list[Entry]]:
    """Entries in a row that are folded, or that this cut would fold."""
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
    """Tokens of each fold's digest in the request, by the key of the fold."""
    sizes: dict[str, int] = {}
    for entry in request:
        if is_digest(entry):
            key = entry.segment.key.partition("!")[0]  # fold-1a2b!notes is a part of the digest of fold-1a2b
            sizes[key] = sizes.get(key, 0) + entry.tokens
    return sizes


def _replace_folds(folds: tuple[Fold, ...], group: Sequence[Fold], merged: Fold) -> tuple[Fold, ...]:
    """The folds with `merged` in the place of a group. It answers to the keys of all that it replaces."""
    first = folds.index(group[0])
    replaced = {fold.key for fold in group}
    rest = [fold for fold in folds if fold.key not in replaced]
    merged_keys: list[str] = []
    for fold in group:
        merged_keys += [key for key in (fold.key, *fold.merged) if key != merged.key]
    merged = msgspec.structs.replace(merged, merged=tuple(merged_keys))
    return (*rest[:first], merged, *rest[first:])
