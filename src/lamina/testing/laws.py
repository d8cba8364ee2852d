"""The laws over whole stories: what the property tests run, for lamina's own build or for anyone's.

A story is built at each of its stops with the ledger passed on, as an application would; each request
is one case for the laws, together with the request before it.
"""

from __future__ import annotations

from collections.abc import Iterator

from lamina.core.build import build
from lamina.core.epochs import HISTORY_CHANGED
from lamina.core.laws import LAWS, BuildInputs, Case, is_same_request
from lamina.core.memo import BuildMemo
from lamina.core.values import Ledger, Segment
from lamina.errors import BudgetExceeded
from lamina.testing._properties import event
from lamina.testing.cases import expect, expect_equal
from lamina.testing.strategies import Story

__all__ = ["all_hold", "cases", "holds", "is_same_request", "repeats", "tell"]


def holds(name: str, story: Story) -> None:
    """One law, at every stop of a story."""
    for case in cases(story):
        expect_equal(list(LAWS[name](case)), [], name)


def all_hold(story: Story) -> None:
    """Every law, at every stop of a story that is built once."""
    for case in cases(story):
        for name, law in LAWS.items():
            expect_equal(list(law(case)), [], name)


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
    memo = BuildMemo()
    ledger = Ledger()
    for log in story.logs:
        try:
            one = build(log, budget=story.budget, ledger=ledger, options=story.options)
        except BudgetExceeded as error:
            saved = Ledger.load(ledger.dump())
            expect_equal(_floor_of_failure(log, story, saved, memo), error.floor, "the floor")
            continue
        remembered = build(log, budget=story.budget, ledger=ledger, options=story.options, memo=memo)
        expect(is_same_request(one, remembered), "with a memo it is another request")
        ledger = remembered.ledger
    tell(ledger)


def _floor_of_failure(log: tuple[Segment, ...], story: Story, ledger: Ledger, memo: BuildMemo) -> int | None:
    """The floor that a build names when it fails; None if it does not fail."""
    try:
        build(log, budget=story.budget, ledger=ledger, options=story.options, memo=memo)
    except BudgetExceeded as error:
        return error.floor
    return None


def tell(ledger: Ledger) -> None:
    """Counts for `--hypothesis-show-statistics`: a property about cuts needs logs that have them."""
    facts = {
        "cut": any(cut.lowered for cut in ledger.cuts),
        "fold": bool(ledger.folds),
        "bound thinking": bool(ledger.bound),
        "edit": any(cut.reason == HISTORY_CHANGED for cut in ledger.cuts),
    }
    for name, is_there in facts.items():
        event(f"with {name}" if is_there else f"without {name}")
