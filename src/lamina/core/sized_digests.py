"""A digest of the right size: written shorter or longer until it keeps to its tokens.

A digest is written in characters and sent in tokens. Names and dense scripts take more tokens than prose, and
tags and headings come on top, so its size is known only when it is written.
"""

from __future__ import annotations

from collections.abc import Sequence

from lamina.core.cut_progress import CutProgress
from lamina.core.digest_sizes import NO_DIGEST, DigestSize, bound_digest, find_digest_size
from lamina.core.folds import make_fold, measure_fold
from lamina.core.values import Entry, Fold
from lamina.core.wishes import list_notes

ONLY_RULES, ONE_LINE = 0, -1
"""Limits of a digest in characters that leave the rules of the user, and that leave one line."""

_TRIES, _MOST_TRIES = 3, 6
"""How often a digest is written shorter or longer until its size in tokens is right too; more often while it
is too long."""

_AROUND_WORDS = 120
"""Tokens of a digest besides the words of the user and what was done: its tags and the closing line."""


def choose_digest_size(progress: CutProgress, digest_limit: int | None) -> DigestSize:
    """The size of one digest: a share of the free room, or what is left of it as a last resort."""
    free = progress.limits.free
    if digest_limit is None:
        return find_digest_size(free)
    if digest_limit == ONE_LINE:
        return NO_DIGEST
    return bound_digest(digest_limit, free)


def write_sized_digest(
    run: Sequence[Entry],
    progress: CutProgress,
    digest_limit: int | None,
    *,
    share: int = 1,
    most_tokens: int | None = None,
) -> Fold:
    """A digest of this run in one part in `share` of the size that a digest may have.

    `most_tokens` bounds it as it is sent, with its tags. Each try is shorter by as much as the last one was
    too long, and longer if there is room for more of what was said. A digest of one line cannot be shorter.
    """
    size = choose_digest_size(progress, digest_limit).scale(1, share)
    name = (tuple(entry.ref for entry in run), size, most_tokens)
    if name in progress.written:
        return progress.written[name]
    verbatim = digest_limit is None and progress.words.may_stand
    # Without a limit in tokens, a digest may have one for every two of its characters.
    usual_limit = size.total // 2 if most_tokens is None else most_tokens
    best: Fold | None = None
    best_tokens = 0
    for attempt in range(1, _MOST_TRIES + 1):
        fold, complete = make_fold(
            run,
            progress.read_run(run),
            size=size,
            cut=progress.number,
            later_rules=progress.words.rules_after(run[-1].ref),
            verbatim=verbatim,
            noted=list_notes(run, progress.draft.wishes),
        )
        tokens = _measure(fold, run, progress, as_sent=most_tokens is not None)
        limit = usual_limit
        if verbatim and fold.whole:
            # The words must stand; what was done and names have what is left, or a line each.
            words_tokens = progress.context.scale.counter.count(fold.text)
            limit = max(limit, words_tokens + _AROUND_WORDS)
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
