"""What a client changes in messages that were sent is on the account, whatever field it is in.

lamina sends the client's newest bytes. So whenever they differ from those that were sent before the end of
the conversation, a cut is recorded; and if none is, the cached prefix is what it was.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cache
from typing import Any

import pytest

from lamina.conversations.conversations import Conversations
from lamina.conversations.pending_call import PendingCall
from lamina.core.values import Budget, Ledger
from lamina.dialects import DIALECTS
from lamina.errors import LaminaError
from lamina.fitting.fitted import Fitted
from lamina.fitting.policy import Policy
from lamina.fitting.request import RequestMemo, fit_request
from tests.fixtures.changes_of_history import (
    CONVERSATIONS,
    Change,
    is_harmless,
    is_kept_whole,
    list_changes,
)

Json = dict[str, Any]
WIDE = Budget(window=400_000)
EQUAL_TO_PYTHON = ("as a number", "with a point", "keys turned", "turned", "switched")
"""Changes after which a message may still equal the one before."""


def fit(
    dialect: str, request: Mapping[str, Any], ledger: Ledger | None = None, memo: RequestMemo | None = None
) -> Fitted:
    return fit_request(request, dialect=dialect, budget=WIDE, ledger=ledger, memo=memo)


def stream_of(dialect: str, request: Mapping[str, Any]) -> list[tuple[str, bytes]]:
    """What a prefix cache sees of a request."""
    return [(block.role, block.data) for block in DIALECTS[dialect].cache.stream(request).blocks]


@cache
def fit_changes(dialect: str) -> Sequence[tuple[Change, Fitted | None]]:
    """Every change of the conversation, fitted after the first request; None if it cannot be read or sent."""
    conversation = CONVERSATIONS[dialect]
    first = fit(dialect, conversation.first)
    return [(change, fit_changed(dialect, change, first)) for change in list_changes(conversation)]


def fit_changed(dialect: str, change: Change, first: Fitted) -> Fitted | None:
    try:
        return fit(dialect, change.request, first.ledger)
    except LaminaError:
        return None


@pytest.mark.parametrize("dialect", CONVERSATIONS)
def test_a_conversation_that_only_grows_has_no_cut(dialect: str) -> None:
    conversation = CONVERSATIONS[dialect]
    first = fit(dialect, conversation.first)
    assert first.request is not conversation.request
    assert fit(dialect, conversation.request, first.ledger).ledger.cuts == ()


@pytest.mark.parametrize("dialect", CONVERSATIONS)
def test_every_change_of_what_a_cache_sees_is_recorded_as_a_cut(dialect: str) -> None:
    conversation = CONVERSATIONS[dialect]
    first = fit(dialect, conversation.first)
    first_stream = stream_of(dialect, first.request)
    unnoticed = []
    for change, fitted in fit_changes(dialect):
        if fitted is None or is_harmless(dialect, change):
            continue
        stream = stream_of(dialect, fitted.request)
        if stream[: len(first_stream)] != first_stream and not fitted.ledger.cuts:
            unnoticed.append((change.name, change.path))
    assert unnoticed == []


@pytest.mark.parametrize("dialect", CONVERSATIONS)
def test_every_change_of_bytes_is_recorded_as_a_cut_unless_it_is_named_as_harmless(dialect: str) -> None:
    """A request that lamina mends, and that so leaves as it did before, has not changed."""
    conversation = CONVERSATIONS[dialect]
    first = fit(dialect, conversation.first)
    first_bytes = json.dumps(first.request[conversation.field])
    unnoticed = []
    for change, fitted in fit_changes(dialect):
        if fitted is None or is_harmless(dialect, change) or fitted.ledger.cuts:
            continue
        sent_again = fitted.request[conversation.field][: conversation.sent]
        is_mended = fitted.request is not change.request
        if json.dumps(sent_again) != first_bytes and not is_mended:
            unnoticed.append((change.name, change.path))
    assert unnoticed == []


@pytest.mark.parametrize("dialect", CONVERSATIONS)
def test_a_harmless_change_is_no_cut_and_the_newest_bytes_leave(dialect: str) -> None:
    conversation = CONVERSATIONS[dialect]
    harmless = 0
    for change, fitted in fit_changes(dialect):
        if change.path[0] != conversation.field or not is_harmless(dialect, change):
            continue
        if fitted is None or fitted.request is not change.request:
            continue
        if is_kept_whole(dialect, change) or change.name == "with nothing":
            continue
        harmless += 1
        assert fitted.ledger.cuts == (), (change.name, change.path)
    assert harmless > 10


@pytest.mark.parametrize("dialect", CONVERSATIONS)
def test_a_memo_changes_neither_the_bytes_nor_the_account_of_a_changed_history(dialect: str) -> None:
    """To Python `1` equals `true` and `1.0`, and objects are equal whatever the order of their keys."""
    conversation = CONVERSATIONS[dialect]
    for change, alone in fit_changes(dialect):
        if change.name not in EQUAL_TO_PYTHON:
            continue
        memo = RequestMemo()
        first = fit(dialect, conversation.first, memo=memo)
        try:
            with_memo = fit(dialect, change.request, first.ledger, memo)
        except LaminaError:
            assert alone is None, (change.name, change.path)
            continue
        assert alone is not None, (change.name, change.path)
        assert with_memo.ledger == alone.ledger, (change.name, change.path)
        assert json.dumps(with_memo.request) == json.dumps(alone.request), (change.name, change.path)


def test_a_memo_sends_the_newest_order_of_keys_in_a_request_that_has_to_be_lowered() -> None:
    """Of a message that was not lowered the object itself is sent, and a memo may hold an older one."""
    budget = Budget(window=2_500, reserve=0)
    long_talk = [_user("word " * 3_000), {"role": "assistant", "content": "a"}]
    talk = [*long_talk, _user("b"), {"role": "assistant", "content": "c"}, _user("d")]
    request = {"model": "claude-opus-4-8", "max_tokens": 9, "messages": talk}
    turned = {**request, "messages": [dict(reversed(message.items())) for message in talk]}
    memo = RequestMemo()
    ledger = None
    for _ in range(2):
        ledger = fit_request(request, budget=budget, ledger=ledger, memo=memo).ledger
    with_memo = fit_request(turned, budget=budget, ledger=ledger, memo=memo)
    alone = fit_request(turned, budget=budget, ledger=ledger)
    assert with_memo.ledger.cuts
    assert json.dumps(with_memo.request) == json.dumps(alone.request)


@pytest.mark.parametrize("dialect", CONVERSATIONS)
def test_a_wrapped_client_records_changes_that_no_word_shows(dialect: str) -> None:
    """A conversation is found by its words, so it goes on, and its ledger has the cut."""
    conversation = CONVERSATIONS[dialect]
    field = conversation.field
    changed_request = deepcopy(conversation.request)
    changed_request[field][conversation.sent - 1]["weight"] = 7
    for request, cuts in ((conversation.request, 0), (changed_request, 1)):
        among = Conversations(Policy(budget=WIDE, recall="handles"))
        for body in (conversation.first, request):
            pending = PendingCall(among, DIALECTS[dialect], deepcopy(body))
            pending.finish()
        [known] = among.by_key.values()
        assert len(known.state.ledger.cuts) == cuts


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"type": "text", "text": "hi", "weight": 1}, {"type": "text", "text": "hi", "weight": 2}),
        ({"type": "text", "text": "hi"}, {"type": "text", "text": "hi", "pinned": False}),
    ],
)
def test_a_number_in_an_unknown_field_of_the_first_message_is_recorded(before: Json, after: Json) -> None:
    def request(block: Json) -> Json:
        more = [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]
        return {"model": "claude-opus-4-8", "max_tokens": 9, "messages": [_user([block]), *more]}

    first = fit("anthropic", request(before))
    assert [cut.reason for cut in fit("anthropic", request(after), first.ledger).ledger.cuts] == [
        "history edited or rewound"
    ]


def test_a_null_means_the_same_as_no_field() -> None:
    """An SDK writes out fields that are empty, and a client that sends words alone leaves them out."""
    first = fit("anthropic", CONVERSATIONS["anthropic"].first)
    request = deepcopy(CONVERSATIONS["anthropic"].request)
    request["messages"][3]["content"][2] |= {"citations": None, "weight": None}
    request["messages"][4] = {"role": "assistant", "content": [{"type": "text", "text": "None.", "x": None}]}
    fitted = fit("anthropic", request, first.ledger)
    assert fitted.request is request
    assert fitted.ledger.cuts == ()


def test_a_text_prompt_has_no_field_that_could_change_unnoticed() -> None:
    first = fit("text", {"model": "m", "prompt": _flat("Look")})
    assert (
        fit("text", {"model": "m", "prompt": _flat("Look", "I do", "More")}, first.ledger).ledger.cuts == ()
    )
    assert fit("text", {"model": "m", "prompt": _flat("Look!", "I do", "More")}, first.ledger).ledger.cuts


def _flat(*turns: str) -> str:
    """A prompt of these turns, the user's first, in the layout of the dialect."""
    voices = ["User: ", "Assistant: "]
    *past, question = [f"{voices[position % 2]}{turn}" for position, turn in enumerate(turns)]
    if not past:
        return f"{question}\nAssistant:"
    return "\n".join(["Previous context:", *past, "", question]) + "\nAssistant:"


def _user(content: Any) -> Json:
    return {"role": "user", "content": content}


def test_a_system_message_that_comes_first_now_is_recorded_as_a_cut() -> None:
    """A result without its call is not sent. The system message behind it moves up without it."""
    orphan = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1"}]}
    messages = [
        {"role": "system", "content": "Answer in French from now on."},
        {"role": "user", "content": "Go on."},
    ]
    request: Json = {"model": "claude-3-opus", "max_tokens": 100, "messages": [orphan, *messages]}
    first = fit("anthropic", request)
    moved_up = fit("anthropic", {**request, "messages": messages}, first.ledger)
    assert "system" not in first.request
    assert "system" in moved_up.request
    assert [cut.reason for cut in moved_up.ledger.cuts] == ["system text changed"]


def test_a_marker_on_a_message_of_chat_completions_is_no_change() -> None:
    """Servers that take `cache_control` there show it to no model."""
    messages = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "I went."}]
    request: Json = {"model": "gpt-5", "messages": [*messages, {"role": "user", "content": "On."}]}
    marked = {**messages[0], "cache_control": {"type": "ephemeral"}}
    first = fit("openai_chat", request)
    again = fit("openai_chat", {**request, "messages": [marked, *request["messages"][1:]]}, first.ledger)
    assert again.ledger.cuts == ()
    assert stream_of("openai_chat", again.request) == stream_of("openai_chat", first.request)
