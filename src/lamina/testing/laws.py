"""The laws over whole stories: what the property tests run, for lamina's own build or for anyone's.

A story is built at each of its stops with the ledger passed on, as an application would; each request
is one case for the laws, together with the request before it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import event

from lamina.core.build import build
from lamina.core.epochs import HISTORY_CHANGED
from lamina.core.laws import LAWS, BuildInputs, Case, same
from lamina.core.memo import Memo
from lamina.core.values import Ledger
from lamina.errors import BudgetExceeded
from lamina.testing.strategies import Story

__all__ = ["all_hold", "cases", "holds", "repeats", "same", "tell"]


def holds(name: str, story: Story) -> None:
    """One law, at every stop of a story."""
    for case in cases(story):
        assert list(LAWS[name](case)) == []


def all_hold(story: Story) -> None:
    """Every law, at every stop of a story that is built once."""
    for case in cases(story):
        for name, law in LAWS.items():
            assert [f"{name}: {problem}" for problem in law(case)] == []


def cases(story: Story) -> Iterator[Case]:
    """The requests of a story, each with the one before it; one that cannot fit is left out."""
    ledger = Ledger()
    before = None
    for log in story.logs:
        try:
            envelope = build(log, budget=story.budget, ledger=ledger, options=story.options)
        except BudgetExceeded:
            continue
        inputs = BuildInputs(budget=story.budget, ledger=ledger)
        yield Case(log=log, envelope=envelope, before=before, options=story.options, inputs=inputs)
        ledger = envelope.ledger
        before = envelope
    tell(ledger)


def repeats(story: Story) -> None:
    """Built with a memo and without, with the ledger through JSON: the same bytes, or the same refusal."""
    memo = Memo()
    ledger = Ledger()
    for log in story.logs:
        try:
            one = build(log, budget=story.budget, ledger=ledger, options=story.options)
        except BudgetExceeded as refused:
            saved = Ledger.load(ledger.dump())
            with pytest.raises(BudgetExceeded) as again:
                build(log, budget=story.budget, ledger=saved, options=story.options, memo=memo)
            assert again.value.floor == refused.floor  # noqa: PT017 - both refuse, and for the same floor
            continue
        remembered = build(log, budget=story.budget, ledger=ledger, options=story.options, memo=memo)
        assert same(one, remembered)
        ledger = remembered.ledger
    tell(ledger)


def tell(ledger: Ledger) -> None:
    """Counts for `--hypothesis-show-statistics`: a property about cuts needs logs that have them."""
    event("a cut" if any(cut.lowered for cut in ledger.cuts) else "no cut")
    event("a fold" if ledger.folds else "no fold")
    event("bound thinking" if ledger.bound else "no bound thinking")
    event("an edit" if any(cut.reason == HISTORY_CHANGED for cut in ledger.cuts) else "no edit")
