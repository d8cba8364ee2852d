from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina import BadInput
from lamina.core import (
    CHARS4,
    RFC,
    Count,
    Counter,
    Document,
    Image,
    Part,
    Raw,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from lamina.core.tokens import (
    BYTES4,
    ESTIMATE,
    STRICT,
    Framing,
    calibrate,
    calibration_for,
    estimate_for,
    part_cost,
    scale_tokens,
    tools_cost,
)
from lamina.core.values import Calibration
from lamina.models.framing import GENERIC, framing_for
from lamina.models.names import own_name

TOLD = 'readReads a file.{"type":"object"}'
COUNTERS = (RFC, CHARS4, BYTES4, STRICT, ESTIMATE)
PDF = b64encode(b"%PDF-1.7 " + b"<< /Type /Page >>" * 3).decode()
FUNCTION = {"name": "read", "description": "Reads a file.", "parameters": {"type": "object"}}


def message_cost(parts: Sequence[Part], counter: Counter) -> int:
    """The parts of one message, without the message's own framing."""
    lone_text = len(parts) == 1 and isinstance(parts[0], Text)
    framing = 0 if lone_text else counter.framing.part * len(parts)
    return framing + sum(part_cost(part, counter) for part in parts)


def letters(**framing: Any) -> Counter:
    return Counter(name="letters", count=len, framing=Framing(**framing))


def rfc_total(*messages: tuple[Part, ...]) -> int:
    raw = sum(RFC.framing.message + message_cost(parts, RFC) for parts in messages)
    return scale_tokens(raw, RFC, None)


def result(text: str) -> ToolResult:
    return ToolResult(id="c", content=(Text(text),))


@pytest.mark.parametrize(
    ("messages", "tokens"),
    [
        ((), 0),
        (((Text("Hello world"),),), 13),
        (((Text("Hello"),), (Text("World"),)), 21),
        (((result("x" * 400),),), 141),
        (((Text("hello"), Image(), result("done")),), 2131),
    ],
)
def test_messages_cost_what_the_rfc_says(messages: tuple[tuple[Part, ...], ...], tokens: int) -> None:
    assert rfc_total(*messages) == tokens


def test_tools_cost_what_the_rfc_says() -> None:
    argument = {"type": "string", "description": "d" * 200}
    schema = {"type": "object", "properties": {"arg1": argument, "arg2": argument}}
    tools = [{"name": f"tool_{i}", "description": "d" * 200, "input_schema": schema} for i in range(50)]
    assert tools_cost(tools, RFC) == 12_800


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("Hello, World!", 4), ("x" * 63, 16), ("TestText", 2)])
def test_characters_by_four_round_up(text: str, tokens: int) -> None:
    assert CHARS4(text) == Count(tokens, exact=False)


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("abc", 0), ("x" * 1035, 258), ("漢字", 1)])
def test_bytes_by_four_round_down(text: str, tokens: int) -> None:
    assert BYTES4.count(text) == tokens


@pytest.mark.parametrize("counter", COUNTERS)
@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\ud83d\ude00"])
def test_lone_surrogates_are_counted(counter: Counter, text: str) -> None:
    assert counter.count(text * 4) > 0


@pytest.mark.parametrize("counter", COUNTERS)
def test_nothing_costs_nothing(counter: Counter) -> None:
    assert counter("").tokens == 0


@given(st.text())
def test_strict_bounds_the_default_estimate(text: str) -> None:
    assert ESTIMATE.count(text) <= STRICT.count(text)


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        (Text("12345"), 5),
        (Thinking(text="1234", signature="s" * 200), 4),
        (Thinking(text="1234", signature="s" * 601), 101),
        (Thinking(text="t" * 300, signature="s" * 601), 300),
        (Thinking(signature="s" * 300), 25),
        (ToolCall(id="not counted", name="read", arguments='{"a":1}'), 100 + 4 + 7 + 2),
        (ToolCall(id="i" * 70, name="read", arguments="{}"), 100 + 4 + 2 + 2 + 6),
        (ToolResult(id="i" * 65, name="n" * 67), 200 + 2 + 1 + 3),
        (result("12345"), 200 + 5 + 2),
        (ToolResult(id="c"), 200 + 2),
        (ToolResult(id="c", content=(Text("12"), Image(), Text("345"))), 200 + 5 + 2 + 1000),
        (Image(data="AAAA"), 1000),
        (Image(data="AAAA", tokens=7), 7),
        (Document(data="AAAA"), 3000),
        (Document(data="AAAA", text="1234"), 4),
        (Document(text="1234", tokens=0), 0),
        (Document(text="1234", name="a.md", context="about it"), 4 + 4 + 8),
        (Document(url="https://e.org/a.pdf", name="a.pdf"), 3000 + 5),
        (Document(data=PDF, media_type="application/pdf"), 9000),
        (Document(data="aGVsbG8=", media_type="text/plain"), 5),
        (Raw(dialect="x", data={"b": 1, "a": "é"}), len('{"a":"é","b":1}')),
        (Raw(dialect="x", data={"a": {"encrypted_content": "s" * 300}}), len('{"a":{}}') + 25),
        (Raw(dialect="x", data={"type": "redacted_thinking", "data": "s" * 300}), 28 + 25),
        (Raw(dialect="x", data={"type": "image", "source": {"type": "file"}}), 41 + 1000),
        (Raw(dialect="x", data={"type": "document", "source": {"type": "url"}}), 43 + 3000),
        (Raw(dialect="x", data={"mimeType": "application/pdf", "data": PDF}), 30 + 9000),
        (Raw(dialect="x", data={"media_type": "image/png", "data": PDF}), 26 + 1000),
        (Raw(dialect="x", data=[f"data:application/pdf;base64,{PDF}"]), 32 + 9000),
        (Raw(dialect="x", data={"type": "image_generation_call", "result": PDF}), 32 + 1000),
    ],
)
def test_a_part_costs_its_text_and_its_framing(part: Part, tokens: int) -> None:
    assert part_cost(part, letters(call=100, result=200, padding="xx", image=1000)) == tokens


def test_parts_are_framed_unless_they_are_one_lone_text() -> None:
    counter = letters(part=3)
    assert message_cost([Text("12")], counter) == 2
    assert message_cost([Text("12"), Text("3")], counter) == 3 + 3 + 3
    assert message_cost([result("12")], counter) == 2 + 3
    assert message_cost([], counter) == 0


@pytest.mark.parametrize(
    "tool",
    [
        FUNCTION,
        {"type": "function", **FUNCTION},
        {"type": "function", "function": FUNCTION},
        {"functionDeclarations": [FUNCTION]},
        {"name": "read", "description": "Reads a file.", "input_schema": {"type": "object"}},
    ],
)
def test_a_definition_costs_the_same_in_every_shape(tool: dict[str, Any]) -> None:
    text = 'readReads a file.{"type":"object"}'
    assert tools_cost([tool], letters(tools=100, tool=10)) == 100 + 10 + len(text)


def test_a_definition_of_another_shape_costs_all_of_its_text() -> None:
    assert tools_cost([{"type": "web_search"}], letters(tool=1)) == 1 + len('{"type":"web_search"}')


NAMESPACE = {
    "type": "namespace",
    "name": "files",
    "description": "About files.",
    "tools": [FUNCTION, FUNCTION],
}


@pytest.mark.parametrize(
    ("tool", "texts"),
    [
        (
            {**FUNCTION, "input_examples": ["x"]},
            ['readReads a file.{"type":"object"}{"input_examples":["x"]}'],
        ),
        (
            {**FUNCTION, "strict": True, "cache_control": {"type": "ephemeral"}, "defer_loading": False},
            [TOLD],
        ),
        ({**FUNCTION, "defer_loading": True}, []),
        ({"type": "function", "function": FUNCTION, "extra": "x"}, [TOLD + '{"extra":"x"}']),
        ({"functionDeclarations": [FUNCTION], "googleSearch": {}}, [TOLD, '{"googleSearch":{}}']),
        ({"function_declarations": [FUNCTION], "google_search": None}, [TOLD]),
        (NAMESPACE, ["filesAbout files.", TOLD, TOLD]),
        ({**FUNCTION, "response": {"type": "string"}}, [TOLD + '{"response":{"type":"string"}}']),
    ],
)
def test_every_field_of_a_definition_that_may_be_read_counts(tool: dict[str, Any], texts: list[str]) -> None:
    assert tools_cost([tool], letters(tool=10)) == sum(10 + len(text) for text in texts)


def test_a_block_that_is_nested_absurdly_is_counted_or_refused() -> None:
    data: Any = "deep"
    for _ in range(200):
        data = [data]
    assert part_cost(Raw(dialect="x", data=data), letters()) == 200 + 6 + 200
    for _ in range(100_000):
        data = [data]
    with pytest.raises(BadInput):
        part_cost(Raw(dialect="x", data=data), letters())


def test_declarations_count_one_by_one_and_the_list_once() -> None:
    one = tools_cost([FUNCTION], letters(tools=100, tool=10)) - 100
    assert (
        tools_cost([{"functionDeclarations": [FUNCTION] * 3}], letters(tools=100, tool=10)) == 100 + 3 * one
    )
    assert tools_cost([], letters(tools=100)) == 0


def test_scaling_rounds_up_once() -> None:
    counter = letters(scale=1050)
    assert scale_tokens(10, counter, None) == 11
    assert scale_tokens(20, counter, None) == 21
    assert scale_tokens(10, counter, Calibration(millis=1100, samples=1)) == 12
    assert scale_tokens(10**20, counter, None) == 105 * 10**18


def test_the_first_report_stands_alone() -> None:
    assert calibrate(None, counted=1000, reported=1234) == Calibration(millis=1234, samples=1)


def test_later_reports_are_averaged() -> None:
    first = calibrate(None, counted=100, reported=100)
    assert calibrate(first, counted=100, reported=200) == Calibration(millis=1500, samples=2)


@pytest.mark.parametrize(("reported", "bound"), [(1, 500), (10**9, 4000)])
def test_a_wild_report_alone_changes_nothing(reported: int, bound: int) -> None:
    first = calibrate(None, counted=1000, reported=reported)
    assert first == Calibration(millis=1000, samples=0, doubted=bound)
    assert calibration_for(ESTIMATE, first) is None
    assert calibrate(first, counted=1000, reported=1200) == Calibration(millis=1200, samples=1)
    known = Calibration(millis=1100, samples=8)
    doubted = calibrate(known, counted=1000, reported=reported)
    assert doubted == Calibration(millis=1100, samples=8, doubted=bound)
    assert calibrate(doubted, counted=1000, reported=1100) == known


@pytest.mark.parametrize(("reported", "bound"), [(1, 500), (10**9, 4000)])
def test_a_second_wild_report_to_the_same_side_is_believed_up_to_the_bound(reported: int, bound: int) -> None:
    first = calibrate(None, counted=1000, reported=reported)
    second = calibrate(first, counted=1000, reported=reported)
    assert second == Calibration(millis=bound, samples=1, doubted=bound)
    assert calibrate(second, counted=1000, reported=reported).samples == 2
    other_side = calibrate(second, counted=1000, reported=10**9 if bound == 500 else 1)
    assert (other_side.millis, other_side.samples) == (bound, 1)


def test_what_another_counter_taught_is_forgotten_and_not_applied() -> None:
    known = calibrate(None, counted=100, reported=150, counter=ESTIMATE.identity)
    assert calibration_for(ESTIMATE, known) == known
    assert calibration_for(STRICT, known) is None
    assert calibration_for(STRICT, None) is None
    assert calibration_for(STRICT, Calibration(millis=1500)) == Calibration(millis=1500)
    other = calibrate(known, counted=100, reported=90, counter=STRICT.identity)
    assert other == Calibration(millis=900, samples=1, counter=STRICT.identity)


@pytest.mark.parametrize(("counted", "reported"), [(0, 5), (5, 0), (-1, 5), (5, -1)])
def test_a_report_of_nothing_is_refused(counted: int, reported: int) -> None:
    with pytest.raises(BadInput, match="skip answers"):
        calibrate(None, counted=counted, reported=reported)


@given(st.lists(st.tuples(st.integers(1, 10**7), st.integers(1, 10**7)), min_size=1))
def test_calibration_stays_in_bounds_and_forgets(reports: list[tuple[int, int]]) -> None:
    state: Calibration | None = None
    for counted, reported in reports:
        state = calibrate(state, counted=counted, reported=reported)
        assert 500 <= state.millis <= 4000
        assert 0 <= state.samples <= 8
    assert state is not None
    for _ in range(60):
        state = calibrate(state, counted=1000, reported=1000)
    assert 1000 - 8 < state.millis < 1000 + 8


def test_an_unknown_family_is_named_with_the_known_ones() -> None:
    with pytest.raises(BadInput, match=r"'klingon'.*o200k"):
        estimate_for("klingon")


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-4o-mini", "gpt-4"),
        ("gpt-5.1-codex", "gpt-5"),
        ("openai/o3-mini", "o-series"),
        ("claude-3-5-sonnet-20241022", "claude-3"),
        ("claude-opus-4-20250514", "claude-3"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude"),
        ("claude-opus-5-5", "claude"),
        ("models/gemini-2.5-pro", "gemini"),
        ("mistral-large-latest", "mistral"),
        ("deepseek-chat", "deepseek"),
        ("qwen3-max", "qwen"),
        ("grok-4-fast-reasoning", "grok-fast"),
        ("meta.llama3-3-70b-instruct-v1:0", "llama"),
    ],
)
def test_the_longest_prefix_decides_the_framing(model: str, name: str) -> None:
    assert framing_for(model).name == name


def test_an_unknown_model_has_the_generic_framing() -> None:
    assert framing_for("mystery-1") is GENERIC
    assert framing_for("") is GENERIC


def test_no_framing_is_negative() -> None:
    for model in ("gemini-2.5-pro", "nova-lite", "o1", "qwen3-coder", "mystery"):
        framing = framing_for(model)
        assert min(framing.request, framing.message, framing.tools, framing.tool, framing.result) >= 0


@given(st.text())
def test_any_text_may_be_a_model_name(model: str) -> None:
    assert framing_for(model) == framing_for(own_name(model))
