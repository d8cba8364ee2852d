"""What a review's mutants changed without a test noticing: each behaviour here fails if its line is bent."""

from __future__ import annotations

import msgspec
import pytest

from lamina import Budget, Envelope, Form, Layer, Ledger, Options, Segment, build
from lamina.core import CHARS4, Filter, Layout, text_of
from lamina.core.build import plan_cut
from lamina.core.cut_target import PRICING, Growth, Rates, choose_target
from lamina.core.ledger import rewind
from lamina.core.recall import list_refs
from lamina.core.values import Fold
from lamina.segments import assistant, call, project, result, thinking, user
from tests.core.conversations import LETTERS, read_file

# core/ladder.py: only a result that stands in full supersedes an earlier one


@pytest.mark.parametrize(("again", "supersedes"), [(300, True), (12_000, False)], ids=["whole", "shortened"])
def test_a_result_is_superseded_only_by_one_that_stands_in_full(again: int, *, supersedes: bool) -> None:
    """A reading that is too large enters shortened. Then an equal one before it is not redundant."""
    budget = Budget(window=3_000, reserve=0, trigger=0.35, target=0.3, keep_last=1)
    log = [user("Read.")]
    log += read_file("a.py", "again " * (again // 6), 0)
    log += read_file("a.py", "again " * (again // 6), 1)
    log += read_file("b.py", "other " * 400, 2)
    log += [*read_file("c.py", "more " * 300, 3), *read_file("d.py", "last " * 40, 4)]
    ledger, envelopes = Ledger(), list[Envelope]()
    for end in (5, 7, 9, 11):
        envelopes.append(build(log[:end], budget=budget, counter=CHARS4, ledger=ledger))
        ledger = envelopes[-1].ledger
    assert any(envelope.cut for envelope in envelopes)
    second = envelopes[0].entry("r1")
    assert (second.form is Form.FULL) is supersedes
    first = [envelope.entry("r0") for envelope in envelopes]
    assert any("superseded" in entry.why for entry in first) is supersedes


# core/cut_moves.py: a move is taken if it shrinks, by one token too; leaving out may free nothing


def with_result(size: int) -> Envelope:
    """A cut that would lower everything, over a log with one result of so many tokens.

    Its call is pinned, so the step is not folded: the result is replaced by its handle, or stays.
    """
    pinned_call = call("read", {"path": "a"}, id="c", joins=False, pinned=True)
    log = [user("Go."), pinned_call, result("x" * size, id="c", name="read", key="r"), assistant("Done.")]
    log += [user("Next."), *read_file("b", "y" * 3_000, 1), assistant("Done too."), user("And now?")]
    budget = Budget(window=3_000, reserve=0, trigger=0.5, target=0.01, keep_last=0)
    return build(log, budget=budget, counter=LETTERS)


@pytest.mark.parametrize("pinned", [True, False])
def test_a_pinned_result_is_never_superseded(*, pinned: bool) -> None:
    """The same file is read again later. Without the pin its first result would be the first to go."""
    log = [user("Read.")]
    for number, (path, size) in enumerate([("a.py", 60), ("b.py", 1_200), ("a.py", 60), ("c.py", 600)]):
        log += read_file(path, "word " * size, number)
    log[2] = msgspec.structs.replace(log[2], pinned=pinned)
    log += [assistant("Done."), user("And?")]
    budget = Budget(window=2_300, reserve=0, keep_last=1, target=0.5)
    envelope = build(log, budget=budget, counter=CHARS4)
    assert envelope.cut is not None
    assert (envelope.entry("r0").form is Form.FULL) is pinned


def test_a_superseded_result_in_a_spared_step_stays_while_older_ones_can_go() -> None:
    """The last steps are spared, and the large results before them free enough."""
    log = [user("Read.")]
    for number, (path, size) in enumerate([("b.py", 1_200), ("c.py", 1_200), ("a.py", 100), ("a.py", 100)]):
        log += read_file(path, "word " * size, number)
    envelope = build(log, budget=Budget(window=2_800, reserve=0, keep_last=3), counter=CHARS4)
    assert envelope.cut is not None
    assert [envelope.entry(key).form for key in ("r2", "r3")] == [Form.FULL, Form.FULL]


def test_a_result_is_lowered_as_soon_as_that_frees_one_token_and_never_for_nothing() -> None:
    entries = {size: with_result(size).entry("r") for size in range(20, 160)}
    freed = {size: size - entry.tokens for size, entry in entries.items()}
    assert all((entry.form is Form.FULL) is (freed[size] == 0) for size, entry in entries.items())
    assert min(freed.values()) == 0
    assert sorted(set(freed.values()))[:2] == [0, 1]
    first = min(size for size, gain in freed.items() if gain)
    assert all(freed[size] == 0 for size in range(20, first))
    assert all(freed[size] > 0 for size in range(first, 160))


def test_of_a_message_all_thinking_is_left_out_also_what_costs_nothing() -> None:
    log = [
        user("Go."),
        thinking("a long thought " * 100, signature="s1", key="t1", joins=False),
        thinking("", signature="s2", key="t2", joins=True),
        assistant("Done.", joins=True),
        user("Next."),
        assistant("Done too."),
        user("And now?"),
    ]
    budget = Budget(window=1_600, reserve=0, trigger=0.5, target=0.4, keep_last=0)
    envelope = build(log, budget=budget, counter=LETTERS)
    assert envelope.cut
    assert [envelope.entry(key).form for key in ("t1", "t2")] == [Form.OMITTED, Form.OMITTED]
    assert build(log, counter=LETTERS).entry("t2").tokens == 0


# core/tokens.py: what opened a message hands that on, however many blocks are left out before it


@pytest.mark.parametrize("gone", [1, 2, 3])
def test_what_is_left_of_a_message_does_not_join_the_one_before_it(gone: int) -> None:
    log = [user("Go."), assistant("A message of its own.", key="first")]
    log += [thinking(f"thought {n}", signature=f"s{n}", joins=n > 0) for n in range(gone)]
    log += [assistant("Another one.", key="second", joins=True), assistant("Its end.", key="end", joins=True)]
    options = Options(layout=Layout(exclude=Filter(kinds=frozenset({"thinking"}))))
    envelope = build(log, options=options)
    assert [entry.opens for entry in envelope.sent] == [True, True, True, False]
    assert [entry.segment.key for entry in envelope.sent][1:] == ["first", "second", "end"]


def test_a_block_that_is_gone_from_the_middle_of_a_message_does_not_part_it() -> None:
    log = [
        user("Go."),
        assistant("One.", key="one"),
        thinking("in the middle", signature="s", joins=True),
        assistant("Two.", key="two", joins=True),
    ]
    options = Options(layout=Layout(exclude=Filter(kinds=frozenset({"thinking"}))))
    assert [entry.opens for entry in build(log, options=options).sent] == [True, True, False]


def test_a_message_that_is_gone_does_not_part_the_one_after_it() -> None:
    """Two blocks of the next message stay together: the first of them opens it, as it did before."""
    log = [
        user("Go."),
        thinking("alone", signature="s"),
        user("Next."),
        assistant("One.", key="one"),
        assistant("Two.", key="two", joins=True),
    ]
    options = Options(layout=Layout(exclude=Filter(kinds=frozenset({"thinking"}))))
    assert [entry.opens for entry in build(log, options=options).sent] == [True, True, True, False]


# core/admit.py: new results share what is left of the room, each as much as the others


ROOM = 4_000


def arrived(*sizes: int, earlier: int = 0) -> list[tuple[Form, int]]:
    """How the results of parallel calls enter, by their tokens; `earlier` is one of the step before them."""
    calls = [call("read", {"path": f"{n}"}, id=f"c{n}", joins=n > 0) for n in range(len(sizes))]
    results = [text_result(size, n, joins=n > 0) for n, size in enumerate(sizes)]
    before = [call("read", {"path": "e"}, id="c99", joins=False), text_result(earlier, 99, joins=False)]
    log = [user("Go."), *(before if earlier else []), *calls, *results]
    budget = Budget(window=ROOM, reserve=0, trigger=1)
    envelope = build(log, budget=budget, counter=CHARS4)
    keys = [*(["r99"] if earlier else []), *(f"r{n}" for n in range(len(sizes)))]
    return [(envelope.entry(key).form, envelope.entry(key).tokens) for key in keys]


def text_result(size: int, number: int, *, joins: bool) -> Segment:
    text = f"{number} " + "word " * (size * 4 // 5)
    return result(text, id=f"c{number}", name="read", key=f"r{number}", joins=joins)


@pytest.mark.parametrize("count", [2, 3, 4, 6])
def test_results_that_are_too_much_together_get_equal_shares_of_the_room(count: int) -> None:
    """Together they are above the room; alone, each would fit."""
    arrivals = arrived(*[6_000 // count] * count)
    share = ROOM // count
    assert {form for form, _ in arrivals} == {Form.COMPACT}
    assert all(share / 4 < tokens <= share for _, tokens in arrivals)


def test_a_small_result_beside_large_ones_stays_whole() -> None:
    assert [form for form, _ in arrived(4_000, 4_000, 100)] == [Form.COMPACT, Form.COMPACT, Form.FULL]


def test_a_large_result_gets_what_small_ones_beside_it_leave() -> None:
    """The small ones need 200 of 4,000 tokens, so the large one may have more than a third of them."""
    *_, (form, tokens) = arrived(100, 100, 12_000)
    assert form is Form.COMPACT
    assert tokens > ROOM // 3


def test_only_what_arrived_together_shares_the_room() -> None:
    """A result of the step before is new, too, in a first request: it may have all that is left."""
    forms = [form for form, _ in arrived(900, 900, 900, 900, 900, 300, earlier=700)]
    assert forms == [Form.FULL, *[Form.COMPACT] * 5, Form.FULL]  # a sixth of three quarters is 500 tokens
    assert [form for form, _ in arrived(1_200, 1_200, earlier=4_000)] == [Form.COMPACT, Form.FULL, Form.FULL]


def test_results_that_fit_together_stay_whole() -> None:
    assert {form for form, _ in arrived(1_200, 1_200, 1_200)} == {Form.FULL}


# core/digests.py: what a digest says beside the user's words grows with the room, between two bounds


def digest_length(window: int) -> int:
    """Characters of the digest of so many different calls that it is filled, whatever its bound."""
    log = [user("Go.")]
    for number in range(window // 60):
        log += read_file(
            f"src/module_{number}/file_{number}.py", f"def function_{number}(): ...\n" * 6, number
        )
    log += [assistant("Done."), user("Next.")]
    budget = Budget(window=window, reserve=0, trigger=0.5, target=0.05, keep_last=1)
    plan = plan_cut(log, budget=budget, counter=CHARS4)
    assert plan.digests
    return max(map(len, plan.digests))


@pytest.mark.parametrize(
    ("window", "bound"), [(2_000, 1_200), (16_000, 9_600), (32_000, 19_200), (100_000, 24_000)]
)
def test_a_digest_is_as_long_as_its_room_allows(window: int, bound: int) -> None:
    """A fifth of the room for what was done and for names, three characters a token; and two headings."""
    assert 0.75 * bound < digest_length(window) <= bound + 250


def test_words_that_a_digest_keeps_come_on_top() -> None:
    words = "Keep the retries at exactly three, whatever the specification says about them. " * 8
    log = [user(words)]
    for number in range(8):
        log += read_file(f"{number}.py", "def f(): ...\n" * 200, number)
    log += [assistant("Done."), user("Next.")]
    budget = Budget(window=6_000, reserve=0, trigger=0.1, target=0.02, keep_last=0)
    (digest,) = plan_cut(log, budget=budget, counter=CHARS4).digests
    assert "".join(words.split()) in "".join(digest.split())
    assert text_of(log[0].parts) == words


# core/system_text.py: a section that was promoted before does not make the next one urgent


def test_a_changed_instruction_waits_for_a_cut_if_only_one_version_of_it_is_new() -> None:
    """The second version stands in the system text since the first request. So only the third one is late."""
    log = [project("Use tabs.", key="style"), user("Begin."), assistant("Yes.")]
    log += [project("Use spaces.", key="style"), user("Go on.")]
    first = build(log)
    assert [entry.layer for entry in first.entries[:2]] == [Layer.SYSTEM, Layer.SYSTEM]
    log += [assistant("Done."), project("Use two spaces.", key="style"), user("And now?")]
    second = build(log, ledger=first.ledger)
    assert second.cut is None
    assert second.entry("style").layer is not Layer.SYSTEM
    log += [assistant("Done."), project("Use four spaces.", key="style"), user("Next?")]
    third = build(log, ledger=second.ledger)
    assert third.cut is not None
    assert third.entry("style").layer is Layer.SYSTEM


# core/cut.py: a cut that freed too little goes on, or the next one would follow soon


def test_a_cut_over_the_room_frees_its_least_by_what_it_would_rather_leave() -> None:
    """Results and replies free too little here, so old messages of the user are folded as well."""
    log = [user("x " * 100), user("word " * 200), assistant("word " * 84)]
    log += [user(f"{number} " + "word " * size) for number, size in enumerate((188, 187, 371, 339))]
    log += read_file("6.py", "line " * 400, 6)
    budget = Budget(window=1_858, reserve=0, trigger=0.8, keep_last=0)
    cut = build(log, budget=budget, counter=CHARS4).cut
    assert cut is not None
    assert cut.before - cut.after >= 1_858 // 5


# core/ledger.py: a digest goes with the message that replaced one of its rules


def test_a_rewind_takes_back_a_digest_that_marks_a_rule_as_replaced_by_what_is_gone() -> None:
    log = [user("Always use tabs."), assistant("I will."), user("Use spaces from now on.")]
    refs = tuple(ref for ref, _ in list_refs(log))
    fold = Fold(key="fold-1", covers=refs[:2], text="tabs, replaced in turn 2", cut=1, replaced_by=refs[2:])
    ledger = Ledger(folds=(fold,))
    assert rewind(ledger, refs).folds == (fold,)
    assert rewind(ledger, refs[:2]).folds == ()


# core/cut_target.py: no target stands on the trigger, where a cut would free nothing


@pytest.mark.parametrize("share", range(10, 100, 5))
def test_a_target_is_below_every_trigger(share: int) -> None:
    for pricing in PRICING.values():
        target = choose_target(1_000, share * 10, Growth(tokens=50, typed=50), Rates(), pricing=pricing)
        assert target < share * 10 or target == 1_000 * pricing.lowest // 100
