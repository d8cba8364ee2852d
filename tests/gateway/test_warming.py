"""A gateway that keeps a cache warm while the client is away, and one that chooses lifetimes by pauses."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lamina.conversations.deleting import delete_conversation
from lamina.conversations.listing import list_names
from lamina.conversations.store import find_conversation
from lamina.fitting import Lifetimes
from lamina.gateway import warming
from lamina.gateway.account import GatewayAccount
from lamina.gateway.pauses import MOST_KINDS, PauseBook
from lamina.stores.sqlite import open_sqlite
from tests.gateway.growing import messages_request
from tests.gateway.running import RunningGateway, open_client, run_gateway, settings_for
from tests.gateway.test_cache_reports import read_answers
from tests.gateway.test_conversations import post
from tests.gateway.upstream_stub import Stub, run_stub

Json = dict[str, Any]
HALF_AN_HOUR = 1_800.0


def come_back_after(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Have every kind of client pause so long, whatever it does."""
    monkeypatch.setattr(PauseBook, "list_pauses", lambda *_: (seconds,) * 40)


async def talk(settings: Any, requests: list[Json], *, warmings: int = 0) -> RunningGateway:
    async with run_gateway(settings) as gateway, open_client() as client:
        for request in requests:
            status, _ = await post(client, gateway.url, request, headers={"x-api-key": "mine"})
            assert status == 200
        for _ in range(100):
            if len(gateway.events("kept warm")) >= warmings:
                break
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.05)
        return gateway


def test_a_prefix_is_read_again_as_often_as_it_pays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    come_back_after(monkeypatch, 12 * 60.0)  # two readings of five minutes each
    monkeypatch.setattr(warming, "EARLY", 0.0001)
    store = tmp_path / "gateway.db"

    async def run_all() -> tuple[Stub, RunningGateway]:
        async with run_stub() as stub:
            settings = settings_for(stub, store, keep="all", upstream={"keep_warm": "when cheaper"})
            return stub, await talk(settings, [messages_request(3, stream=True)], warmings=2)

    stub, gateway = asyncio.run(run_all())
    client_request, *readings = [seen.json for seen in stub.seen]
    assert len(readings) == 2
    for reading in readings:
        assert reading == {name: value for name, value in client_request.items() if name != "stream"} | {
            "max_tokens": 0
        }
    assert all(seen.header_map["x-api-key"] == "mine" for seen in stub.seen)
    assert [line["number"] for line in gateway.events("kept warm")] == [1, 2]
    assert "mine" not in gateway.log.getvalue()
    answers = read_answers(store)
    assert [answer.usage.input > 0 for answer in answers] == [True, True, True]
    account = GatewayAccount()
    for line in gateway.log.getvalue().splitlines():
        account.read_line(line.encode())
    assert account.requests == 1
    assert "2 reads to keep a cache warm" in account.write_lines()[0]
    assert account.broken_off == 0
    assert account.cost is not None
    assert account.cost_without is not None
    assert account.cost > account.cost_without


def test_nothing_is_sent_unless_the_policy_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    come_back_after(monkeypatch, 12 * 60.0)
    monkeypatch.setattr(warming, "EARLY", 0.0)

    async def run_all() -> Stub:
        async with run_stub() as stub:
            await talk(settings_for(stub, tmp_path / "gateway.db"), [messages_request(3)])
            return stub

    assert len(asyncio.run(run_all()).seen) == 1


@pytest.mark.parametrize("seconds", [20.0, 20_000.0])
def test_a_client_that_never_pauses_or_never_returns_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    come_back_after(monkeypatch, seconds)
    monkeypatch.setattr(warming, "EARLY", 0.0)

    async def run_all() -> Stub:
        async with run_stub() as stub:
            settings = settings_for(stub, tmp_path / "gateway.db", upstream={"keep_warm": "when cheaper"})
            await talk(settings, [messages_request(3)])
            return stub

    assert len(asyncio.run(run_all()).seen) == 1


def test_a_later_request_takes_the_place_of_a_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    come_back_after(monkeypatch, 12 * 60.0)

    async def run_all() -> tuple[Stub, RunningGateway]:
        async with run_stub() as stub:
            settings = settings_for(stub, tmp_path / "gateway.db", upstream={"keep_warm": "when cheaper"})
            requests = [messages_request(3), messages_request(4)]
            return stub, await talk(settings, requests)

    stub, gateway = asyncio.run(run_all())  # it ends at once: what is planned is dropped with the gateway
    assert len(stub.seen) == 2
    assert gateway.events("kept warm") == []


class Pause:
    """Stands for the pause before a reading, which ends when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.end = asyncio.Event()
        names = {**vars(asyncio), "sleep": self._sleep}
        monkeypatch.setattr(warming, "asyncio", SimpleNamespace(**names))

    async def _sleep(self, _: float) -> None:
        await self.end.wait()


async def wait_until_saved(path: Path, *, requests: int) -> str:
    """The name of the one conversation in a store, once this many of its requests are saved."""
    async with open_sqlite(path) as store:
        for _ in range(500):
            for name in await list_names(store, ""):
                stored = await find_conversation(store, "default", name)
                if stored is not None and stored.state.requests == requests:
                    return name
            await asyncio.sleep(0.02)
    raise TimeoutError


async def find_reason(gateway: RunningGateway) -> str:
    """Why a gateway did not read a prefix again."""
    for _ in range(500):
        lines = gateway.events("not kept warm")
        if lines:
            return str(lines[0]["reason"])
        await asyncio.sleep(0.02)
    return "it was read"


def test_a_prefix_that_another_process_has_continued_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    come_back_after(monkeypatch, 12 * 60.0)
    path = tmp_path / "gateway.db"

    async def run_all() -> tuple[Stub, str]:
        pause = Pause(monkeypatch)
        async with run_stub() as stub:
            settings = settings_for(stub, path, workers=2, upstream={"keep_warm": "when cheaper"})
            async with run_gateway(settings) as one, run_gateway(settings) as other, open_client() as client:
                for count, gateway in enumerate((one, other), 1):
                    status, _ = await post(client, gateway.url, messages_request(2 + count))
                    assert status == 200
                    await wait_until_saved(path, requests=count)
                pause.end.set()
                return stub, await find_reason(one)

    stub, reason = asyncio.run(run_all())
    assert reason == "another process has continued it"
    readings = [seen for seen in stub.seen if seen.json["max_tokens"] == 0]
    assert all(len(reading.json["messages"]) == len(stub.seen[1].json["messages"]) for reading in readings)


def test_a_prefix_that_was_deleted_is_not_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    come_back_after(monkeypatch, 12 * 60.0)
    path = tmp_path / "gateway.db"

    async def run_all() -> tuple[Stub, str]:
        pause = Pause(monkeypatch)
        async with run_stub() as stub:
            settings = settings_for(stub, path, workers=2, upstream={"keep_warm": "when cheaper"})
            async with run_gateway(settings) as gateway, open_client() as client, open_sqlite(path) as store:
                status, _ = await post(client, gateway.url, messages_request(3))
                assert status == 200
                name = await wait_until_saved(path, requests=1)
                assert await delete_conversation(store, "", name)
                pause.end.set()
                reason = await find_reason(gateway)
                assert await list_names(store, "") == []
                return stub, reason

    stub, reason = asyncio.run(run_all())
    assert reason == "it was deleted"
    assert len(stub.seen) == 1


def test_a_request_that_cannot_be_warmed_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    come_back_after(monkeypatch, 12 * 60.0)

    async def run_all() -> RunningGateway:
        async with run_stub() as stub:
            settings = settings_for(stub, tmp_path / "gateway.db", upstream={"keep_warm": "when cheaper"})
            thinking = messages_request(3, thinking={"type": "adaptive"})
            return await talk(settings, [thinking])

    (line,) = asyncio.run(run_all()).events("not kept warm")
    assert "thinking" in line["reason"]


@pytest.mark.parametrize(("seconds", "lifetime"), [(HALF_AN_HOUR, "1h"), (20.0, None)])
def test_the_lifetime_of_markers_follows_the_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, lifetime: str | None
) -> None:
    come_back_after(monkeypatch, seconds)
    chosen = Lifetimes(stable="auto", tail="auto")

    async def run_all() -> Stub:
        async with run_stub() as stub:
            settings = settings_for(stub, tmp_path / "gateway.db", upstream={"breakpoints": chosen})
            await talk(settings, [messages_request(6)])
            return stub

    (seen,) = asyncio.run(run_all()).seen
    marker = seen.json["messages"][-1]["content"][-1]["cache_control"]
    assert marker.get("ttl") == lifetime


def test_pauses_are_kept_for_each_kind_of_client_and_bounded() -> None:
    book = PauseBook()

    def incoming(number: int, group: str = "thread:1") -> Any:
        identity = SimpleNamespace(group=group, parent="")
        return SimpleNamespace(workspace=f"w{number}", identity=identity, model="m")

    for number in range(MOST_KINDS + 5):
        book.add(incoming(number), 10.0)
    assert book.list_pauses(incoming(0)) == ()
    assert book.list_pauses(incoming(MOST_KINDS)) == (10.0,)
    for _ in range(500):
        book.add(incoming(MOST_KINDS, "thread:2"), 5.0)
    assert len(book.list_pauses(incoming(MOST_KINDS))) == 200
