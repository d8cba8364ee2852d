"""Single decisions of conversations at their edges: who pays, what a filter shows, how far chains agree."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from lamina.conversations.costs import NO_USAGE, is_refused, price_call
from lamina.conversations.recall_answers import strip_recalls
from lamina.conversations.recall_filter import mend_recalls
from lamina.conversations.recall_loop import RecallLoop, RecallPlace
from lamina.conversations.recognise import MOST_LEFT, name_left
from lamina.conversations.record import (
    CHANGES_OF_THE_CALLER,
    Answered,
    RecordedCall,
    SentRequest,
    count_compactions,
    is_compaction,
)
from lamina.conversations.request_digests import NO_DIGESTS, count_shared_links, digest_log
from lamina.conversations.store import ConversationState
from lamina.conversations.stream_filters import filter_for
from lamina.core import Cut
from lamina.core.values import Ledger
from lamina.costs import RequestTable
from lamina.costs.recorded_calls import price_recorded_calls
from lamina.costs.table import MoneySum
from lamina.dialects import DIALECTS, Usage
from lamina.segments import assistant, system, user
from tests.conversations.test_truncated_calls import NAMES, OWN, RECALL, fit, list_events

OWN_NAMES = frozenset(("recall",))
SENT = SentRequest(id="r1", at=0.0, model="claude-opus-5", dialect="anthropic")


def record(**fields: Any) -> RecordedCall:
    """A request with an answer that has these fields."""
    return RecordedCall(request=SENT, answer=Answered(id="r1", at=1.0, **fields))


@pytest.mark.parametrize(
    ("call", "refused"),
    [
        (RecordedCall(request=SENT), False),
        (record(status=0), True),
        (record(status=200), False),
        (record(status=399), False),
        (record(status=400), True),
        (record(status=529), True),
        (record(status=0, usage=Usage(input=10)), False),
        (record(status=400, usage=Usage(input=10)), False),
    ],
)
def test_nobody_pays_for_a_request_that_was_refused(call: RecordedCall, *, refused: bool) -> None:
    assert is_refused(call) is refused
    assert (price_call(call) == 0.0) is refused


def sum_cost(calls: list[RecordedCall]) -> MoneySum:
    table = RequestTable()
    table.add(row for row in price_recorded_calls(calls) if row is not None)
    return table.sum_money()


def test_a_sum_is_at_least_what_is_known_if_an_answer_reported_nothing() -> None:
    priced = record(status=200, usage=Usage(input=1_000, output=10))
    assert sum_cost([priced, record(status=0), record(status=500)]).amount == price_call(priced)
    silent = sum_cost([priced, record(status=200)])
    assert silent.amount is None
    assert str(silent).startswith("at least $")
    assert str(silent).endswith(NO_USAGE)
    assert sum_cost([RecordedCall(request=SENT)]).amount == 0.0


@pytest.mark.parametrize("reason", sorted(CHANGES_OF_THE_CALLER))
def test_a_cut_that_shortened_something_is_lamina_s_whatever_its_reason(reason: str) -> None:
    cut = Cut(number=1, reason=reason, before=900, after=400, first="", lowered=3)
    assert is_compaction(cut)
    assert not is_compaction(msgspec.structs.replace(cut, lowered=0))
    assert count_compactions(Ledger(cuts=(cut, msgspec.structs.replace(cut, lowered=0)))) == 1


@pytest.mark.parametrize("length", range(6))
@pytest.mark.parametrize("other_length", range(6))
def test_chains_are_shared_up_to_their_first_other_link(length: int, other_length: int) -> None:
    whole = tuple(bytes([number]) for number in range(6))
    for same in range(min(length, other_length) + 1):
        other = (*whole[:same], *(b"other" + link for link in whole[same:other_length]))
        expected = min(length, other_length) if same == other_length else same
        assert count_shared_links(whole[:length], other) == expected


def test_the_first_answer_and_the_end_of_the_system_text_are_found() -> None:
    log = (system("Be brief."), user("one"), assistant("1"), user("two"), assistant("2"))
    digests = digest_log(log, NO_DIGESTS)
    assert digests.system_segments == log[:1]
    assert digests.segments == log[1:]
    assert digests.first_answer == 1
    assert digest_log(log[:2], NO_DIGESTS).first_answer == 1
    assert digest_log(log[:1], NO_DIGESTS).segments == ()


FIRST_EVENTS = {
    "anthropic": {"type": "message_start", "message": {"id": "m1", "role": "assistant", "content": []}},
    "openai_responses": {"type": "response.created", "response": {"id": "m1", "output": []}},
    "bedrock_converse": {"messageStart": {"role": "assistant"}},
}


@pytest.mark.parametrize("name", FIRST_EVENTS)
def test_a_client_sees_one_answer_begin_whatever_the_rounds(name: str) -> None:
    stream_filter = filter_for(DIALECTS[name], OWN_NAMES)
    assert stream_filter.take(FIRST_EVENTS[name]) == [FIRST_EVENTS[name]]
    stream_filter.next_round()
    assert stream_filter.take(FIRST_EVENTS[name]) == []


def write_converse(name: str, *, index: int, arguments: list[Any]) -> list[dict[str, Any]]:
    """The events of a call in a stream of Bedrock."""
    start = {"toolUse": {"toolUseId": f"t{index}", "name": name}}
    pieces = [
        {"contentBlockDelta": {"contentBlockIndex": index, "delta": {"toolUse": {"input": piece}}}}
        for piece in arguments
    ]
    return [
        {"contentBlockStart": {"contentBlockIndex": index, "start": start}},
        *pieces,
        {"contentBlockStop": {"contentBlockIndex": index}},
    ]


def write_messages(name: str, *, index: int, arguments: list[Any]) -> list[dict[str, Any]]:
    """The events of a call in a stream of Anthropic's API."""
    block = {"type": "tool_use", "id": f"t{index}", "name": name, "input": {}}
    pieces = [
        {
            "type": "content_block_delta",
            "index": index,
            "delta": {"type": "input_json_delta", "partial_json": piece},
        }
        for piece in arguments
    ]
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *pieces,
        {"type": "content_block_stop", "index": index},
    ]


WRITERS = {"anthropic": write_messages, "bedrock_converse": write_converse}


def test_the_end_of_an_answer_of_bedrock_waits_for_the_last_round() -> None:
    stream_filter = filter_for(DIALECTS["bedrock_converse"], OWN_NAMES)
    for event in write_converse("recall", index=0, arguments=['{"key": "k1"}']):
        assert stream_filter.take(event) == []
    assert stream_filter.take({"messageStop": {"stopReason": "tool_use"}}) == []
    assert stream_filter.take({"metadata": {"usage": {}}}) == []
    assert stream_filter.closing == [{"messageStop": {"stopReason": "end_turn"}}, {"metadata": {"usage": {}}}]


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize(
    ("arguments", "broken"),
    [
        (['{"key": ', '"k1"}'], False),
        ([], False),
        ([""], False),
        ([None, "{}"], False),
        (['["k1"]'], True),
        (['{"key": ', '"k1"'], True),
        (['{"key": "k1"}', "}"], True),
    ],
)
def test_a_recall_loses_arguments_that_are_no_object(
    name: str, arguments: list[Any], *, broken: bool
) -> None:
    write = WRITERS[name]
    recall = write("recall", index=0, arguments=arguments)
    beside = write("read_file", index=1, arguments=["[1"])
    mended = mend_recalls([*recall, *beside], DIALECTS[name], OWN_NAMES)
    if broken:
        recall = [recall[0], recall[-1]]
    assert mended == [*recall, *beside]


def test_other_apis_take_any_arguments() -> None:
    events = list_events("openai_chat", [RECALL])
    assert mend_recalls(events, DIALECTS["openai_chat"], OWN_NAMES) == events


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("anthropic", {"content": []}),
        ("anthropic", {"content": None}),
        ("openai_chat", {"choices": [{"message": {"content": "Hi", "tool_calls": None}}]}),
        ("gemini", {"candidates": [{"finishReason": "SAFETY"}]}),
        ("ollama", {"message": {"content": "Hi"}}),
        ("bedrock_converse", {"output": {}}),
    ],
)
def test_an_answer_without_calls_is_the_same_object(name: str, answer: dict[str, Any]) -> None:
    assert strip_recalls(answer, DIALECTS[name], OWN_NAMES) is answer


def test_a_choice_without_calls_stays_beside_one_with_a_recall() -> None:
    function = {"name": "recall", "arguments": "{}"}
    recalling = {
        "message": {"tool_calls": [{"id": "c1", "function": function}]},
        "finish_reason": "tool_calls",
    }
    spoken = {"message": {"content": "Hi"}, "finish_reason": "stop"}
    stripped = strip_recalls({"choices": [recalling, spoken]}, DIALECTS["openai_chat"], OWN_NAMES)
    assert stripped["choices"][1] == spoken
    assert stripped["choices"][0]["finish_reason"] == "stop"
    assert not stripped["choices"][0]["message"].get("tool_calls")


PLACE = RecallPlace(turns=1, segments=1, link=b"")


@pytest.mark.parametrize("name", NAMES)
def test_an_exchange_has_the_answer_only_if_the_client_saw_a_part_of_it(name: str) -> None:
    dialect = DIALECTS[name]
    loop = RecallLoop(dialect)
    assert loop.exchange(PLACE) is None
    recall_only = dialect.answers.absorb_stream(list_events(name, [RECALL]))
    assert loop.take(recall_only, fit(name))
    told = dialect.answers.absorb_stream(list_events(name, ["Done."]))
    assert loop.take(told, fit(name)) == ()
    whole = loop.exchange(PLACE)
    assert whole is not None
    assert whole.turns
    assert (whole.answer, whole.results) == ((), ())
    both = RecallLoop(dialect)
    assert both.take(dialect.answers.absorb_stream(list_events(name, [RECALL, OWN])), fit(name)) == ()
    partial = both.exchange(PLACE)
    assert partial is not None
    assert "recall" in json.dumps(partial.answer)
    assert "read_file" in json.dumps(partial.answer)
    assert partial.results


def test_branches_that_were_left_are_named_with_those_left_before_them_and_of_many_the_last() -> None:
    def name_those(states: dict[str, ConversationState]) -> tuple[str, ...]:
        """The names of branches with one answer more than the request of their client has now."""
        said = [user("Hello."), assistant("Hi."), user("Go on.")]
        living, longer = (
            digest_log(tuple(said), NO_DIGESTS),
            digest_log((*said, assistant("Yes.")), NO_DIGESTS),
        )
        return name_left(living, [(name, state, longer) for name, state in states.items()])

    cut = ConversationState(ledger=Ledger(cuts=(Cut(number=1, reason="over the trigger"),)))
    with_earlier = ConversationState(left=("a",))
    assert name_those({"b": with_earlier, "c": cut, "d": ConversationState()}) == ("a", "b", "c")
    many = {f"b{number}": ConversationState(left=(f"a{number}",)) for number in range(MOST_LEFT)}
    assert name_those(many) == tuple(many)
