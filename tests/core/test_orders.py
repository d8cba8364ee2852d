"""What a cut takes first: age and size, against what a token says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina import Budget, BudgetExceeded, Form, Ledger, Options, RequestHead, Segment, build
from lamina.core import CHARS4, Move, OrderView, ToolCall
from lamina.core.cut_target import (
    BACK,
    NEED,
    PRICING,
    Growth,
    Rates,
    choose_target,
    derive_limits,
    measure_growth,
)
from lamina.core.entries import pair_calls
from lamina.core.ladder import TOKEN_VALUES, ladder, ripeness
from lamina.core.orders import Batch, fold_steps
from lamina.segments import assistant, call, excerpt, file, result, user

CODE = "\n".join(f"def load_{n}(path): return parse_{n}(path)" for n in range(200))


def work(*sizes: int) -> list[Segment]:
    """One step for each size, whose result has about so many tokens."""
    log: list[Segment] = [user("Go.")]
    for n, size in enumerate(sizes):
        log.append(call("run", {"n": n}, id=f"c{n}", joins=False))
        log.append(result(f"{n}: " + "word " * (size * 4 // 5), id=f"c{n}", name="run", key=f"r{n}"))
    return log


def forms(log: list[Segment], *, window: int, target: float) -> dict[str, Form]:
    budget = Budget(window=window, reserve=0, trigger=0.9, target=target, keep_last=1)
    envelope = build(log, budget=budget, counter=CHARS4, ledger=Ledger())
    return {e.segment.key: e.form for e in envelope.entries if e.segment.key}


def test_of_two_as_large_the_older_goes_first() -> None:
    result_forms = forms(work(1_000, 1_000, 1_000, 1_000), window=4_000, target=0.85)
    assert result_forms["r0"] < Form.FULL == result_forms["r1"] == result_forms["r2"]


def test_of_two_nearly_as_old_the_larger_goes_first() -> None:
    result_forms = forms(work(300, 2_000, 300, 300, 300, 300), window=3_500, target=0.7)
    assert result_forms["r1"] < Form.FULL == result_forms["r0"]


def test_a_large_recent_result_is_shortened_before_an_old_short_one_is_taken_away() -> None:
    result_forms = forms(work(260, 260, 260, 260, 4_000, 260), window=5_000, target=0.5)
    assert result_forms["r4"] is Form.COMPACT
    assert result_forms["r0"] is Form.FULL


def test_very_old_steps_are_folded_while_later_results_still_stand() -> None:
    result_forms = forms(work(*[100] * 60), window=6_000, target=0.5)
    assert result_forms["r0"] is Form.OMITTED
    assert result_forms["r58"] is Form.FULL


def attach_file(number: int, text: str) -> Segment:
    return file(f"{number}.md", text)


def attach_excerpt(number: int, text: str) -> Segment:
    return excerpt(text, source=f"{number}.md", key=f"{number}.md")


ATTACHMENTS = st.tuples(st.sampled_from([attach_file, attach_excerpt]), st.integers(1, 900))


@given(attachments=st.lists(ATTACHMENTS, min_size=2, max_size=6))
def test_an_attachment_is_shortened_before_only_its_handle_stays(
    attachments: list[tuple[Callable[[int, str], Segment], int]],
) -> None:
    """An old, small note is left as a handle at once. A large excerpt after it was, too."""
    log: list[Segment] = []
    for number, (attach, words) in enumerate(attachments):
        text = f"{number}: " + "Some words. " * words
        log += [attach(number, text), user(f"Read {number}."), assistant("I have.")]
    moves: list[Move] = []

    def order(view: OrderView) -> Iterator[Batch]:
        for batch in ladder(view):
            moves.extend(batch)
            yield batch

    budget = Budget(window=700, reserve=0, trigger=0.2, target=0.1, keep_last=1)
    options = Options(order=order)
    with suppress(BudgetExceeded):
        build([*log, user("Go on.")], budget=budget, counter=CHARS4, ledger=Ledger(), options=options)
    forms: dict[int, Form] = {}
    for move in moves:
        if move.why == "attachment":
            assert forms.get(move.at, Form.FULL) > move.form
            forms[move.at] = move.form


@pytest.mark.parametrize("token_value", sorted(TOKEN_VALUES.values()))
def test_ripeness_rises_with_age_and_size(token_value: int) -> None:
    assert ripeness(5, 500, token_value) < ripeness(6, 500, token_value)
    assert ripeness(5, 500, token_value) < ripeness(5, 600, token_value)
    assert ripeness(5, 500, token_value) > ripeness(5, 500, token_value + 100)


# how far a cut goes


ROOM, TRIGGER = 56_000, 44_800


def test_fast_growth_keeps_more_for_what_is_kept_is_younger() -> None:
    """An agent's loop: nobody types anything, and what is hidden can be recalled."""
    memory = PRICING["memory"]
    growths = [Growth(tokens=grown) for grown in (100, 700, 1_500, 4_000)]
    targets = [choose_target(ROOM, TRIGGER, growth, Rates(), pricing=memory) for growth in growths]
    assert targets == sorted(targets)
    assert choose_target(ROOM, TRIGGER, growths[0], Rates()) < targets[-1]


def test_a_target_stays_between_its_bounds() -> None:
    for grown in (0, 1, 50, 5_000, 10**6):
        for typed in (0, grown // 2, grown):
            for rates in (Rates(), Rates(read=0, write=1), Rates(read=1, write=1)):
                for pricing in PRICING.values():
                    growth = Growth(tokens=grown, typed=typed)
                    left = choose_target(ROOM, TRIGGER, growth, rates, pricing=pricing)
                    assert ROOM * pricing.lowest // 100 <= left <= ROOM * pricing.highest // 100


def test_dear_writes_cut_deeper_than_cheap_ones() -> None:
    dear, cheap = Rates(read=0.1, write=4), Rates(read=0.1, write=1)
    growth = Growth(tokens=1_000, typed=900)
    assert choose_target(ROOM, TRIGGER, growth, dear) < choose_target(ROOM, TRIGGER, growth, cheap)


def test_a_talk_that_grows_slowly_is_cut_less_deeply_than_an_agents_loop() -> None:
    talk = choose_target(ROOM, TRIGGER, Growth(tokens=200, typed=180), Rates())
    fast_talk = choose_target(ROOM, TRIGGER, Growth(tokens=4_000, typed=3_600), Rates())
    loop = choose_target(ROOM, TRIGGER, Growth(tokens=4_000, typed=0), Rates())
    assert loop < talk
    assert fast_talk < talk


def test_what_is_preferred_moves_the_target() -> None:
    for growth in (Growth(tokens=150, typed=140), Growth(tokens=900, typed=100), Growth(tokens=3_000)):
        cost, balanced, memory = (
            choose_target(ROOM, TRIGGER, growth, Rates(), pricing=PRICING[prefer])
            for prefer in ("cost", "balanced", "memory")
        )
        assert cost < balanced < memory


def test_the_last_token_kept_costs_no_more_than_it_spares() -> None:
    rates, growth, memory = Rates(), Growth(tokens=2_500, typed=1_500), PRICING["memory"]
    left = choose_target(ROOM, TRIGGER, growth, rates, pricing=memory)

    def worth(left: int) -> bool:
        costs = rates.read / 2 + (rates.write - rates.read) * TRIGGER * growth.tokens / (TRIGGER - left) ** 2
        recall = rates.read * (TRIGGER + left) / 2 + rates.write * BACK
        spared_recalls = memory.named * NEED * (growth.tokens / left) ** 1.5 * recall
        return bool(costs <= spared_recalls + memory.silent * growth.typed / growth.tokens)

    assert ROOM * memory.lowest // 100 < left < ROOM * memory.highest // 100
    assert worth(left)
    assert not worth(left + ROOM // 20)


def test_growth_is_what_a_recent_step_added() -> None:
    envelope = build(work(*[400] * 30), counter=CHARS4)
    growth = measure_growth(envelope.entries)
    assert 380 <= growth.tokens <= 480
    assert growth.typed <= growth.tokens // 10


def test_what_the_user_typed_is_a_part_of_the_growth() -> None:
    log = [user("Hello.")]
    for number in range(20):
        log += [assistant("Noted."), user(f"My note {number}: " + "word " * 80)]
    growth = measure_growth(build(log, counter=CHARS4).entries)
    assert growth.typed >= growth.tokens * 9 // 10


def test_a_target_that_was_given_is_taken() -> None:
    assert derive_limits(Budget(window=10_000, reserve=0, target=0.37), RequestHead(), ()).target == 3_700


def test_parallel_calls_that_share_an_id_supersede_only_their_own_results() -> None:
    text = "word " * 400
    log: list[Segment] = [
        user("Go."),
        call("read_file", {"path": "a.py"}, id="x", joins=False),
        call("read_file", {"path": "b.py"}, id="x"),
        result(f"a {text}", id="x", name="read_file", key="a"),
        result(f"b {text}", id="x", name="read_file", key="b"),
        call("read_file", {"path": "a.py"}, id="y", joins=False),
        result(f"a {text}", id="y", name="read_file", key="a-again"),
        assistant("Read."),
        user("And now?"),
    ]
    assert pair_calls(build(log, counter=CHARS4).entries) == [(1, 3), (2, 4), (5, 6)]
    result_forms = forms(log, window=1_600, target=0.8)
    assert result_forms["a"] is Form.STUB
    assert result_forms["b"] is result_forms["a-again"] is Form.FULL


# orders of a caller's own


@pytest.mark.parametrize("fold", [False, True])
def test_no_order_touches_the_prompt(fold: bool) -> None:  # noqa: FBT001
    def order(view: OrderView) -> Iterator[Batch]:
        last = len(view.entries) - 1
        yield (Move(last, Form.OMITTED, "x", fold=fold), Move(2, Form.STUB, "x"))
        yield (Move(2, Form.STUB, "x"),)

    log = [*work(900, 300), assistant("Done."), user("And?", key="ask")]
    budget = Budget(window=1_000, reserve=0, keep_last=0)
    before = build(log[:-2], counter=CHARS4)  # so that no result enters shortened
    envelope = build(log, budget=budget, counter=CHARS4, ledger=before.ledger, options=Options(order=order))
    assert envelope.cut is not None
    assert envelope.entry("ask").form is Form.FULL
    assert envelope.entry("r0").form is not Form.FULL


@given(seed=st.integers(0, 10_000), keep=st.integers(0, 3))
def test_no_order_lowers_a_digest_or_what_it_stands_for(seed: int, keep: int) -> None:
    """An order that folds old steps and then trims whatever it sees, in a talk of several cuts."""
    random = Random(seed)  # noqa: S311 - made-up talk

    def order(view: OrderView) -> Iterator[Batch]:
        yield from islice(fold_steps(view, verbatim=None), random.randrange(4))
        for at, entry in enumerate(view.entries):
            if not isinstance((entry.parts or entry.segment.parts)[0], ToolCall):
                yield (Move(at, random.choice([Form.COMPACT, Form.STUB]), "old", fold=False),)

    log: list[Segment] = []
    ledger: Ledger | None = None
    budget = Budget(window=900, reserve=0, trigger=0.8, target=0.7, keep_last=keep)
    for turn in range(12):
        log.append(user(f"Question {turn}", pinned=random.random() < 0.5))
        for step in range(random.randrange(3)):
            name = f"c{turn}_{step}"
            log.append(assistant(f"look {name} " + "t" * random.randrange(90)))
            log.append(call("read", {"path": name}, id=name))
            log.append(result(f"r {name} " + "x" * random.randrange(40, 500), id=name, name="read"))
        log.append(assistant(f"Answer {turn} " + "a" * random.randrange(40, 300)))
        with suppress(BudgetExceeded):
            ledger = build(
                log, budget=budget, ledger=ledger, counter=CHARS4, options=Options(order=order)
            ).ledger
    assert ledger is not None
    assert not any(ref.startswith("fold-") for ref in ledger.lines)
