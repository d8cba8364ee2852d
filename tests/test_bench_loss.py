"""What a model loses: rows, judges and the paired table."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.judging.comparison import PairedLosses
from bench.judging.judges import find_judge
from bench.judging.port import AnswerLoss, make_loss
from bench.judging.rows import ChatText, LossRow, find_spans, read_rows, to_chat_text, write_rows
from bench.judging.sampling import FULL
from lamina.errors import BadInput
from lamina.testing.model_server import model_file

QUESTION = ChatText("user", "Where is parse_config?")


def make_row(policy: str, messages: tuple[ChatText, ...], call: int = 0) -> LossRow:
    answer = "parse_config is in src/config.py"
    return LossRow(
        session="s",
        call=call,
        policy=policy,
        window=0 if policy == FULL else 4_000,
        messages=messages,
        answer=answer,
        needed=find_spans(answer, ["parse_config"]),
    )


def make_answer(session: str, policy: str, loss: float, *, needed_loss: float = 1.0) -> AnswerLoss:
    return AnswerLoss(
        session=session,
        call=1,
        policy=policy,
        window=0 if policy == FULL else 4_000,
        prompt=100,
        tokens=10,
        loss=loss,
        needed=2,
        needed_loss=needed_loss,
    )


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
def test_rows_come_back_as_they_were_written(name: str, tmp_path: Path) -> None:
    rows = [make_row(FULL, (QUESTION, QUESTION)), make_row("lamina", (QUESTION,), call=3)]
    assert write_rows(tmp_path / name, rows) == 2
    assert list(read_rows(tmp_path / name)) == rows


def test_spans_that_touch_or_overlap_are_one() -> None:
    assert find_spans("parse_config(parse)", ["parse", "parse_config", "config("]) == ((0, 18),)
    assert find_spans("nothing of it", ["parse"]) == ()


def test_calls_and_results_are_text_for_the_judge() -> None:
    call = {"function": {"name": "read", "arguments": '{"path": "a.py"}'}}
    asked = to_chat_text({"role": "assistant", "content": None, "tool_calls": [call]})
    assert asked == ChatText(
        "assistant", '<tool_call>\n{"name": "read", "arguments": {"path": "a.py"}}\n</tool_call>'
    )
    assert to_chat_text({"role": "tool", "content": "x = 1"}).role == "user"


def test_only_needed_tokens_count_as_needed() -> None:
    row = make_row("lamina", (QUESTION,))
    offsets = [(0, 12), (12, 15), (15, 32)]
    loss = make_loss(row, prompt=9, losses=[1.0, 2.0, 4.0, 8.0], offsets=offsets, with_end=True)
    assert (loss.tokens, loss.loss) == (4, 15.0)
    assert (loss.needed, loss.needed_loss) == (1, 1.0)


def test_the_table_is_about_answers_that_every_policy_has() -> None:
    losses = [
        make_answer("a", FULL, 10.0),
        make_answer("a", "sliding", 14.0, needed_loss=3.0),
        make_answer("a", "lamina", 12.0, needed_loss=2.0),
        make_answer("b", FULL, 10.0),
        make_answer("b", "sliding", 99.0),
    ]
    paired = PairedLosses(losses, 4_000)
    table = paired.compare()
    assert (table.answers, table.sessions) == (1, 1)
    excess = {row.policy: round(row.excess.mean, 6) for row in table.policies}
    assert excess == {"sliding": 0.4, "lamina": 0.2}
    assert round(paired.ratio("lamina", "sliding").mean, 6) == 0.5


def test_losses_without_a_common_answer_are_refused() -> None:
    with pytest.raises(BadInput, match="no answer was judged for every policy"):
        PairedLosses([make_answer("a", FULL, 1.0), make_answer("b", "lamina", 1.0)], 4_000)


def test_a_real_model_judges_an_answer_after_its_messages() -> None:
    rows = [make_row(FULL, (QUESTION,)), make_row("lamina", (QUESTION, QUESTION))]
    with find_judge(f"llama:{model_file()}") as judge:
        losses = list(judge(rows))
    assert [loss.policy for loss in losses] == [FULL, "lamina"]
    assert all(loss.loss > loss.needed_loss > 0 for loss in losses)
    assert losses[1].prompt > losses[0].prompt


def test_a_judge_that_nobody_knows_is_refused() -> None:
    with pytest.raises(BadInput, match="llama:FILE"), find_judge("no such thing"):
        pass
