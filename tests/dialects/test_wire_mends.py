"""What is mended of requests of the other APIs before they leave, and that it stays so when they grow.

`test_anthropic_mends` has the Messages API, `test_hostile` the properties.
"""

from __future__ import annotations

from typing import Any

import pytest

from lamina import Budget, Fitted, InvalidRequest, Ledger, Policy, fit_request
from lamina.dialects import DIALECTS, Dialect
from lamina.dialects.gemini.render import SIGNED
from lamina.dialects.gemini.wire import FOREIGN_SIGNATURE
from lamina.dialects.memos import TAIL
from lamina.dialects.rules import WireMessage
from lamina.dialects.sending import render_request
from lamina.dialects.words import OPENING
from lamina.fitting import RequestMemo

Json = dict[str, Any]

ROOM = Budget(window=20_000)


def fitted(dialect: str, request: Json, ledger: Ledger | None = None) -> Fitted:
    result = fit_request(request, dialect=dialect, budget=ROOM, ledger=ledger)
    assert DIALECTS[dialect].wire.check(result.request) == []
    return result


# Gemini


def user_content(text: str = "q") -> Json:
    return {"role": "user", "parts": [{"text": text}]}


def spoke(text: str = "a") -> Json:
    return {"role": "model", "parts": [{"text": text}]}


CALL: Json = {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}}]}
RESULT: Json = {
    "role": "user",
    "parts": [{"functionResponse": {"name": "look", "response": {"output": "x"}}}],
}


def gemini(*contents: Json, model: str = "gemini-3-pro") -> Json:
    return {"model": model, "contents": list(contents)}


def test_a_signature_that_a_call_was_given_stays_when_its_turn_is_over() -> None:
    first = fitted("gemini", gemini(user_content(), CALL, RESULT))
    signed = first.request["contents"][1]
    assert signed["parts"][0]["thought_signature"] == FOREIGN_SIGNATURE
    assert list(first.ledger.repairs.values()) == [SIGNED]
    grown = gemini(user_content(), CALL, RESULT, spoke(), user_content("q2"))
    assert DIALECTS["gemini"].wire.check(grown) == []
    second = fitted("gemini", grown, Ledger.load(first.ledger.dump()))
    assert second.request["contents"][:3] == first.request["contents"]
    assert second.ledger.cuts == ()


def test_a_call_that_was_never_sent_unsigned_in_its_turn_leaves_as_it_came() -> None:
    request = gemini(user_content(), CALL, RESULT, spoke(), user_content("q2"))
    assert fitted("gemini", request).request is request
    older = gemini(user_content(), CALL, RESULT, model="gemini-2.5-pro")
    assert fitted("gemini", older).request is older


def test_a_signature_does_not_cost_the_memo() -> None:
    memo = RequestMemo()
    result = fit_request(gemini(user_content(), CALL, RESULT), budget=ROOM, memo=memo)
    checkpoint = memo.build.checkpoint
    assert checkpoint is not None
    assert checkpoint.ledger is result.ledger


def test_five_responses_for_three_calls_are_three() -> None:
    calls = {"role": "model", "parts": [{**CALL["parts"][0], "thoughtSignature": "c2ln"}] * 3}
    results = {"role": "user", "parts": RESULT["parts"] * 5}
    contents = fitted("gemini", gemini(user_content(), calls, results)).request["contents"]
    assert len(contents[2]["parts"]) == 3


def test_a_call_that_stands_first_is_told_to_be_the_beginning() -> None:
    signed = {"role": "model", "parts": [{**CALL["parts"][0], "thoughtSignature": "c2ln"}]}
    first = fitted("gemini", gemini(signed, RESULT))
    assert first.request["contents"][0] == {"role": "user", "parts": [{"text": OPENING}]}
    second = fitted("gemini", gemini(signed, RESULT, spoke(), user_content()), first.ledger)
    assert second.request["contents"][:3] == first.request["contents"]


# Responses


def called(id_: str = "c") -> Json:
    return {"type": "function_call", "call_id": id_, "name": "look", "arguments": "{}"}


def output(id_: str = "c") -> Json:
    return {"type": "function_call_output", "call_id": id_, "output": "x"}


TRIGGER = {"type": "compaction_trigger"}
USER, DEVELOPER = {"role": "user", "content": "q"}, {"role": "developer", "content": "be brief"}


def responses(*items: Json, **fields: Any) -> Json:
    return {"model": "gpt-5", "input": list(items), **fields}


def test_what_stands_between_a_call_and_its_output_stays_there() -> None:
    """Here that is allowed; and it stays so when a later item has to be mended."""
    request = responses(USER, called(), DEVELOPER, {"role": "user", "content": "hurry"}, output())
    first = fitted("openai_responses", request)
    assert first.request is request
    grown = responses(*request["input"], {"role": "assistant", "content": "a"}, called("dangling"))
    second = fitted("openai_responses", grown, first.ledger)
    assert second.request["input"][:5] == request["input"]
    assert second.ledger.cuts == ()


def test_a_trigger_is_sent_last_or_not_at_all() -> None:
    request = responses(USER, called(), TRIGGER)
    first = fitted("openai_responses", request)
    assert first.request["input"][-1] == TRIGGER
    grown = responses(USER, called(), TRIGGER, {"role": "assistant", "content": "a"}, USER)
    second = fitted("openai_responses", grown, first.ledger)
    assert TRIGGER not in second.request["input"]
    assert second.ledger.cuts == ()
    alone = responses(TRIGGER, previous_response_id="resp_1")
    assert fitted("openai_responses", alone).request is alone


def test_only_a_reference_before_it_can_know_the_call_of_an_output() -> None:
    reference = {"type": "item_reference", "id": "fc_1"}
    request = responses(USER, reference, output())
    assert fitted("openai_responses", request).request is request
    for items in ((USER, output(), reference), (USER, {**reference, "id": ""}, output())):
        assert output() not in fitted("openai_responses", responses(*items)).request["input"]
    twice = fitted("openai_responses", responses(USER, reference, output(), output())).request["input"]
    assert twice == [USER, reference, output()]


def test_a_compaction_without_its_content_is_left_out_with_that_reason() -> None:
    result = fitted("openai_responses", responses(USER, {"type": "compaction", "id": "cmp_1"}, USER))
    assert result.request["input"] == [USER, USER]
    assert [e.why for e in result.envelope.entries if not e.parts] == [
        "a compaction without its encrypted content"
    ]


@pytest.mark.parametrize("dialect", ["openai_chat", "openai_responses"])
def test_breakpoints_are_taken_off_where_they_may_not_stand(dialect: str) -> None:
    mark = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    chat = dialect == "openai_chat"
    kind, field = ("text", "messages") if chat else ("input_text", "input")
    part = {"type": kind, "text": "q", **mark}
    tool: Json = {"type": "function", "name": "f"} | ({"function": {"name": "f", **mark}} if chat else {})
    messages = [{"role": "user", "content": [part], **mark}, {"role": "assistant", "content": "a", **mark}]
    sent_request = fitted(dialect, {"model": "gpt-5.6", field: messages, "tools": [tool | mark]}).request
    assert sent_request[field][0] == {"role": "user", "content": [part]}
    assert str(sent_request).count("prompt_cache_breakpoint") == 1


# every dialect


def test_two_halves_of_a_message_that_is_sent_twice_are_not_taken_for_the_whole_message() -> None:
    picture = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
    response = {"functionResponse": {"name": "read", "response": {"output": "x"}, "id": "t1"}}
    content = {"role": "user", "parts": [response, picture]}
    sent_request = fitted("gemini", gemini(content, content)).request
    assert sent_request["contents"] == [{"role": "user", "parts": [picture, picture]}]


def _question(dialect: str, at: int) -> list[Json]:
    if dialect == "gemini":
        return [user_content(f"q{at}"), spoke(f"a{at}")]
    return [{"role": "user", "content": f"q{at}"}, {"role": "assistant", "content": f"a{at}"}]


@pytest.mark.parametrize("name", ["anthropic", "openai_chat", "openai_responses", "gemini", "ollama"])
def test_a_growing_request_is_checked_at_its_end_only(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dialect: Dialect = DIALECTS[name]
    field = {"gemini": "contents", "openai_responses": "input"}.get(name, "messages")
    model = {"gemini": "gemini-3-pro", "anthropic": "claude-opus-4-8"}.get(name, "gpt-5")
    module = __import__(f"lamina.dialects.{name}.check", fromlist=["_"])
    seen: list[int] = []

    class CountedMessage(WireMessage):
        def __init__(self, place: str, *arguments: Any, **options: Any) -> None:
            seen.append(int(place.partition("[")[2][:-1]))
            super().__init__(place, *arguments, **options)

    monkeypatch.setattr(module, "WireMessage", CountedMessage)
    memo, items = RequestMemo(), [turn for at in range(80) for turn in _question(name, at)]
    for count in range(101, 151, 2):
        seen.clear()
        limit = {"max_tokens": 9} if name == "anthropic" else {}
        request = {"model": model, **limit, field: items[:count]}
        result = fit_request(
            request,
            dialect=dialect,
            budget=Budget(window=100_000),
            memo=memo,
            policy=Policy(breakpoints="keep"),
        )
        assert result.request is request
        assert len(seen) <= (count if count == 101 else TAIL + 4)


def test_a_message_that_was_changed_in_place_is_checked_again() -> None:
    messages = [turn for at in range(40) for turn in _question("anthropic", at)]
    request = {
        "model": "claude-opus-4-8",
        "max_tokens": 9,
        "messages": [*messages, {"role": "user", "content": "q"}],
    }
    memo = RequestMemo()
    assert fit_request(request, budget=ROOM, memo=memo).request is request
    messages[2]["content"] = [{"type": "text", "text": " "}, {"type": "text", "text": "changed"}]
    sent_request = fit_request(request, budget=ROOM, memo=memo).request
    assert sent_request["messages"][2]["content"] == [{"type": "text", "text": "changed"}]


def test_whoever_renders_an_envelope_gets_a_valid_request_or_an_error() -> None:
    result = fitted("gemini", gemini(user_content(), spoke(), user_content()))
    assert render_request(result.envelope, DIALECTS["gemini"]) == result.request
    with pytest.raises(InvalidRequest, match="ends_with_user"):
        render_request(
            fitted("openai_chat", {"model": "m", "messages": _question("", 1)}).envelope, DIALECTS["gemini"]
        )
