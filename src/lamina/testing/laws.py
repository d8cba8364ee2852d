"""The laws over whole stories: what the property tests run, for lamina's own build or for anyone's.

A story is built at each of its stops with the ledger passed on, as an application would; each request
is one case for the laws, together with the request before it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import event

from lamina.core.bench import Options
from lamina.core.build import build
from lamina.core.envelope import Envelope
from lamina.core.hashing import canonical
from lamina.core.laws import LAWS, Case
from lamina.core.memo import Memo
from lamina.core.values import Ledger
from lamina.errors import BudgetExceeded
from lamina.testing.strategies import Story


def holds(name: str, story: Story) -> None:
    """One law, at every stop of a story."""
    for case in cases(story):
        assert list(LAWS[name](case)) == []


def cases(story: Story) -> Iterator[Case]:
    """The requests of a story, each with the one before it; one that cannot fit is left out."""
    ledger, before, options = Ledger(), None, Options(binding=story.binding)
    for stop in story.stops:
        log = story.log[:stop]
        try:
            envelope = build(log, budget=story.budget, ledger=ledger, options=options)
        except BudgetExceeded:
            continue
        yield Case(log=log, envelope=envelope, before=before)
        ledger, before = envelope.ledger, envelope
    tell(ledger)


def repeats(story: Story) -> None:
    """Built again, with the ledger through JSON, and with a memo: the same bytes, or the same refusal."""
    memo, options, ledger = Memo(), Options(binding=story.binding), Ledger()
    for stop in story.stops:
        log = story.log[:stop]
        try:
            one = build(log, budget=story.budget, ledger=ledger, options=options)
        except BudgetExceeded as refused:
            with pytest.raises(BudgetExceeded) as again:
                build(log, budget=story.budget, ledger=Ledger.load(ledger.dump()), options=options, memo=memo)
            assert again.value.floor == refused.floor  # noqa: PT017 - both refuse, and for the same floor
            continue
        assert same(one, build(log, budget=story.budget, ledger=Ledger.load(ledger.dump()), options=options))
        remembered = build(log, budget=story.budget, ledger=ledger, options=options, memo=memo)
        assert same(one, remembered)
        ledger = remembered.ledger
    tell(ledger)


def same(one: Envelope, other: Envelope) -> bool:
    """Byte for byte: entries, account and ledger."""
    return canonical(_bytes(one)) == canonical(_bytes(other))


def _bytes(envelope: Envelope) -> tuple[object, ...]:
    return (envelope.entries, envelope.account, envelope.ledger, envelope.root, envelope.notes)


def tell(ledger: Ledger) -> None:
    """Counts for `--hypothesis-show-statistics`: a property about cuts needs logs that have them."""
    event("a cut" if any(cut.lowered for cut in ledger.cuts) else "no cut")
    event("a fold" if ledger.folds else "no fold")
    event("bound thinking" if ledger.bound else "no bound thinking")
