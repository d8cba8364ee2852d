from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest

from lamina import build
from lamina.context.clock import clock
from lamina.context.gather import gather
from lamina.context.last_n import last_n
from lamina.context.persona import persona
from lamina.context.port import GatheredSegments, Source, run_in_thread
from lamina.core import Text, text_of
from lamina.core.values import Layer, Segment
from lamina.segments import assistant, call, excerpt, result, system, user
from lamina.sessions import Session
from lamina.settings import Settings
from lamina.stores import MemoryStore
from lamina.workspace import Workspace
from tests.sessions.talking import awaited


def finds(*texts: str, wait: float = 0) -> Source:
    async def source(_: str, __: int | None) -> list[Segment]:
        await anyio.sleep(wait)
        return [excerpt(text, source="s") for text in texts]

    return source


def gathered(
    *sources: Any, prompt: str = "", room: int | None = None, seconds: float = 5
) -> GatheredSegments:
    async def main() -> GatheredSegments:
        with anyio.fail_after(8):  # a limit that is not kept fails the test
            return await gather(sources, prompt, room, seconds=seconds)

    return anyio.run(main)


def texts(segments: Iterable[Segment]) -> list[str]:
    return [text_of(segment.parts) for segment in segments]


def test_the_order_of_the_sources_is_kept_whoever_is_first() -> None:
    gathered_segments = gathered(finds("a", wait=0.05), finds("b", "c"), finds("d", wait=0.02))
    assert texts(gathered_segments) == ["a", "b", "c", "d"]


def test_sources_run_at_the_same_time() -> None:
    first, second = anyio.Event(), anyio.Event()

    async def waits(_: str, __: int | None) -> list[Segment]:
        first.set()
        await second.wait()
        return [excerpt("a", source="s")]

    async def answers(_: str, __: int | None) -> list[Segment]:
        await first.wait()
        second.set()
        return []

    assert texts(gathered(waits, answers)) == ["a"]


def test_one_that_fails_or_is_late_is_noted_and_the_others_stay() -> None:
    async def broken(_: str, __: int | None) -> list[Segment]:
        raise RuntimeError("no such index")

    async def stuck(_: str, __: int | None) -> list[Segment]:
        await anyio.sleep_forever()
        return []

    gathered_segments = gathered(broken, finds("kept"), stuck, seconds=0.05)
    assert texts(gathered_segments) == ["kept"]
    assert gathered_segments.notes == (
        "source broken failed: no such index",
        "source stuck was left out: no answer in 0.05 seconds",
    )


def test_a_thread_that_hangs_is_not_waited_for() -> None:
    release = threading.Event()

    async def hangs(_: str, __: int | None) -> list[Segment]:
        await run_in_thread(release.wait, 9)
        return []

    async def main() -> GatheredSegments:
        try:
            with anyio.fail_after(5):
                return await gather([hangs, finds("kept")], "", None, seconds=0.05)
        finally:
            release.set()

    with anyio.from_thread.start_blocking_portal() as portal:
        assert texts(portal.call(main)) == ["kept"]


def test_notes_of_sources_and_what_is_no_segment_are_told() -> None:
    async def odd(_: str, __: int | None) -> Any:
        return ["text", excerpt("a", source="s")]

    async def notes(_: str, __: int | None) -> GatheredSegments:
        return GatheredSegments((), ("x.bin: left out",))

    gathered_segments = gathered(odd, notes)
    assert texts(gathered_segments) == ["a"]
    assert gathered_segments.notes == (
        "source odd: 1 of 2 things that it gave are no segments",
        "x.bin: left out",
    )


def test_prompt_and_room_reach_every_source() -> None:
    seen: list[tuple[str, int | None]] = []

    async def looks(prompt: str, room: int | None) -> list[Segment]:
        seen.append((prompt, room))
        return []

    gathered(looks, looks, prompt="user-question", room=7)
    assert seen == [("user-question", 7)] * 2


LOG = (
    system("s"), user("one"), assistant("two"), call("ls", {}, id="c"), result("r", id="c"),
    assistant("three"), user("four"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("n", "expected"),
    [(2, ["three", "four"]), (9, ["one", "two", "three", "four"]), (0, []), (-1, []), (lambda: 1, ["four"])],
)
def test_the_last_messages_come_in_the_order_in_which_they_were_said(n: Any, expected: list[str]) -> None:
    assert texts(gathered(last_n(lambda: LOG, n))) == expected


def test_the_last_messages_are_those_at_the_time_of_the_call() -> None:
    log = [user("one")]
    source = last_n(lambda: log, 1)
    log.append(assistant("two"))
    assert texts(gathered(source)) == ["two"]


def test_messages_of_another_conversation_are_one_excerpt() -> None:
    (gathered_segments,) = gathered(last_n(lambda: LOG, 2, source="planning"))
    assert (gathered_segments.kind, gathered_segments.attrs) == ("excerpt", {"source": "planning"})
    assert text_of(gathered_segments.parts) == "Assistant: three\n\nUser: four"
    assert gathered(last_n(lambda: LOG, 2, source="planning"), room=1).notes


def test_the_time_stands_in_its_own_turn_only() -> None:
    def at(day: int) -> GatheredSegments:
        return gathered(clock(lambda: datetime(2026, 1, day, 9, 5, tzinfo=UTC)))

    assert texts(at(2)) == ["Friday, 2026-01-02 09:05 UTC"]
    log = [*at(2), user("a"), assistant("b"), *at(3), user("c")]
    placed = [entry.layer for entry in build(log).entries if entry.segment.kind == "clock"]
    assert placed == [Layer.HISTORY, Layer.TURN]


def test_a_persona_is_said_once_until_it_changes(tmp_path: Path) -> None:
    (tmp_path / "who.md").write_text("Be brief.")
    log: list[Segment] = []
    source = persona(path="who.md", root=Workspace(tmp_path), log=lambda: log)
    log += gathered(source)
    assert [one.parts for one in log] == [(Text("Be brief."),)]
    assert not len(gathered(source))
    (tmp_path / "who.md").write_text("Be long.")
    assert texts(gathered(source)) == ["Be long."]
    assert texts(gathered(persona("Just text."))) == ["Just text."]
    (tmp_path / "who.md").write_text("")
    assert texts(gathered(source)) == [""]
    assert not len(gathered(persona(" ", log=list)))


@awaited
async def test_a_session_tells_the_model_one_time_and_moves_no_prefix_for_it() -> None:
    minutes = iter(range(0, 600, 7))
    start = datetime(2026, 1, 2, 9, 0, tzinfo=UTC)
    source = clock(lambda: start + timedelta(minutes=next(minutes)))
    opened_session = Session.open(MemoryStore(), "a", model="gpt-5", sources=[source], settings=Settings())
    async with opened_session as session:
        sent: list[list[dict[str, Any]]] = []
        for number in range(13):
            await session.ask(f"question {number}")
            sent.append((await session.request())["messages"])
            assert session.report().continues
            await session.record(f"answer {number}")
        for messages in sent:
            now = [message for message in messages if "<now>" in str(message["content"])]
            assert now == messages[-1:]
        for before, after in pairwise(sent):
            assert after[: len(before) - 1] == before[:-1]
        assert session.ledger.cuts == ()


@awaited
async def test_a_source_that_waits_for_something_cancelled_ends_alone() -> None:
    async def gives_up(_: str, __: int | None) -> list[Segment]:
        waits_for = asyncio.ensure_future(anyio.sleep(8))
        waits_for.cancel()
        await waits_for
        return []

    answer = await gather([gives_up, finds("b", wait=0.02)], "")
    assert texts(answer) == ["b"]
    assert answer.notes == ("source gives_up failed: what it waited for was cancelled",)
    with anyio.move_on_after(0.01) as scope:
        await gather([finds("a", wait=8)], "")
    assert scope.cancelled_caught
