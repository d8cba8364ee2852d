"""One script of events through all doors: a wrapped client, a gateway, a transport, before the same model."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import anyio
import httpx2
import msgspec

import lamina
from lamina import Budget, Policy
from lamina.conversations.record import ConversationRecord
from lamina.conversations.store import WORKSPACE, ConversationState, list_conversations, read_record
from lamina.dialects import Usage
from lamina.dialects.anthropic.server import BETAS
from lamina.errors import BudgetExceeded
from lamina.stores import open_store
from tests.gateway.running import settings_for
from tests.gateway.test_sdks import gateway_in_thread
from tests.servers.serving import serve_http
from tests.wrapped.scripted_api import APIS, Said, add_usage

Json = dict[str, Any]


class Refusal(NamedTuple):
    """An error of the API. With the status 0 it breaks its answer off in the middle."""

    status: int
    text: str = ""


Model = Callable[[Json], Said | Refusal]


class Speech(NamedTuple):
    """An API: its dialect, a model, where it is on the wire and in its SDK, and how it writes answers.

    The SDKs that are `lazy` send a request when the first event of its stream is read.
    """

    dialect: str
    model: str
    path: str
    method: str
    format: str
    is_lazy: bool = False

    @property
    def is_gemini(self) -> bool:
        """Whether streams have an endpoint of their own, and the SDK sorts the fields of a request."""
        return self.dialect == "gemini"

    def write(self, said: Said) -> Json:
        """An answer."""
        return APIS[self.format][0](said, USED)

    def stream(self, reply: Said | Refusal, request: Json) -> list[str]:
        """An answer in the pieces in which it is streamed: half of them, if it breaks off."""
        said: Said = ["Half of it."] if isinstance(reply, Refusal) else reply
        pieces = list(add_usage(APIS[self.format][1](said, USED), request, USED))
        return pieces[: len(pieces) // 2] if isinstance(reply, Refusal) else pieces


USED = 100
"""The tokens that each answer reports."""

MESSAGES = Speech("anthropic", "claude-sonnet-5", "/v1/messages", "messages.create", "messages")
RESPONSES = Speech("openai_responses", "gpt-5", "/v1/responses", "responses.create", "responses")
SPEECHES = (
    MESSAGES,
    Speech("openai_chat", "gpt-5", "/v1/chat/completions", "chat.completions.create", "completions"),
    RESPONSES,
    Speech(
        *("gemini", "gemini-2.5-pro", "/v1beta/models/gemini-2.5-pro:generateContent"),
        *("models.generate_content", "generateContent"),
        is_lazy=True,
    ),
    Speech("ollama", "gpt-oss:20b", "/api/chat", "chat", "chat", is_lazy=True),
)


def read_events(text: str) -> list[Json]:
    """The events of a stream: lines with JSON, or with that after a name."""
    lines = (line.removeprefix("data: ") for line in text.splitlines())
    return [json.loads(line) for line in lines if line.startswith("{")]


def spell_as_sdk(text: str | bytes) -> str:
    """JSON with the names of Gemini's SDK."""
    if isinstance(text, bytes):
        text = text.decode()
    return re.sub(
        '"function(Call|Response|Declarations)"', lambda name: f'"function_{name[1].lower()}"', text
    )


def read_body(body: str | bytes) -> Json:
    """A request. One of Gemini's is neither in the order nor in the spelling of its API, as its SDK's are."""
    request: Json = json.loads(spell_as_sdk(body))
    if "contents" not in request:
        return request
    request.pop("model", None)  # it is in the path
    config: Json = request.pop("config", {}) | request.pop("generation_config", {})
    return request | config


def to_rest(request: Json) -> Json:
    """The body for arguments of Gemini's SDK."""
    config = dict(request["config"])
    own = {name: config.pop(name) for name in ("system_instruction", "tools")}
    return {"contents": request["contents"], **own, "generation_config": config}


class Sent(NamedTuple):
    """A request as the API got it, and the betas in its header."""

    request: Json
    betas: str


class Api:
    """What stands behind a door: it answers with what the model says, and keeps what it was sent."""

    def __init__(self, model: Model, speech: Speech) -> None:
        self.model = model
        self.speech = speech
        self.sent: list[Sent] = []

    def answer(self, request: Json, betas: str) -> Said | Refusal:
        self.sent.append(Sent(read_body(json.dumps(request)), betas))
        return self.model(self.sent[-1].request)


class Failed(Exception):
    """The client got no answer, or the beginning of one."""

    def __init__(self, status: int | None, text: str) -> None:
        super().__init__(text)
        self.status_code = status


class Client(NamedTuple):
    """A door as its client sees it. `read` is how many events of a stream it reads before it goes away."""

    send: Callable[..., Any]
    api: Api


@contextmanager
def through_gateway(
    address: str, model: Model, *, speech: Speech = MESSAGES, **policy: Any
) -> Iterator[Client]:
    api = Api(model, speech)
    with (
        serve_http(make_handler(api)) as url,
        gateway_in_thread(settings_for(url, Path(address), **policy)) as gateway,
    ):
        yield Client(partial(send_over_http, gateway.url, speech), api)


class _Pieces(httpx2.SyncByteStream):
    """A body in the pieces in which it comes, and maybe without its end."""

    def __init__(self, pieces: list[str], *, broken: bool) -> None:
        self._pieces = pieces
        self._broken = broken

    def __iter__(self) -> Iterator[bytes]:
        yield from (piece.encode() for piece in self._pieces)
        if self._broken:
            raise httpx2.ReadError("the connection broke")


def _answer_http(api: Api, http_request: httpx2.Request) -> httpx2.Response:
    request = json.loads(http_request.content)
    reply = api.answer(request, http_request.headers.get(BETAS, ""))
    if isinstance(reply, Refusal) and reply.status:
        error = {"type": "invalid_request_error", "message": reply.text}
        return httpx2.Response(reply.status, json={"type": "error", "error": error})
    media_type, pieces = "application/json", ['{"half"']
    if request.get("stream") or "stream" in http_request.url.path:
        media_type = MEDIA_TYPES.get(api.speech.dialect, "text/event-stream")
        pieces = api.speech.stream(reply, request)
    elif not isinstance(reply, Refusal):
        pieces = [json.dumps(api.speech.write(reply))]
    stream = _Pieces(pieces, broken=isinstance(reply, Refusal))
    return httpx2.Response(200, headers={"content-type": media_type}, stream=stream)


@contextmanager
def through_transport(
    address: str, model: Model, *, speech: Speech = MESSAGES, is_wrapped: bool = False, **policy: Any
) -> Iterator[Client]:
    """The client of an SDK, whose HTTP client has the transport, or which is wrapped."""
    api = Api(model, speech)

    def send(request: Json, *, read: int | None = None) -> Any:
        try:
            return endpoint.create(request, read)
        except httpx2.TransportError as error:
            raise Failed(None, str(error)) from error

    def _send(request: Json, read: int | None) -> Any:
        path, body = write_rest(speech, request)
        with client.stream("POST", path, json=body) as response:
            if read is not None:
                pieces = response.iter_raw()
                for _ in range(read):
                    next(pieces)
                return None
            text = response.read().decode()
        return read_answer(response.status_code, text, request)

    policy = {"budget": Budget(window=64_000)} | policy
    inner: Any = httpx2.MockTransport(partial(_answer_http, api))
    endpoint = SimpleNamespace(create=_send)
    if not is_wrapped:
        inner = lamina.transport(inner, store=address, policy=Policy(**policy))
    with httpx2.Client(transport=inner, base_url="https://api.example") as client:
        if is_wrapped:
            sdk: Any = SimpleNamespace(messages=endpoint, _client=client)
            endpoint = lamina.wrap(sdk, store=address, policy=Policy(**policy)).messages
        yield Client(send, api)


def make_handler(api: Api) -> type[BaseHTTPRequestHandler]:
    """A server that says what the API says."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            reply = api.answer(request, self.headers.get(BETAS, ""))
            if isinstance(reply, Refusal) and reply.status:
                error = {"type": "error", "error": {"type": "invalid_request_error", "message": reply.text}}
                self._write(reply.status, "application/json", json.dumps(error))
            elif request.get("stream") or "stream" in self.path:
                media_type = MEDIA_TYPES.get(api.speech.dialect, "text/event-stream")
                events = "".join(api.speech.stream(reply, request))
                self._write(200, media_type, events, is_whole=isinstance(reply, list))
            elif isinstance(reply, Refusal):
                self._write(200, "application/json", '{"half"', is_whole=False)
            else:
                self._write(200, "application/json", json.dumps(api.speech.write(reply)))

        def _write(self, status: int, media_type: str, text: str, *, is_whole: bool = True) -> None:
            self.send_response(status)
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(text.encode()) + (not is_whole)))
            self.end_headers()
            self.wfile.write(text.encode())
            self.close_connection = not is_whole

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler


def send_over_http(url: str, speech: Speech, request: Json, *, read: int | None = None) -> Any:
    """Send a request to a gateway, and return its answer, or the events of it."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        path, body = write_rest(speech, request)
        connection.request("POST", path, json.dumps(body), HEADERS)
        answer = connection.getresponse()
        if read is not None:
            answer.read(read)
            return None
        text = answer.read().decode()
    except (HTTPException, OSError) as error:
        raise Failed(None, str(error)) from error
    finally:
        connection.close()
    return read_answer(answer.status, text, request)


def write_rest(speech: Speech, request: Json) -> tuple[str, Json]:
    """The path and the body of a request."""
    if not speech.is_gemini:
        return speech.path, request
    path = speech.path
    if request["stream"]:
        path = path.replace("generateContent", "streamGenerateContent") + "?alt=sse"
    return path, to_rest(request)


def read_answer(status: int, text: str, request: Json) -> Any:
    """What came: an answer, or the events of a stream."""
    if status != HTTPStatus.OK:
        raise Failed(status, text)
    if not request.get("stream"):
        return json.loads(text)
    events = read_events(text)
    if any(event.get("type") == "error" or "error" in event for event in events):
        raise Failed(None, text)
    return events


HEADERS = {"content-type": "application/json"}
MEDIA_TYPES = {"ollama": "application/x-ndjson"}
DOORS: dict[str, Callable[..., Any]] = {
    "wrap": partial(through_transport, is_wrapped=True),
    "gateway": through_gateway,
    "transport": through_transport,
}


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
    another one, a later cut may lower the same segment again, and it is stored twice, also in a fork whose
    parent has it. It erases what a client has left a little later: if that is left for a second time
    meanwhile, it keeps what the second one still has. So what was left twice is not described.
    """
    kept = read_kept(address)
    numbers = {each.name: number for number, each in enumerate(kept)}
    described: list[Json] = []
    stored: set[str] = set()
    times_left = Counter(chain.from_iterable(each.state.left for each in kept))
    for name, state, record in kept:
        if times_left[name] > 1:
            continue
        lowered = {spell_as_sdk(segment) for segment in record.segments}
        calls: list[Json] = []
        for call in record.calls:
            sent = record.sent_body(call)
            came = record.came_body(call)
            answer = call.answer
            calls.append(
                {
                    "sent": None if sent is None else read_body(sent),
                    "came": None if came is None else read_body(came),
                    "why": call.request.why,
                    "cut": None if call.request.cut is None else call.request.cut.reason,
                    "epoch": call.request.epoch,
                    "ledger": record.ledger(call).dump(),
                    "answered": None
                    if answer is None
                    else (answer.status, bool(answer.error), answer.recalled, answer.usage),
                }
            )
        exchanges = json.loads(spell_as_sdk(msgspec.json.encode(state.exchanges)))
        described.append(
            {
                "ledger": state.ledger.dump(),
                "chain": len(state.chain),
                "windows": state.windows,
                "exchanges": exchanges,
                "usage": state.usage or Usage(),
                "parent": numbers.get(state.parent, state.parent),
                "left": sorted(numbers.get(left, len(numbers)) for left in state.left),
                "requests": state.requests,
                "tokens": state.tokens,
                "keep": state.keep,
                "title": state.title,
                "model": state.model,
                "inherited": state.inherited_cuts,
                "lowered": sorted(lowered - stored),
                "calls": calls,
            }
        )
        stored |= lowered
    return described


def play(send: Callable[..., Any], request: Json, **options: Any) -> Any:
    """Send a request, and return its answer; None if it fails."""
    with suppress(Failed, BudgetExceeded):
        return send(request, **options)
    return None
