from __future__ import annotations

import json

import pytest

from lamina.core import Document, Raw, Text, Thinking, ToolCall
from lamina.core.values import Segment
from lamina.dialects import DIALECTS
from lamina.segments import assistant, call, document, file, result, segment, thinking, user
from lamina.sessions.redaction import redact_segments
from lamina.stores import MemoryStore, Where
from tests.sessions.talking import answer, awaited, opened, setup_of

SECRET = "hunter2"  # noqa: S105 - what must not be found


def hide(text: str) -> str:
    return text.replace(SECRET, "[hidden]")


@pytest.mark.parametrize("dialect", DIALECTS)
@awaited
async def test_nothing_is_kept_or_sent_before_the_hook_saw_it(dialect: str) -> None:
    store = MemoryStore()
    async with opened(
        store,
        **setup_of(
            dialect, redact=hide, system=f"S {SECRET}", persona=SECRET, template=f"{{prompt}} {SECRET}"
        ),
    ) as session:
        await session.ask(f"my word is {SECRET}", attach=[file(f"{SECRET}.md", SECRET)], hints={"a": SECRET})
        recorded = await session.record(
            answer(dialect, f"it is {SECRET}", call="" if dialect == "text" else "c1")
        )
        if recorded.calls:
            await session.results({each.id: f"file: {SECRET}" for each in recorded.calls})
        await session.ask("and now?")
        request = await session.request()
        assert SECRET not in json.dumps(request)
        assert "[hidden]" in json.dumps(request)
        assert DIALECTS[dialect].wire.check(request) == []
    page = await store.read(Where("", "a"))
    assert all(SECRET.encode() not in record.body for record in page.records)
    assert SECRET.encode() not in page.head.state


@pytest.mark.parametrize("dialect", DIALECTS)
@awaited
async def test_an_answer_without_secrets_goes_back_as_it_came(dialect: str) -> None:
    requests = []
    for hook in (None, hide):
        async with opened(MemoryStore(), **setup_of(dialect, redact=hook)) as session:
            await session.ask("hello")
            await session.record(answer(dialect, "hi"))
            await session.ask("and now?")
            requests.append(await session.request())
    assert requests[0] == requests[1]


def test_every_sort_of_part_is_seen() -> None:
    segments: list[Segment] = [
        call("run", {"cmd": [f"echo {SECRET}"], "n": 1}, id="1"),
        call("run", f"not json {SECRET}", id="2"),
        result([Text(SECRET), Raw(dialect="x", data={"a": [SECRET]})], id="1"),
        document(name=SECRET, text=SECRET),
        user(Document(name="a.pdf", data="AAAA", context=f"about {SECRET}")),
        user("x", beside=(Text(SECRET), Raw(dialect="x", data={"name": SECRET}))),
        segment("user", user("").role, Raw(dialect="x", data={"deep": {"er": SECRET}})),
        user("x", meta={"note": (SECRET,)}),
        thinking(SECRET),
    ]
    clean = redact_segments(segments, hide)
    assert len(clean) == len(segments)
    assert SECRET not in repr(clean)
    arguments = clean[0].parts[0]
    assert isinstance(arguments, ToolCall)
    assert json.loads(arguments.arguments) == {"cmd": ["echo [hidden]"], "n": 1}
    assert isinstance(clean[3].parts[0], Document)


def test_arguments_that_say_nothing_secret_keep_their_bytes() -> None:
    (clean,) = redact_segments([call("run", '{"cmd" :  "ls"}', id="1")], hide)
    assert clean.parts == (ToolCall(id="1", name="run", arguments='{"cmd" :  "ls"}'),)


def test_signed_thinking_is_left_out_rather_than_changed() -> None:
    signed, clean = thinking(SECRET, signature="s"), thinking("fine", signature="s")
    assert redact_segments([signed, clean, assistant("hi")], hide) == [clean, assistant("hi")]
    assert isinstance(clean.parts[0], Thinking)


@awaited
async def test_a_message_without_its_thinking_is_still_a_message_of_its_own() -> None:
    async with opened(
        MemoryStore(), **setup_of("anthropic", redact=lambda text: text.replace("hm", "-"))
    ) as session:
        await session.ask("hello")
        await session.record(answer("anthropic", "hi"))
        assert [(s.kind, s.joins) for s in session.log] == [("user", False), ("assistant", False)]
        await session.ask("and now?")
        request = await session.request()
        assert [message["role"] for message in request["messages"]] == ["user", "assistant", "user"]
        assert DIALECTS["anthropic"].wire.check(request) == []
