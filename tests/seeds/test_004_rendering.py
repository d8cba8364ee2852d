"""Source system 004: what its Anthropic converter mends before sending (S4-57 to S4-59, S4-62).

Where the API's rules or a law of lamina decide otherwise, the test says what lamina does, and why.
"""

from __future__ import annotations

from typing import Any

from lamina import Options, build
from lamina.core import Layout
from lamina.core.repair import UNANSWERED
from lamina.dialects.anthropic import DIALECT

Message = dict[str, Any]


def sent(*messages: Message) -> list[Message]:
    """The messages as lamina sends them; always valid."""
    parsed = DIALECT.wire.parse({"max_tokens": 64, "messages": list(messages)})
    options = Options(repairs=DIALECT.wire.repairs, layout=Layout(context="logged"))
    request = DIALECT.wire.render(build(parsed.log, head=parsed.head, options=options))
    assert DIALECT.wire.check(request) == []
    found: list[Message] = request["messages"]
    return found


def user(*content: Message | str) -> Message:
    return {"role": "user", "content": _content(content)}


def assistant(*content: Message | str) -> Message:
    return {"role": "assistant", "content": _content(content)}


def _content(content: tuple[Message | str, ...]) -> str | list[Message]:
    if len(content) == 1 and isinstance(content[0], str):
        return content[0]
    return [{"type": "text", "text": block} if isinstance(block, str) else block for block in content]


def use(id_: str) -> Message:
    return {"type": "tool_use", "id": id_, "name": "test_tool", "input": {}}


def result(id_: str, text: str = "ok") -> Message:
    return {"type": "tool_result", "tool_use_id": id_, "content": text}


def placeholder(id_: str) -> Message:
    return {"type": "tool_result", "tool_use_id": id_, "content": UNANSWERED, "is_error": True}


ASKED = user("do it")


def test_s4_57_calls_without_a_result_are_answered_in_the_same_message() -> None:
    calls = assistant(use("t1"), use("t2"), use("t3"))
    assert sent(ASKED, calls, user(result("t1"))) == [
        ASKED,
        calls,
        user(result("t1"), placeholder("t2"), placeholder("t3")),
    ]


def test_s4_57_answers_stand_before_the_text() -> None:
    """Upstream puts them after "Continue"; the API wants results first in a user message (A6).

    They are a message of their own before it, which the API reads as one with it (A1), so the user's
    message stays the object that it was.
    """
    ids = [f"t{i}" for i in range(6)]
    on = user("Continue")
    messages = sent(ASKED, assistant(*map(use, ids)), on)
    assert messages[2:] == [user(*map(placeholder, ids)), on]
    assert messages[3] is on


def test_s4_58_a_trailing_reply_is_kept() -> None:
    assert sent(ASKED, assistant("I'll help")) == [ASKED, assistant("I'll help")]


def test_s4_58_a_trailing_blank_reply_is_left_out() -> None:
    assert sent(ASKED, assistant("   ")) == [ASKED]
    assert sent(ASKED, assistant(""), assistant("   ")) == [ASKED]


def test_s4_58_a_trailing_call_is_answered() -> None:
    assert sent(ASKED, assistant("on it", use("t1"))) == [
        ASKED,
        assistant("on it", use("t1")),
        user(placeholder("t1")),
    ]


def test_s4_58_two_trailing_replies_are_kept_as_two() -> None:
    """Upstream merges them; the API does that itself (A1), and what is valid is untouched (law 11)."""
    parts = [ASKED, assistant("Part 1"), assistant("Part 2")]
    assert all(a is b for a, b in zip(sent(*parts), parts, strict=True))


def test_s4_59_a_conversation_that_begins_with_the_assistant_gets_a_user_message() -> None:
    opening = user("[the conversation begins with the assistant]")
    assert sent(assistant("hello"), user("hi")) == [opening, assistant("hello"), user("hi")]


def test_s4_59_a_message_of_orphans_is_left_out() -> None:
    assert sent(ASKED, assistant("so"), user(result("lost")), assistant("done")) == [
        ASKED,
        assistant("so"),
        assistant("done"),
    ]


def test_s4_59_text_beside_an_orphan_is_kept() -> None:
    assert sent(ASKED, assistant("so"), user(result("lost"), "and you?")) == [
        ASKED,
        assistant("so"),
        {"role": "user", "content": [{"type": "text", "text": "and you?"}]},
    ]


def test_s4_59_a_late_result_is_content_and_its_call_is_answered_in_its_place() -> None:
    """Upstream drops the late result; lamina loses nothing (law 7): it is said where it came, as data."""
    messages = sent(ASKED, assistant(use("t1")), user("wait"), assistant("yes?"), user(result("t1", "late")))
    assert messages[2] == user(placeholder("t1"))
    assert messages[3:5] == [user("wait"), assistant("yes?")]
    assert [message["role"] for message in messages[5:]] == ["assistant", "user"]
    assert messages[5]["content"][0]["text"].startswith("<late_result")
    assert "late" in messages[5]["content"][0]["text"]


def test_s4_59_roles_need_not_alternate() -> None:
    """Upstream merges neighbours so that they do; the API takes them as they are (A1), and so does lamina."""
    parts = [user("a"), user("b"), assistant("c"), assistant("d"), user("e")]
    assert all(a is b for a, b in zip(sent(*parts), parts, strict=True))


def test_s4_62_an_id_that_is_not_allowed_is_renamed_in_call_and_result() -> None:
    _, calls, results = sent(ASKED, assistant(use("kimi.tool/use:1")), user(result("kimi.tool/use:1")))
    renamed = calls["content"][0]["id"]
    assert renamed.startswith("kimi_tool_use_1")
    assert results == user(result(renamed))


def test_s4_62_an_allowed_id_is_untouched_by_one_that_would_become_it() -> None:
    """Upstream numbers what collides (a_b_2); lamina's name comes from the call alone (law 3)."""
    for pair in (("a/b", "a_b"), ("a_b", "a/b")):
        _, calls, results = sent(ASKED, assistant(*map(use, pair)), user(*map(result, pair)))
        renamed = dict(zip(pair, (call["id"] for call in calls["content"]), strict=True))
        assert renamed["a_b"] == "a_b"
        assert renamed["a/b"] not in pair
        assert [block["tool_use_id"] for block in results["content"]] == list(renamed.values())
