"""Source system 002, its compactor (S2-10 to S2-15, S2-18); what 000 shortens to store it (S0-16, S0-17)."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import anyio

from lamina import Budget, Form, Layer, Ledger, RequestHead, Segment, build, recall
from lamina.core import CHARS4, ToolCall, text_of
from lamina.core.build import plan_cut
from lamina.core.cut_target import derive_limits
from lamina.core.hashing import handle
from lamina.core.tokens import BYTES4
from lamina.segments import assistant, call, file, result, system, user
from lamina.summaries import (
    Bounds,
    CoveredEntries,
    Question,
    SummaryOutcome,
    Terms,
    choose,
    summarize,
    summarize_by_digest,
)

SAID = "The parser was read and the tokens were counted."
BUDGET = Budget(window=400, reserve=0, trigger=0.75, keep_last=1)


class Compactor:
    """A model that answers `SAID`, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Question] = []

    async def __call__(self, asked: Question) -> str:
        self.asked.append(asked)
        return SAID


def flow(count: int, *, size: int = 400) -> list[Segment]:
    """Chunks of the working flow, between the system's task and the user's words."""
    words = ("The parser was read and the tokens were counted. " * 40)[:size]
    steps = [assistant(f"{n} {words}", key=f"chunk-{n}") for n in range(count)]
    return [system("Task: count the tokens.", key="sys"), user("Begin.", key="u"), *steps]


def compacted(log: list[Segment], write: Any, budget: Budget = BUDGET, **given: Any) -> SummaryOutcome:
    terms = Terms(budget=budget, counter=CHARS4)
    bounds = Bounds(window=8_000)
    return anyio.run(partial(summarize, log, write, terms=terms, bounds=bounds, **given))


def chosen(log: list[Segment], budget: Budget = BUDGET, **given: Any) -> CoveredEntries:
    return choose(log, terms=Terms(budget=budget, counter=CHARS4), ledger=Ledger(), **given)


def test_s2_10_chunks_become_one_that_knows_its_parents() -> None:
    log = [*flow(3, size=800)]
    made = compacted(log, Compactor(), everything=True)
    assert made.segment is not None
    assert made.segment.covers == ("chunk-0", "chunk-1")
    assert made.segment.attrs["original_count"] == "2"
    assert 0 < made.after < made.before
    assert made.segment.attrs.keys() == {
        "original_count"
    }  # there is no time in it, so it is sent the same again


def test_s2_11_one_budget_has_all_thresholds() -> None:
    limit = derive_limits(Budget(window=100_000, reserve=0, trigger=0.8, target=0.5), RequestHead(), ())
    assert (limit.target, limit.trigger, limit.room) == (50_000, 80_000, 100_000)


def test_s2_11_without_a_model_a_cut_folds_by_itself() -> None:
    kinds = [entry.segment.kind for entry in build(flow(9, size=150), budget=BUDGET, counter=CHARS4).sent]
    assert "digest" in kinds


def test_s2_12_nothing_is_due_in_an_empty_conversation() -> None:
    assert chosen([]).why == "no cut is due"
    assert plan_cut([], budget=BUDGET, counter=CHARS4).before == 0


def test_s2_12_a_plan_suggests_what_is_not_due_yet() -> None:
    log, roomy = flow(9, size=150), Budget(window=500, reserve=0, keep_last=1)
    assert chosen(log, roomy).why == "no cut is due"
    assert plan_cut(log, budget=roomy, counter=CHARS4).lowered
    assert chosen(log, roomy, everything=True).entries


def test_s2_12_over_the_trigger_the_oldest_are_chosen() -> None:
    names = chosen(flow(9, size=150)).names
    assert names
    assert names == tuple(f"chunk-{n}" for n in range(len(names)))


def test_s2_13_system_text_and_what_is_critical_are_never_chosen() -> None:
    log = flow(9, size=150)
    log[4] = assistant("Stay. " * 30, key="pinned", pinned=True)
    found = chosen(log, everything=True)
    assert not {"sys", "u", "pinned"} & set(found.names)
    assert all(entry.layer is not Layer.SYSTEM for entry in found.entries)


def test_s2_14_nothing_to_compact_asks_nobody_and_changes_nothing() -> None:
    write = Compactor()
    made = compacted(flow(1), write, everything=True)
    assert (made.segment, made.questions, write.asked) == (None, 0, [])
    assert made.notes == ("nothing was summarised: what is old and may be summarised is too little",)


def test_s2_14_who_listens_is_told_ids_and_tokens() -> None:
    made = compacted(flow(4, size=800), Compactor(), everything=True)
    assert made.segment is not None
    assert made.segment.covers == ("chunk-0", "chunk-1", "chunk-2")
    assert (made.before, made.after < 150) == (603, True)


def test_s2_14_where_the_compactor_fails_the_digest_takes_its_place() -> None:
    async def fails(_: Question) -> str:
        raise OSError("no compactor")

    log = flow(4, size=800)
    made = compacted(log, fails, everything=True)
    assert (made.segment, made.notes) == (
        None, ("the model's summary was not used: the model failed: OSError: no compactor",),
    )  # fmt: skip
    assert summarize_by_digest(log, terms=Terms(budget=BUDGET, counter=CHARS4)).by == "digest"


def test_s2_14_it_stands_at_the_place_of_the_first() -> None:
    log = flow(4, size=800)
    made = compacted(log, Compactor(), everything=True)
    assert made.segment is not None
    sent = [entry.segment.key for entry in build([*log, made.segment], counter=CHARS4).sent]
    assert sent == ["sys", "u", made.segment.key, "chunk-3"]


def test_s2_15_the_compactor_sees_the_task_and_the_progress_so_far() -> None:
    log = flow(4, size=800)
    first = compacted(log, Compactor(), everything=True)
    assert first.segment is not None
    write = Compactor()
    again = compacted([*log, first.segment, *flow(4, size=801)[2:]], write, everything=True)
    assert again.segment is not None
    assert first.segment.key in again.segment.covers
    assert "Task: count the tokens." in write.asked[0].text
    assert text_of(first.segment.parts) in write.asked[0].text


def test_s2_18_a_compaction_is_due_once() -> None:
    log, write = flow(9, size=150), Compactor()
    made = compacted(log, write)
    assert made.segment is not None
    assert chosen([*log, made.segment]).why == "no cut is due"
    assert compacted([*log, made.segment], write).segment is None
    assert len(write.asked) == 1


LINES = "\n".join(f"line {n}" for n in range(1, 1_001))


def test_s0_16_a_large_result_is_stored_whole_and_shown_by_both_its_ends() -> None:
    log = [user("Read"), call("read", {"path": "a"}, id="1", joins=False), result(LINES, id="1", name="read")]
    log += [assistant("Read it."), user("And?")]
    envelope = build(log, budget=Budget(window=1_500, reserve=0, keep_last=0), counter=BYTES4)
    (entry,) = [e for e in envelope.entries if e.segment.kind == "tool_result"]
    shown = text_of(entry.parts)
    assert entry.form is Form.COMPACT
    assert all(f"line {n}\n" in shown for n in range(1, 21))
    assert "line 1000" in shown
    assert "line 500\n" not in shown
    assert text_of(recall(log, handle(entry.content))[0].parts) == LINES


def test_s0_17_large_arguments_are_stored_whole_and_shown_short() -> None:
    given = {"path": "a.py", "old_string": LINES, "new_string": "short"}
    log = [user("Edit"), call("edit", given, id="1", joins=False, key="edit"), result("ok", id="1")]
    log += [assistant("Done."), user("And?"), file("b.md", "Text. " * 10)]
    envelope = build(log, budget=Budget(window=1_500, reserve=0, keep_last=0), counter=BYTES4)
    (part,) = envelope.entry("edit").parts
    assert isinstance(part, ToolCall)
    shown = json.loads(part.arguments)
    assert (shown["path"], shown["new_string"]) == ("a.py", "short")
    assert len(part.arguments) < 1_000
    assert recall(log, "edit") == (log[1],)
