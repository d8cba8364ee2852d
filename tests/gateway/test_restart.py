"""Kill -9 at any moment, another worker, another host: the next request is that of a twin which lived on."""

from __future__ import annotations

import asyncio
import itertools
import json
import resource
import socket
import subprocess
import sys
from pathlib import Path
from time import time
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from lamina.gateway import GatewaySettings
from lamina.gateway.server import GatewayWorker, make_config
from lamina.relay import limits
from lamina.relay.journal import Journal, place_journal, read_journal
from tests.gateway.growing import dump, messages_request
from tests.gateway.processes import run_process
from tests.gateway.running import open_client, run_gateway, settings_for, until
from tests.gateway.test_conversations import SMALL, STEPS, twin_of
from tests.gateway.test_faults import answer_late
from tests.gateway.test_record import happened, wait_for_calls
from tests.gateway.upstream_stub import Stub, run_stub
from tests.servers.postgres import postgres

pytestmark = pytest.mark.anyio


def serve_from(folder: Path, stub: Stub, **changes: Any) -> GatewaySettings:
    """Settings of a gateway with a small window that has its store in this folder."""
    return settings_for(stub, folder / "gateway.db", **SMALL, **changes)


async def post_until_answered(url: str, request: dict[str, Any]) -> None:
    """Send a request as a client does: again after a broken connection."""
    async with open_client() as client:
        for _ in range(1_500):
            try:
                async with client.post(f"{url}/v1/messages", data=dump(request)) as answer:
                    await answer.read()
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                await asyncio.sleep(0.02)
    raise RuntimeError("no answer")


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def once_each(bodies: list[bytes]) -> list[bytes]:
    """The bodies without the retries of the same one."""
    return [body for body, _ in itertools.groupby(bodies)]


async def test_kill_9_while_it_answers_and_right_after(tmp_path: Path) -> None:
    """In the middle of the first request that is cut, and as soon as a later one was answered."""
    twin = await twin_of(tmp_path)
    first_cut = next(step for step in range(STEPS) if twin[step] != dump(messages_request(step)))
    async with run_stub() as stub, run_process(serve_from(tmp_path, stub)) as gateway:
        for step in range(STEPS):
            if step == first_cut:
                stub.play(answer_late(2))
                sending = asyncio.ensure_future(post_until_answered(gateway.url, messages_request(step)))
                before = len(stub.seen)
                assert await until(lambda seen=before: len(stub.seen) > seen, 30)  # type: ignore[misc]
                await gateway.kill()
                await gateway.start()
                await sending
                continue
            await post_until_answered(gateway.url, messages_request(step))
            if step == first_cut + 2:
                await gateway.kill()
                await gateway.start()
        assert once_each([seen.body for seen in stub.seen]) == twin


async def test_several_workers_share_one_store(tmp_path: Path) -> None:
    twin = await twin_of(tmp_path)
    async with run_stub() as stub, run_process(serve_from(tmp_path, stub, workers=2)) as gateway:
        for step in range(STEPS):
            await post_until_answered(gateway.url, messages_request(step))  # a new connection each time
        assert once_each([seen.body for seen in stub.seen]) == twin


async def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    """They would hold the port, and the gateway could not be started again."""
    async with run_stub() as stub, run_process(serve_from(tmp_path, stub, workers=2)) as gateway:
        await gateway.kill(workers=False)
        assert await until(lambda: not is_open(gateway.port), 60)
        await gateway.start()


class IdleProcess:
    """Stands for the process of a worker."""

    is_running = True

    def is_alive(self) -> bool:
        return self.is_running


def test_a_worker_that_still_imports_is_not_replaced_and_a_hung_one_is(tmp_path: Path) -> None:
    """However long it takes: a worker that is killed and begun anew takes as long again."""
    settings = settings_for("http://127.0.0.1:9", tmp_path / "gateway.db", workers=2)
    worker = GatewayWorker(make_config(settings, "app"), [])
    process = IdleProcess()
    worker.process = process  # type: ignore[assignment]
    assert worker.is_alive(timeout=0)
    assert not worker.is_ready(timeout=0)
    worker.child_conn.send(b"everything is imported")
    assert not worker.is_alive(timeout=0)  # it does not answer a ping
    worker.pong()
    assert worker.is_alive(timeout=0)
    process.is_running = False
    assert not worker.is_alive(timeout=0)


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_the_address_is_said_when_it_is_served(workers: int, tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(f'port = 0\nworkers = {workers}\nstore = "{tmp_path / "gateway.db"}"\n')
    command = [sys.executable, "-m", "lamina", "serve", "--settings", str(file)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        words = process.stderr.readline().split()
        try:
            assert words[:3] == ["lamina:", "serving", "on"]
            assert is_open(urlsplit(words[3].rstrip(",")).port or 0)
        finally:
            process.terminate()
            process.communicate()


def test_another_host_goes_on_over_postgresql(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")

    async def main(url: str) -> None:
        twin = await twin_of(tmp_path)
        async with run_stub() as stub:
            settings = settings_for(stub, url, **SMALL)
            async with run_gateway(settings) as first, run_gateway(settings) as second:
                for step in range(STEPS):
                    gateway = (first, second)[step // 3 % 2]
                    await post_until_answered(gateway.url, messages_request(step))
            assert [seen.body for seen in stub.seen] == twin

    with postgres() as server:
        asyncio.run(main(server.url))


async def test_kill_9_loses_at_most_what_was_in_flight_of_the_record(tmp_path: Path) -> None:
    """Killed in the middle of an answer: the record has that request without one, and all others whole."""
    killed_at = 6
    async with run_stub() as stub, run_process(serve_from(tmp_path, stub, keep="all")) as gateway:
        for step in range(12):
            if step == killed_at:
                stub.play(answer_late(30))
                sending = asyncio.ensure_future(post_until_answered(gateway.url, messages_request(step)))
                before = len(stub.seen)
                assert await until(lambda seen=before: len(stub.seen) > seen, 30)  # type: ignore[misc]
                await wait_for_calls(tmp_path / "gateway.db", killed_at + 1)
                await gateway.kill()
                await gateway.start()
                await sending
                continue
            await post_until_answered(gateway.url, messages_request(step))
        sent = len(stub.seen)
        await wait_for_calls(tmp_path / "gateway.db", sent, answered=sent - 1)
        bodies = [seen.body for seen in stub.seen]
    record, calls = (await happened(tmp_path / "gateway.db")).only()
    assert [record.sent_body(call) for call in calls] == bodies
    unanswered = [number for number, call in enumerate(calls) if call.answer is None]
    assert unanswered == [killed_at]


@pytest.mark.parametrize("keep", ["all", "lowered"])
async def test_what_the_log_has_of_a_killed_gateway_the_record_has_too(tmp_path: Path, keep: str) -> None:
    """Killed right after each answer, before it was recorded."""
    store = tmp_path / "gateway.db"

    def read_answered() -> list[dict[str, Any]]:
        events = read_journal(place_journal(str(store)))
        return [event for event in events if event["event"] == "answered"]

    async with run_stub() as stub, run_process(serve_from(tmp_path, stub, keep=keep)) as gateway:
        for step in range(10, 14):
            await post_until_answered(gateway.url, messages_request(step))
            assert await until(lambda count=step - 9: len(read_answered()) == count)  # type: ignore[misc]
            await gateway.kill()
            await gateway.start()
    _, calls = (await happened(store)).only()
    assert len(calls) == len({call.request.id for call in calls}) == 4
    recorded = {call.request.id: call for call in calls}
    for line in read_answered():
        call = recorded[line["id"]]
        assert call.answer is not None
        assert call.answer.usage is not None
        assert (call.answer.usage.input, call.answer.account["new"]) == (line["input"], line["new"])
        assert call.request.is_cut is line["cut"]


@pytest.mark.parametrize(("age", "logged_for", "is_noted"), [(1, "", True), (60, "", False), (1, "b", False)])
async def test_what_was_deleted_meanwhile_or_is_of_another_store_is_not_noted(
    tmp_path: Path, age: int, logged_for: str, *, is_noted: bool
) -> None:
    """A gateway that starts again within seconds was killed before it saved anything."""
    store = tmp_path / "gateway.db"
    journal = tmp_path / "journal"
    sent_id = Journal(store=logged_for).write_sent(conversation="c", upstream="u", model="m")
    line = {
        "at": time() - age,
        "event": "answered",
        "id": sent_id,
        "conversation": "c",
        "model": "m",
        "input": 5,
    }
    journal.write_bytes(json.dumps(line).encode() + b"\n{torn\n")
    async with run_stub() as stub, run_gateway(serve_from(tmp_path, stub, keep="all"), journal_path=journal):
        pass
    assert [name for name, _, _ in (await happened(store)).calls] == ["c"] * is_noted


async def test_a_gateway_has_files_for_all_connections_that_it_allows(tmp_path: Path) -> None:
    """Each client may need a connection to an upstream. Linux gives a process 1,024 files by default."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1_024, hard))
    try:
        async with run_process(settings_for("http://127.0.0.1:9", tmp_path / "gateway.db")) as gateway:
            allowed, _ = resource.prlimit(gateway.process.pid, resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert allowed == hard or allowed > 2 * limits.CONNECTIONS
