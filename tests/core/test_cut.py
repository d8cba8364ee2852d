from __future__ import annotations

from itertools import combinations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina import (
    Budget,
    BudgetExceeded,
    Entry,
    Envelope,
    Form,
    Layer,
    Ledger,
    Options,
    RequestHead,
    Role,
    Segment,
    build,
)
from lamina.core import CHARS4, KINDS, Text, Thinking
from lamina.core.bound_thinking import AFTER_CUT, Binding
from lamina.core.build import plan_cut
from lamina.core.cut import OPEN_LOOP, CutPlan
from lamina.core.cut_target import derive_limits
from lamina.core.digests import find_runs, lay_folds
from lamina.core.kinds import recoverable
from lamina.core.ladder import REPLY_LIMIT
from lamina.core.ledger import SAME_TEXT_LATER
from lamina.core.lowering import lower_entry
from lamina.core.run_text import write_title as one_line
from lamina.core.tokens import part_cost
from lamina.core.values import Fold
from lamina.core.wording import PLAIN
from lamina.segments import assistant, call, file, memory, result, system, thinking, user
from lamina.testing.laws import cases
from lamina.testing.strategies import Story, stories
from tests.examples import up_to

WORDS = "many words about nothing "


def steps(count: int, size: int = 30, *, first: int = 0) -> list[Segment]:
    """Calls and their results; each result is `size` times 25 characters long, and has a key."""
    numbers = range(first, first + count)
    calls = [call("read", {"path": f"{n}.txt"}, id=f"c{n}", joins=False) for n in numbers]
    results = [result(f"{n}: " + WORDS * size, id=f"c{n}", name="read", key=f"r{n}") for n in numbers]
    return [segment for pair in zip(calls, results, strict=True) for segment in pair]


def room(tokens: int, *, keep_last: int = 0, target: float | None = None) -> Budget:
    return Budget(window=tokens, reserve=0, keep_last=keep_last, target=target)


def built(log: list[Segment], budget: Budget, ledger: Ledger | None = None, *, idle: float = 0) -> Envelope:
    return build(log, budget=budget, counter=CHARS4, ledger=ledger or Ledger(), idle=idle)


def refused(log: list[Segment], budget: Budget) -> BudgetExceeded:
    with pytest.raises(BudgetExceeded) as caught:
        built(log, budget)
    return caught.value


def lowered(envelope: Envelope) -> set[str]:
    """Keys of what is not sent in full."""
    return {e.segment.key for e in envelope.entries if e.form is not Form.FULL} - {""}


# the floor


def test_a_budget_that_cannot_be_met_names_the_floor_and_what_it_is_made_of() -> None:
    log = [
        system("Rules. " * 50, key="rules"),
        user("Read this. " * 30),
        *steps(3),
        assistant("Read."),
        user("Why? " * 10, key="why"),
    ]
    error = refused(log, room(60))
    assert (error.room, error.segments[0], error.segments[-1][0]) == (60, ("rules", 88), "why")
    assert f"{error.floor:,} tokens, and 60 are allowed" in str(error)
    fitted = built(log, room(error.floor))
    assert fitted.tokens == error.floor


def choices(entry: Entry) -> list[Entry]:
    """The entry in every form that lamina may give it, by what it is."""
    if not entry.parts or entry.layer in (Layer.SYSTEM, Layer.PROMPT) or entry.segment.pinned:
        return [entry]
    reply = entry.role is Role.ASSISTANT and isinstance(entry.parts[0], Text)
    forms = {Form.STUB: 0}
    if isinstance(entry.parts[0], Thinking):
        forms = {Form.OMITTED: 0}
    elif recoverable(KINDS, entry.segment):
        forms = {Form.COMPACT: REPLY_LIMIT if reply else 0, Form.STUB: 0}
    return [
        entry,
        *(lower_entry(entry, form, "tried", wording=PLAIN, limit=limit) for form, limit in forms.items()),
    ]


def cost(entry: Entry) -> int:
    """What an entry costs where messages cost nothing beside their text."""
    return sum(part_cost(part, CHARS4) for part in entry.parts)


def _without_thinking(entry: Entry) -> Entry:
    return min(choices(entry), key=cost) if isinstance(entry.parts[0], Thinking) else entry


def least_digest(run: list[Entry]) -> int:
    """What one line costs that stands for the run."""
    text = one_line([entry.segment for entry in run])
    fold = Fold(key="fold-" + "0" * 20, covers=tuple(entry.ref for entry in run), text=text, cut=1)
    return sum(cost(entry) for entry in lay_folds(run, (fold,), wording=PLAIN))


def smallest(log: list[Segment]) -> int:
    """The least that any choice of forms and folds comes to."""
    entries = [_without_thinking(entry) for entry in build(log, counter=CHARS4).entries]
    costs = [min(map(cost, choices(entry))) for entry in entries]
    foldable = {i for i, entry in enumerate(entries) if entry.parts and len(choices(entry)) > 1}
    for i in [i for i, entry in enumerate(entries) if entry.segment.kind == "tool_call"]:
        if not {i, i + 1} <= foldable:  # its result stands right after it, and they go together
            foldable -= {i, i + 1}
    runs = find_runs(entries, frozenset(foldable))
    gains = [sum(costs[i] for i in run) - least_digest([entries[i] for i in run]) for run in runs]
    subsets = (some for count in range(len(gains) + 1) for some in combinations(gains, count))
    return sum(costs) - max(map(sum, subsets))


@st.composite
def small_logs(draw: st.DrawFn) -> list[Segment]:
    """A few messages before a last question, each small or large, some pinned."""
    log: list[Segment] = [system("Be brief.")]
    for number in range(draw(st.integers(1, 6))):
        size, pinned = draw(st.sampled_from((0, 1, 4, 40, 200))), draw(st.integers(0, 5)) == 0
        text, name = f"{number} " + WORDS * size, f"c{number}"
        shapes = {
            "user": [user(text, pinned=pinned)],
            "reply": [assistant(text, pinned=pinned)],
            "step": [
                call("read", {"path": text}, id=name, joins=False),
                result(text, id=name, pinned=pinned),
            ],
            "file": [file(f"{number}.md", text, pinned=pinned), user("See there")],
            "thought": [thinking(text), assistant(text, joins=True)],
        }
        log += shapes[draw(st.sampled_from(sorted(shapes)))]
    return [*log, assistant("Well."), user("So?")]


@settings(max_examples=up_to(125))
@given(small_logs())
def test_the_floor_is_what_trying_everything_finds(log: list[Segment]) -> None:
    floor = refused(log, room(1)).floor
    assert floor == smallest(log)
    assert built(log, room(floor)).tokens == floor


# what is spared


LOOP = [user("Read them all"), *steps(8)]
WHOLE = build(LOOP, counter=CHARS4).tokens


def test_the_last_steps_are_spared_while_that_is_possible() -> None:
    envelope = built(LOOP, room(WHOLE, keep_last=3))
    assert envelope.cut is not None
    assert {"r0", "r1"} <= lowered(envelope)
    assert lowered(envelope).isdisjoint({"r5", "r6", "r7"})


def test_the_budget_is_law_and_the_spared_steps_a_wish() -> None:
    log = [user("Hello there, how are you today? " * 3, key="hello"), assistant("Well."), *LOOP]
    envelope = built(log, room(WHOLE // 2, keep_last=8))
    assert {"r0", "r1"} <= lowered(envelope)
    assert "nothing else is left to lower" not in {e.why for e in envelope.entries}
    assert envelope.entry("hello").form is Form.FULL, "what cannot be had again goes last"
    assert envelope.entry("r7").form is Form.FULL, "the last step is never touched"


def test_a_changed_section_does_not_make_history_of_the_prompt() -> None:
    envelope = built([*LOOP, memory("Likes brevity"), *steps(2, first=8)], room(WHOLE // 2))
    assert envelope.cut is not None
    question = next(e for e in envelope.entries if e.segment == LOOP[0])
    assert (question.layer, question.form) == (Layer.PROMPT, Form.FULL)


@given(stories())
def test_the_system_text_the_prompt_and_what_is_pinned_are_never_touched(story: Story) -> None:
    for case in cases(story):
        for entry in case.envelope.entries:
            fixed = entry.segment.kind == "system" or entry.layer is Layer.PROMPT or entry.segment.pinned
            if fixed and entry.ref not in case.envelope.ledger.repairs and entry.why != SAME_TEXT_LATER:
                assert entry.form is Form.FULL
                assert entry.parts == entry.segment.parts or story.options.wording.tagged


# when a cut is made, and how far it goes


@settings(max_examples=up_to(125))
@given(stories(all_of_history=True))
def test_a_cut_frees_its_least_unless_it_meets_the_floor(story: Story) -> None:
    for case in cases(story):
        cut = case.envelope.cut
        if cut is not None and cut.lowered:
            least = derive_limits(story.budget, RequestHead(), case.envelope.entries).least
            assert cut.floor or cut.before - cut.after >= least


@pytest.mark.parametrize("size", [7_900, 7_990, 8_030])
def test_a_cut_that_leaves_one_line_of_history_has_met_the_floor(size: int) -> None:
    """By then nothing else can be lowered, even if the request fits into the room at last."""
    log = [user("Always use tabs in every file that you write for me."), assistant("I will. " * 20)]
    log += [user("Read it."), assistant("It says nothing. " * 20), user("x" * size)]
    envelope = build(log, budget=Budget(window=2_048, reserve=0, keep_last=0), counter=CHARS4)
    assert envelope.cut is not None
    assert envelope.cut.floor


def test_nothing_is_cut_up_to_the_trigger() -> None:
    enough = -(-WHOLE * 100 // 95)
    assert built(LOOP, room(enough)).cut is None
    assert built(LOOP, room(enough - 2)).cut is not None


def test_a_cut_waits_while_it_would_free_too_little() -> None:
    held = [msgspec.structs.replace(one, pinned=at > 3) for at, one in enumerate(LOOP)]
    log = [system("Rules. " * 400), *held]
    whole = build(log, counter=CHARS4).tokens
    for budget, due in ((room(whole), False), (room(whole - 1), True)):
        envelope = built(log, budget)
        assert (envelope.cut is not None) is due
    near = room(whole, target=0.94)
    assert built(log, near).cut is not None, "it reaches the target that it was given"


def test_a_cold_cache_is_a_reason_to_cut_early() -> None:
    budget, ttl = room(WHOLE * 2, target=0.2), Options().rates.ttl
    before = built(LOOP, budget)
    assert before.cut is None
    assert built(LOOP, budget, before.ledger, idle=ttl).cut is None
    cold = built(LOOP, budget, before.ledger, idle=ttl + 1)
    assert cold.cut is not None
    assert cold.cut.reason == "the cache is cold anyway"
    assert cold.tokens <= budget.window // 5


def test_a_cold_cache_is_no_reason_for_a_small_cut() -> None:
    assert built(LOOP, room(WHOLE * 10), idle=10**6).cut is None


# the plan of a cut


@settings(max_examples=up_to(125))
@given(stories(all_of_history=True))
def test_a_plan_says_what_the_build_then_does(story: Story) -> None:
    ledger = Ledger()
    options = msgspec.structs.replace(
        story.options, remind=False
    )  # a plan says nothing of what comes after the cut
    for log in story.logs:
        saved = ledger.dump()
        plan = plan_cut(log, budget=story.budget, ledger=ledger, options=options)
        assert ledger.dump() == saved
        try:
            envelope = build(log, budget=story.budget, ledger=ledger, options=options)
        except BudgetExceeded as error:
            reason = error.reason
        else:
            if envelope.cut is not None and envelope.cut.lowered:
                assert_planned(plan, envelope, ledger)
            ledger = envelope.ledger
            continue
        assert not plan.fits or reason == OPEN_LOOP


def assert_planned(plan: CutPlan, envelope: Envelope, before: Ledger) -> None:
    cut = envelope.cut
    assert cut is not None
    planned = (plan.before, plan.after, plan.floor, plan.fits)
    assert planned == (cut.before, envelope.tokens, cut.floor, True)
    now = {e.ref: e for e in envelope.entries}
    assert [(move.now, move.why) for move in plan.lowered] == [
        (now[move.ref].form, now[move.ref].why) for move in plan.lowered
    ]
    assert sum(move.tokens for move in plan.lowered) > 0 or plan.digests, "older digests became one"
    new = [fold for fold in envelope.ledger.folds if fold.cut == cut.number]
    assert list(plan.digests) == ["\n".join(filter(None, (fold.text, fold.notes))) for fold in new]
    assert all(fold.cut == cut.number for fold in set(envelope.ledger.folds) - set(before.folds))


def test_a_plan_can_be_had_before_a_cut_is_due() -> None:
    plan = plan_cut(LOOP, budget=room(WHOLE * 2, target=0.2), counter=CHARS4)
    assert (plan.before, plan.fits, plan.floor) == (WHOLE, True, False)
    assert plan.after <= WHOLE * 2 // 5
    assert {move.was for move in plan.lowered} == {Form.FULL}


def test_a_plan_counts_a_section_where_an_edited_history_puts_it() -> None:
    sent = [memory("Rows have four columns. " * 9), user("Read them"), *steps(8)]
    log = [*sent, memory("Rows have five."), user("Go on"), *steps(1, first=8)]
    ledger = built(log, room(4_000), built(sent, room(4_000)).ledger).ledger
    edited = [log[0], user("Read all of them"), *log[2:]]
    plan = plan_cut(edited, budget=room(1_000), ledger=ledger, counter=CHARS4)
    cut = built(edited, room(1_000), ledger).cut
    assert cut is not None
    assert (plan.before, plan.after) == (cut.before, cut.after)


def test_a_plan_says_so_where_no_cut_would_be_enough() -> None:
    log = [system("Rules. " * 400), user("Go")]
    plan = plan_cut(log, budget=room(100), counter=CHARS4)
    assert (plan.fits, plan.floor, plan.lowered) == (False, True, ())
    assert plan.after == plan.before == refused(log, room(100)).floor


# bound thinking


def thought(number: int) -> Segment:
    return thinking(f"thought {number}", signature=f"s{number}", key=f"t{number}")


def thoughtful(count: int) -> list[Segment]:
    """An open tool loop in which each step begins with a thought."""
    log = [user("Read them all")]
    for n in range(count):
        call_segment, result_segment = steps(1, first=n)
        log += [thought(n), msgspec.structs.replace(call_segment, joins=True), result_segment]
    return log


OPEN = thoughtful(6)
ENDED = [*OPEN, assistant("All read."), user("Thanks")]
SIZE = build(OPEN, counter=CHARS4).tokens


def bound(log: list[Segment], budget: Budget, binding: Binding, ledger: Ledger | None = None) -> Envelope:
    options = Options(binding=binding)
    return build(log, budget=budget, counter=CHARS4, ledger=ledger or Ledger(), options=options)


def thoughts(envelope: Envelope) -> list[str]:
    return [e.segment.key for e in envelope.sent if e.segment.kind == "thinking"]


def test_strictly_bound_thinking_lets_a_cut_wait_in_an_open_loop() -> None:
    assert bound(OPEN, room(SIZE), "none").cut is not None
    assert bound(OPEN, room(SIZE), "strict").cut is None


def test_where_it_cannot_wait_thinking_before_the_last_step_goes_at_a_recorded_cut() -> None:
    envelope = bound(OPEN, room(SIZE - 1), "strict")
    assert thoughts(envelope) == ["t5"]
    assert [e.form for e in envelope.sent] == [Form.FULL] * (len(OPEN) - 5)
    assert envelope.cut is not None
    assert envelope.cut.lowered == 5
    again = bound(OPEN, room(SIZE - 1), "strict", envelope.ledger)
    assert again.prefix == envelope.prefix
    assert again.cut is None


def test_where_that_is_not_enough_the_newest_result_is_shortened_since_it_stands_behind_all_thinking() -> (
    None
):
    without_thinking = bound(OPEN, room(SIZE - 1), "strict").tokens
    envelope = bound(OPEN, room(without_thinking - 1), "strict")
    assert thoughts(envelope) == ["t5"]
    assert [e.form for e in envelope.sent[:-1]] == [Form.FULL] * (len(OPEN) - 6)
    assert envelope.sent[-1].form is not Form.FULL


def test_where_that_is_not_enough_either_the_error_says_that_thinking_is_the_cause() -> None:
    with pytest.raises(BudgetExceeded, match=r"thinking.*drop_block") as caught:
        bound([system("Be brief."), *OPEN], room(SIZE // 2), "strict")
    assert caught.value.reason == OPEN_LOOP
    assert caught.value.floor < SIZE
    assert set(dict(caught.value.segments)).isdisjoint(("system", "tools"))


def test_after_the_turn_the_cut_is_made_and_later_thinking_goes_with_it() -> None:
    before = bound(OPEN, room(SIZE), "strict")
    after = bound(ENDED, room(SIZE, keep_last=3), "strict", before.ledger)
    assert after.cut is not None
    assert after.entry("t0").why == "disposable"
    assert [after.entry(f"t{n}").why for n in (4, 5)] == [AFTER_CUT] * 2, "spared by the cut, but bound to it"
    assert thoughts(after) == []


def test_thinking_before_the_first_edit_stays() -> None:
    pinned = [msgspec.structs.replace(s, pinned=True) if n < 4 else s for n, s in enumerate(ENDED)]
    before = bound(pinned[: len(OPEN)], room(SIZE), "strict")
    after = bound(pinned, room(SIZE), "strict", before.ledger)
    assert after.cut is not None
    assert thoughts(after) == ["t0"]


def test_a_provider_that_drops_blocks_itself_is_sent_the_latest_one() -> None:
    envelope = bound(OPEN, room(SIZE), "drop")
    assert envelope.cut is not None
    assert thoughts(envelope) == ["t5"]


def test_an_edit_upstream_takes_the_thinking_after_it_along() -> None:
    before = bound(ENDED, room(SIZE * 10), "strict")
    edited = [user("Read some of them"), *ENDED[1:]]
    after = bound(edited, room(SIZE * 10), "strict", before.ledger)
    assert (thoughts(before), thoughts(after)) == ([f"t{n}" for n in range(6)], [])


def test_an_error_names_segments_without_a_key_by_their_first_words() -> None:
    log = [system("You are careful. " * 400), user("Read the client.\n" * 300)]
    message = str(refused(log, Budget(window=1_000, reserve=100)))
    assert 'user "Read the client. Read the clie": ' in message
    assert 'system "You are careful. You are caref": ' in message


@pytest.mark.parametrize("keep_last", [10, 50])
def test_the_trigger_is_a_limit_and_a_number_of_spared_steps_a_wish(keep_last: int) -> None:
    """Fifty steps may be more than the whole room: they are spared as far as the trigger allows it."""
    budget = Budget(window=2_000, reserve=0, trigger=0.8, keep_last=keep_last)
    log: list[Segment] = [user("Read them all")]
    ledger = Ledger()
    for step in steps(60):
        log.append(step)
        envelope = build(log, budget=budget, counter=CHARS4, ledger=ledger)
        ledger = envelope.ledger
        assert envelope.tokens <= 1_600


@settings(max_examples=up_to(25))
@given(st.lists(st.integers(5, 80), min_size=25, max_size=40))
def test_a_request_that_is_to_fill_its_room_has_no_place_for_another_message(sizes: list[int]) -> None:
    """`trigger=1, target=1`: what is built once, and not continued, takes what fits."""
    room = 1_000
    log = [user("Begin.")]
    for number, size in enumerate(sizes):
        speak = (assistant, user)[number % 2]
        log.append(speak(f"{number} " + "word " * size))
    log.append(user("And now?"))
    budget = Budget(window=room, reserve=0, trigger=1, target=1)
    envelope = build(log, budget=budget, counter=CHARS4)
    if envelope.cut:
        largest = (max(sizes) * len("word ")) // 4
        assert envelope.tokens >= room - largest - room * 3 // 100
