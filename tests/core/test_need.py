"""How often results are needed again: what the figures say, and what the ladder does with them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lamina import Budget, Envelope, Form, Segment, build, explain
from lamina.core import CHARS4
from lamina.core.explanation import describe_row
from lamina.core.need import (
    AGES,
    DOUBLING,
    ONE_IN,
    RAREST,
    SINCE_WEIGHTS,
    SIZES,
    VERB_WEIGHTS,
    count_cases,
    scale_ripeness,
    weigh_results,
)
from lamina.segments import assistant, call, result, user

WORDS = "word " * 800


def exchange(number: int, tool: str, arguments: dict[str, str], *, error: bool = False) -> list[Segment]:
    """A call and its result, a step of about a thousand tokens."""
    name = f"c{number}"
    return [
        call(tool, arguments, id=name, joins=False),
        result(f"{number}: {WORDS}", id=name, name=tool, key=f"r{number}", error=error),
    ]


def session(*exchanges: tuple[str, dict[str, str]]) -> list[Segment]:
    log = [user("Go.")]
    for number, (tool, arguments) in enumerate(exchanges):
        log += exchange(number, tool, arguments)
    return log


def cut(log: list[Segment], *, target: float) -> Envelope:
    budget = Budget(window=6_000, reserve=0, trigger=0.9, target=target, keep_last=1)
    return build(log, budget=budget, counter=CHARS4)


def forms(envelope: Envelope) -> dict[str, Form]:
    return {entry.segment.key: entry.form for entry in envelope.entries if entry.segment.key}


def test_what_was_read_stays_longer_than_what_was_listed() -> None:
    listed = ("list_files", {"path": "src"})
    read = ("read_file", {"path": "src/a.py"})
    rest = [("read_file", {"path": f"src/{n}.py"}) for n in range(4)]
    for first, second in ((listed, read), (read, listed)):
        result_forms = forms(cut(session(first, second, *rest), target=0.9))
        lowered = "r0" if first is listed else "r1"
        kept = "r1" if first is listed else "r0"
        assert result_forms[lowered] < Form.FULL
        assert result_forms[kept] is Form.FULL


def test_a_file_that_was_edited_since_goes_before_one_that_was_not() -> None:
    log = session(
        ("read_file", {"path": "a.py", "offset": "10"}),
        ("read_file", {"path": "b.py", "offset": "10"}),
        ("write_file", {"path": "b.py", "content": "x"}),
        *[("read_file", {"path": f"{n}.py"}) for n in range(3)],
    )
    envelope = build(log, counter=CHARS4)
    weights = {
        envelope.entries[at].segment.key: found for at, found in weigh_results(envelope.entries).items()
    }
    assert weights["r0"] == VERB_WEIGHTS["read"] + SINCE_WEIGHTS["untouched"]
    assert weights["r1"] == VERB_WEIGHTS["read"] + SINCE_WEIGHTS["edited"]
    assert weights["r2"] == VERB_WEIGHTS["write"] + SINCE_WEIGHTS["untouched"]


def test_a_failed_call_changes_no_file_and_shows_none() -> None:
    log = session(("read_file", {"path": "a.py"}))
    log += exchange(1, "write_file", {"path": "a.py", "content": "x"}, error=True)
    log += exchange(2, "read_file", {"path": "a.py"}, error=True)
    envelope = build([*log, assistant("Done.")], counter=CHARS4)
    verbs = [VERB_WEIGHTS[verb] for verb in ("read", "write", "read")]
    assert list(weigh_results(envelope.entries).values()) == [
        weight + SINCE_WEIGHTS["untouched"] for weight in verbs
    ]


def test_the_reason_says_how_often_such_results_are_needed_again() -> None:
    envelope = cut(session(*[("read_file", {"path": f"{n}.py"}) for n in range(6)]), target=0.9)
    manifest = explain(envelope)
    row = next(row for row in manifest.rows if row.key == "r0")
    weight = VERB_WEIGHTS["read"] + SINCE_WEIGHTS["untouched"]
    cases = count_cases(5, 1_004, weight=weight)
    assert row.why == f"old result, needed again in 1 of {cases} such cases"
    assert f"steps old, needed again in 1 of {cases} such cases" in describe_row(row)


@given(st.integers(0, 10**12), st.integers(-100, 100), st.integers(1, 40))
def test_what_is_needed_more_often_is_less_ripe(ripeness: int, weight: int, more: int) -> None:
    assert scale_ripeness(ripeness, weight + more) <= scale_ripeness(ripeness, weight)
    assert scale_ripeness(ripeness, 0) == ripeness
    assert scale_ripeness(ripeness, -DOUBLING) == 4 * ripeness


@given(st.integers(0, 500), st.integers(0, 50_000), st.integers(-60, 60))
def test_a_chance_is_always_one_in_some_number(age: int, tokens: int, weight: int) -> None:
    cases = count_cases(age, tokens, weight=weight)
    assert 2 <= cases <= RAREST + 1
    assert count_cases(age, tokens, weight=weight + 8) <= cases


def test_there_is_a_figure_for_every_age_and_size() -> None:
    assert [len(row) for row in ONE_IN] == [len(SIZES) + 1] * (len(AGES) + 1)
