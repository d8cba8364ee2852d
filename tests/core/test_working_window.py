"""A working window below the limit: cuts come when more in sight costs more than it is worth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina import BadInput, Budget, BuildMemo, Envelope, Policy, RequestHead, Segment, fit_request
from lamina.blocking import Session
from lamina.core.cut_target import PRICING, TALK, Rates, choose_working, derive_limits, find_trigger
from lamina.fitting.policy import load_policy
from lamina.fitting.server_reports import extend_budget
from lamina.segments import assistant, call, result, system, user
from tests.core.conversations import build_each, build_next
from tests.dialects.wires import WIRES, Call, Result

LIMITED = Budget(window=40_000, reserve=0)
WORKING = msgspec.structs.replace(LIMITED, working=4_000)
HEAD = "You are careful. " * 200


def step(number: int, lines: int) -> list[Segment]:
    text = f"value_{number} = {number}\n" + f"line {number} of the file\n" * lines
    return [
        assistant(f"Reading file number {number}."),
        call("read_file", {"path": f"src/file_{number}.py"}, id=f"r{number}"),
        result(text, id=f"r{number}", name="read_file", key=f"result-{number}"),
    ]


def grow(sizes: list[int], budget: Budget, *, with_memo: bool = True) -> list[Envelope]:
    """A conversation step by step. Every request keeps all laws."""
    logs: list[list[Segment]] = []
    log: list[Segment] = [system(HEAD), user("Review all of it.")]
    for number, lines in enumerate(sizes):
        log += step(number, lines)
        logs.append(list(log))
    return build_each(logs, budget=budget, memo=BuildMemo() if with_memo else None)


def test_a_cut_comes_before_the_window_is_full_and_says_why() -> None:
    envelopes = grow([60] * 30, WORKING)
    cuts = [envelope for envelope in envelopes if envelope.cut]
    assert cuts
    assert max(envelope.tokens for envelope in envelopes) < 6_000
    assert not [envelope for envelope in grow([60] * 30, LIMITED) if envelope.cut]
    [note] = cuts[0].notes
    assert note.startswith("cut above ")
    assert "of 40,000 tokens" in note
    assert "costs more than it is worth" in note


def test_what_no_cut_can_free_takes_nothing_from_the_working_window() -> None:
    """A window of 64,000 tokens gave a client with a long head nine cuts in 46 requests."""
    for fixed in (0, 10_000, 30_000):
        limits = derive_limits(WORKING, RequestHead(), (), fixed=fixed)
        assert limits.trigger == fixed + 3_800
        assert fixed < limits.target < limits.trigger
        assert limits.free == 4_000
        assert limits.room == 40_000


def test_the_window_stays_the_limit_and_large_results_enter_whole() -> None:
    *_, last = grow([60] * 8 + [3_000], WORKING)
    assert last.entry("result-8").form.value == "full"
    assert last.tokens > 10_000
    *_, last = grow([60] * 8 + [9_000], WORKING)
    assert last.tokens <= 40_000


def test_a_working_window_that_reaches_the_limit_changes_nothing() -> None:
    larger = msgspec.structs.replace(LIMITED, working=50_000)
    sizes = [300] * 12
    without = [envelope.prefix for envelope in grow(sizes, LIMITED)]
    assert without == [envelope.prefix for envelope in grow(sizes, larger)]


@given(st.lists(st.integers(5, 150), min_size=5, max_size=10), st.integers(600, 3_000))
def test_every_law_holds_and_a_memo_changes_no_byte(sizes: list[int], working: int) -> None:
    budget = msgspec.structs.replace(LIMITED, working=working)
    with_memo = grow(sizes, budget)
    assert [each.prefix for each in with_memo] == [
        each.prefix for each in grow(sizes, budget, with_memo=False)
    ]


def test_few_words_are_those_that_are_few_beside_the_working_window() -> None:
    log: list[Segment] = []
    for number in range(150):
        log += [user(f"Item {number} goes to shelf {number * 7 % 31}."), assistant("Noted. " * 40)]
    log += [assistant("Noted. " * 100), user("Thanks.")]
    build_next(log, budget=Budget(window=40_000, reserve=0, working=2_500))


def test_no_request_under_the_trigger_that_doors_ask_for_is_cut() -> None:
    trigger = find_trigger(WORKING, RequestHead())
    for envelope in grow([60] * 30, WORKING):
        if envelope.cut:
            assert envelope.cut.before > trigger


# by price


def test_the_dearer_reading_is_the_less_is_worth_it() -> None:
    for prefer in PRICING:
        usual = choose_working(Rates(read=0.1, write=1.25), prefer)
        dear = choose_working(Rates(read=0.5, write=1.0), prefer)
        assert usual is not None
        assert dear is not None
        assert dear < usual == PRICING[prefer].working
        assert choose_working(Rates(read=0.0, write=1.0), prefer) is None
    assert PRICING["cost"].working < PRICING["balanced"].working < PRICING["memory"].working


@pytest.mark.parametrize(
    ("model", "dialect", "is_priced"),
    [
        ("claude-opus-4-6", "anthropic", True),
        ("gpt-5.6", "openai_responses", True),
        ("gemini-3-pro", "gemini", True),
        ("qwen3-coder", "ollama", False),
        ("claude-opus-4-6", "ollama", False),
        ("nobody-knows-it", "openai_chat", False),
    ],
)
def test_where_reading_is_free_or_has_no_known_price_it_is_the_whole_window(
    model: str, dialect: str, *, is_priced: bool
) -> None:
    budget = Budget(window=200_000)
    priced = Policy(window="price").price_budget(budget, model, dialect=dialect)
    assert (priced.working is not None) is is_priced
    assert Policy().price_budget(budget, model, dialect=dialect) is budget
    own = Budget(window=200_000, working=7_000)
    assert Policy(window="price").price_budget(own, model, dialect=dialect) is own


def test_the_budget_of_a_policy_by_price_has_its_working_window() -> None:
    assert Policy(window="price").find_budget("claude-opus-4-6").working == PRICING["balanced"].working
    assert Policy(window="price", prefer="cost").find_budget("gpt-5.6").working == PRICING["cost"].working
    assert Policy().find_budget("claude-opus-4-6").working is None


def test_what_a_server_clears_is_beside_the_working_window() -> None:
    """Claude Code asks the API to clear old thinking: the next cut waits for so many tokens more."""
    head = RequestHead()
    budget = Budget(window=1_000_000, working=48_000)
    usual = derive_limits(budget, head, ())
    extended = derive_limits(extend_budget(budget, head, 10_000, "balanced"), head, ())
    assert extended.trigger == pytest.approx(usual.trigger + 10_000, abs=100)  # shares are thousandths
    assert extended.target == pytest.approx(usual.target, abs=100)
    assert extended.room == usual.room + 10_000


def long_request(steps: int) -> dict[str, Any]:
    wire = WIRES["anthropic"]
    messages = [wire.ask("Read all.")]
    for number in range(steps):
        messages += wire.call([Call(f"t{number}", "read", {"path": f"src/{number}.py"})])
        messages += wire.answer([Result(f"t{number}", text=f"def load_{number}(path): ...\n" * 400)])
    return wire.request(messages)


def test_the_policy_decides_and_the_default_is_the_models_window() -> None:
    request = long_request(24)
    untouched = fit_request(request)
    assert untouched.envelope.cut is None
    tokens = {
        prefer: fit_request(request, policy=Policy(window="price", prefer=prefer)).envelope.tokens
        for prefer in PRICING
    }
    assert tokens["cost"] < tokens["balanced"] <= tokens["memory"] <= untouched.envelope.tokens


def long_talk(**rest: Any) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for number in range(60):
        told = f"My aunt lived at number {number}. " + "Her garden was as long as the street, I believe. " * 4
        if number == 9:
            told += "Zebedee kept bees in it."
        messages += [{"role": "user", "content": told}, {"role": "assistant", "content": "Noted."}]
    messages.append({"role": "user", "content": "What did Zebedee keep?"})
    return {"model": "gpt-5", "messages": messages, **rest}


ANSWERS = Policy(prefer="answers")
TOOL = {"type": "function", "function": {"name": "look", "description": "", "parameters": {"type": "object"}}}


def test_a_talk_may_have_a_window_of_its_own() -> None:
    """Nobody has it by default, and it is for talks alone: tools need what they read."""
    fitted = fit_request(long_talk(), policy=ANSWERS)
    assert fitted.envelope.tokens < TALK
    assert "kept bees" in str(fitted.request)
    whole = fit_request(long_talk()).envelope.tokens
    assert whole > 2 * TALK
    assert fit_request(long_talk(), policy=Policy(prefer="answers", remind="off")).envelope.tokens == whole
    assert fit_request(long_talk(tools=[TOOL]), policy=ANSWERS).envelope.tokens > whole
    recall = fitted.recall_tool
    assert recall is not None
    assert fit_request(long_talk(tools=[recall]), policy=ANSWERS).envelope.tokens < TALK + 500
    budget = Budget(window=100_000, working=4_000)
    own, usual = (Policy(prefer=prefer, budget=budget) for prefer in ("answers", "balanced"))
    assert fit_request(long_talk(), policy=own).request == fit_request(long_talk(), policy=usual).request


def test_with_tools_answers_are_what_balanced_is() -> None:
    request = long_request(24)
    request["tools"] = [{"name": "read", "description": "", "input_schema": {"type": "object"}}]
    sent = [
        fit_request(request, policy=Policy(budget=32_000, prefer=each)) for each in ("answers", "balanced")
    ]
    assert sent[0].request == sent[1].request


def test_a_session_may_have_the_window_of_a_talk(tmp_path: Path) -> None:
    with Session.open(tmp_path / "chats.db", "a", model="gpt-5", policy=ANSWERS) as session:
        for message in long_talk()["messages"][:-1:2]:
            session.ask(message["content"])
            session.record("Noted.")
        session.ask("What did Zebedee keep?")
        assert sum(len(str(message)) for message in session.request()["messages"]) < 6 * TALK


def test_other_words_are_refused() -> None:
    wrong: Any = "prize"
    with pytest.raises(BadInput, match="window is 'prize'; use one of 'model', 'price'"):
        Policy(window=wrong)
    wrong = 9_000
    with pytest.raises(BadInput, match=r"a number of tokens is a budget: Policy\(budget=9000\)"):
        Policy(window=wrong)
    with pytest.raises(BadInput, match="working is 0; give a number of tokens above 0"):
        Budget(window=1_000, working=0)
    with pytest.raises(BadInput, match="a number of tokens is a budget: budget = 60000"):
        load_policy({"window": 9_000})
