"""Whatever a client sends: what leaves is valid or a typed error, and bytes that were sent stay as they were.

These are the laws of the wire, for every dialect and for requests that grow message by message: law 5 (each
request that leaves passes `check`), law 3 (without a recorded cut, the last stream is a prefix of the next),
law 1 (a memo changes nothing), law 11 (what is valid leaves as it came).
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina import (
    BadInput,
    Budget,
    BudgetExceeded,
    Fitted,
    InvalidRequest,
    LaminaError,
    Ledger,
    Policy,
    fit_request,
    translate,
)
from lamina.dialects import DIALECTS, Violation
from lamina.dialects.memos import CheckMemo
from lamina.dialects.words import OPENING
from lamina.fitting import RequestMemo
from tests.dialects.hostile import DIALECTS_WITH_MESSAGES, Hostile, conversations
from tests.dialects.sdks import ACCEPTED
from tests.dialects.wires import WIRES, Call, Result

EXPECTED = (BadInput, BudgetExceeded, InvalidRequest)
ROOM = Budget(window=8_000)

every_dialect = pytest.mark.parametrize("name", DIALECTS_WITH_MESSAGES)


def fit(
    request: dict[str, Any],
    name: str,
    ledger: Ledger | None,
    memo: RequestMemo | None = None,
    *,
    room: Budget = ROOM,
) -> Fitted | LaminaError:
    """A fitted request, or one of the three errors that may come instead."""
    try:
        return fit_request(
            request, dialect=name, budget=room, ledger=ledger, memo=memo, policy=Policy(breakpoints="keep")
        )
    except EXPECTED as error:
        return error


def rules(violations: list[Violation]) -> list[str]:
    return [f"{violation.rule} at {violation.place}" for violation in violations]


def blocks(name: str, request: dict[str, Any]) -> list[tuple[str, bytes]]:
    return [(block.role, block.data) for block in DIALECTS[name].cache.stream(request).blocks]


@every_dialect
@given(st.data())
def test_what_leaves_is_valid_continues_what_was_sent_and_owes_nothing_to_a_memo(
    name: str, data: st.DataObject
) -> None:
    hostile: Hostile = data.draw(conversations(name))
    play(name, [hostile.request(count) for count in range(1, len(hostile.messages) + 1)])


SAID = "Let me look at it."
WORDS = st.sampled_from([1, 20, 80])
CALLS = st.lists(st.tuples(st.sampled_from(["same", "same", "one", "two"]), WORDS), max_size=3)


def think_aloud(name: str, calls: list[dict[str, Any]], thought: str, number: int) -> list[dict[str, Any]]:
    """The turn of a model that makes these calls: it thinks, says what it always says, and calls."""
    sealed = "c2lnbmVk" * 4
    message = calls[0] if calls else {}
    match name:
        case "anthropic":
            thinking = {"type": "thinking", "thinking": thought, "signature": sealed}
            blocks = [thinking, {"type": "text", "text": SAID}, *message.get("content", ())]
            return [{"role": "assistant", "content": blocks}]
        case "bedrock_converse":
            reasoning = {"reasoningText": {"text": thought, "signature": sealed}}
            blocks = [{"reasoningContent": reasoning}, {"text": SAID}, *message.get("content", ())]
            return [{"role": "assistant", "content": blocks}]
        case "gemini":
            parts = [{"text": thought, "thought": True}, {"text": SAID}, *message.get("parts", ())]
            return [{"role": "model", "parts": parts}]
        case "openai_responses":
            summary = [{"type": "summary_text", "text": thought}]
            item: dict[str, Any] = {"type": "reasoning", "id": f"rs_{number}", "summary": summary}
            item["encrypted_content"] = sealed
            content = [{"type": "output_text", "text": SAID, "annotations": []}]
            said = {"type": "message", "role": "assistant", "id": f"msg_{number}", "content": content}
            numbered = [{**call, "id": f"fc_{number}_{at}"} for at, call in enumerate(calls)]
            return [item, said | {"status": "completed"}, *numbered]
    return [{"role": "assistant", **message, "content": SAID, "reasoning_content": thought}]


@pytest.mark.parametrize("name", WIRES)
@given(st.lists(st.tuples(WORDS, CALLS), min_size=8, max_size=14))
def test_what_is_said_and_called_again_owes_nothing_to_a_memo_when_reasoning_is_cut(
    name: str, steps: list[tuple[int, list[tuple[str, int]]]]
) -> None:
    """The model says one sentence each time, and its server gives many calls one id."""
    wire = WIRES[name]
    turns = [wire.ask("Watch.")]
    requests = []
    for number, (thought, calls) in enumerate(steps):
        made = [Call(id=call_id, arguments={"path": f"{number}.py"}) for call_id, _ in calls]
        turns += think_aloud(name, wire.call(made) if made else [], "I think. " * thought, number)
        if calls:
            turns += wire.answer([Result(id_, text=f"line {number} " * words) for id_, words in calls])
        else:
            turns.append(wire.ask(f"Go on {number}."))
        requests.append(wire.request(list(turns)))
    play(name, requests, room=Budget(window=1_500, reserve=200))


def play(
    name: str, requests: list[dict[str, Any]], *, records_edits: bool = True, room: Budget = ROOM
) -> None:
    """Fit requests one after the other, with a memo and without."""
    memo, ledger, same = RequestMemo(), Ledger(), Ledger()
    before: list[tuple[str, bytes]] = []
    for request in requests:
        fitted = fit(request, name, ledger, room=room)
        again = fit(request, name, same, memo, room=room)
        if isinstance(fitted, LaminaError) or isinstance(again, LaminaError):
            assert str(fitted) == str(again)
            _says_where(fitted)
            continue
        assert json.dumps(fitted.request) == json.dumps(again.request)
        assert fitted.ledger == again.ledger
        assert fitted.envelope.notes == again.envelope.notes
        assert rules(DIALECTS[name].wire.check(fitted.request)) == []
        if name in ("gemini", "ollama"):  # the SDK of the Responses API refuses fragments that pass untouched
            ACCEPTED[name](fitted.request)
        after = blocks(name, fitted.request)
        if len(fitted.ledger.cuts) == len(ledger.cuts) and records_edits:
            assert after[: len(before)] == before
        ledger, same, before = fitted.ledger, again.ledger, after


def _says_where(error: Fitted | LaminaError) -> None:
    if isinstance(error, InvalidRequest):
        first = error.violations[0]
        assert first.rule in str(error)
        assert first.place in str(error)
        assert error.hint in str(error)


EDITS = ("nothing", "nothing", "rewind", "cut_front", "delete", "double", "swap", "replace")
"""What a client may do to its own history between two requests, besides adding to it."""


def edited(messages: list[dict[str, Any]], way: str, at: int) -> list[dict[str, Any]]:
    at %= len(messages)
    before, one, after = messages[:at], messages[at : at + 1], messages[at + 1 :]
    edits = {
        "nothing": messages,
        "rewind": before + one,
        "cut_front": one + after,
        "delete": before + after,
        "double": before + one + one + after,
        "swap": one + after + before,
        "replace": before + messages[-1:] + after,
    }
    return edits[way]


@every_dialect
@given(st.data())
def test_an_edited_history_leaves_valid_too_and_its_edit_is_a_recorded_cut(
    name: str, data: st.DataObject
) -> None:
    """Requests that are edited, cut off and rewound between two calls, with the ledger of the call before.

    A Gemini signature is no part of the log, so an edit that changes nothing else is not recorded.
    """
    hostile: Hostile = data.draw(conversations(name, most=6))
    edits = data.draw(st.lists(st.tuples(st.sampled_from(EDITS), st.integers(0, 9)), min_size=1, max_size=4))
    messages = hostile.messages
    requests = []
    for way, at in edits:
        messages = edited(messages, way, at) or hostile.messages
        requests.append(hostile._replace(messages=messages).request(len(messages)))
        messages = [*messages, hostile.messages[at % len(hostile.messages)]]
    play(name, requests, records_edits=name != "gemini")


@every_dialect
@given(st.data())
def test_what_is_valid_leaves_as_it_came(name: str, data: st.DataObject) -> None:
    """A hostile request as it was mended is valid, so nobody changes it again."""
    request = data.draw(conversations(name, most=6)).request(6)
    if DIALECTS[name].wire.check(request):
        mended = fit(request, name, None)
        if isinstance(mended, LaminaError):
            return
        assert mended.request is not request
        assert mended.envelope.notes
        request = mended.request
    fitted = fit(request, name, None)
    if isinstance(fitted, LaminaError):
        assert isinstance(fitted, BudgetExceeded)
    elif fitted.envelope.cut is None and not fitted.ledger.lines:  # a large picture enters shortened, uncut
        assert fitted.request is request
        assert fitted.envelope.notes == ()


@every_dialect
@given(st.data())
def test_a_growing_request_is_checked_at_its_end_as_it_is_as_a_whole(name: str, data: st.DataObject) -> None:
    """What is hostile stands behind more valid steps than are looked at again; the first has a common id."""
    hostile: Hostile = data.draw(conversations(name, most=4))
    request, memo = hostile.request(4), CheckMemo()
    valid = [turn for at in range(40) for turn in make_step(name, "a" if at == 0 else f"k{at}")]
    for end in (len(valid) // 2, len(valid)):
        for items in (valid[:end], [*valid[:end], *request[hostile.field]]):
            whole = {**request, hostile.field: items}
            try:
                DIALECTS[name].wire.parse(whole)
            except BadInput:
                return
            assert rules(DIALECTS[name].wire.check(whole, memo=memo)) == rules(
                DIALECTS[name].wire.check(whole)
            )


def make_step(name: str, id_: str) -> list[dict[str, Any]]:
    """A question, a call and its result, all valid."""
    wire = WIRES[name]
    turns = [wire.ask(id_), *wire.step(id_)]
    if name == "gemini":
        turns[1]["parts"][0]["thoughtSignature"] = "c2ln"
    if name == "openai_responses":
        turns[1]["id"] = f"fc_{id_}"
    return turns


def _chat(last: list[Any]) -> dict[str, Any]:
    return {"model": "gpt-4o", "messages": [{"role": "user", "content": last}]}


def _responses(last: list[Any]) -> dict[str, Any]:
    return {"model": "gpt-5", "input": [{"role": "user", "content": last}]}


BESIDE_THE_WORDS = {
    "chat, blank text": (
        "openai_chat",
        _chat([{"type": "text", "text": "Go."}, {"type": "text", "text": "\n"}]),
    ),
    "chat, a name": (
        "openai_chat",
        {"model": "gpt-4o", "messages": [{"role": "user", "name": "ann", "content": "Go."}]},
    ),
    "responses, blank text": (
        "openai_responses",
        _responses([{"type": "input_text", "text": "Go."}, {"type": "input_text", "text": " "}]),
    ),
    "gemini, blank text": (
        "gemini",
        {
            "model": "gemini-3.8-flash",
            "contents": [{"role": "user", "parts": [{"text": "Go."}, {"text": " "}]}],
        },
    ),
    "anthropic, the title of a document": (
        "anthropic",
        {
            "model": "claude-opus-4-8",
            "max_tokens": 100,
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "document",
                            "title": "ann",
                            "context": "\n",
                            "source": {"type": "text", "media_type": "text/plain", "data": "Go."},
                        },
                        {"type": "text", "text": "Go."},
                    ],
                }
            ],
        },
    ),
}


@pytest.mark.parametrize("case", BESIDE_THE_WORDS)
def test_a_change_beside_the_words_of_a_message_is_a_recorded_cut(case: str) -> None:
    """Blank text, a name or a title that was sent is part of what a cache has seen."""
    name, first = BESIDE_THE_WORDS[case]
    text = json.dumps(first)
    changed = json.loads(
        text.replace('"ann"', '"bea"').replace('"\\n"', '"And you?"').replace('" "', '"Now"')
    )
    before = fit_request(first, dialect=name, budget=ROOM)
    after = fit_request(changed, dialect=name, budget=ROOM, ledger=before.ledger)
    assert before.request == first
    assert blocks(name, after.request)[: len(blocks(name, first))] != blocks(name, first)
    assert len(after.ledger.cuts) == 1
    same = fit_request(first, dialect=name, budget=ROOM, ledger=before.ledger)
    assert same.ledger.cuts == ()


@pytest.mark.parametrize(
    "content",
    [
        {"role": "user", "parts": [{"text": "Go."}]},
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
        {"role": "model", "parts": [{"text": " "}, {"functionCall": {"id": "c1", "name": "f", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}, {"text": "Go."}]},
    ],
    ids=str,
)
def test_a_gemini_request_may_repeat_the_content_that_the_last_one_ended_with(
    content: dict[str, Any],
) -> None:
    request = {"model": "gemini-3.8-flash", "tools": [{"functionDeclarations": [{"name": "f"}]}]}
    first = fit_request({**request, "contents": [content]}, budget=ROOM)
    second = fit_request({**request, "contents": [content, content]}, budget=ROOM, ledger=first.ledger)
    before, after = blocks("gemini", first.request), blocks("gemini", second.request)
    assert after[: len(before)] == before
    assert DIALECTS["gemini"].wire.check(second.request) == []


def test_two_blank_messages_that_change_places_are_a_recorded_cut() -> None:
    """Each is sent as it came, so `""` and `" "` are different bytes."""
    empty = {"role": "user", "content": ""}
    space = {"role": "user", "content": " ", "id": "msg_3"}
    spaces = {"role": "user", "content": [{"type": "input_text", "text": " "}] * 2}
    for first, second in ((empty, space), (space, spaces)):
        before = fit_request({"model": "gpt-5", "input": [first, second]}, budget=ROOM)
        after = fit_request({"model": "gpt-5", "input": [second, first]}, budget=ROOM, ledger=before.ledger)
        assert after.request["input"] == [second, first]
        assert len(after.ledger.cuts) == 1


@pytest.mark.parametrize("name", ["anthropic", "gemini"])
def test_the_line_in_place_of_a_first_question_is_counted(name: str) -> None:
    """An API that wants the user to begin gets a line of lamina's own there, and the room has to hold it."""
    call = [{"function": {"name": "read", "arguments": "{}"}, "id": "c1", "type": "function"}]
    messages: list[dict[str, Any]] = [
        {"role": "assistant", "content": "Hello.", "tool_calls": call},
        {"role": "tool", "tool_call_id": "c1", "content": "found"},
        {"role": "user", "content": "Go."},
    ]
    late = translate({"model": "m", "messages": messages}, to=name, budget=ROOM)
    messages = [{"role": "user", "content": "Hi."}, *messages]
    early = translate({"model": "m", "messages": messages}, to=name, budget=ROOM)
    assert OPENING in json.dumps(late.request)
    assert OPENING not in json.dumps(early.request)
    assert late.envelope.account.request > early.envelope.account.request
    assert late.envelope.tokens == late.envelope.account.total
