from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lamina.core import Counter
from lamina.costs.logs.message_sizes import MessageSizes
from lamina.dialects import DIALECTS
from tests.costs.talks import WORDS, Json, result, says, session, user

TOOLS = [{"type": "function", "function": {"name": "read", "description": "reads one file"}}]


def test_a_message_takes_its_words_its_calls_and_four() -> None:
    message_sizes = MessageSizes(WORDS, [])
    assert message_sizes.measure(user("one two three")).tokens == 7
    assert message_sizes.measure(says("one", path="a")).tokens == 4 + 1 + 3
    assert message_sizes.count_tokens([user("one"), user("two")]) == 10


def test_tools_are_counted_once_for_each_request() -> None:
    message_sizes = MessageSizes(WORDS, TOOLS)
    assert message_sizes.tool_tokens > 0
    assert message_sizes.count_tokens([user("one")]) == message_sizes.tool_tokens + 5
    assert message_sizes.stream([user("one")], "").tokens == message_sizes.count_tokens([user("one")])


def test_blocks_have_the_tokens_of_their_message() -> None:
    message_sizes = MessageSizes(WORDS, [])
    message = says("one two", path="a")
    assert len(message_sizes.measure(message).blocks) > 1
    assert (
        sum(block.tokens for block in message_sizes.measure(message).blocks)
        == message_sizes.measure(message).tokens
    )


def test_a_message_is_counted_once_however_often_it_is_sent() -> None:
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text.split())

    message_sizes = MessageSizes(Counter(name="noting", count=count), [])
    messages = session(3)
    for end in range(1, len(messages) + 1):
        message_sizes.count_tokens(messages[:end])
        message_sizes.stream([dict(message) for message in messages[:end]], "")
    assert len(counted) == len(set(counted))


def test_equal_messages_weigh_the_same_and_others_do_not_take_their_place() -> None:
    message_sizes = MessageSizes(WORDS, [])
    for number in range(200):  # an id is given to another object once its own is gone
        assert message_sizes.measure(user("word " * number)).tokens == 4 + number
        assert message_sizes.measure(user("word " * number)) is message_sizes.measure(user("word " * number))


PIECES = st.sampled_from(
    [
        user("a"), says("b"), says(None, path="1"), says(None, path="2"), result("r", path="1"),
        result("s", path="2"), {"role": "assistant", "content": ""}, {"role": "nobody", "content": "x"},
        {"role": "tool", "content": "no id"},
    ]
)  # fmt: skip


@given(st.lists(PIECES, max_size=8))
def test_refused_is_what_the_dialect_refuses_of_the_whole(messages: list[Json]) -> None:
    whole = DIALECTS["openai_chat"].wire.check({"model": "gpt-5.5", "messages": messages})
    message_sizes = MessageSizes(WORDS, [])
    for _ in range(2):  # the second time from what is remembered
        assert message_sizes.is_refused(messages) == bool(whole)
