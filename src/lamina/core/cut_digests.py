"""The digests of a cut: written for what it folds, and merged where they take too much of the room.

`write_digests` comes after each round of moves. It writes a digest for each run of folded entries, lays all
of them into the request, and merges those side by side if together they take more than their share.
`sized_digests` finds the size at which one digest keeps to its tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from lamina.core.cut_progress import CutProgress, lay_request
from lamina.core.digest_sizes import SHARE as DIGEST_SHARE
from lamina.core.folds import FOLD_VERSION, find_neighbours, find_runs, is_digest, map_covered, measure_fold
from lamina.core.sized_digests import write_sized_digest
from lamina.core.values import Entry, Fold, Ref

_SHARES = (1, 4)
"""A digest may have its whole size, or else one part in this many of it."""

_LEAST_PART = 3
"""A new digest has at least one part in so many of what all digests may have. If that is too much, they
merge."""


def write_digests(progress: CutProgress, digest_limit: int | None) -> CutProgress:
    """Write the digests of what is to be folded, and weigh the request as it would be sent.

    A `digest_limit` bounds each digest in characters, even the user's words in it.
    """
    most_tokens = _find_most_tokens(progress, digest_limit)
    new_folds: list[Fold] = []
    for run in find_runs(progress.entries, progress.folded):
        fold = _fold_run([progress.entries[at] for at in run], progress, digest_limit, most_tokens)
        if fold is not None:
            new_folds.append(fold)
    return _merge_digests(lay_request(progress, progress.earlier + tuple(new_folds)), digest_limit)


def _find_most_tokens(progress: CutProgress, digest_limit: int | None) -> int | None:
    """Tokens that a new digest may take: what the earlier ones leave of their share. None sets no limit."""
    if digest_limit is not None or not progress.limits.room:
        return None  # a cut for a window of history has no room to keep to
    entries_before: Sequence[Entry] = progress.draft.entries
    if progress.earlier != progress.draft.ledger.folds:
        # Rules in earlier digests are marked now, so that these digests are larger than they were sent.
        entries_before = lay_request(progress, progress.earlier).request
    digest_tokens = progress.limits.free // DIGEST_SHARE
    left = digest_tokens - sum(_digest_sizes(entries_before).values())
    return max(left, digest_tokens // _LEAST_PART)


def _fold_run(
    run: Sequence[Entry], progress: CutProgress, digest_limit: int | None, most_tokens: int | None
) -> Fold | None:
    """A digest of the run that is smaller than it; None if there is none.

    A digest of its whole size is tried first, then one of a quarter. What cannot be folded stays as it is.
    """
    run_tokens = sum(entry.tokens for entry in run)
    for share in _SHARES:
        fold = write_sized_digest(run, progress, digest_limit, share=share, most_tokens=most_tokens)
        if _pays(fold, run, run_tokens, progress):
            return fold
    return None


def _pays(fold: Fold, run: Sequence[Entry], run_tokens: int, progress: CutProgress) -> bool:
    """Whether a digest is smaller than what it stands for."""
    context = progress.context
    return measure_fold(fold, run, context.scale, context.wording) < run_tokens


# Digests side by side.


def _merge_digests(progress: CutProgress, digest_limit: int | None) -> CutProgress:
    """Merge digests side by side where they take too much of the room, or if nothing else helps.

    A message that stays between two digests keeps them apart. Then each is written anew with its part of the
    size, so that all of them together stay bounded, however many there are. Digests of an older version are
    written anew too: they did not keep the voices apart.
    """
    groups = _find_groups_to_merge(progress, digest_limit)
    if not groups:
        return progress
    sizes = _digest_sizes(progress.request)
    by_ref = {entry.ref: entry for entry in progress.request}
    most_tokens = None
    if digest_limit is None and progress.limits.room:
        merged_keys = {fold.key for group in groups for fold in group}
        other_tokens = sum(tokens for key, tokens in sizes.items() if key not in merged_keys)
        most_tokens = (progress.limits.free // DIGEST_SHARE - other_tokens) // len(groups)
    folds = progress.folds
    for group in groups:
        # A window may have taken out an entry that a fold covers: it is passed over.
        run = [by_ref[ref] for fold in group for ref in fold.covers if ref in by_ref]
        merged = write_sized_digest(run, progress, digest_limit, share=len(groups), most_tokens=most_tokens)
        group_tokens = sum(sizes.get(fold.key, 0) for fold in group)
        if _has_old_version(group) or _pays(merged, run, group_tokens, progress):
            folds = _replace_folds(folds, group, merged)
    return lay_request(progress, folds)


def _find_groups_to_merge(progress: CutProgress, digest_limit: int | None) -> list[list[Fold]]:
    """Groups of neighbouring folds that should have one digest; a fold without neighbours is a group too.

    A cut for a window of history has no room to keep to: it merges neighbours, and leaves the others. It may
    not touch the digests of what is inside of the window.
    """
    digest_tokens = sum(_digest_sizes(progress.request).values())
    is_bounded = digest_limit is not None
    is_crowded = is_bounded or digest_tokens > progress.limits.free // DIGEST_SHARE
    has_room = is_bounded or progress.limits.room > 0
    fewest = 1 if has_room else 2
    folds: Sequence[Fold] = progress.folds
    if progress.mergeable is not None:
        folds = [fold for fold in folds if progress.mergeable.issuperset(fold.covers)]
    groups: list[list[Fold]] = []
    for group in find_neighbours(progress.request, folds):
        may_merge = is_crowded and len(group) >= fewest
        if may_merge or _has_old_version(group):
            groups.append(group)
    return groups


def _has_old_version(folds: Iterable[Fold]) -> bool:
    """Whether one of these digests was written by a release that did not keep the voices apart."""
    return any(fold.version < FOLD_VERSION for fold in folds)


def join_digests(progress: CutProgress, digest_limit: int) -> CutProgress:
    """Join digests with what stands between them, where that is lowered as far as it can be.

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
        merged = write_sized_digest(run, progress, digest_limit)
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
