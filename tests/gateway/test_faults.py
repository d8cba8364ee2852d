"""What goes wrong around the gateway: upstreams, stores and clients. Nothing crashes, leaks or is lost."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from lamina.fitting import fit_request
from lamina.gateway import GatewayAccount
from lamina.relay import limits, upstream_answer
from lamina.relay.client_request import ClientRequest
from lamina.relay.conversation_index import ConversationIndex
from lamina.relay.live_conversation import LiveConversation
from lamina.relay.request_bodies import RequestBody
from lamina.relay.store_access import StoreGone
from tests.gateway.growing import HEADERS, chat_request, dump, messages_request
from tests.gateway.running import RunningGateway, open_client, proxied, run_gateway, settings_for, until
from tests.gateway.test_conversations import SMALL, post, states, twin_of
from tests.gateway.upstream_stub import Fault, SeenRequest, answer_of, run_stub

pytestmark = pytest.mark.anyio

CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
STREAM = {"stream": True}


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


async def drop(_: SeenRequest, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def drop_in_stream(_: SeenRequest, writer: asyncio.StreamWriter) -> None:
    writer.write(CHUNKED + chunk(b'event: ping\ndata: {"type":"ping"}\n\n'))
    await writer.drain()
    writer.close()


async def drop_in_event(_: SeenRequest, writer: asyncio.StreamWriter) -> None:
    writer.write(CHUNKED + chunk(b'event: ping\ndata: {"type":"ping"}\n\n') + chunk(b'data: {"type":"ha'))
    await writer.drain()
    await asyncio.sleep(0.2)  # so that the half event is passed on before the end is seen
    writer.close()


async def drop_in_json(_: SeenRequest, writer: asyncio.StreamWriter) -> None:
    writer.write(b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{"half')
    await writer.drain()
    writer.close()


async def stall_in_stream(_: SeenRequest, writer: asyncio.StreamWriter) -> None:
    writer.write(CHUNKED + chunk(b'event: ping\ndata: {"type":"ping"}\n\n'))
    await writer.drain()
    await asyncio.sleep(30)


async def talk_garbage(_: SeenRequest, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x00\x01 certainly no HTTP\r\n\r\n")
    await writer.drain()
    writer.close()


def fail(status: int, *headers: str) -> Fault:
    async def answer(_: SeenRequest, writer: asyncio.StreamWriter) -> None:
        body = b'{"error":{"message":"the upstream says no"}}'
        lines = "".join(f"{header}\r\n" for header in headers)
        lines += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        writer.write(f"HTTP/1.1 {status} No\r\n{lines}\r\n".encode() + body)

    return answer


def answer_late(seconds: float, after: Fault | None = None) -> Fault:
    async def answer(request: SeenRequest, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(seconds)
        if after is not None:
            await after(request, writer)
            return
        _, body = answer_of(request)
        writer.write(CHUNKED + chunk(body) + b"0\r\n\r\n")

    return answer


def in_pieces(size: int) -> Fault:
    """The usual stream, torn anywhere, in the middle of characters too."""

    async def answer(request: SeenRequest, writer: asyncio.StreamWriter) -> None:
        _, body = answer_of(request)
        writer.write(CHUNKED)
        for start in range(0, len(body), size):
            writer.write(chunk(body[start : start + size]))
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(b"0\r\n\r\n")

    return answer


async def test_upstreams_that_fail_get_an_answer_in_the_shape_of_the_api() -> None:
    settings = settings_for("http://127.0.0.1:9")
    async with run_gateway(settings) as gateway, open_client() as client:
        status, body = await post(client, gateway.url, messages_request(1))
        assert status == 502
        error = json.loads(body)["error"]
        assert error["type"] == "api_error"
        assert "cannot be reached: Connection refused; check that it runs" in error["message"]
    async with proxied(retry_seconds=0) as (stub, gateway, client):
        for fault in (drop, talk_garbage):
            stub.play(fault)
            status, body = await post(client, gateway.url, messages_request(1))
            assert status == 502
            assert json.loads(body)["type"] == "error"
            stub.play(fault)
            status, body = await post(client, gateway.url, chat_request(1), "/v1/chat/completions")
            assert status == 502
            assert json.loads(body)["error"]["message"].startswith("lamina: ")
        assert len(stub.seen) == 4  # nothing is tried again by itself, with these settings
        stub.play(drop_in_json)
        with pytest.raises(aiohttp.ClientPayloadError):
            await post(client, gateway.url, messages_request(1))
        status, _ = await post(client, gateway.url, messages_request(1))
        assert status == 200


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 529])
async def test_errors_of_the_upstream_pass_unchanged_and_once(status: int) -> None:
    async with proxied() as (stub, gateway, client):
        stub.play(fail(status, "retry-after: 7", "request-id: r1"))
        data = dump(messages_request(1))
        async with client.post(f"{gateway.url}/v1/messages", data=data, headers=HEADERS) as answer:
            assert answer.status == status
            assert await answer.read() == b'{"error":{"message":"the upstream says no"}}'
            assert answer.headers["retry-after"] == "7"
            assert answer.headers["request-id"] == "r1"
        assert len(stub.seen) == 1


@pytest.mark.parametrize("stream", [{}, STREAM])
@pytest.mark.parametrize("fault", [fail(529), fail(503, "retry-after: 0"), drop])
async def test_an_upstream_that_fails_for_a_moment_is_asked_once_more(
    fault: Fault, stream: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_answer, "PAUSE_SECONDS", 0.01)
    async with proxied() as (stub, gateway, client):
        stub.play(fault)
        status, body = await post(client, gateway.url, messages_request(1) | stream)
        assert (status, body) == (200, answer_of(stub.seen[0])[1])
        assert [seen.body for seen in stub.seen] == [stub.seen[0].body] * 2
        account = GatewayAccount()
        for line in gateway.log.getvalue().splitlines():
            account.read_line(line.encode())
        assert (account.calls, account.retried, account.refused) == (1, 1, 0)
        assert "1 asked again" in account.write_lines()[0]
        async with client.get(f"{gateway.url}/metrics") as metrics:
            assert "lamina_retries_total{" in await metrics.text()


async def test_what_was_dropped_is_asked_again_on_a_new_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The upstream may have left all that wait, without a word: 4 % of the requests to such a one failed."""
    monkeypatch.setattr(upstream_answer, "PAUSE_SECONDS", 0.01)

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.05)
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        with contextlib.suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async def ask(client: aiohttp.ClientSession, gateway: RunningGateway) -> int:
        async with client.get(f"{gateway.url}/v1/models") as answer:
            return answer.status

    async with await asyncio.start_server(answer_once, "127.0.0.1") as server:
        settings = settings_for(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with run_gateway(settings) as gateway, open_client() as client:
            assert [*await asyncio.gather(ask(client, gateway), ask(client, gateway))] == [204, 204]
            assert await ask(client, gateway) == 204


@pytest.mark.parametrize(
    ("fault", "status"),
    [(fail(503), 503), (fail(529, "retry-after: 3600"), 529), (fail(500), 500), (drop, 502)],
)
async def test_a_second_failure_is_passed_on_and_what_would_take_too_long_is_not_tried(
    fault: Fault, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_answer, "PAUSE_SECONDS", 0.01)
    async with proxied() as (stub, gateway, client):
        stub.play(fault, fault)
        answer_status, _ = await post(client, gateway.url, messages_request(1))
        assert answer_status == status
        tries = 2 - len(stub.faults)
        assert tries == (2 if status in (502, 503) else 1)


@pytest.mark.parametrize(("method", "path", "tries"), [("POST", "/v1/threads", 1), ("GET", "/v1/threads", 2)])
async def test_a_body_that_passes_unread_is_sent_once(
    method: str, path: str, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_answer, "PAUSE_SECONDS", 0.01)
    async with proxied() as (stub, gateway, client):
        stub.play(drop)
        async with client.request(method, f"{gateway.url}{path}") as answer:
            assert answer.status == (502 if tries == 1 else 200)
        assert len(stub.seen) == tries


async def test_small_bodies_that_pass_unread_share_a_connection() -> None:
    """To begin one costs a handshake each time. A large body comes in pieces, and is not sent again."""
    connections = 0

    async def answer_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer_all, "127.0.0.1") as server:
        settings = settings_for(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with run_gateway(settings) as gateway, open_client() as client:
            for size in [0, 1, 1_000, 500_000, 0, 2 << 20]:
                async with client.post(
                    f"{gateway.url}/v1/embeddings", data=io.BytesIO(b"x" * size)
                ) as answer:
                    assert answer.status == 204
    assert connections == 2


async def test_nothing_is_asked_again_once_the_client_has_got_a_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_answer, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(limits, "KEEP_ALIVE_SECONDS", 0.05)
    async with proxied() as (stub, gateway, client):
        for fault in (answer_late(0.3, after=fail(529)), answer_late(0.3, after=drop)):
            stub.play(fault)
            with contextlib.suppress(aiohttp.ClientPayloadError):
                _, body = await post(client, gateway.url, messages_request(1, stream=True))
                assert b"the upstream says no" in body
        assert len(stub.seen) == 2
        assert not gateway.events("retried")


async def test_a_stream_that_falls_silent_ends_with_an_error_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "IDLE_SECONDS", 0.3)
    async with proxied() as (stub, gateway, client):
        stub.play(stall_in_stream)
        status, body = await post(client, gateway.url, messages_request(1, stream=True))
        assert status == 200
        last = body.rpartition(b"event: error\ndata: ")[2]
        assert json.loads(last)["error"]["type"] == "timeout_error"
        assert (await post(client, gateway.url, messages_request(1)))[0] == 200


HI: list[Any] = [{"role": "user", "content": "Hi."}]
STREAMED: dict[str, tuple[str, dict[str, Any]]] = {
    "messages": ("/v1/messages", {"model": "m", "max_tokens": 9, "messages": HI} | STREAM),
    "messages, cut": ("/v1/messages", messages_request(40) | STREAM),
    "chat": ("/v1/chat/completions", {"model": "m", "messages": HI} | STREAM),
    "chat, cut": ("/v1/chat/completions", chat_request(40) | STREAM),
    "responses": ("/v1/responses", {"model": "m", "input": "Hi."} | STREAM),
    "gemini": (
        "/v1beta/models/m:streamGenerateContent?alt=sse",
        {"contents": [{"role": "user", "parts": [{"text": "Hi."}]}]},
    ),
    "another path": ("/v1/others", STREAM),
}


@pytest.mark.parametrize("fault", [drop_in_stream, drop_in_event])
@pytest.mark.parametrize("name", STREAMED)
async def test_a_stream_that_breaks_off_ends_as_it_did_at_the_upstream(name: str, fault: Fault) -> None:
    """Clients try a broken connection again. Some of them die of a whole stream that ends with an error."""
    path, body = STREAMED[name]
    async with proxied(**SMALL) as (stub, gateway, client):
        stub.play(fault)
        async with client.post(f"{gateway.url}{path}", json=body) as answer:
            assert answer.headers.get("x-lamina", "") == ("cut" if "cut" in name else "")
            with pytest.raises(aiohttp.ClientPayloadError):
                await answer.content.read()


@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_torn_events_pass_byte_for_byte_and_are_read(size: int) -> None:
    async with proxied() as (stub, gateway, client):
        stub.play(in_pieces(size))
        status, body = await post(client, gateway.url, messages_request(1, stream=True))
        assert (status, body) == (200, answer_of(stub.seen[0])[1])
        [line] = gateway.events("answered")
        assert line["cached"] == 1000
        assert line["output"] == 5


async def test_silence_is_filled_with_comments_before_and_after_the_headers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "KEEP_ALIVE_SECONDS", 0.15)

    async def stall_between_events(request: SeenRequest, writer: asyncio.StreamWriter) -> None:
        _, body = answer_of(request)
        first, rest = body[: body.index(b"\n\n") + 2], body[body.index(b"\n\n") + 2 :]
        writer.write(CHUNKED + chunk(first))
        await writer.drain()
        await asyncio.sleep(0.5)
        writer.write(chunk(rest[:9]))
        await writer.drain()
        await asyncio.sleep(0.5)  # in the middle of an event: no comment may be put here
        writer.write(chunk(rest[9:]) + b"0\r\n\r\n")

    async with proxied() as (stub, gateway, client):
        stub.play(stall_between_events)
        _, body = await post(client, gateway.url, messages_request(1, stream=True))
        first, end, rest = answer_of(stub.seen[0])[1].partition(b"\n\n")
        comments = body.removeprefix(first + end).removesuffix(rest)
        assert comments  # as many as the pause lasted
        assert comments.replace(b": keepalive\n\n", b"") == b""

        stub.play(answer_late(0.5))
        status, body = await post(client, gateway.url, messages_request(1, stream=True))
        assert status == 200
        assert body.startswith(b": keepalive\n\n")
        assert body.replace(b": keepalive\n\n", b"") == answer_of(stub.seen[0])[1]

        stub.play(answer_late(0.4, after=fail(529)))
        status, body = await post(client, gateway.url, messages_request(1, stream=True))
        assert status == 200
        assert b"event: error\ndata: " in body
        assert b"the upstream says no" in body

        stub.play(answer_late(0.4))
        _, body = await post(client, gateway.url, messages_request(1))
        assert b"keepalive" not in body  # the client did not ask for a stream


async def test_a_stream_that_comments_have_begun_says_so_if_its_answer_cannot_be_unpacked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client has got headers without an encoding: packed bytes would be read as events."""
    monkeypatch.setattr(limits, "KEEP_ALIVE_SECONDS", 0.1)

    async def pack_strangely(_: SeenRequest, writer: asyncio.StreamWriter) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: compress\r\n"
        writer.write(head + b"content-length: 4\r\n\r\n\x1f\x9d\x90\x00")

    async def pack_badly(_: SeenRequest, writer: asyncio.StreamWriter) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\n"
        writer.write(head + b"content-length: 4\r\n\r\nno\r\n")

    async with proxied() as (stub, gateway, client):
        for fault, problem in (
            (pack_strangely, b"packed its answer"),
            (pack_badly, b"unpacked: error"),
        ):
            stub.play(answer_late(0.3, after=fault))
            _, body = await post(client, gateway.url, messages_request(1, stream=True))
            head, _, error = body.rpartition(b"event: error\ndata: ")
            assert head.replace(b": keepalive\n\n", b"") == b""
            assert problem in error
            assert json.loads(error)["error"]["type"] == "api_error"


@pytest.mark.parametrize("stream", [{}, STREAM])
async def test_an_upstream_that_never_answers_is_given_up(stream: dict[str, bool]) -> None:
    async with proxied(first_byte_seconds=0.3) as (stub, gateway, client):
        stub.play(answer_late(20))
        status, body = await post(client, gateway.url, messages_request(1) | stream)
        assert status == 504
        assert json.loads(body)["error"]["type"] == "timeout_error"


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def test_a_huge_answer_passes_in_little_memory() -> None:
    pieces, size = 400, 1 << 18

    async def flood(_: SeenRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED)
        for _number in range(pieces):
            writer.write(chunk(b"x" * size))
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    async with proxied() as (stub, gateway, client):
        stub.play(flood)
        before = resident_bytes()
        received = 0
        data = dump(messages_request(1, stream=True))
        async with client.post(f"{gateway.url}/v1/messages", data=data, headers=HEADERS) as answer:
            async for piece in answer.content.iter_any():
                received += len(piece)
        assert received == pieces * size
        assert resident_bytes() - before < 60 << 20


@pytest.mark.parametrize("switch", ["on", "off"])
async def test_a_client_that_goes_away_cancels_the_upstream(switch: str) -> None:
    state = {"sent": 0, "broken": False}

    async def trickle(_: SeenRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED)
        try:
            while True:
                writer.write(chunk(b"data: {}\n\n"))
                await writer.drain()
                state["sent"] += 1
                await asyncio.sleep(0.01)
        except ConnectionError:
            state["broken"] = True
            raise

    async with proxied() as (stub, gateway, client):
        stub.play(trickle)
        data = dump(messages_request(1, stream=True))
        headers = {**HEADERS, "x-lamina": switch}
        answer = await client.post(f"{gateway.url}/v1/messages", data=data, headers=headers)
        await answer.content.readany()
        answer.close()
        assert await until(lambda: bool(state["broken"]))
        assert gateway.events("client gone")
        async with client.get(f"{gateway.url}/metrics") as metrics:
            assert "lamina_requests_active 0" in await metrics.text()


async def test_a_client_that_does_not_read_holds_the_upstream_back_and_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "CLIENT_SECONDS", 0.5)
    state = {"sent": 0, "broken": False}

    async def flood(_: SeenRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED)
        try:
            for _number in range(2_000):
                writer.write(chunk(b"x" * (1 << 16)))
                await writer.drain()
                state["sent"] += 1 << 16
        except ConnectionError:
            state["broken"] = True
            raise

    async with run_stub() as stub:
        settings = settings_for(stub)
        async with run_gateway(settings) as gateway:
            stub.play(flood)
            host, port = gateway.url.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 12)
            body = dump(messages_request(1, stream=True))
            head = f"POST /v1/messages HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            await writer.drain()
            assert await until(lambda: bool(state["broken"]))
            assert state["sent"] < 60 << 20
            del reader
            writer.close()


async def test_a_request_that_was_too_long_and_cannot_be_shorter_is_refused_as_the_upstream_did() -> None:
    async with proxied() as (stub, gateway, client):
        stub.window = 900
        status, body = await post(client, gateway.url, messages_request(0, task="Please do it. " * 90))
        assert status == 400
        assert b"prompt is too long" in body


def find_objects(*kinds: type[Any]) -> list[Any]:
    return [value for value in gc.get_objects() if type(value) in kinds]


def test_nothing_of_a_refused_request_stays_in_memory() -> None:
    """Not even until the garbage collector comes by: a body may have 64 MB."""

    async def main() -> None:
        settings = settings_for("http://127.0.0.1:9", upstream={"budget": 1_000})
        async with run_gateway(settings) as gateway, open_client() as client:
            request = messages_request(2, system="You are thorough. " * 2_000)
            status, _ = await post(client, gateway.url, request)
            assert status == 400
            (conversation,) = [each for each in find_objects(LiveConversation) if id(each) not in earlier]
            assert not conversation.memo.parse.past.sources

    gc.collect()
    # Other tests of this process may have left some, and these stay while they are compared.
    kept = find_objects(LiveConversation, RequestBody)
    earlier = {id(each) for each in kept}
    gc.disable()
    try:
        asyncio.run(main())
        assert all(id(each) in earlier for each in find_objects(RequestBody))
    finally:
        gc.enable()


async def test_a_floor_above_the_window_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    fits: list[object] = []

    def fit_once(*request: Any, **options: Any) -> Any:
        fits.append(request)
        return fit_request(*request, **options)

    monkeypatch.setattr("lamina.relay.fit_call.fit_request", fit_once)
    settings = settings_for("http://127.0.0.1:9", upstream={"budget": 1_000})
    async with run_gateway(settings) as gateway, open_client() as client:
        request = messages_request(2, system="You are thorough. " * 2_000)
        status, body = await post(client, gateway.url, request)
        assert status == 400
        error = json.loads(body)["error"]
        assert error["type"] == "invalid_request_error"
        assert error["message"].startswith("lamina: prompt is too long: ")
        assert "CLAUDE_CODE_MAX_OUTPUT_TOKENS" in error["message"]
    assert len(fits) == 1


LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


async def with_locked_store(store: Path, work: Callable[[], Awaitable[Any]]) -> Any:
    """Do something while another process holds the store's file locked."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        LOCK,
        str(store),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout
    assert process.stdin
    await process.stdout.readline()
    try:
        return await work()
    finally:
        process.stdin.close()
        await process.wait()


async def test_a_store_that_is_gone_stops_only_conversations_that_were_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "gateway.db"
    twin = await twin_of(tmp_path)
    async with proxied(store, **SMALL) as (stub, gateway, client):
        first_cut = 0
        for steps in range(20):
            await post(client, gateway.url, messages_request(steps))
            if not first_cut and gateway.events("cut"):
                first_cut = steps
        assert first_cut
        for steps in range(first_cut - 1):
            await post(client, gateway.url, messages_request(steps, task="A third thing."))
        full = messages_request(first_cut + 1, task="A third thing.")  # would be its first cut
        cuts = len(gateway.events("cut"))

        async def ask_while_locked() -> None:
            monkeypatch.setattr(limits, "STORE_SECONDS", 0.5)  # it hangs: nothing shorter than that would do
            status, _ = await post(client, gateway.url, full)
            assert status == 200
            assert stub.seen.pop().body == dump(full)
            assert len(gateway.events("cut")) == cuts
            del stub.seen[20:]
            status, body = await post(client, gateway.url, messages_request(20))
            assert status == 503
            assert json.loads(body)["error"]["type"] == "overloaded_error"
            assert len(stub.seen) == 20
            status, _ = await post(client, gateway.url, messages_request(1, task="Something else."))
            assert status == 200
            assert stub.seen[-1].body == dump(messages_request(1, task="Something else."))

        await with_locked_store(store, ask_while_locked)
        monkeypatch.undo()
        for _ in range(50):  # the client's own retry
            status, _ = await post(client, gateway.url, messages_request(20))
            if status == 200:
                break
            await asyncio.sleep(0.1)
        assert stub.seen[-1].body == twin[20]


async def test_a_store_that_was_slow_for_one_request_tells_of_its_conversation_at_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request that passed meanwhile stays a conversation of its own, which no later request continues."""
    store = tmp_path / "gateway.db"

    async def refuse_to_load(*_: object) -> dict[str, LiveConversation]:
        raise StoreGone("the store does not answer")

    async with run_stub() as stub, open_client() as client:
        settings = settings_for(stub, store)

        async def send(*steps: int) -> None:
            async with run_gateway(settings) as gateway:
                for step in steps:
                    with monkeypatch.context() as patch:
                        if step == 3:
                            patch.setattr(ConversationIndex, "_load_members", refuse_to_load)
                        status, _ = await post(client, gateway.url, messages_request(step))
                        assert status == 200

        await send(1, 2)
        await send(3, 4)
        await send(5)
        kept = sorted(state.requests for state in (await states(store)).values())
        assert kept == [1, 4]


def test_a_conversation_that_may_have_been_cut_is_not_sent_in_full_while_the_store_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway that has just started knows nothing of it, and cannot ask."""
    store = tmp_path / "gateway.db"

    async def refuse_to_load(*_: object) -> dict[str, LiveConversation]:
        raise StoreGone("the store does not answer")

    async def main() -> None:
        async with run_stub() as stub, open_client() as client:
            settings = settings_for(stub, store, **SMALL)
            async with run_gateway(settings) as gateway:
                for steps in range(20):
                    await post(client, gateway.url, messages_request(steps))
                assert gateway.events("cut")
            monkeypatch.setattr(ConversationIndex, "_load_members", refuse_to_load)
            async with run_gateway(settings) as gateway:
                status, _ = await post(client, gateway.url, messages_request(20))
                assert status == 503
                assert len(stub.seen) == 20

    asyncio.run(main())


async def test_two_hundred_slow_clients_do_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEADER_SECONDS", 0.8)
    monkeypatch.setattr(limits, "BODY_SECONDS", 0.8)
    async with proxied() as (_, gateway, client):
        host, port = gateway.url.removeprefix("http://").split(":")
        head = f"POST /v1/messages HTTP/1.1\r\nhost: {host}\r\ncontent-length: 99\r\n"
        halves = ("", "POST /v1/mess", head, f'{head}\r\n{{"model":')
        connections = []
        for number in range(200):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(halves[number % 4].encode())  # at once: later it may be closed already
            connections.append((reader, writer))
        status, _ = await post(client, gateway.url, messages_request(1))
        assert status == 200
        answers = await asyncio.gather(*(reader.read() for reader, _ in connections))
        assert all(answer.startswith(b"HTTP/1.1 408") for answer in answers)
        for _, writer in connections:
            writer.close()


async def test_the_limit_of_connections_and_of_requests_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REQUESTS", 2)
    async with run_stub() as stub, open_client() as client:
        async with run_gateway(settings_for(stub)) as gateway:
            stub.play(*(answer_late(0.4) for _ in range(2)))
            statuses = await asyncio.gather(
                *(post(client, gateway.url, messages_request(1, stream=True)) for _ in range(5))
            )
            assert sorted(status for status, _ in statuses) == [200, 200, 429, 429, 429]
        monkeypatch.setattr(limits, "CONNECTIONS", 3)
        async with run_gateway(settings_for(stub)) as gateway:
            stub.play(*(answer_late(0.4) for _ in range(3)))
            statuses = await asyncio.gather(
                *(post(client, gateway.url, messages_request(1, stream=True)) for _ in range(8))
            )
            assert 503 in {status for status, _ in statuses}


async def test_a_failure_of_the_gateway_is_an_error_of_the_clients_api(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(ClientRequest, "read", fail)
    async with proxied() as (_, gateway, client):
        data = dump(messages_request(1))
        async with client.post(f"{gateway.url}/v1/messages", data=data, headers=HEADERS) as answer:
            status, error, log = answer.status, json.loads(await answer.read()), gateway.log.getvalue()
    assert status == 500
    assert error["error"]["message"] == "lamina: the gateway failed; its log names the error"
    assert "RuntimeError" in log
    assert "a bug" not in log
