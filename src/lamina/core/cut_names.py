"""Which names the digests of a cut list: those that stand nowhere else in the request that will leave.

Digests are written while moves are still taken, so they keep room for names. What is in sight is known when
the cut has its size. Then each digest that the cut wrote lists other names in the same room: those that its
segments have and the request does not show, what the model itself used often and lately first.
"""

from __future__ import annotations

import msgspec

from lamina.core.cut_progress import CutProgress, lay_request
from lamina.core.digests import NAMES_LABEL
from lamina.core.entries import find_sent
from lamina.core.text.names import find_shown_names, list_first_names
from lamina.core.tokens import Counter
from lamina.core.values import Fold
from lamina.core.wording import text_of


def list_hidden_names(progress: CutProgress) -> CutProgress:
    """The progress with names that are not in sight in the digests of this cut. It is never larger."""
    digests = {fold.key: fold for fold in progress.folds if _has_names(fold, progress)}
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


def _has_names(fold: Fold, progress: CutProgress) -> bool:
    """Whether this cut wrote the digest, and left room for names in it."""
    return fold.cut == progress.number and fold.covers in progress.runs and bool(_split_names(fold)[1])


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
