"""The validator that the fuzzer judges by: each rule refuses what breaks it, and nothing else."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tests.fuzzing.validity import breaches

Json = dict[str, Any]


def claude(*messages: Json, **fields: Any) -> Json:
    return {"model": "claude-opus-4-8", "max_tokens": 10, "messages": list(messages), **fields}


def says(role: str, *blocks: Any) -> Json:
    return {"role": role, "content": [_text(b) if isinstance(b, str) else b for b in blocks]}


def _text(text: str, **fields: Any) -> Json:
    return {"type": "text", "text": text, **fields}


def use(id_: str, name: str = "read") -> Json:
    return {"type": "tool_use", "id": id_, "name": name, "input": {}}


def result(id_: str) -> Json:
    return {"type": "tool_result", "tool_use_id": id_, "content": "x"}


def mark(lifetime: str = "5m") -> Json:
    return {"cache_control": {"type": "ephemeral", "ttl": lifetime}}


THOUGHT: Json = {"type": "thinking", "thinking": "hm", "signature": "s"}
ASKED = says("user", "q")
CALLED = says("assistant", use("a"), use("b"))
ANSWERED = says("user", result("a"), result("b"))

CLAUDE: dict[str, tuple[Json, set[str]]] = {
    "a plain question": (claude(ASKED), set()),
    "a string": (claude({"role": "user", "content": "q"}), set()),
    "a step": (claude(ASKED, CALLED, ANSWERED), set()),
    "text after results": (claude(ASKED, CALLED, says("user", result("a"), result("b"), "and?")), set()),
    "a reminder": (claude(ASKED, says("system", "be brief"), says("assistant", "a"), ASKED), set()),
    "a directive": (claude(ASKED, {"role": "system", "content": []}, ASKED), set()),
    "four markers": (claude(says("user", *(_text("t", **mark()) for _ in range(4)))), set()),
    "begins with the assistant": (claude(says("assistant", "a"), ASKED), {"A1"}),
    "empty": (claude(), {"A1"}),
    "prefill": (claude(ASKED, says("assistant", "{")), {"A2"}),
    "prefill of an old model": (claude(ASKED, says("assistant", "{"), model="claude-sonnet-4-5"), set()),
    "a call without a result": (claude(ASKED, CALLED, says("user", result("a"))), {"A3"}),
    "a call at the end": (claude(ASKED, CALLED), {"A2", "A3"}),
    "a message between": (claude(ASKED, CALLED, ASKED, ANSWERED), {"A3", "A4"}),
    "results apart": (
        claude(ASKED, CALLED, says("user", result("a")), says("user", result("b"))),
        {"A3", "A4"},
    ),
    "an orphan": (claude(ASKED, says("assistant", "a"), says("user", result("a"))), {"A4"}),
    "two results": (claude(ASKED, CALLED, says("user", result("a"), result("a"), result("b"))), {"A4"}),
    "equal ids": (claude(ASKED, CALLED, ANSWERED, CALLED, ANSWERED), {"A5"}),
    "text before results": (claude(ASKED, CALLED, says("user", "x", result("a"), result("b"))), {"A6"}),
    "blank text": (claude(says("user", " \n")), {"A8"}),
    "no content": (claude({"role": "user", "content": []}), {"A8"}),
    "a blank system block": (claude(ASKED, system=[_text("")]), {"A8"}),
    "a system message first": (claude(says("system", "s"), says("assistant", "a"), ASKED), {"A11"}),
    "a system message before the user": (claude(ASKED, says("system", "s"), ASKED), {"A11"}),
    "five markers": (claude(says("user", *(_text("t", **mark()) for _ in range(5)))), {"A12"}),
    "an hour after five minutes": (
        claude(says("user", _text("t", **mark()), _text("t", **mark("1h")))),
        {"A12"},
    ),
    "a marker on thinking": (
        claude(ASKED, says("assistant", {**THOUGHT, **mark()}, "a"), ASKED),
        {"A12"},
    ),
    "a name with a dot": (
        claude(ASKED, says("assistant", use("a", "s.read")), says("user", result("a"))),
        {"A16"},
    ),
}


def chat(*messages: Json, **fields: Any) -> Json:
    return {"model": "gpt-4o", "messages": list(messages), **fields}


def calls(*ids: str, name: str = "read") -> Json:
    made = [{"id": i, "type": "function", "function": {"name": name, "arguments": "{}"}} for i in ids]
    return {"role": "assistant", "content": None, "tool_calls": made}


def tool(id_: str) -> Json:
    return {"role": "tool", "tool_call_id": id_, "content": "x"}


USER = {"role": "user", "content": "q"}

CHAT: dict[str, tuple[Json, set[str]]] = {
    "a step": (chat(USER, calls("a", "b"), tool("b"), tool("a")), set()),
    "system messages anywhere": (chat(USER, {"role": "system", "content": "s"}, USER), set()),
    "ids that come again": (chat(USER, calls("a"), tool("a"), calls("a"), tool("a")), set()),
    "no result": (chat(USER, calls("a", "b"), tool("a")), {"C1"}),
    "a message between": (chat(USER, calls("a"), USER, tool("a")), {"C1", "C2"}),
    "two results": (chat(USER, calls("a"), tool("a"), tool("a")), {"C1"}),
    "an orphan": (chat(USER, tool("a")), {"C2"}),
    "no content": (chat({"role": "user", "content": None}), {"C3"}),
    "an odd name": (chat(USER, calls("a", name="a b"), tool("a")), {"C4"}),
    "a breakpoint for an old model": (
        chat({"role": "user", "content": [_text("q", prompt_cache_breakpoint={"mode": "explicit"})]}),
        {"C6"},
    ),
    "a breakpoint": (
        chat(
            {"role": "user", "content": [_text("q", prompt_cache_breakpoint={"mode": "explicit"})]},
            model="gpt-6.1-sol",
        ),
        set(),
    ),
}


def responses(*items: Json) -> Json:
    return {"model": "gpt-5", "store": False, "input": list(items)}


def call_item(id_: str, name: str = "read") -> Json:
    return {"type": "function_call", "id": f"fc_{id_}", "call_id": id_, "name": name, "arguments": "{}"}


def output(id_: str) -> Json:
    return {"type": "function_call_output", "call_id": id_, "output": "x"}


REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"}
SAID = {"role": "assistant", "content": "a"}

RESPONSES: dict[str, tuple[Json, set[str]]] = {
    "a string": ({"model": "gpt-5", "input": "q"}, set()),
    "a step": (responses(USER, REASONING, call_item("a"), call_item("b"), output("b"), output("a")), set()),
    "a question while a tool runs": (responses(USER, call_item("a"), USER, output("a")), set()),
    "an orphan": (responses(USER, output("a")), {"R1"}),
    "two outputs": (responses(USER, call_item("a"), output("a"), output("a")), {"R1"}),
    "equal ids": (responses(USER, call_item("a"), call_item("a"), output("a"), output("a")), {"R1"}),
    "no output": (responses(USER, call_item("a"), USER), {"R2"}),
    "the model goes on": (responses(USER, call_item("a"), USER, SAID, output("a")), {"R2"}),
    "reasoning alone": (responses(USER, REASONING, USER), {"R3"}),
    "reasoning at the end": (responses(USER, REASONING), {"R3"}),
    "reasoning that cannot be read": (
        responses(USER, {**REASONING, "encrypted_content": None}, SAID, USER),
        {"R4"},
    ),
    "a trigger in the middle": (responses({"type": "compaction_trigger"}, USER), {"R6"}),
    "an odd name": (responses(USER, call_item("a", "a.b"), output("a")), {"C4"}),
}


def gemini(*contents: Json, model: str = "gemini-3-pro") -> Json:
    return {"model": model, "contents": list(contents)}


def content(role: str, *parts: Json) -> Json:
    return {"role": role, "parts": list(parts)}


def function_call(name: str = "read", **fields: Any) -> Json:
    return {"functionCall": {"name": name, "args": {}}, **fields}


def response(name: str = "read", **fields: Any) -> Json:
    return {"functionResponse": {"name": name, "response": {"output": "x"}, **fields}}


HELLO = content("user", {"text": "q"})
SIGNED = {"thoughtSignature": "c2ln"}

GEMINI: dict[str, tuple[Json, set[str]]] = {
    "a step": (gemini(HELLO, content("model", function_call(**SIGNED)), content("user", response())), set()),
    "two calls": (
        gemini(
            HELLO,
            content("model", function_call(**SIGNED), function_call()),
            content("user", response(), response()),
        ),
        set(),
    ),
    "the SDK's spelling": (
        gemini(
            HELLO,
            content("model", {"function_call": {"name": "read", "args": {}}, "thought_signature": "c2ln"}),
            content("user", {"function_response": {"name": "read", "response": {}}}),
        ),
        set(),
    ),
    "begins with a call": (
        gemini(content("model", function_call(**SIGNED)), content("user", response())),
        {"G1"},
    ),
    "a call after the model": (
        gemini(
            HELLO,
            content("model", {"text": "a"}),
            content("model", function_call(**SIGNED)),
            content("user", response()),
        ),
        {"G1"},
    ),
    "too few responses": (
        gemini(
            HELLO, content("model", function_call(**SIGNED), function_call()), content("user", response())
        ),
        {"G2"},
    ),
    "responses without calls": (
        gemini(HELLO, content("model", {"text": "a"}), content("user", response())),
        {"G2"},
    ),
    "another name": (
        gemini(HELLO, content("model", function_call(**SIGNED)), content("user", response("run"))),
        {"G3"},
    ),
    "no signature": (gemini(HELLO, content("model", function_call()), content("user", response())), {"G4"}),
    "no signature before Gemini 3": (
        gemini(HELLO, content("model", function_call()), content("user", response()), model="gemini-2.5-pro"),
        set(),
    ),
    "ends with the model": (gemini(HELLO, content("model", {"text": "a"})), {"G5"}),
    "an empty part": (gemini(content("user", {"text": ""})), {"G5"}),
    "no parts": (gemini(content("user")), {"G5"}),
    "a name with a space": (
        gemini(HELLO, content("model", function_call("a b", **SIGNED)), content("user", response("a b"))),
        {"G6"},
    ),
    "a system content": (gemini(content("system", {"text": "s"}), HELLO), {"G7"}),
}

CASES = [
    pytest.param(dialect, request, rules, id=f"{dialect}: {name}")
    for dialect, cases in (
        ("anthropic", CLAUDE),
        ("openai_chat", CHAT),
        ("openai_responses", RESPONSES),
        ("gemini", GEMINI),
    )
    for name, (request, rules) in cases.items()
]


@pytest.mark.parametrize(("dialect", "request_", "rules"), CASES)
def test_a_request_breaks_these_rules_and_no_others(dialect: str, request_: Json, rules: set[str]) -> None:
    assert {breach.rule for breach in breaches(request_, dialect, request_)} == rules


def test_thinking_of_the_latest_message_comes_back_whole() -> None:
    second = {**THOUGHT, "signature": "t"}
    came = claude(ASKED, says("assistant", THOUGHT, second, use("a")), says("user", result("a")))
    half = claude(ASKED, says("assistant", THOUGHT, use("a")), says("user", result("a")))
    none = claude(ASKED, says("assistant", use("a")), says("user", result("a")))
    assert {breach.rule for breach in breaches(came, "anthropic", came)} == set()
    assert {breach.rule for breach in breaches(half, "anthropic", came)} == {"A9"}
    assert {breach.rule for breach in breaches(none, "anthropic", came)} == {"A9 in an open loop"}


def test_thinking_of_a_turn_that_is_over_may_be_left_out() -> None:
    came = claude(ASKED, says("assistant", THOUGHT, "a"), ASKED)
    sent = claude(ASKED, says("assistant", "a"), ASKED)
    assert not breaches(sent, "anthropic", came)


def test_an_item_keeps_the_reasoning_that_led_to_it() -> None:
    came = responses(USER, REASONING, call_item("a"), output("a"))
    sent = responses(USER, call_item("a"), output("a"))
    assert {breach.rule for breach in breaches(sent, "openai_responses", came)} == {"R3"}


def test_a_compaction_goes_back_as_it_came() -> None:
    compaction = {"type": "compaction", "id": "cmp_1", "encrypted_content": "e"}
    came = responses(compaction, USER)
    assert not breaches(came, "openai_responses", came)
    changed = copy.deepcopy(came)
    changed["input"][0]["encrypted_content"] = "f"
    assert {breach.rule for breach in breaches(changed, "openai_responses", came)} == {"R9"}
    assert {breach.rule for breach in breaches(responses(USER), "openai_responses", came)} == {"R9"}


def test_a_signature_that_nobody_gave_is_refused() -> None:
    came = gemini(HELLO, content("model", function_call(**SIGNED)), content("user", response()))
    forged = json.loads(json.dumps(came).replace("c2ln", "Zm9yZ2Vk"))
    assert {breach.rule for breach in breaches(forged, "gemini", came)} == {"G4"}
    documented = json.loads(json.dumps(came).replace("c2ln", "skip_thought_signature_validator"))
    assert not breaches(documented, "gemini", came)
