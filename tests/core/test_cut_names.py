"""Which names the digests of a cut list: those that are not in sight, what the model itself used first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina import Budget, BuildMemo, Envelope, Ledger, Role, Segment, build
from lamina.core import CHARS4, run_text, text_of
from lamina.core.reminders import is_reminder
from lamina.core.run_text import NO_USES, NameUses
from lamina.core.text.excerpts import count_names, find_shown_names, find_written_names
from lamina.segments import assistant, call, result, system, user
from lamina.testing import generate_session, split_calls

BUDGET = Budget(window=6_000, reserve=0)


def read_lists(envelope: Envelope) -> Iterator[tuple[int, list[str]]]:
    """The names that each digest lists, with the number of the cut that wrote it."""
    for fold in envelope.ledger.folds:
        for line in fold.notes.split("\n"):
            if line.startswith("  names: "):
                yield fold.cut, line.removeprefix("  names: ").split(", ")


def find_names_beside_lists(envelope: Envelope) -> set[str]:
    """The names in sight without the lists, and without reminders, which are chosen after the cut."""
    shown: set[str] = set()
    for entry in envelope.entries:
        if is_reminder(entry):
            continue
        lines = text_of(entry.parts).split("\n")
        shown |= find_shown_names("\n".join(line for line in lines if not line.startswith("  names: ")))
    return shown


def build_calls(log: Sequence[Segment], budget: Budget = BUDGET) -> Iterator[Envelope]:
    """Each call of a session, with the ledger and the memo of the one before."""
    ledger = Ledger()
    memo = BuildMemo()
    for up_to_call in split_calls(log):
        envelope = build(up_to_call, budget=budget, ledger=ledger, memo=memo, counter=CHARS4)
        ledger = envelope.ledger
        yield envelope


def work_on_parser(steps: int) -> list[Segment]:
    """Every result names forty functions often; the model itself speaks of one of them, once a step."""
    log = [system("You review code."), user("Look at every file.")]
    for number in range(steps):
        names = " ".join(f"helper_{number}_{other}" for other in range(40))
        log += [
            assistant(f"The limit of 4711 in resolve_{number % 3} is wrong."),
            call("read_file", {"path": f"src/file_{number}.py"}, id=f"c{number}"),
            result(f"{names}\n{names}", id=f"c{number}", name="read_file"),
        ]
    return [*log, assistant("All of them were read."), user("And now?")]


def test_names_that_the_model_used_come_before_frequent_ones() -> None:
    log = work_on_parser(steps=30)
    rest = [*log, *(user(f"Question {number}: {'why ' * 120}") for number in range(4))]
    envelope = build(rest, budget=BUDGET, counter=CHARS4)
    ((_, listed),) = read_lists(envelope)
    first = [name for name in listed if not name.startswith("helper_")]
    assert "src/file_1.py" in first
    assert listed[: len(first)] == first


@pytest.mark.parametrize("seed", range(2))
def test_only_names_that_are_not_in_sight_are_listed(seed: int) -> None:
    cuts = 0
    for envelope in build_calls(generate_session(seed, turns=14), Budget(window=8_000, reserve=0)):
        if envelope.cut is None:
            continue
        cuts += 1
        shown = find_names_beside_lists(envelope)
        new = [listed for cut, listed in read_lists(envelope) if cut == envelope.cut.number]
        for listed in new:
            assert shown.isdisjoint(listed)
            shown |= set(listed)
    assert cuts > 1


def test_a_listed_name_stands_in_what_its_digest_covers() -> None:
    """What the client takes back must leave the request, so a list stands on the segments of its digest."""
    *_, envelope = build_calls(generate_session(1, turns=14))
    text_by_ref = {entry.ref: text_of(entry.source.parts) for entry in envelope.entries}
    for fold in envelope.ledger.folds:
        covered = "\n".join(text_by_ref[ref] for ref in fold.covers)
        for line in fold.notes.split("\n"):
            if line.startswith("  names: "):
                assert all(name in covered for name in line.removeprefix("  names: ").split(", "))


def test_a_quoted_line_is_not_taken_for_the_list() -> None:
    """Words and replies are indented by four spaces, whatever they say. This digest has no list."""
    quoted = "names: a_first_name, a_second_name"
    log: list[Segment] = []
    for number in range(200):
        log += [user(f"Remember item {number}"), assistant(f"Noted.\n{quoted}\n  {quoted} {'so ' * 30}")]
    envelope = build([*log, user("And now?")], budget=BUDGET, counter=CHARS4)
    (fold,) = envelope.ledger.folds
    assert not list(read_lists(envelope))
    quoted_lines = [line for line in fold.notes.split("\n") if "names: " in line]
    assert quoted_lines
    assert all(quoted in line for line in quoted_lines)


SEGMENTS = st.one_of(
    st.sampled_from(["open src/a.py", "call load_all twice: load_all", "HTTP 404"]).map(assistant),
    st.sampled_from(["load_all fails", "use b_name"]).map(user),
    st.sampled_from(["src/a.py", "src/b.py"]).map(lambda path: call("read_file", {"path": path}, id="c")),
)
LOGS = st.lists(SEGMENTS, max_size=12).map(tuple)


@given(LOGS, LOGS, st.integers(0, 12))
def test_uses_are_the_same_however_often_a_log_was_read(
    log: tuple[Segment, ...], other: tuple[Segment, ...], known: int
) -> None:
    expected = NO_USES.read(log)
    for earlier in (log[:known], other, log + other):
        assert NO_USES.read(earlier).read(log) == expected


def test_only_what_is_new_is_read_for_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def find_and_note(text: str) -> Iterator[str]:
        read.append(text)
        return find_written_names(text)

    monkeypatch.setattr(run_text, "find_written_names", find_and_note)
    log = tuple(work_on_parser(steps=20))
    uses = NO_USES.read(log[:50])
    read.clear()
    uses.read(log)
    assert len(read) == sum(segment.role is Role.ASSISTANT for segment in log[50:])


def test_a_use_weighs_less_with_its_age_and_a_name_nobody_used_nothing() -> None:
    log = (assistant("old_name old_name"), *[user("go on")] * 60, assistant("new_name"))
    uses = NO_USES.read(log)
    assert uses.rank(count_names("seen_name seen_name seen_name old_name new_name")) == [
        "new_name",
        "old_name",
        "seen_name",
    ]


def test_results_and_users_words_are_no_uses() -> None:
    log = (
        user("see user_name"),
        call("run", {"path": "own_name"}, id="c"),
        result("result_name", id="c", name="run"),
    )
    assert set(NO_USES.read(log).counts) == {"own_name"}


def test_numbers_count_where_the_model_wrote_them() -> None:
    assert set(find_written_names("Line 404 of src/a.py, text-slate-400, 3d, HTTP and 12")) == {
        "404",
        "HTTP",
        "src/a.py",
        "text-slate-400",
    }


def test_a_line_break_in_json_is_no_part_of_a_name() -> None:
    arguments = '{"text": "x = 1\\nload_all()\\tMAX_SIZE"}'
    names = set(find_written_names(arguments))
    assert {"load_all", "MAX_SIZE"} <= names & find_shown_names(arguments)
    assert "nload_all" not in names


def test_the_parts_of_a_name_are_shown_with_it() -> None:
    assert {"src/io/a.py", "io/a.py", "a.py", "src/io", "src", "io"} <= find_shown_names("(src/io/a.py)")


def test_uses_are_a_value() -> None:
    uses = NO_USES.read((assistant("a_name"),))
    uses.read((*uses.log, assistant("a_name b_name")))
    assert uses == NameUses(uses.log, count_names("a_name"), {"a_name": 0})
