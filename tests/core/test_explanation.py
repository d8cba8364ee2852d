"""The account of a request: one row for each digest, and sentences that say why."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lamina import Budget, BuildMemo, Envelope, Form, Layer, Ledger, build, explain, fit_request
from lamina.core import ManifestRow
from lamina.core.explanation import describe_row, join_folds
from lamina.segments import assistant, call, file, result, system, user


@pytest.fixture(scope="module")
def folded() -> Envelope:
    """A request with digests: many turns of reading, in a small window."""
    log = [system("You review code.")]
    ledger = Ledger()
    memo = BuildMemo()
    for turn in range(12):
        log += [user(f"Question {turn}?"), file(f"src/a{turn}.py", f"x = {turn}\n" * 60)]
        for step in range(4):
            number = f"{turn}-{step}"
            log += [
                assistant(f"Reading part {number}."),
                call("read_file", {"path": f"src/b{number}.py"}, id=number),
                result(f"def f{step}(): ...\n" * 40, id=number, name="read_file"),
            ]
        envelope = build(log, budget=Budget(window=4_000, reserve=400), ledger=ledger, memo=memo)
        ledger = envelope.ledger
    assert envelope.ledger.folds
    return envelope


def test_each_digest_is_one_row_and_nothing_is_lost(folded: Envelope) -> None:
    rows = explain(folded).rows
    joined = join_folds(rows)
    digests = [row for row in joined if row.fold]
    assert [row.fold for row in digests] == [fold.key for fold in folded.ledger.folds]
    for row, fold in zip(digests, folded.ledger.folds, strict=True):
        assert row.why.startswith(f"stands for {len(fold.covers):,} pieces of turn")
    assert sum(row.tokens for row in joined) == sum(row.tokens for row in rows)
    assert len(joined) < len(rows) / 2


def test_the_table_has_no_folded_segment_and_fits_100_columns(folded: Envelope) -> None:
    lines = str(explain(folded)).split("\n")
    assert not [line for line in lines if "folded into" in line]
    assert len([line for line in lines if " stands for " in line]) == len(folded.ledger.folds)
    assert max(map(len, lines)) <= 100


def test_a_long_sum_goes_over_several_lines(folded: Envelope) -> None:
    wide = msgspec.structs.replace(explain(folded), tools=1_234_567, answer=1_234_567, parameters=1_234_567)
    assert max(map(len, str(wide).split("\n"))) <= 100
    sums = str(wide).split("\n\n")[1].replace("\n ", "")
    assert "+ tools 1,234,567 + answer format 1,234,567 + parameters 1,234,567" in sums


def row(**fields: object) -> ManifestRow:
    values = {"key": "src/a.py", "ref": "r", "what": "file", "layer": Layer.HISTORY, "form": Form.FULL}
    return msgspec.convert(
        {**values, "tokens": 9, "why": "in full", "kind": "file", "turn": 3, "age": 41, **fields}, ManifestRow
    )


REPLACED = (
    "returned at turn 3, replaced by one line at cut 1, since a later result replaces it; "
    "pin it to keep what is left"
)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, "attached at turn 3, sent in full; pin it to keep it"),
        ({"pinned": True}, "attached at turn 3, sent in full; it is pinned, so no cut shortens it"),
        (
            {"form": Form.COMPACT, "why": "attachment", "cut": 2},
            "attached at turn 3, shortened at cut 2, since it is 41 steps old; pin it to keep what is left",
        ),
        ({"form": Form.STUB, "why": "superseded by k", "cut": 1, "kind": "tool_result"}, REPLACED),
        (
            {"form": Form.OMITTED, "why": "folded into fold-1", "cut": 1, "fold": "fold-1", "kind": "user"},
            "said at turn 3, left out for the digest fold-1 at cut 1, since it is 41 steps old",
        ),
        (
            {"form": Form.OMITTED, "why": "covered by s", "kind": "assistant"},
            "written at turn 3, left out, since: covered by s",
        ),
        ({"kind": "system"}, "system text, which is always sent in full"),
    ],
)
def test_a_sentence_says_why(fields: dict[str, object], sentence: str) -> None:
    assert describe_row(row(**fields)) == f"src/a.py: {sentence}"


def test_every_row_of_a_request_has_a_sentence(folded: Envelope) -> None:
    for each in explain(folded).rows:
        assert describe_row(each).startswith(f"{each.key}: ")


def test_what_was_left_out_is_listed_with_its_size_and_a_handle_that_brings_it_back() -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Read the modules."}]
    ledger = None
    for number in range(30):
        function = {"name": "read_file", "arguments": f'{{"path": "src/module_{number}.py"}}'}
        call_made = {"id": f"c{number}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call_made]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": f"x = {number}\n" * 200})
        request = {"model": "gpt-4o", "messages": list(messages)}
        fitted = fit_request(request, budget=Budget(window=6_000, reserve=1_000), ledger=ledger)
        ledger = fitted.ledger
    left_out = fitted.left_out
    lowered = [row for row in explain(fitted.envelope).rows if row.form is not Form.FULL]
    assert [missing.handle for missing in left_out] == [row.recall for row in lowered]
    assert left_out
    first = next(missing for missing in left_out if missing.kind == "tool_result")
    assert first.what == "read_file src/module_0.py"
    assert fitted.recall(first.handle) == "x = 0\n" * 200
    assert first.characters == len("x = 0\n" * 200)
    assert str(first).startswith("the result of read_file src/module_0.py, 1,200 characters: ")
    assert str(first).endswith(f'; recall("{first.handle}")')
    assert {missing.cut for missing in left_out} <= set(range(1, len(fitted.ledger.cuts) + 1))


def test_a_manifest_prints_itself_as_its_table() -> None:
    manifest = explain(build([user("Hello")], budget=Budget(window=8_000)))
    assert str(manifest).splitlines()[0].split() == ["where", "form", "tokens", "what", "why"]
    assert str(manifest).endswith("6 of 7,000 tokens (estimated): prompt 6")
