from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.core.build import build
from lamina.dialects.openai_chat import DIALECT
from lamina.dialects.port import Absorbed
from lamina.dialects.usage import Usage
from lamina.errors import BadInput
from lamina.formats.codec import encode
from lamina.segments import user
from tests.dialects.openai_chat_requests import OPTIONS, Json, answers, called

ANSWER: Json = {
    "role": "assistant",
    "content": "Let me read it.",
    "refusal": None,
    "reasoning_content": "It is a file.",
    "reasoning_details": [{"type": "reasoning.text", "text": "It is", "signature": "s", "index": 0}],
    "tool_calls": [
        called("c1"),
        {"id": "c2", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}},
    ],
}


def response(message: Json, **fields: Any) -> Json:
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    return {"object": "chat.completion", "choices": [choice], **fields}


def chunk(delta: Json | None = None, *, stop: str | None = None, **fields: Any) -> Json:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": stop}]
    return {"object": "chat.completion.chunk", "choices": choices, **fields}


def piece(index: int | None, **fields: Any) -> Json:
    return {"tool_calls": [fields if index is None else {"index": index, **fields}]}


def sent_back(absorbed: Absorbed) -> Json:
    """The assistant message of the next request."""
    log = [user("Read it."), *absorbed.segments]
    message: Json = DIALECT.wire.render(build(log, options=OPTIONS))["messages"][1]
    return message


def test_an_answer_goes_back_as_the_same_message() -> None:
    usage = {
        "prompt_tokens": 90,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 20},
    }
    absorbed = DIALECT.answers.absorb(response(ANSWER, usage=usage))
    assert absorbed.usage == Usage(input=90, cached=64, written=20, output=7)
    assert absorbed.stop == "tool_calls"
    assert sent_back(absorbed) is ANSWER


def test_an_answer_of_an_sdk_is_taken_without_the_fields_that_were_not_set() -> None:
    class Completion:
        def model_dump(self, *, mode: str = "python", exclude_unset: bool = False) -> Json:
            assert mode == "json"
            unset = {} if exclude_unset else {"function_call": None}
            return response({"role": "assistant", "content": "Hi."} | unset)

    assert sent_back(DIALECT.answers.absorb(Completion())) == {"role": "assistant", "content": "Hi."}


def test_hits_that_a_server_counts_in_its_own_field_are_seen() -> None:
    assert DIALECT.answers.absorb(response(ANSWER, usage={"prompt_cache_hit_tokens": 5})).usage.cached == 5


def test_a_stream_makes_the_message_that_the_whole_answer_has() -> None:
    patch = {"id": "c2", "type": "custom", "custom": {"name": "patch", "input": "*** "}}
    events = [
        chunk({"role": "assistant", "content": "", "refusal": None}),
        chunk(
            {
                "reasoning_content": "It is ",
                "reasoning_details": [ANSWER["reasoning_details"][0] | {"text": "It "}],
            }
        ),
        chunk({"reasoning_content": "a file.", "reasoning_details": [{"index": 0, "text": "is"}]}),
        chunk({"content": "Let me "}),
        chunk({"content": "read it."}),
        chunk(piece(0, id="c1", type="function", function={"name": "read_file", "arguments": ""})),
        chunk(piece(0, function={"arguments": '{"path": '})),
        chunk(piece(1, **patch)),
        chunk(piece(0, function={"arguments": '"src/a.py"}'})),
        chunk(piece(1, custom={"input": "Begin"})),
        chunk({}, stop="tool_calls"),
        chunk(usage={"prompt_tokens": 9, "completion_tokens": 3}),
    ]
    absorbed = DIALECT.answers.absorb_stream(events)
    assert sent_back(absorbed) == ANSWER
    assert absorbed.usage == Usage(input=9, output=3)
    assert absorbed.stop == "tool_calls"


def test_a_streamed_refusal_and_nothing_else() -> None:
    absorbed = DIALECT.answers.absorb_stream(
        [chunk({"role": "assistant", "refusal": "I "}), chunk({"refusal": "cannot."})]
    )
    assert sent_back(absorbed) == {"role": "assistant", "content": None, "refusal": "I cannot."}


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([piece(0, **called("a")), piece(0, **called("b"))], id="one index for all"),
        pytest.param([piece(None, **called("a")), piece(None, **called("b"))], id="no index"),
        pytest.param(
            [
                piece(0, id="a", type="function", function={"name": "read_file", "arguments": '{"path":'}),
                piece(
                    0, id="a", type="function", function={"name": "read_file", "arguments": ' "src/a.py"}'}
                ),
                piece(1, **called("b")),
            ],
            id="id and name repeated",
        ),
        pytest.param(
            [
                piece(None, id="a", type="function", function={"name": "read_file", "arguments": ""}),
                piece(None, function={"arguments": '{"path": "src/a.py"}'}),
                piece(None, **called("b")),
            ],
            id="no index in pieces",
        ),
    ],
)
def test_streams_of_servers_that_number_calls_in_their_own_way(pieces: list[Json]) -> None:
    absorbed = DIALECT.answers.absorb_stream([chunk(delta) for delta in pieces])
    assert sent_back(absorbed)["tool_calls"] == [called("a"), called("b")]


def test_only_the_first_of_several_choices_is_taken() -> None:
    other = {"index": 1, "delta": {"content": "other"}, "finish_reason": None}
    events = [chunk({"content": "this"}), {"choices": [other]}]
    assert sent_back(DIALECT.answers.absorb_stream(events))["content"] == "this"


def test_an_empty_stream_says_nothing() -> None:
    assert DIALECT.answers.absorb_stream([]) == Absorbed(segments=())
    assert DIALECT.answers.absorb({"choices": []}) == Absorbed(segments=())


def test_a_stream_of_many_small_pieces_takes_as_long_as_its_length() -> None:
    events = [chunk({"content": "ab"}) for _ in range(10_000)]
    assert len(sent_back(DIALECT.answers.absorb_stream(events))["content"]) == 20_000


def test_the_results_of_an_absorbed_call_follow_it() -> None:
    absorbed = DIALECT.answers.absorb(response(ANSWER))
    rendered_request = DIALECT.wire.render(build([user("x"), *absorbed.segments], options=OPTIONS))
    rendered_request["messages"][2:] = [answers("c1"), answers("c2")]
    assert DIALECT.wire.check(rendered_request) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from("content tool_calls index id function custom name x".split()), inner
        )
    ),
    max_leaves=12,
)


@given(st.lists(JSON, max_size=4))
def test_any_stream_is_absorbed_or_bad_input(deltas: list[Any]) -> None:
    with suppress(BadInput):
        absorbed = DIALECT.answers.absorb_stream([{"choices": [{"delta": delta}]} for delta in deltas])
        for segment in absorbed.segments:
            assert encode(segment)
    for value in deltas:
        with suppress(BadInput):
            DIALECT.answers.absorb({"choices": [{"message": value}], "usage": value})


def test_a_bottomless_event_is_bad_input() -> None:
    deep: Json = {}
    for _ in range(500):
        deep = {"x": deep}
    with pytest.raises(BadInput, match="too deeply"):
        DIALECT.answers.absorb_stream([chunk(deep)])
