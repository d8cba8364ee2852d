"""Source system 001: what was said, in turns, and what tools answered (S1-40 to S1-44)."""

from __future__ import annotations

import json
from typing import Any

from examples.importers.messages import plain_text, read_messages, write_messages
from lamina import Form, Layer, Role, Segment, build
from lamina.core import CHARS4, Image, Raw, Text, text_of
from lamina.core.values import Digest
from lamina.core.wording import PLAIN
from lamina.segments import assistant, call, excerpt, result, user

SPOKEN = (Role.USER, Role.ASSISTANT)


def test_s1_40_messages_of_every_shape_are_read_and_others_skipped() -> None:
    given: list[Any] = [
        {"type": "human", "content": "a"}, {"type": "ai", "content": "b"}, {"role": "user", "content": "c"},
        {"sender": "ai", "message": "d"}, {"role": "assistant", "content": "e"},
        {"type": "system", "content": "f"}, {"role": "function", "content": "g"},
        None, {}, {"role": "user"}, "h",
    ]  # fmt: skip
    found = read_messages(given, roles=SPOKEN)
    assert [(s.role, text_of(s.parts)) for s in found.log] == [
        ("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d"), ("assistant", "e"),
    ]  # fmt: skip
    assert found.skipped == (5, 6, 7, 8, 9, 10)


def test_s1_40_content_of_several_kinds_is_kept_and_has_a_plain_text() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    content = [{"type": "text", "text": "see"}, picture, {"type": "text", "text": "this"}]
    message = {"role": "user", "content": content}
    log = read_messages([message]).log
    assert write_messages(log) == [message]
    assert [type(s.parts[0]) for s in log] == [Text, Raw, Text]
    assert (plain_text(content), plain_text([picture]), plain_text("x")) == (
        "see this",
        "[Image content]",
        "x",
    )
    assert [plain_text(odd) for odd in ([], None, [{"type": "text"}])] == ["", "", ""]


def turns(*log: Segment) -> list[tuple[int, str]]:
    return [(e.turn, text_of(e.parts)) for e in build(log).sent]


def test_s1_41_turns_are_counted_and_nobody_is_left_out() -> None:
    assert turns() == []
    assert turns(assistant("early"), user("a"), user("b"), assistant("1"), user("last")) == [
        (0, "early"), (0, "a"), (0, "b"), (0, "1"), (1, "last"),
    ]  # fmt: skip
    (*_, last) = build([user("a"), assistant("1"), user("last")]).sent
    assert (last.layer, text_of(last.parts)) == (Layer.PROMPT, "last")


def test_s1_42_a_size_is_that_of_what_is_sent() -> None:
    for text in ("", "result data", "abc", '{"key":"value"}', "x" * 10_000):
        log = [user("q"), call("search", "{}", id="1"), result(text, id="1"), assistant("a"), user("q")]
        entry = next(e for e in build(log, counter=CHARS4).entries if e.role is Role.TOOL)
        assert entry.tokens == CHARS4.count(text_of(entry.parts))
        assert text_of(entry.parts) == text


def test_s1_43_context_stands_before_the_question_and_the_question_once() -> None:
    log = [user("What?"), excerpt("context block", source="search")]
    assert [e.layer for e in build(log).sent] == [Layer.TURN, Layer.PROMPT]
    assert text_of(build(log).sent[-1].parts) == "What?"
    blank = build([excerpt("  ", source="search"), user("What?")])
    assert [text_of(e.parts) for e in blank.sent] == ["What?"]
    mentions = build([excerpt("they ask What? often", source="search"), user("What?")])
    assert [text_of(e.parts) for e in mentions.sent][1:] == ["What?"]


def compact(content: Any, *, limit: int = 1_000) -> str:
    text = content if isinstance(content, str) else json.dumps(content)
    return text_of(PLAIN(result(text, id="1"), Form.COMPACT, Digest("0" * 64), limit=limit))


def test_s1_44_old_results_keep_what_names_them() -> None:
    docs = [
        {"title": f"Doc {i}", "path": f"notes/{i}.md", "content": "a {nested} } brace. " * 60}
        for i in range(3)
    ]
    made = compact({"type": "local_search", "documents": docs})
    assert all(f"Doc {i}" in made and f"notes/{i}.md" in made for i in range(3))
    assert len(made) < 1_200
    one = compact(docs[0] | {"content": "a {nested} } brace. " * 200})
    assert '"path":"notes/0.md"' in one
    assert 'recall("kaaaaaaaaaaaaaaaa")' in one


def test_s1_44_what_is_small_stays_and_pictures_are_not_touched() -> None:
    small = [user("q"), call("read", "{}", id="1"), result("small", id="1"), assistant("a"), user("q")]
    assert [e.form for e in build(small).entries] == [Form.FULL] * 5
    picture = Image(data="aGk=", media_type="image/png")
    log = [user("q"), call("look", "{}", id="1"), result((picture,), id="1"), assistant("a"), user("q")]
    assert build(log).sent[2].parts == log[2].parts
