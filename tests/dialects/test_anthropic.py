"""Requests of the Messages API there and back, and what its models ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina import Budget, BudgetExceeded, BuildMemo, Policy, fit_request
from lamina.core.build import EMPTY_LEDGER
from lamina.dialects.anthropic import DIALECT, find_binding
from lamina.dialects.anthropic.model import read_version, rejects_prefill, takes_system_messages
from lamina.dialects.memos import ParseMemo
from lamina.models.facts import VARIABLE
from tests.dialects.anthropic_requests import (
    ANSWER,
    COMPACTED,
    EVERYTHING,
    INSTRUCTED,
    VALID,
    fitted,
    make_request,
    unique,
)

Json = dict[str, Any]


NUMBERS = st.lists(st.integers(0, 4_000), min_size=1, max_size=12)


def requests() -> st.SearchStrategy[Json]:
    return NUMBERS.map(make_request).map(unique)


def untouched(request: Json) -> bool:
    rendered, _ = fitted(request)
    same = [a is b for a, b in zip(rendered["messages"], request["messages"], strict=True)]
    return all(same) and rendered == request and rendered.get("system") is request.get("system")


@pytest.mark.parametrize("request_", [EVERYTHING, COMPACTED], ids=["everything", "compacted"])
def test_what_is_not_lowered_leaves_as_it_came(request_: Json) -> None:
    assert DIALECT.wire.check(request_) == []
    assert untouched(request_)


def windows(request: Json, share: float) -> Budget:
    return Budget(window=300 + int(share * fitted(request)[1].tokens), reserve=0, keep_last=1)


SHARES = st.sampled_from((0.2, 0.4, 0.6, 0.8))


@given(requests(), SHARES, st.sampled_from(("claude-opus-5-5", "claude-fable-5-1-20261001")))
def test_a_request_that_grows_stays_valid_for_models_that_bind_thinking(
    request_: Json, share: float, model: str
) -> None:
    request_ = request_ | {"model": model}
    budget, ledger, read, memo = windows(request_, share), EMPTY_LEDGER, ParseMemo(), BuildMemo()
    for length in range(1, len(request_["messages"]) + 1):
        if request_["messages"][length - 1]["role"] != "user":
            continue
        now = request_ | {"messages": request_["messages"][:length]}
        try:
            rendered, envelope = fitted(now, budget=budget, ledger=ledger, read=read, memo=memo)
        except BudgetExceeded:
            break
        assert DIALECT.wire.check(rendered) == []
        again, fresh = fitted(now, budget=budget, ledger=ledger)
        assert (again, fresh.ledger) == (rendered, envelope.ledger)
        ledger = envelope.ledger


DIRECTIVE = {"role": "system", "content": [], "output_config": {"effort": "low"}}


@pytest.mark.parametrize(
    "more",
    [
        [DIRECTIVE],
        [DIRECTIVE, {"role": "user", "content": "go on"}],
        [INSTRUCTED, DIRECTIVE],
        [DIRECTIVE, INSTRUCTED],
        [INSTRUCTED, ANSWER, {"role": "user", "content": "go on"}, INSTRUCTED],
    ],
)
def test_system_messages_that_only_set_something_may_stand_before_the_user(more: list[Json]) -> None:
    request = {**VALID, "messages": [*VALID["messages"], *more]}
    assert DIALECT.wire.check(request) == []
    assert fit_request(request, policy=Policy(breakpoints="keep")).request is request


@pytest.mark.parametrize("model", ["claude-sonnet-5", "claude-haiku-5", "some-model"])
def test_a_model_of_which_nothing_is_known_is_sent_what_the_client_sends(model: str) -> None:
    request = {**VALID, "model": model, "messages": [*VALID["messages"], INSTRUCTED]}
    fitted = fit_request(request, budget=Budget(window=50_000), policy=Policy(breakpoints="keep"))
    assert fitted.request is request


def test_after_a_compaction_the_assistant_may_begin() -> None:
    compaction = {"role": "assistant", "content": [{"type": "compaction", "content": "before"}]}
    assert DIALECT.wire.check(VALID | {"messages": [compaction, VALID["messages"][0]]}) == []


SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "rates"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}


@pytest.mark.parametrize("blocks", [[SEARCH], [SEARCH, FOUND], [{"type": "text", "text": "So:"}, SEARCH]])
def test_an_answer_that_the_server_paused_is_sent_back_to_be_continued(blocks: list[Json]) -> None:
    paused = {"role": "assistant", "content": blocks}
    request = {**VALID, "model": "claude-opus-5", "messages": [VALID["messages"][0], paused]}
    assert DIALECT.wire.check(request) == []
    assert fit_request(request, policy=Policy(breakpoints="keep")).request is request
    prefilled = {"role": "assistant", "content": [{"type": "text", "text": "{"}]}
    violations = DIALECT.wire.check({**request, "messages": [VALID["messages"][0], prefilled]})
    assert [violation.rule for violation in violations] == ["ends_with_user"]


def test_a_result_may_answer_a_call_that_only_the_server_has() -> None:
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "41"}
    message = {"role": "user", "content": [result, {"type": "text", "text": "And now?"}]}
    request = {**VALID, "messages": [message]}
    rules = [violation.rule for violation in DIALECT.wire.check(request)]
    assert rules == ["calls_and_results_pair"]
    request["thread"] = {"type": "continue", "previous_message_id": "msg_1"}
    assert DIALECT.wire.check(request) == []
    assert fit_request(request, policy=Policy(breakpoints="keep")).request is request
    call = {"type": "tool_use", "id": "toolu_2", "name": "read", "input": {}}
    request["messages"] = [message, {"role": "assistant", "content": [call]}, message]
    rules = [violation.rule for violation in DIALECT.wire.check(request)]
    assert rules == ["calls_and_results_pair", "calls_and_results_pair"]


def test_a_system_message_may_follow_what_a_server_tool_found() -> None:
    search_result = {
        "role": "assistant",
        "content": [{"type": "web_search_tool_result", "tool_use_id": "s", "content": []}],
    }
    messages = [VALID["messages"][0], search_result, INSTRUCTED]
    assert DIALECT.wire.check(VALID | {"messages": messages}) == []
    assert fitted(VALID | {"messages": messages})[0]["messages"] == messages


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("claude-opus-5-5", ("opus", (5, 5))),
        ("claude-opus-4-1-20250805", ("opus", (4, 1))),
        ("claude-opus-5-20260401", ("opus", (5, 0))),
        ("us.anthropic.claude-sonnet-5-5-20260901-v1:0", ("sonnet", (5, 5))),
        ("anthropic/claude-sonnet-4.6", ("sonnet", (4, 6))),
        ("claude-fable-5-1@20260901", ("fable", (5, 1))),
        ("claude-3-5-sonnet-20241022", ("sonnet", (3, 5))),
        ("claude-3-opus-latest", ("opus", (3, 0))),
        ("claude-mythos-preview", ("", (0, 0))),
        ("llama", ("", (0, 0))),
    ],
)
def test_version(model: str, expected: tuple[str, tuple[int, int]]) -> None:
    assert read_version(model) == expected


@pytest.mark.parametrize(
    ("model", "bound", "prefill", "system"),
    [
        ("claude-fable-5-1", "strict", False, True),
        ("claude-fable-5", "none", False, True),
        ("claude-opus-5-5-20260901", "strict", False, True),
        ("claude-opus-6", "strict", False, True),
        ("claude-opus-5", "none", False, True),
        ("claude-sonnet-5.5", "strict", False, True),
        ("claude-sonnet-5", "none", False, False),
        ("claude-sonnet-4-5", "none", True, False),
        ("claude-mythos-5-1", "none", False, True),
        ("claude-mythos-5-2", "strict", False, True),
        ("claude-fable-5-2", "strict", False, True),
        ("claude-haiku-5-5", "strict", False, False),
        ("local", "none", True, False),
    ],
)
def test_what_a_model_asks_for(model: str, *, bound: str, prefill: bool, system: bool) -> None:
    assert find_binding({"model": model}) == bound
    assert rejects_prefill(model) is not prefill
    assert takes_system_messages(model) is system


@pytest.mark.parametrize(
    ("request_", "bound"),
    [
        ({"model": "claude-opus-5-5"}, "strict"),
        ({"model": "claude-opus-5-5", "thinking": {"type": "adaptive"}}, "strict"),
        (
            {"model": "alias", "thinking": {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}},
            "drop",
        ),
        ({"model": "alias", "thinking": {"block_binding": {"prefix_mismatch_behavior": "error"}}}, "strict"),
        ({"model": 7}, "none"),
    ],
)
def test_binding_of_a_request(request_: Json, bound: str) -> None:
    assert find_binding(request_) == bound


def test_the_users_own_file_says_whether_a_model_binds_thinking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_models = tmp_path / "models.toml"
    own_models.write_text(
        """
        [models.our-opus]
        like = "claude-opus-5-5"

        [models.claude-sonnet-5-5]
        binding = "none"
        """
    )
    monkeypatch.setenv(VARIABLE, str(own_models))
    assert find_binding({"model": "our-opus"}) == "strict"
    assert find_binding({"model": "claude-sonnet-5-5"}) == "none"


@pytest.mark.parametrize("call_id", [None, [], {}, 7])
def test_a_call_whose_id_is_not_a_text_is_reported_and_nothing_else_fails(call_id: Any) -> None:
    call = {"type": "tool_use", "id": call_id, "name": "read", "input": {}}
    question = {"role": "user", "content": "hello"}
    messages = [question, {"role": "assistant", "content": [call]}, question]
    rules = {violation.rule for violation in DIALECT.wire.check({**VALID, "messages": messages})}
    assert rules == {"calls_and_results_pair", "names_and_ids_fit"}
