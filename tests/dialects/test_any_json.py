"""Any JSON is a request or bad input, in every dialect, and what can be read is sent mended.

Values are made of the names and words of each API, so that they get far into the code that reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina import BadInput, build
from lamina.core import Layout
from lamina.dialects import DIALECTS, Dialect
from lamina.dialects.translate import choose_options
from lamina.testing.conformance import MODELS, DialectTrial

Json = dict[str, Any]
TURNS = {
    "anthropic": "messages",
    "openai_chat": "messages",
    "openai_responses": "input",
    "gemini": "contents",
    "ollama": "messages",
    "bedrock_converse": "messages",
    "text": "prompt",
}
"""The field of a request that holds its turns."""

UNMENDED = {
    "anthropic": {"ends_with_user"},
    "openai_chat": {"markers_stand_on_parts", "assistants_list_their_calls"},
    "gemini": {"media_are_whole", "parts_say_one_thing", "ends_with_user"},
}
"""Rules about turns that what was rendered may break. It is refused for that, since nobody can mend it."""


class Vocabulary(NamedTuple):
    """What requests of an API are made of: names of fields, short words, and turns."""

    names: list[str]
    words: list[str]
    turns: list[Json]


@cache
def read_vocabulary(dialect: str) -> Vocabulary:
    samples = DialectTrial(DIALECTS[dialect], MODELS[dialect], (), (1,)).samples
    names = {
        name for sample in samples for value in walk(sample) if isinstance(value, dict) for name in value
    }
    words = {value for sample in samples for value in walk(sample) if isinstance(value, str)}
    turns = [turn for sample in samples for turn in sample[TURNS[dialect]] if isinstance(turn, dict)]
    return Vocabulary(sorted(names), sorted(word for word in words if len(word) <= 20), turns)


def walk(value: Any) -> Iterator[Any]:
    """A value and all that is in it."""
    yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from walk(inner)


@cache
def values(dialect: str) -> st.SearchStrategy[Any]:
    vocabulary = read_vocabulary(dialect)
    names = st.sampled_from(vocabulary.names) | st.text(max_size=3)
    return st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False)
        | st.text(max_size=8)
        | st.sampled_from(vocabulary.words),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
        max_leaves=12,
    )


@cache
def requests(dialect: str) -> st.SearchStrategy[Json]:
    """Turns of real requests with some fields changed, beside any others."""
    vocabulary = read_vocabulary(dialect)
    fields = st.dictionaries(st.sampled_from(vocabulary.names), values(dialect), max_size=2)
    turns = st.lists(values(dialect), max_size=4) | values(dialect)
    if vocabulary.turns:
        changed = st.builds(lambda turn, some: {**turn, **some}, st.sampled_from(vocabulary.turns), fields)
        turns |= st.lists(changed, max_size=5)
    return st.builds(
        lambda some, turns: {"model": MODELS[dialect], **some, TURNS[dialect]: turns}, fields, turns
    )


def try_to_render(dialect: Dialect, request: Json) -> Json | BadInput:
    """The request as it would be sent, or why it is refused."""
    try:
        parsed = dialect.wire.parse(request)
        options = choose_options(dialect, parsed.head, layout=Layout(context="logged"))
        rendered: Json = dialect.wire.render(build(parsed.log, head=parsed.head, options=options))
    except BadInput as refusal:
        return refusal
    return rendered


@pytest.mark.parametrize("name", DIALECTS)
@given(data=st.data())
def test_any_json_is_a_request_or_bad_input(name: str, data: st.DataObject) -> None:
    dialect = DIALECTS[name]
    request = data.draw(requests(name))
    dialect.wire.check(request)
    dialect.recognises(request)
    with suppress(BadInput):
        dialect.cache.stream(request)
    rendered = try_to_render(dialect, request)
    if isinstance(rendered, BadInput):
        assert rendered.hint
        return
    dialect.head.read(dialect.wire.parse(request).head)
    broken = {each.rule for each in dialect.wire.check(rendered) if each.place.startswith(TURNS[name])}
    if rendered[TURNS[name]]:  # if no turn could be sent, nothing is asked
        assert broken <= UNMENDED.get(name, set())


@pytest.mark.parametrize("name", DIALECTS)
@given(data=st.data())
def test_any_value_is_an_answer_or_bad_input(name: str, data: st.DataObject) -> None:
    answers = DIALECTS[name].answers
    value = data.draw(values(name))
    with suppress(BadInput):
        answers.absorb(value)
    with suppress(BadInput):
        answers.absorb_stream([value])


def test_an_item_with_a_field_without_a_name_is_checked() -> None:
    request = {"model": "gpt-5", "input": [{"type": ["message"], "": [{}]}]}
    assert DIALECTS["openai_responses"].wire.check(request)
