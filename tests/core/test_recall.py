from __future__ import annotations

import json

import pytest
from hypothesis import given, settings

from lamina import Budget, BudgetExceeded, Envelope, Form, Ledger, Segment, build, recall
from lamina.core import CHARS4
from lamina.core.hashing import handle
from lamina.core.recall import identify_segments, list_refs
from lamina.core.values import Digest, Ref
from lamina.errors import NotFound
from lamina.segments import assistant, call, file, result, user
from lamina.testing.strategies import Story, stories
from tests.examples import up_to

OLD, NEW = file("a.md", "old content"), file("a.md", "new content")
LOG = (OLD, user("Read it"), assistant("Read."), NEW, user("Again"))
NAMES = [ref for ref, _ in list_refs(LOG)]


def test_a_key_brings_back_its_newest_content() -> None:
    assert recall(LOG, "a.md") == (NEW,)


@pytest.mark.parametrize("position", range(len(LOG)))
def test_a_ref_brings_back_its_own_segment(position: int) -> None:
    assert recall(LOG, NAMES[position]) == (LOG[position],)


@pytest.mark.parametrize("position", range(len(LOG)))
def test_a_handle_brings_back_its_own_content(position: int) -> None:
    content = build(LOG).entry(NAMES[position]).content
    assert recall(LOG, handle(content)) == (LOG[position],)


def test_equal_content_has_one_handle_and_a_ref_for_each_appearance() -> None:
    log = (user("yes"), assistant("no"), user("yes"))
    first, _, second = identify_segments(log)
    assert handle(first.content) == handle(second.content)
    assert first.ref != second.ref
    assert recall(log, second.ref)[0] is log[2]
    assert recall(log, first.ref)[0] is log[0]


def test_refs_do_not_shift_when_the_front_is_cut_off() -> None:
    """Equal prompts with different answers: each is known by what stands before it, not by a count."""
    log = [segment for n in range(6) for segment in (user("continue"), assistant(f"Part {n}."))]
    whole = [each.ref for each in identify_segments(log)]
    rest = [each.ref for each in identify_segments(log[4:])]
    assert rest[1:] == whole[5:]
    assert rest[0] not in whole[1:]


def test_what_is_equal_in_everything_is_counted() -> None:
    """A tool that is polled on an API without call ids: content and neighbours are the same each time."""
    log = [user("Wait."), *[assistant("Waiting.")] * 3]
    first, second, third = [each.ref for each in identify_segments(log)][1:]
    assert len({first, second, third}) == 3
    assert third == f"{second}#1"


def test_a_handle_has_80_bits() -> None:
    assert len(handle(Digest("0" * 64))) == 17


@pytest.mark.parametrize("first", [True, False])
def test_a_file_named_like_a_handle_or_ref_does_not_stand_in_for_it(first: bool) -> None:  # noqa: FBT001
    original = file("a.md", "what is meant")
    [identity] = identify_segments([original])
    impostors = (file(handle(identity.content), "something else"), file(identity.ref, "something else again"))
    log = (*impostors, original) if first else (original, *impostors)
    ref = next(each.ref for each in identify_segments(log) if each.segment is original)
    assert recall(log, handle(identity.content)) == (original,)
    assert recall(log, ref) == (original,)


@pytest.mark.parametrize(
    "key", ["b.md", "", "k000000000000", "kaaaaaaaaaaaaaaaa", "fold-000000000000", "a.m"]
)
def test_what_is_not_there_is_not_found(key: str) -> None:
    with pytest.raises(NotFound) as caught:
        recall(LOG, key, ledger=Ledger())
    assert caught.value.key == key


def session(steps: int) -> tuple[Segment, ...]:
    log = [user("Look around, please")]
    for n in range(steps):
        log += [assistant(f"Step {n}. " + "Words. " * 30), call("look", {"at": f"{n}"}, id=f"c{n}")]
        log += [result(f"seen {n} " * 40, id=f"c{n}")]
    return (*log, assistant("Done."), user("Thanks"))


def folded(log: tuple[Segment, ...], ledger: Ledger | None = None, *, window: int = 300) -> Envelope:
    budget = Budget(window=window, reserve=0, keep_last=0)
    envelope = build(log, budget=budget, counter=CHARS4, ledger=ledger or Ledger())
    assert envelope.ledger.folds
    return envelope


def test_the_key_of_a_fold_brings_back_the_whole_run_in_order() -> None:
    log = session(12)
    envelope = folded(log)
    fold = envelope.ledger.folds[0]
    named = dict(list_refs(log))
    assert recall(log, fold.key, ledger=envelope.ledger) == tuple(named[ref] for ref in fold.covers)
    assert f'recall="{fold.key}"' in str(envelope.entry(fold.key).parts)
    with pytest.raises(NotFound):
        recall(log, fold.key)


def test_a_saved_ledger_brings_back_the_same() -> None:
    log = session(12)
    ledger = folded(log).ledger
    saved = Ledger.load(json.loads(json.dumps(ledger.dump())))
    for fold in ledger.folds:
        assert recall(log, fold.key, ledger=saved) == recall(log, fold.key, ledger=ledger)


def test_a_key_whose_digest_was_merged_brings_back_what_it_stood_for() -> None:
    log, ledger, covers = session(60), Ledger(), dict[str, tuple[Ref, ...]]()
    for end in range(31, len(log), 9):
        ledger = folded(log[:end], ledger, window=700).ledger
        covers |= {fold.key: fold.covers for fold in ledger.folds}
    gone = covers.keys() - {fold.key for fold in ledger.folds}
    assert gone
    for key in gone:
        segments = recall(log, key, ledger=ledger)
        recalled = {ref for ref, segment in list_refs(log) if segment in segments}
        assert recalled >= set(covers[key])


@settings(max_examples=up_to(125))
@given(stories(edited=False))
def test_every_key_that_a_request_ever_showed_still_answers(story: Story) -> None:
    """Handles never expire: what any earlier request named can be had after the last one."""
    covers_of: dict[str, tuple[Ref, ...]] = {}
    ledger, log = Ledger(), story.log
    for log in story.logs:
        try:
            envelope = build(log, budget=story.budget, ledger=ledger)
        except BudgetExceeded:
            continue
        ledger = envelope.ledger
        covers_of |= {handle(e.content): (e.ref,) for e in envelope.entries if e.form is not Form.FULL}
        covers_of |= {fold.key: fold.covers for fold in ledger.folds}
    named = dict(list_refs(log))
    for key, covers in covers_of.items():
        expected = [named[ref].parts for ref in covers if ref in named]
        recalled = [segment.parts for segment in recall(log, key, ledger=ledger)] if expected else []
        assert all(parts in recalled for parts in expected)
