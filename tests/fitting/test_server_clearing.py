"""A cut that the server makes: old results are cleared there, the same ones until the next cut."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from lamina import Budget, Ledger, Policy, fit_request
from lamina.core.cut_target import Rates
from lamina.dialects import DIALECTS
from lamina.dialects.anthropic.server import BETAS, EDITING_BETA, read_cleared, refuses_editing
from lamina.dialects.usage import Usage
from lamina.fitting import Fitted, RequestMemo, ServerUse
from lamina.fitting.server_clearing import price_step
from tests.fitting.test_server_help import thinking
from tests.gateway.growing import chat_request, messages_request
from tests.servers.context_editing import EditedPrompt, Refused, edit

SMALL = Budget(window=9_000, reserve=500)


class Step:
    """One request of a loop: what was sent, what the model read, and what was reported."""

    def __init__(self, fitted: Fitted) -> None:
        self.fitted = fitted
        self.prompt: EditedPrompt = edit(fitted.request, fitted.headers.get(BETAS, ""))
        answer = {"context_management": self.prompt.report}
        self.usage = Usage(input=self.prompt.tokens, cleared=read_cleared(answer))


WHOLE = messages_request(30)


def cut_off(whole: dict[str, Any], steps: int) -> dict[str, Any]:
    """The request of a loop after so many tool calls: the same objects each time, as clients have them."""
    return {**whole, "messages": whole["messages"][: 2 * steps + 1]}


def run_steps(
    server: ServerUse, *, numbers: Any = range(1, 26), whole: Any = None, reports: bool = True
) -> list[Step]:
    """A tool loop that grows, with the ledger and the usage of the call before."""
    policy = Policy(server=server, breakpoints="keep", recall="off")
    done: list[Step] = []
    ledger: Ledger | None = None
    usage: Usage | None = None
    memo = RequestMemo()
    for number in numbers:
        fitted = fit_request(
            cut_off(whole or WHOLE, number),
            budget=SMALL,
            policy=policy,
            ledger=ledger,
            usage=usage,
            memo=memo,
        )
        step = Step(fitted)
        done.append(step)
        ledger = Ledger.load(json.loads(json.dumps(fitted.ledger.dump())))
        usage = step.usage if reports else None
    return done


def asks(step: Step) -> bool:
    return "context_management" in step.fitted.request


@pytest.mark.parametrize("reports", [True, False])
def test_between_two_cuts_what_the_model_reads_only_grows(*, reports: bool) -> None:
    steps = run_steps("first", reports=reports)
    assert any(asks(step) for step in steps)
    cuts = 0
    for before, after in pairwise(steps):
        was_cut = len(after.fitted.ledger.cuts) > len(before.fitted.ledger.cuts)
        cuts += was_cut
        if not was_cut:
            read = before.prompt.messages
            assert after.prompt.messages[: len(read)] == read
    assert 2 <= cuts <= 8
    assert max(step.prompt.tokens for step in steps) < SMALL.window


def test_the_request_is_sent_in_full_and_asks_for_what_its_cut_says() -> None:
    steps = run_steps("first")
    first = next(step for step in steps if asks(step))
    cut = first.fitted.ledger.cuts[-1]
    clearing = first.fitted.ledger.clearing
    assert clearing is not None
    assert cut.reason == f"the provider clears {clearing.uses} tool uses"
    assert cut.after < cut.before
    assert first.fitted.headers == {BETAS: EDITING_BETA}
    (applied,) = first.prompt.report["applied_edits"]
    assert applied["cleared_tool_uses"] == clearing.uses
    assert not any(line.cut for line in first.fitted.ledger.lines.values())
    sent = json.dumps(first.fitted.request["messages"])
    assert all(f"f{number}.py" in sent for number in range(5))
    assert "def function_" in first.fitted.recall(str(clearing.until))


@pytest.mark.parametrize("server", ["never", "thinking"])
def test_nobody_is_asked_by_default(server: ServerUse) -> None:
    steps = run_steps(server)
    assert not any(asks(step) for step in steps)
    assert any(step.fitted.ledger.cuts for step in steps)


def test_bound_thinking_is_spared_where_a_cut_would_unbind_it() -> None:
    steps = run_steps("when cheaper", whole=thinking(100), numbers=range(25, 100, 25))
    asked = [step for step in steps if asks(step)]
    assert asked
    assert all("block_binding" not in step.fitted.request["thinking"] for step in asked)
    last = asked[-1].fitted.request["messages"]
    assert sum(json.dumps(message).count('"signature"') for message in last) > 10


def test_the_cheaper_of_the_two_is_taken() -> None:
    """A deeper cut is cheaper, and so is one that leaves more of the cached prefix as it is."""
    cheap = Rates(read=0.1, write=1.25)
    assert price_step(4_000, 1_000, 8_000, 500, cheap) < price_step(6_000, 1_000, 8_000, 500, cheap)
    assert price_step(4_000, 100, 8_000, 500, cheap) > price_step(4_000, 3_000, 8_000, 500, cheap)
    assert price_step(8_000, 0, 8_000, 500, cheap) == float("inf")


def test_a_server_that_clears_nothing_is_not_relied_on() -> None:
    policy = Policy(server="first", breakpoints="keep", recall="off")
    ledger: Ledger | None = None
    usage: Usage | None = None
    memo = RequestMemo()
    asked: list[bool] = []
    for number in range(1, 26):
        fitted = fit_request(
            cut_off(WHOLE, number), budget=SMALL, policy=policy, ledger=ledger, usage=usage, memo=memo
        )
        asked.append("context_management" in fitted.request)
        ledger = fitted.ledger
        usage = Usage(input=fitted.envelope.tokens)  # it reports that it cleared nothing
        if any(asked[:-1]):
            assert fitted.envelope.tokens <= 8_500
    assert asked.count(True) == 1
    assert ledger is not None
    assert any("over the trigger" in cut.reason for cut in ledger.cuts)


def test_a_client_that_asks_itself_is_left_alone() -> None:
    own = {"edits": [{"type": "clear_tool_uses_20250919", "keep": {"type": "tool_uses", "value": 5}}]}
    fitted = fit_request(
        messages_request(30, context_management=own), budget=SMALL, policy=Policy(server="first")
    )
    assert fitted.request["context_management"] == own


def test_a_history_that_was_edited_is_cleared_anew() -> None:
    policy = Policy(server="first", breakpoints="keep", recall="off")
    first = fit_request(messages_request(14), budget=SMALL, policy=policy)
    assert first.ledger.clearing is not None
    edited = messages_request(15)
    del edited["messages"][1:3]
    second = fit_request(edited, budget=SMALL, policy=policy, ledger=first.ledger)
    assert second.envelope.tokens - (second.ledger.clearing.tokens if second.ledger.clearing else 0) <= 8_500
    assert second.ledger.clearing != first.ledger.clearing


def test_other_apis_are_cut_by_lamina() -> None:
    assert [name for name, dialect in DIALECTS.items() if dialect.server is not None] == ["anthropic"]
    fitted = fit_request(chat_request(30), budget=SMALL, policy=Policy(server="first"))
    assert "context_management" not in fitted.request
    assert fitted.ledger.cuts


def test_the_test_server_refuses_what_the_types_do_not_allow() -> None:
    clear = {"type": "clear_tool_uses_20250919"}
    with pytest.raises(Refused, match="Extra inputs"):
        edit(messages_request(2, context_management={"edits": [clear]}))
    wrong: list[Any] = [
        [clear, {"type": "clear_thinking_20251015"}],
        [{**clear, "keeps": 3}],
        [{"type": "clear_everything"}],
    ]
    for edits in wrong:
        with pytest.raises(Refused):
            edit(messages_request(2, context_management={"edits": edits}), EDITING_BETA)
    assert refuses_editing(400, "context_management: Extra inputs are not permitted")
    assert not refuses_editing(500, "context_management")
