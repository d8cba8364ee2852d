"""What a client changes in messages that were sent is on the account, whatever field it is in.

lamina sends the client's newest bytes. So whenever they differ from those that were sent before the end of
the conversation, a cut is recorded; and if none is, the cached prefix is what it was.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest

from lamina.core.values import Budget, Ledger
from lamina.dialects import DIALECTS
from lamina.errors import LaminaError
from lamina.fitting import Fitted, RequestMemo, fit_request
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


@pytest.mark.parametrize("dialect", CONVERSATIONS)
def test_a_conversation_that_only_grows_has_no_cut(dialect: str) -> None:
    conversation = CONVERSATIONS[dialect]
    first = fit(dialect, conversation.first)
    assert first.request is not conversation.request
    assert fit(dialect, conversation.request, first.ledger).ledger.cuts == ()


@pytest.mark.parametrize("dialect", CONVERSATIONS)
def test_every_change_is_recorded_as_a_cut_unless_it_is_named_as_harmless(dialect: str) -> None:
    """Of bytes, and of what a cache sees of them.

    A request that lamina mends, and that so leaves as it did before, has not changed. After a harmless change
    the newest bytes leave. To Python `1` equals `true` and `1.0`, and objects are equal whatever the order of
    their keys: so a memo is tried with these.
    """
    conversation = CONVERSATIONS[dialect]
    first = fit(dialect, conversation.first)
    first_stream = stream_of(dialect, first.request)
    first_bytes = json.dumps(first.request[conversation.field])
    harmless = 0
    for change in list_changes(conversation):
        name = (change.name, change.path)
        fitted = fit_changed(dialect, change, first.ledger)
        if change.name in EQUAL_TO_PYTHON:
            assert_same_with_memo(dialect, change, fitted)
        if fitted is None:
            continue
        is_mended = fitted.request is not change.request
        if is_harmless(dialect, change):
            is_in_history = change.path[0] == conversation.field
            is_whole = is_kept_whole(dialect, change) or change.name == "with nothing"
            if is_in_history and not is_mended and not is_whole:
                harmless += 1
                assert fitted.ledger.cuts == (), name
        elif not fitted.ledger.cuts:
            assert stream_of(dialect, fitted.request)[: len(first_stream)] == first_stream, name
            sent_again = fitted.request[conversation.field][: conversation.sent]
            assert is_mended or json.dumps(sent_again) == first_bytes, name
    assert harmless > 10


def fit_changed(
    dialect: str, change: Change, ledger: Ledger, memo: RequestMemo | None = None
) -> Fitted | None:
    """The changed conversation, fitted after the first request; None if it cannot be read or sent."""
    try:
        return fit(dialect, change.request, ledger, memo)
    except LaminaError:
        return None


def assert_same_with_memo(dialect: str, change: Change, alone: Fitted | None) -> None:
    """A memo changes neither the bytes nor the account of a changed history."""
    memo = RequestMemo()
    first = fit(dialect, CONVERSATIONS[dialect].first, memo=memo)
    with_memo = fit_changed(dialect, change, first.ledger, memo)
    if alone is None or with_memo is None:
        assert alone is with_memo, (change.name, change.path)
        return
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
