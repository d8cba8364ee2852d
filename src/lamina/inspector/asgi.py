"""Serves the pages as an ASGI application, for the gateway and for any server that runs one.

    app = make_app(Inspector(Sessions(["logs/"])), hosts=["127.0.0.1:8000"], token="…", prefix="/inspect")

No web framework is imported. Answers come from `answer_request`, which may take a while for a long session,
so it runs in a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread

from lamina.errors import BadInput, LaminaError
from lamina.inspector.page_cookies import make_key
from lamina.inspector.pages import (
    SECONDS_BETWEEN_LOOKS,
    Access,
    PageAnswer,
    answer_request,
    refuse_stranger,
    write_event,
)
from lamina.inspector.progress import ReaderGone, watch_reader
from lamina.inspector.views import Inspector

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def make_app(
    inspector: Inspector,
    *,
    hosts: Iterable[str],
    token: str = "",
    prefix: str = "",
    cookie_key: bytes = b"",
) -> App:
    """An ASGI application with the pages of the inspector below `prefix`, to mount in one of your own.

    `hosts` are the names, with their port, under which the server may be addressed. A server that others can
    reach needs a token. Several processes of one server share a `cookie_key`.
    """
    folder = prefix.rstrip("/")
    access = Access(
        hosts=frozenset(hosts), token=token, cookie_key=cookie_key or make_key(), folder=f"{folder}/"
    )
    return _App(inspector, access, folder)


class _App:
    def __init__(self, inspector: Inspector, access: Access, prefix: str) -> None:
        self._inspector = inspector
        self._access = access
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one connection, as ASGI has it."""
        match scope["type"]:
            case "http":
                await self._answer(scope, receive, send)
            case "lifespan":
                await _live(receive, send)
            case "websocket":
                await send({"type": "websocket.close"})  # before it was accepted: the client gets a 403
            case other:
                raise BadInput(
                    f"the inspector does not answer {other!r}", place="scope", hint="send it HTTP requests"
                )

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request. The views are computed in a thread: they build whole sessions."""
        path = scope["path"].removeprefix(self._prefix)
        if not path:
            # The page names its files relative to itself, so its address has to end with a slash.
            await _send_answer(
                PageAnswer(status=HTTPStatus.TEMPORARY_REDIRECT, headers={"Location": "/"}),
                send,
                prefix=self._prefix,
            )
            return
        query = scope.get("query_string", b"").decode("latin-1")
        target = f"{path}?{query}"
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        if path == "/api/live":
            await self._send_events(target, headers, receive, send)
            return
        has_gone = threading.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_note_disconnect, receive, has_gone)
            with watch_reader(has_gone.is_set), suppress(ReaderGone):
                answer = await anyio.to_thread.run_sync(
                    answer_request, self._inspector, scope["method"], target, headers, self._access
                )
                await _send_answer(answer, send, has_body=scope["method"] != "HEAD", prefix=self._prefix)
            tasks.cancel_scope.cancel()

    async def _send_events(self, target: str, headers: dict[str, str], receive: Receive, send: Send) -> None:
        """Tell a live page whenever a file has changed, until it is closed."""
        refusal = refuse_stranger(target, headers, self._access)
        if refusal is not None:
            await _send_answer(refusal, send)
            return
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")],
            }
        )
        async with anyio.create_task_group() as tasks:

            async def stop_when_closed() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                tasks.cancel_scope.cancel()

            tasks.start_soon(stop_when_closed)
            await self._follow(send)

    async def _follow(self, send: Send) -> None:
        last_state = ""
        while True:
            try:
                state = await anyio.to_thread.run_sync(self._inspector.sessions.state)
            except LaminaError:
                state = last_state  # a file or a store cannot be read just now
            event = write_event(state, last_state)
            await send({"type": "http.response.body", "body": event, "more_body": True})
            last_state = state
            await anyio.sleep(SECONDS_BETWEEN_LOOKS)


async def _note_disconnect(receive: Receive, has_gone: threading.Event) -> None:
    """Wait until whoever asked closes the connection."""
    while (await receive())["type"] != "http.disconnect":
        await anyio.lowlevel.checkpoint()
    has_gone.set()


async def _live(receive: Receive, send: Send) -> None:
    """The pages need nothing at the start and leave nothing at the end, so both are complete at once."""
    event = ""
    while event != "lifespan.shutdown":
        event = (await receive())["type"]
        await send({"type": f"{event}.complete"})


async def _send_answer(answer: PageAnswer, send: Send, *, has_body: bool = True, prefix: str = "") -> None:
    """Send an answer of the page as the events of ASGI. A HEAD request gets the headers only."""
    fields = answer.headers | {"Content-Length": str(len(answer.body))}
    if "Location" in fields:
        fields["Location"] = prefix + fields["Location"]  # the page is mounted below it
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in fields.items()]
    body = b""
    if has_body:
        body = answer.body
    await send({"type": "http.response.start", "status": int(answer.status), "headers": headers})
    await send({"type": "http.response.body", "body": body})
