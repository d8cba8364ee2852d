"""What a wrapped client and a gateway do alike: what they keep, what they forget, and that nobody waits."""

from __future__ import annotations

import asyncio
import re
from itertools import chain
from pathlib import Path
from threading import Barrier
from typing import Any

import anyio
import msgspec
import pytest

from lamina import Budget, build, fit_request, recall
from lamina.conversations.recorded_log import RecordedLog, read_recorded_log
from lamina.conversations.store import WORKSPACE, conversation_place, list_conversations
from lamina.core import Text
from lamina.core.recall import list_refs
from lamina.core.tokens import STRICT
from lamina.relay import fit_call
from lamina.stores import open_store
from tests.gateway.growing import messages_request, output
from tests.gateway.running import open_client, run_gateway, settings_for
from tests.gateway.test_conversations import post
from tests.gateway.upstream_stub import SeenRequest, run_stub
from tests.test_nothing_crosses import said
from tests.test_reminders import DOORS, make_request

STEPS = 14
each_door = pytest.mark.parametrize("door", DOORS)


async def read_logs(address: str) -> list[RecordedLog]:
    async with open_store(address) as store:
        names = [kept.name async for kept in list_conversations(store, WORKSPACE)]
        logs = [await read_recorded_log(store, WORKSPACE, name) for name in names]
        return [log for log in logs if log is not None]


async def read_bytes(address: str) -> str:
    """Everything that is stored of all conversations."""
    texts: list[str] = []
    async with open_store(address) as store:
        names = [kept.name async for kept in list_conversations(store, WORKSPACE)]
        for name in names:
            page = await store.read(conversation_place(WORKSPACE, name))
            texts.append(page.head.state.decode())
            texts += [record.body.decode() for record in page.records]
    return "".join(texts)


@each_door
def test_what_was_lowered_is_kept_once_and_can_be_recalled_later(door: str, tmp_path: Path) -> None:
    """With `keep="lowered"` it is all that is kept: the bodies of requests are not."""
    address = str(tmp_path / "kept.db")
    policy = {"budget": Budget(window=6_000, reserve=500), "counter": STRICT, "keep": "lowered"}
    with DOORS[door](address, **policy) as (send, _):
        for steps in range(STEPS):
            send(messages_request(steps))
    [kept] = anyio.run(read_logs, address)
    assert kept.state.ledger.cuts
    assert all(kept.record.sent_body(call) is None for call in kept.record.calls)
    texts = [text for segment in kept.log for text in _list_texts(segment.parts)]
    assert texts.count(output(1, 2_000)) == 1
    [ref] = [ref for ref, segment in list_refs(kept.log) if output(1, 2_000) in _list_texts(segment.parts)]
    [found] = recall(kept.log, ref)
    assert output(1, 2_000) in _list_texts(found.parts)


def _list_texts(parts: tuple[Any, ...]) -> list[str]:
    contents = chain.from_iterable(getattr(part, "content", ()) for part in parts)
    return [part.text for part in contents if isinstance(part, Text)]


@each_door
def test_what_the_user_deleted_stays_in_no_state_and_no_record(door: str, tmp_path: Path) -> None:
    address = str(tmp_path / "kept.db")
    policy = {"budget": Budget(window=2_500, reserve=200), "counter": STRICT, "keep": "lowered"}
    turns: list[list[dict[str, Any]]] = []
    with DOORS[door](address, **policy) as (send, _):

        def ask(number: int) -> None:
            question = f"Never forget: my number is secret-{number:04}. " + "Go on with it, please. " * 8
            messages = [*chain.from_iterable(turns), said("user", question)]
            send(make_request(messages))
            turns.append([messages[-1], said("assistant", f"Answer {number}. " + "and so on, " * 40)])

        for number in range(12):
            ask(number)
        stored = anyio.run(read_bytes, address)
        assert "secret-0003" in stored, "nothing was lowered, so this shows nothing"
        del turns[3]
        for number in range(12, 15):
            ask(number)
    stored = anyio.run(read_bytes, address)
    assert "secret-0003" not in stored
    assert "secret-0002" in re.findall(r"secret-\d{4}", stored)


@each_door
def test_a_request_is_fitted_once_and_built_once(
    door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the first one that is cut: nothing of the past is built again to count it."""
    builds: list[bool] = []

    def count(*arguments: Any, **options: Any) -> Any:
        envelope = build(*arguments, **options)
        builds.append(envelope.cut is not None)
        return envelope

    monkeypatch.setattr("lamina.fitting.building.build", count)
    cuts = 0
    # A slow tokenizer is asked only near the window, after an estimate: that would be a second build.
    policy = {"budget": Budget(window=6_000, reserve=500), "counter": STRICT}
    with DOORS[door](str(tmp_path / "kept.db"), **policy) as (send, _):
        for steps in range(2 * STEPS):
            builds.clear()
            send(messages_request(steps))
            assert len(builds) <= 1
            cuts += sum(builds)
    assert cuts


def test_both_doors_send_the_same_requests(tmp_path: Path) -> None:
    """With a counter that has nothing to learn: a client calibrates with every report, a gateway at a cut."""
    exact = msgspec.structs.replace(STRICT, exact=True)
    policy = {"budget": Budget(window=6_000, reserve=500), "counter": exact, "recall": "tool"}
    sent_by_door: list[list[dict[str, Any]]] = []
    for door, through in DOORS.items():
        with through(str(tmp_path / f"{door}.db"), breakpoints="keep", **policy) as (send, sent):
            for steps in range(STEPS):
                send(messages_request(steps))
            sent_by_door.append(list(sent))
    through_client, through_gateway = sent_by_door
    assert through_client == through_gateway
    assert len(through_client[-1]["messages"]) < len(messages_request(STEPS - 1)["messages"])


def test_two_conversations_that_begin_alike_are_fitted_at_the_same_time_by_a_gateway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = Barrier(2, timeout=60)

    def fit_together(*arguments: Any, **options: Any) -> Any:
        both.wait()
        return fit_request(*arguments, **options)

    monkeypatch.setattr(fit_call, "fit_request", fit_together)
    requests = [messages_request(14), messages_request(14)]
    requests[1]["messages"][1]["content"][0]["text"] = "Another answer."

    async def main() -> list[SeenRequest]:
        async with (
            run_stub() as stub,
            run_gateway(settings_for(stub, upstream={"budget": 8_000})) as gateway,
            open_client() as client,
        ):
            await asyncio.gather(*(post(client, gateway.url, request) for request in requests))
            return stub.seen

    seen = asyncio.run(main())
    assert [len(each.json["messages"]) < 29 for each in seen] == [True, True]
