"""A made-up framework over the bridge: what is not lowered comes back as its very object."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import BaseModel

from lamina.adapters.bridge import (
    PASS_THROUGH,
    ContextFitter,
    MessageCodec,
    RecentValues,
    Turn,
    add_report,
)
from lamina.adapters.chat_turns import (
    read_calls,
    read_text,
    write_assistant,
    write_call,
    write_output_format,
    write_result,
)
from lamina.core.values import Budget
from lamina.dialects.anthropic.server import BINDING_BETA
from lamina.errors import BadInput, BudgetExceeded
from lamina.fitting import Policy
from tests.adapters.long_session import watch_fits


@dataclass
class Said:
    """A message of a framework that holds several results in one message."""

    role: str
    texts: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)


def write(message: Said) -> Sequence[Any]:
    if message.role == "results":
        return [write_result(call_id, text) for call_id, text in zip(message.ids, message.texts, strict=True)]
    if message.role == "model":
        calls = [write_call(call_id, "read", {"part": call_id}) for call_id in message.ids]
        return [write_assistant(message.texts[0], calls)]
    return [{"role": message.role, "content": message.texts[0]}]


def read(turns: Sequence[Turn], source: Said | None) -> Said:
    texts = [read_text(turn.wire["content"]) for turn in turns]
    if source is None:
        return Said("written by lamina", texts)
    if source.role == "results":
        return Said("results", texts, [turn.wire["tool_call_id"] for turn in turns])
    return Said(source.role, texts, [call_id for call_id, _, _ in read_calls(turns[0].wire)])


CODEC = MessageCodec(write=write, read=read)


def talk(steps: int, *, lines: int = 60) -> list[Said]:
    messages = [Said("user", ["Read every part."])]
    for step in range(steps):
        ids = [f"a{step}", f"b{step}"]
        messages.append(Said("model", [f"Reading part {step}."], ids))
        messages.append(Said("results", [f"Part {step}: wait for the lamp.\n" * lines, "ok"], ids))
    return messages


def test_a_list_that_fits_comes_back_as_it_is() -> None:
    messages = talk(2)
    fitted = ContextFitter(CODEC, budget=16_000).fit(messages, system="Be brief.")
    assert fitted.messages is messages
    assert not fitted.has_cut


def test_only_what_was_lowered_is_new_and_two_calls_agree() -> None:
    messages = talk(8, lines=400)
    fitter = ContextFitter(CODEC, budget=Budget(window=5_000, reserve=500))
    fitted = fitter.fit(messages, system="Be brief.")
    assert fitted.has_cut
    own = {id(message) for message in messages}
    lowered = [message for message in fitted.messages if id(message) not in own]
    assert {message.role for message in lowered} == {"results", "written by lamina"}
    assert all(message.texts[1] == "ok" for message in lowered if message.role == "results")
    assert fitted.messages[0] is messages[0]
    assert len(fitted.messages) > len(lowered)
    again = fitter.fit(list(messages), system="Be brief.", ledger=fitted.ledger)
    assert again.messages == fitted.messages


def test_between_cuts_the_messages_only_grow_whatever_is_remembered() -> None:
    plain = ContextFitter(CODEC, budget=Budget(window=6_000, reserve=500))
    remembering = ContextFitter(CODEC, budget=Budget(window=6_000, reserve=500))
    ledger: dict[str, Any] | None = None
    before: list[Said] = []
    cuts = 0
    messages = talk(40)
    for end in range(1, len(messages), 2):
        history = messages[:end]
        fitted = plain.fit(history, ledger=ledger)
        other = remembering.fit(history, ledger=ledger, conversation="one")
        assert other.messages == fitted.messages
        assert other.ledger == fitted.ledger
        if fitted.has_cut:
            cuts += 1
        else:
            assert list(fitted.messages[: len(before)]) == before
        before = list(fitted.messages)
        ledger = fitted.ledger
    assert cuts >= 2


def test_a_message_changed_in_place_is_seen() -> None:
    messages = talk(3)
    fitter = ContextFitter(CODEC, budget=16_000)
    ledger = fitter.fit(messages, conversation="one").ledger
    messages[2].texts[1] = "failed"
    fitted = fitter.fit(messages, ledger=ledger, conversation="one")
    assert fitted.messages is messages
    assert fitted.fitted.request["messages"][3]["content"] == "failed"


def test_what_was_left_out_is_recalled_from_the_history() -> None:
    messages = talk(8, lines=400)
    fitter = ContextFitter(CODEC, budget=Budget(window=5_000, reserve=500))
    fitted = fitter.fit(messages)
    stub = next(text for each in fitted.messages for text in each.texts if 'recall("' in text)
    key = stub.partition('recall("')[2].partition('"')[0]
    answer = fitter.answer(messages, {"key": key}, ledger=fitted.ledger)
    assert "wait for the lamp" in answer
    assert "nothing has the key 'k0'; give a key as it stands in" in fitter.answer(
        messages, '{"key": "k0"}', ledger=fitted.ledger
    )


def test_without_recall_no_handle_is_shown() -> None:
    fitter = ContextFitter(CODEC, budget=Budget(window=6_000, reserve=500), policy=Policy(recall="off"))
    fitted = fitter.fit(talk(24))
    assert fitted.has_cut
    assert "recall(" not in repr(fitted.messages)


def test_ids_that_repeat_still_find_their_own_messages() -> None:
    messages = talk(24)
    for message in messages[1:]:
        message.ids = ["same", "other"]
    fitted = ContextFitter(CODEC, budget=Budget(window=6_000, reserve=500)).fit(messages)
    results = [message for message in fitted.messages if message.role == "results"]
    assert results[-1] is messages[-1]


def test_messages_that_are_turns_already_need_no_codec() -> None:
    turns = [turn for message in talk(24) for turn in write(message)]
    fitted = ContextFitter(PASS_THROUGH, budget=Budget(window=6_000, reserve=500)).fit(turns)
    assert fitted.messages == fitted.fitted.request["messages"]
    assert fitted.messages[-1] is turns[-1]


def test_bad_input_is_told() -> None:
    with pytest.raises(BadInput, match="window in tokens"):
        ContextFitter(CODEC, budget="16k")  # type: ignore[arg-type]
    with pytest.raises(BudgetExceeded):
        ContextFitter(CODEC, budget=Budget(window=300, reserve=100)).fit(talk(1, lines=200)[:1] * 200)


def test_a_report_in_the_ledger_corrects_the_next_count() -> None:
    """It goes through JSON with the ledger, and is used once."""
    fitter = ContextFitter(CODEC, budget=Budget(window=100_000))
    history = talk(20)
    first = fitter.fit(history)
    counted = first.fitted.envelope.tokens
    answer = {"usage": {"prompt_tokens": counted * 7 // 10, "completion_tokens": 9}}
    ledger = json.loads(json.dumps(add_report(first.ledger, answer)))
    second = fitter.fit(history, ledger=ledger)
    assert second.fitted.envelope.tokens == pytest.approx(counted * 0.7, rel=0.01)
    assert add_report(second.ledger, {}) == second.ledger
    assert fitter.fit(history, ledger=second.ledger).ledger == second.ledger


def test_a_call_may_have_a_budget_of_its_own() -> None:
    fitter = ContextFitter(CODEC, budget=Budget(window=100_000))
    history = talk(20)
    assert fitter.fit(history).messages is history
    smaller = fitter.fit(history, budget=Budget(window=6_000, reserve=0))
    assert smaller.has_cut
    assert smaller.fitted.envelope.tokens <= 6_000


def test_recent_values_forget_what_was_set_first() -> None:
    values: RecentValues[str, int] = RecentValues(2)
    values.update(a=1, b=2)
    values["a"] = 3
    values["c"] = 4
    assert dict(values) == {"a": 3, "c": 4}


@pytest.mark.parametrize("name", ["", "one"])
def test_a_conversation_is_read_once_with_and_without_a_name(name: str) -> None:
    """The messages are other objects each time, as those of a framework that loads its history are."""
    fitter = ContextFitter(CODEC, budget=Budget(window=6_000, reserve=500))
    ledger: dict[str, Any] | None = None
    with watch_fits() as watch:
        for steps in range(1, 30):
            ledger = fitter.fit(talk(steps), ledger=ledger, conversation=name).ledger
    assert len(watch.counts) == 29
    assert watch.memos == 1


def test_conversations_without_a_name_are_told_apart_by_their_first_question() -> None:
    fitter = ContextFitter(CODEC, budget=16_000)
    with watch_fits() as watch:
        for steps in range(1, 6):
            for question in ("Read the first part.", "Read the second part."):
                messages = talk(steps)
                messages[0].texts = [question]
                assert fitter.fit(messages, system="Be brief.").messages is messages
    assert watch.memos == 2


def test_conversations_that_begin_alike_share_a_memo_and_nothing_else() -> None:
    """They are fitted in turns, so each finds what the other left."""
    shared = ContextFitter(CODEC, budget=Budget(window=6_000, reserve=500))
    ledgers: dict[int, Any] = {}
    own_ledgers: dict[int, Any] = {}
    own = {lines: ContextFitter(CODEC, budget=Budget(window=6_000, reserve=500)) for lines in (30, 90)}
    for steps in range(1, 25):
        for lines in (30, 90):
            fitted = shared.fit(talk(steps, lines=lines), ledger=ledgers.get(lines))
            expected = own[lines].fit(talk(steps, lines=lines), ledger=own_ledgers.get(lines))
            assert fitted.messages == expected.messages
            assert fitted.ledger == expected.ledger
            ledgers[lines] = fitted.ledger
            own_ledgers[lines] = expected.ledger


def test_a_structured_answer_is_a_field_of_the_request() -> None:
    class Inner(BaseModel):
        text: str

    class Outer(BaseModel):
        parts: list[Inner]

    schema = write_output_format(Outer)["response_format"]["json_schema"]
    assert schema["name"] == "Outer"
    assert schema["schema"]["additionalProperties"] is False
    assert schema["schema"]["$defs"]["Inner"]["additionalProperties"] is False
    assert write_output_format({"type": "json_object"}) == {"response_format": {"type": "json_object"}}
    assert write_output_format(None) == {}


def test_after_a_cut_a_framework_can_ask_its_api_to_drop_bound_thinking() -> None:
    """The framework sends the messages itself, with the thinking that is in them."""
    messages: list[Any] = [{"role": "user", "content": "Read them."}]
    for number in range(40):
        messages.append(write_assistant("", [write_call(f"c{number}", "read", {"part": number})]))
        messages.append(write_result(f"c{number}", "word " * 100))
    fitter = ContextFitter(PASS_THROUGH, model="claude-opus-5-5", budget=Budget(window=3_000, reserve=0))
    whole = fitter.fit(messages[:3])
    assert whole.ask_server("claude-opus-5-5").headers == {}
    cut = fitter.fit(messages)
    assert cut.has_cut
    asked = cut.ask_server("anthropic/claude-opus-5-5", thinking={"type": "adaptive", "display": "omitted"})
    switch = {"prefix_mismatch_behavior": "drop_block"}
    assert asked.request == {"thinking": {"type": "adaptive", "display": "omitted", "block_binding": switch}}
    assert asked.headers == {"anthropic-beta": BINDING_BETA}
    assert cut.ask_server("claude-opus-5").request == {}
