"""Who gets how much of the room: the answer, a new result, attachments, and a cut at a cold cache."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from lamina import Budget, Envelope, Form, Options, RequestHead, Segment, build
from lamina.core import Cap, Layout
from lamina.core.cut_target import PRICING, Growth, Rates, choose_target
from lamina.core.values import Preference
from lamina.segments import assistant, excerpt, file, memory, note, selected_text, system, thinking, user
from tests.core.conversations import LETTERS, read_file

AN_HOUR = 3_600


# The answer.


def build_with(parameters: dict[str, Any]) -> Envelope:
    log = [
        user("Read."),
        *read_file("a.py", "a" * 4_000, 0),
        *read_file("b.py", "b" * 3_000, 1),
        user("And now?"),
    ]
    return build(log, head=RequestHead(parameters=parameters), budget=Budget(window=10_000), counter=LETTERS)


@pytest.mark.parametrize(
    "names", list(permutations(("max_completion_tokens", "max_output_tokens", "max_tokens"), 2)), ids=str
)
def test_of_several_limits_of_the_answer_the_largest_is_kept_free(names: tuple[str, str]) -> None:
    small, large = names
    both = build_with({small: 200, large: 4_500})
    assert both.cut
    assert both.tokens <= 5_500
    assert both.tokens == build_with({large: 4_500}).tokens
    assert not build_with({small: 200}).cut


# A cold cache.


def grow_to(tokens: int, *, idle: float, is_pinned: bool = False) -> Envelope:
    """A conversation of exactly so many tokens, in a room of 10,000 with a target of 5,000."""

    def write(filling: int) -> list[Segment]:
        log = [user("Read."), *read_file("a.py", "a" * filling, 0, pinned=is_pinned), assistant("Done.")]
        log += [*read_file("b.py", "b" * 1_000, 1), assistant("Done too."), user("And now?")]
        return log

    missing = tokens - build(write(0), counter=LETTERS).tokens
    log = write(missing)
    assert build(log, counter=LETTERS).tokens == tokens
    budget = Budget(window=10_000, reserve=0, trigger=0.95, target=0.5, keep_last=0)
    return build(log, budget=budget, counter=LETTERS, idle=idle)


@pytest.mark.parametrize(("tokens", "is_cut"), [(6_999, False), (7_000, True)])
def test_a_cold_cache_is_a_reason_to_cut_if_that_frees_the_least(tokens: int, *, is_cut: bool) -> None:
    envelope = grow_to(tokens, idle=AN_HOUR)
    assert bool(envelope.cut) is is_cut
    assert not grow_to(tokens, idle=0).cut


@pytest.mark.parametrize("tokens", [8_000, 9_900], ids=["cold", "over the trigger"])
def test_a_cut_that_finds_too_little_to_free_waits(tokens: int) -> None:
    """The target is far away, but all that is not pinned is one result of 1,000 tokens."""
    envelope = grow_to(tokens, idle=AN_HOUR, is_pinned=True)
    assert not envelope.cut
    assert envelope.tokens == tokens
    assert grow_to(tokens, idle=AN_HOUR).cut


# A new result.


@pytest.mark.parametrize("system_tokens", [5_000, 6_000, 7_500])
def test_a_new_result_has_an_eighth_of_the_room_whatever_must_be_sent(system_tokens: int) -> None:
    """A quarter of the room is kept for the history, so beside 6,000 tokens only 1,500 are left."""
    log = [system("s" * system_tokens), user("Read."), *read_file("a.py", "word and word " * 500, 0)]
    log = [*log[:1], user("Hello."), assistant("Hello."), *log[1:]]
    envelope = build(log, budget=Budget(window=10_000, reserve=0), counter=LETTERS)
    share = max(7_500 - system_tokens - len("Hello.Read."), 1_250)
    size = envelope.entry("r0").tokens
    assert 0.9 * share < size <= share


# Attachments.


def forms_of(*attached: Segment, cap: int, form: Form = Form.STUB) -> list[Form]:
    layout = Layout(attachments=Cap(tokens=cap, form=form))
    log = [*attached, user("And now?")]
    envelope = build(
        log, options=Options(layout=layout), budget=Budget(window=100_000, reserve=0), counter=LETTERS
    )
    return [envelope.entry(segment.key).form for segment in attached]


def test_over_the_cap_the_least_important_attachment_is_lowered_first() -> None:
    wanted, other = note("n.md", "n" * 1_000, key="note"), excerpt("e" * 1_000, source="s.md", key="found")
    for attached in ((wanted, other), (other, wanted)):
        forms = dict(zip([one.key for one in attached], forms_of(*attached, cap=1_700), strict=True))
        assert forms == {"note": Form.FULL, "found": Form.STUB}


def test_over_the_cap_what_was_added_first_is_lowered_first_among_equals() -> None:
    attached = [file(f"{number}.txt", f"{number}" * 1_000, key=f"f{number}") for number in range(4)]
    assert forms_of(*attached, cap=4_600) == [Form.FULL] * 4
    assert forms_of(*attached, cap=3_700) == [Form.STUB, *[Form.FULL] * 3]
    assert forms_of(*attached, cap=2_900) == [Form.STUB, Form.STUB, Form.FULL, Form.FULL]
    assert forms_of(*attached, cap=0) == [Form.STUB] * 4


@pytest.mark.parametrize("form", [Form.COMPACT, Form.STUB])
def test_a_cap_leaves_what_cannot_be_recovered_as_it_is(form: Form) -> None:
    attached = (selected_text("It is said. " * 500, key="selected"), file("f.txt", "f" * 1_000, key="file"))
    assert forms_of(*attached, cap=100, form=form)[0] is Form.FULL


# The last step.


@pytest.mark.parametrize(
    "after",
    [
        (),
        (thinking("What does that mean?", joins=False),),
        (thinking("What does that mean?", joins=False), memory("likes brevity")),
        (thinking("What does that mean?", joins=False), system("Be brief.")),
    ],
    ids=["a result is last", "thinking is last", "a changed section is last", "system text is last"],
)
def test_the_last_step_is_sent_in_full_also_if_something_stands_after_it(after: tuple[Segment, ...]) -> None:
    log = [user("Read them all.")]
    for number in range(6):
        log += read_file(f"{number}.py", f"{number} " * 500, number)
    log += after
    envelope = build(log, budget=Budget(window=1_700, reserve=0, keep_last=0), counter=LETTERS)
    assert envelope.entry("r5").form is Form.FULL
    assert envelope.entry("r4").form is not Form.FULL


# The line that a wire format puts before an assistant who speaks first.


def test_the_opening_counts_if_the_assistant_speaks_first_and_only_then() -> None:
    opened = Options(opening="(continued)")

    def count_more(*log: Segment) -> int:
        whole = build(log, options=opened, counter=LETTERS)
        return whole.tokens - build(log, counter=LETTERS).tokens

    assert count_more(assistant("Hello."), user("Go.")) == len("(continued)")
    assert count_more(system("Be kind."), assistant("Hello."), user("Go.")) == len("(continued)")
    assert count_more(user("Go."), assistant("Hello."), user("On.")) == 0


# What no cut can free.


@pytest.mark.parametrize("prefer", PRICING)
def test_a_target_is_found_whatever_no_cut_can_free(prefer: Preference) -> None:
    """Also where a target would leave exactly nothing for the history."""
    growth = Growth(tokens=2_000, typed=10)
    for fixed in range(0, 9_500, 100):
        target = choose_target(10_000, 9_500, growth, Rates(), fixed=fixed, pricing=PRICING[prefer])
        assert fixed < target <= 10_000
