"""The digests of a cut: written for what it folds, and merged where they take too much of the room.

`write_digests` comes after each round of moves. It writes a digest for each run of folded entries, lays all
of them into the request, and merges those side by side if together they take more than their share.

A digest is written in characters and sent in tokens. Names and dense scripts take more tokens than prose, and
tags and headings come on top, so its size is known only when it is written. `fit_digest` therefore
searches for the largest one that keeps to its tokens.

What is in sight is known when the cut has its size. Then `list_hidden_names` fills the room for names in each
digest: with names that its segments have and the request does not show, what the model used often and lately
first.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Mapping, Sequence
from itertools import chain

import msgspec

from lamina.core.cut_progress import CutProgress, count_digest_tokens, lay_request
from lamina.core.digests import (
    NAMES_LABEL,
    ONE_LINE,
    ONLY_RULES,
    DigestText,
    find_neighbours,
    find_runs,
    is_digest,
    make_fold,
    map_covered,
    measure_fold,
    measure_rules,
    write_digest,
    write_rules,
)
from lamina.core.digests import SHARE as DIGEST_SHARE
from lamina.core.entries import find_sent
from lamina.core.run_text import RunText
from lamina.core.text.excerpts import find_shown_names, list_first_names
from lamina.core.tokens import Counter
from lamina.core.values import Entry, Fold, Ref
from lamina.core.wording import text_of

_SMALLER = 0.75
"""A digest has at most this share of the tokens of what it stands for."""

_LEAST_PART = 3
"""A new digest has at least one part in so many of what all digests may have. If that is too much, they
merge."""

_MOST_CHARACTERS = 6
"""Characters of a token, at most: a digest in a language of long words has as many."""

_NEAR = 40
"""Characters within which the best size of a digest is found."""


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
    """Tokens that a new digest may take: what the earlier ones leave of their share.

    None sets no limit in tokens: with a `digest_limit`, each digest has one in characters.
    """
    if digest_limit is not None:
        return None
    entries_before: Sequence[Entry] = progress.draft.entries
    if progress.earlier != progress.draft.ledger.folds:
        # Rules in earlier digests are marked now, so that these digests are larger than they were sent.
        entries_before = lay_request(progress, progress.earlier).request
    digest_tokens = progress.limits.free // DIGEST_SHARE
    left = digest_tokens - count_digest_tokens(entries_before)
    return max(left, digest_tokens // _LEAST_PART)


def _fold_run(
    run: Sequence[Entry], progress: CutProgress, digest_limit: int | None, most_tokens: int | None
) -> Fold | None:
    """A digest of the run that is smaller than it; None if there is none. What has none stays as it is."""
    run_tokens = sum(entry.tokens for entry in run)
    if most_tokens is not None:
        most_tokens = min(most_tokens, int(run_tokens * _SMALLER))
    fold = fit_digest(run, progress, digest_limit, most_tokens=most_tokens)
    return fold if _pays(fold, run, run_tokens, progress) else None


def _pays(fold: Fold, run: Sequence[Entry], run_tokens: int, progress: CutProgress) -> bool:
    """Whether a digest is smaller than what it stands for."""
    context = progress.context
    return measure_fold(fold, run, context.scale, context.wording) < run_tokens


def fit_digest(
    run: Sequence[Entry],
    progress: CutProgress,
    digest_limit: int | None,
    *,
    part: int = 1,
    most_tokens: int | None = None,
) -> Fold:
    """The largest digest of this run within one part in `part` of its limit.

    `most_tokens` bounds it as it is sent, with its tags, and `digest_limit` in characters. What this cut has
    written before is not written again.
    """
    name = (tuple(entry.ref for entry in run), digest_limit, most_tokens, part)
    fold = progress.written.get(name)
    if fold is None:
        if digest_limit is None:
            limit = progress.limits.free // DIGEST_SHARE if most_tokens is None else most_tokens
            fold = _write_fitting(run, limit // part, progress)
        else:
            run_text = progress.read_run(run)
            texts = _write_within(digest_limit, run_text, progress, part)
            fold = make_fold(run, run_text, texts, cut=progress.number)
        progress.written[name] = fold
    return fold


def _write_within(digest_limit: int, run_text: RunText, progress: CutProgress, part: int) -> DigestText:
    """The texts of a digest in one part of so many characters: of a last resort."""
    if digest_limit == ONE_LINE:
        return DigestText(run_text.title, whole=False)
    if digest_limit == ONLY_RULES:
        rules = write_rules(run_text, limit=measure_rules(progress.limits.free) // part)
        return DigestText(rules, whole=False)
    return write_digest(run_text, digest_limit // part)


def _write_fitting(run: Sequence[Entry], limit: int, progress: CutProgress) -> Fold:
    """The largest digest in so many tokens, by bisection.

    How many tokens its characters take is known only when it is written. Where all words of the user must
    stand, what was done and names have what is left.
    """
    run_text = progress.read_run(run)
    verbatim = progress.words.may_stand

    def write(size: int) -> Fold:
        texts = write_digest(run_text, size, verbatim=verbatim)
        return make_fold(run, run_text, texts, cut=progress.number)

    low = run_text.talk.users_size if verbatim else measure_rules(progress.limits.free)
    high = max(min(limit * _MOST_CHARACTERS, run_text.most_characters), low)
    best = write(low)
    size = high
    while high - low > max(low // 16, _NEAR):
        fold = write(size)
        if measure_fold(fold, run, progress.context.scale, progress.context.wording) <= limit:
            low, best = size, fold
        else:
            high = size
        size = (low + high) // 2
    return best


# Digests side by side.


def _merge_digests(progress: CutProgress, digest_limit: int | None) -> CutProgress:
    """Merge digests side by side where they take too much of the room, or if nothing else helps.

    A message that stays between two digests keeps them apart. Then each is written anew with its part of the
    size, so that all of them together stay bounded, however many there are.
    """
    groups = _find_groups_to_merge(progress, digest_limit)
    if not groups:
        return progress
    sizes = _digest_sizes(progress.request)
    most_tokens = None
    if digest_limit is None:
        others = sizes.copy()
        for fold in chain.from_iterable(groups):
            del others[fold.key]
        most_tokens = (progress.limits.free // DIGEST_SHARE - others.total()) // len(groups)
    by_ref = {entry.ref: entry for entry in progress.request}
    folds = progress.folds
    for group in groups:
        # A window may have taken out an entry that a fold covers: it is passed over.
        run = [by_ref[ref] for fold in group for ref in fold.covers if ref in by_ref]
        merged = fit_digest(
            run, progress, digest_limit, part=1 if most_tokens else len(groups), most_tokens=most_tokens
        )
        group_tokens = sum(sizes[fold.key] for fold in group)
        if _pays(merged, run, group_tokens, progress):
            folds = _replace_folds(folds, group, merged)
    return lay_request(progress, folds)


def _find_groups_to_merge(progress: CutProgress, digest_limit: int | None) -> list[list[Fold]]:
    """Groups of neighbouring folds that should have one digest; a fold without neighbours is a group too.

    A cut for a window of history may not touch the digests of what is inside of the window.
    """
    folds: Sequence[Fold] = progress.folds
    if progress.mergeable is not None:
        folds = [fold for fold in folds if progress.mergeable.issuperset(fold.covers)]
    groups = find_neighbours(progress.request, folds)
    digest_tokens = count_digest_tokens(progress.request)
    is_crowded = digest_tokens > progress.limits.free // DIGEST_SHARE
    if is_crowded or digest_limit is not None:
        return groups
    return []


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
        unfolded: list[Entry] = []
        for entry in run:
            fold = owner.get(entry.ref)
            if fold is None:
                unfolded.append(entry)
            else:
                group[fold.key] = fold
        if not group or not unfolded:
            continue
        merged = fit_digest(run, progress, digest_limit)
        run_tokens = sum(entry.tokens for entry in unfolded) + sum(sizes[key] for key in group)
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


def _digest_sizes(request: Sequence[Entry]) -> Tally[str]:
    """Tokens of each fold's digest in the request, by the key of the fold.

    A digest has up to three entries: the user's words, the notes, and the line that ends them.
    """
    sizes: Tally[str] = Tally()
    for entry in request:
        if is_digest(entry):
            key = entry.segment.key.partition("!")[0]  # fold-1a2b!notes is a part of the digest of fold-1a2b
            sizes[key] += entry.tokens
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


def list_hidden_names(progress: CutProgress) -> CutProgress:
    """The progress with names that are not in sight in the digests of this cut. It is never larger."""
    digests: dict[str, Fold] = {}
    for fold in progress.folds:
        is_new = fold.cut == progress.number and fold.covers in progress.runs
        if is_new and _split_names(fold)[1]:
            digests[fold.key] = fold
    if not digests:
        return progress
    names_in_sight = _find_names_in_sight(progress, digests)
    name_uses = progress.reader.count_uses(progress.draft.log)
    counter = progress.context.scale.counter
    for fold in digests.values():
        before, names, after = _split_names(fold)
        ranked_names = name_uses.rank(progress.runs[fold.covers].hidden_names)
        listed = _list_in_room(ranked_names, names, names_in_sight, counter)
        names_in_sight |= find_shown_names(listed)
        lines = [before, f"{NAMES_LABEL}{listed}", after]
        if not listed:
            del lines[1]
        digests[fold.key] = msgspec.structs.replace(fold, notes="\n".join(filter(None, lines)))
    relaid = lay_request(progress, tuple(digests.get(fold.key, fold) for fold in progress.folds))
    if relaid.tokens > progress.tokens:
        return progress
    return relaid


def _find_names_in_sight(progress: CutProgress, digests: dict[str, Fold]) -> set[str]:
    """The names that the request shows without the lists that are written anew."""
    names_in_sight: set[str] = set()
    for entry in find_sent(progress.request):
        key, _, voice = entry.segment.key.partition("!")
        if voice == "notes" and key in digests:
            before, _, after = _split_names(digests[key])
            names_in_sight |= find_shown_names(f"{before}\n{after}")
        else:
            names_in_sight |= find_shown_names(text_of(entry.parts))
    return names_in_sight


def _split_names(fold: Fold) -> tuple[str, str, str]:
    """The notes of a digest before its list of names, the list, and the lines after it."""
    # A quoted line has four spaces before it, so the label counts only where a line begins.
    before, label, rest = f"\n{fold.notes}".rpartition(f"\n{NAMES_LABEL}")
    if not label:
        return fold.notes, "", ""
    names, _, after = rest.partition("\n")
    return before.removeprefix("\n"), names, after


def _list_in_room(ranked_names: list[str], room: str, names_in_sight: set[str], counter: Counter) -> str:
    """The first names that are not in sight, in as many characters and tokens as another list at most."""
    most_tokens = counter.count(room)
    limit = len(room)
    listed = list_first_names(ranked_names, limit=limit, in_sight=names_in_sight)
    tokens = counter.count(listed)
    while tokens > most_tokens:
        limit = min(limit * most_tokens // tokens, len(listed) - 1)
        listed = list_first_names(ranked_names, limit=limit, in_sight=names_in_sight)
        tokens = counter.count(listed)
    return listed
