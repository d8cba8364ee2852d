"""One script of events through both doors: a wrapped client, and a gateway, in front of the same model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import anyio
import msgspec

import lamina
from lamina import Policy
from lamina.conversations.record import ConversationRecord
from lamina.conversations.store import WORKSPACE, ConversationState, list_conversations, read_record
from lamina.dialects.anthropic.server import BETAS
from lamina.errors import BudgetExceeded
from lamina.stores import open_store
from tests.gateway.running import settings_for
from tests.gateway.test_sdks import gateway_in_thread
from tests.servers.serving import serve_http
from tests.test_nothing_crosses import to_answer
from tests.wrapped.scripted_api import Said, stream_message, write_message

Json = dict[str, Any]


class Refusal(NamedTuple):
    """An error of the API. With the status 0 it breaks its answer off in the middle."""

    status: int
    text: str = ""


Model = Callable[[Json], Said | Refusal]


class Sent(NamedTuple):
    """A request as the API got it, and the betas in its header."""

    request: Json
    betas: str


class Api:
    """What stands behind a door: it answers with what the model says, and keeps what it was sent."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.sent: list[Sent] = []

    def answer(self, request: Json, betas: str) -> Said | Refusal:
        self.sent.append(Sent(json.loads(json.dumps(request)), betas))
        return self.model(self.sent[-1].request)


class Failed(Exception):
    """The client got no answer, or the beginning of one."""

    def __init__(self, status: int | None, text: str) -> None:
        super().__init__(text)
        self.status_code = status


class Client(NamedTuple):
    """A door as its client sees it. `read` is how many events of a stream it reads before it goes away."""

    send: Callable[..., Json | None]
    api: Api


HALF: Said = ["Half of it."]
EVENTS_OF_HALF = 3
"""An answer that breaks off, and after how many events."""


class _WrappedApi:
    """The SDK of a wrapped client: what it would read from the wire is made here."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def create(self, **request: Any) -> Any:
        headers = request.pop("extra_headers", {})
        reply = self._api.answer(request, headers.get(BETAS, ""))
        if isinstance(reply, Refusal) and (reply.status or not request.get("stream")):
            raise Failed(reply.status or None, reply.text)
        if request.get("stream"):
            return self._stream(reply)
        assert not isinstance(reply, Refusal)
        return to_answer(write_message(reply, 100))

    def _stream(self, reply: Said | Refusal) -> Iterator[Any]:
        if isinstance(reply, Refusal):
            return _Events(HALF, broken=True)
        return _Events(reply, broken=False)


class _Events:
    """A stream of an SDK. It is no generator: the request was sent when it was made."""

    def __init__(self, said: Said, *, broken: bool) -> None:
        lines = "".join(stream_message(said, 100)).splitlines()
        self._events = [to_answer(json.loads(line[6:])) for line in lines if line.startswith("data: ")]
        self._broken = broken
        self._position = 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._broken and self._position == EVENTS_OF_HALF:
            raise Failed(None, "the connection broke")
        if self._position == len(self._events):
            raise StopIteration
        self._position += 1
        return self._events[self._position - 1]

    def close(self) -> None:
        """Nothing is open."""


@contextmanager
def through_wrap(address: str, model: Model, **policy: Any) -> Iterator[Client]:
    api = Api(model)
    inner = SimpleNamespace(messages=SimpleNamespace(create=_WrappedApi(api).create))
    client: Any = lamina.wrap(inner, store=address, policy=Policy(**policy))

    def send(request: Json, *, read: int | None = None) -> Json | None:
        answer = client.messages.create(**json.loads(json.dumps(request)))
        if not request.get("stream"):
            whole: Json = answer
            return whole
        for position, _ in enumerate(answer, 1):
            if position == read:
                answer.close()
                return None
        return None

    yield Client(send, api)
    vars(client)["_conversations"].store.close()


@contextmanager
def through_gateway(address: str, model: Model, **policy: Any) -> Iterator[Client]:
    api = Api(model)
    with (
        serve_http(make_handler(api)) as url,
        gateway_in_thread(settings_for(url, Path(address), **policy)) as gateway,
    ):
        yield Client(partial(send_over_http, gateway.url), api)


def make_handler(api: Api) -> type[BaseHTTPRequestHandler]:
    """A server that says what the API says."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            reply = api.answer(request, self.headers.get(BETAS, ""))
            if isinstance(reply, Refusal) and reply.status:
                error = {"type": "error", "error": {"type": "invalid_request_error", "message": reply.text}}
                self._write(reply.status, "application/json", json.dumps(error))
            elif isinstance(reply, Refusal):
                events = "".join(stream_message(HALF, 100)).split("\n\n")[:EVENTS_OF_HALF]
                self._write(200, "text/event-stream", "\n\n".join([*events, ""]), missing=9)
                self.close_connection = True
            elif request.get("stream"):
                self._write(200, "text/event-stream", "".join(stream_message(reply, 100)))
            else:
                self._write(200, "application/json", json.dumps(write_message(reply, 100)))

        def _write(self, status: int, media_type: str, text: str, *, missing: int = 0) -> None:
            self.send_response(status)
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(text.encode()) + missing))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler


def send_over_http(url: str, request: Json, *, read: int | None = None) -> Json | None:
    """Send a request to a gateway, and return its answer, unless that is a stream."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        connection.request("POST", "/v1/messages", json.dumps(request), HEADERS)
        answer = connection.getresponse()
        if read is not None:
            answer.read(read)
            return None
        text = answer.read().decode()
    except (HTTPException, OSError) as error:
        raise Failed(None, str(error)) from error
    finally:
        connection.close()
    if answer.status != HTTPStatus.OK:
        raise Failed(answer.status, text)
    if request.get("stream"):
        return None
    whole: Json = json.loads(text)
    return whole


HEADERS = {"content-type": "application/json"}
DOORS = {"wrap": through_wrap, "gateway": through_gateway}


class Kept(NamedTuple):
    """A conversation as it is stored."""

    name: str
    state: ConversationState
    record: ConversationRecord


def read_kept(address: str) -> list[Kept]:
    """All conversations of a store, the oldest first."""

    async def read() -> list[Kept]:
        async with open_store(address) as store:
            kept = [each async for each in list_conversations(store, WORKSPACE)]
            return [
                Kept(each.name, each.state, await read_record(store, WORKSPACE, each.name)) for each in kept
            ]

    kept = anyio.run(read)
    return sorted(kept, key=lambda each: min((call.request.at for call in each.record.calls), default=0))


def describe_kept(address: str) -> list[Json]:
    """What is stored, without what is a door's own: names, ids, times.

    A gateway stores what a cut lowers before it sends the request. If that is refused and the next cut is
    another one, a later cut may lower the same segment again, and it is stored twice.
    """
    kept = read_kept(address)
    numbers = {each.name: number for number, each in enumerate(kept)}
    described: list[Json] = []
    for _, state, record in kept:
        calls: list[Json] = []
        for call in record.calls:
            sent = record.sent_body(call)
            came = record.came_body(call)
            answer = call.answer
            calls.append(
                {
                    "sent": None if sent is None else json.loads(sent),
                    "came": None if came is None else json.loads(came),
                    "why": call.request.why,
                    "cut": None if call.request.cut is None else call.request.cut.reason,
                    "epoch": call.request.epoch,
                    "ledger": record.ledger(call).dump(),
                    "answered": None
                    if answer is None
                    else (answer.status, bool(answer.error), answer.recalled, answer.usage),
                }
            )
        exchanges = msgspec.json.decode(msgspec.json.encode(state.exchanges))
        described.append(
            {
                "ledger": state.ledger.dump(),
                "chain": len(state.chain),
                "windows": state.windows,
                "exchanges": exchanges,
                "usage": state.usage,
                "parent": numbers.get(state.parent, state.parent),
                "left": [numbers.get(left, left) for left in state.left],
                "requests": state.requests,
                "tokens": state.tokens,
                "keep": state.keep,
                "title": state.title,
                "model": state.model,
                "inherited": state.inherited_cuts,
                "lowered": sorted({segment.decode() for segment in record.segments}),
                "calls": calls,
            }
        )
    return described


def play(send: Callable[..., Json | None], request: Json, **options: Any) -> Json | None:
    """Send a request; None if it fails."""
    with suppress(Failed, BudgetExceeded):
        return send(request, **options)
    return None
