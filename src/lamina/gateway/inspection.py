"""The pages of `lamina inspect`: at `/lamina/inspect/` of a gateway, and alone on a port of this machine.

The gateway's own guards decide who may look: host, origin and access token. The files of the page hold
nothing of any conversation, so whoever may address this server gets them. A browser cannot send a header when
it opens a page: the page takes its token from `?token=…`, and sends it with every view that it asks for. A
token opens the conversations of its own workspace and no others.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, TypeVar

import uvicorn
from anyio import from_thread, to_thread

from lamina.costs.logs.values import UnreadableLine
from lamina.errors import BadInput, StoreError
from lamina.gateway.client_connection import ClientCall, ClientConnection
from lamina.inspector.pages import PageAnswer, answer_request, show_problem
from lamina.inspector.sessions import Sessions, TraceSource
from lamina.inspector.stored_sessions import StoredSessions
from lamina.inspector.views import Inspector
from lamina.relay.config import AccessToken, GatewaySettings, is_loopback
from lamina.relay.refusals import Refusal
from lamina.relay.routes import INSPECTOR
from lamina.relay.saving import ConversationSaver
from lamina.relay.security import admit_visitor, check_sender
from lamina.relay.store_access import GatewayStore, StoreGone
from lamina.stores.port import Store

LOOK_PAUSE = 0.2
"""Seconds within which the store is not looked at again: one click asks for several views."""

LARGEST_PORT = 65_535

SECONDS_TO_END = 2
"""How long a server that stops waits for views that are under way."""

_SITE_HEADERS = frozenset((b"sec-fetch-site", b"origin"))

_Value = TypeVar("_Value")

FindInspector = Callable[[str], Inspector]


async def answer_page(
    call: ClientCall, settings: GatewaySettings, find_inspector: FindInspector, folder: str = ""
) -> None:
    """Answer one request for the pages below a folder. A view is computed in a thread."""
    path = call.line.path.removeprefix(folder)
    try:
        answer = await _find_answer(call, path, settings, find_inspector)
    except Refusal as refusal:
        answer = show_problem(refusal.status, refusal.message)
    if not path:  # the page names its files relative to itself, so its address ends with a slash
        answer = PageAnswer(status=307, headers={"Location": f"{folder}/"})
    headers = [(name.encode(), value.encode("latin-1")) for name, value in answer.headers.items()]
    headers.append((b"content-length", b"%d" % len(answer.body)))
    await call.send_head(answer.status, headers, joins_body=True)
    await call.send_body(answer.body, is_last=True)


async def _find_answer(
    call: ClientCall, path: str, settings: GatewaySettings, find_inspector: FindInspector
) -> PageAnswer:
    """What is asked for. Raises Refusal, as for every other request of the gateway."""
    headers = call.line.headers
    if not path.startswith("/api/"):
        # A link in a chat message opens the page, so it may come from another site.
        check_sender([each for each in headers if each[0] not in _SITE_HEADERS], settings)
        return answer_request(None, call.line.method, path, "")
    workspace = admit_visitor(headers, settings).workspace
    query = call.line.query.decode("latin-1")
    return await to_thread.run_sync(answer_request, find_inspector(workspace), call.line.method, path, query)


class GatewayPages:
    """State: the inspector of each workspace of one gateway process."""

    def __init__(self, settings: GatewaySettings, store: GatewayStore, saver: ConversationSaver) -> None:
        self._settings = settings
        self._store = store
        self._saver = saver
        self._inspectors: dict[str, Inspector] = {}

    async def answer(self, call: ClientCall) -> None:
        await answer_page(call, self._settings, self._find_inspector, INSPECTOR)

    def _find_inspector(self, workspace: str) -> Inspector:
        if workspace not in self._inspectors:
            source = StoredSessions(self._ask_store, workspace, pause=LOOK_PAUSE)
            sources: list[TraceSource] = [source]
            if self._settings.policy.keep == "nothing":
                sources.append(_NothingKept())
            self._inspectors[workspace] = Inspector(Sessions(sources=sources))
        return self._inspectors[workspace]

    def _ask_store(self, operation: Callable[[Store], Awaitable[_Value]], /) -> _Value:
        """Do something with the store, from the thread in which a page is made.

        What this process has not written yet is written first, so that the page shows it as well.
        """
        return from_thread.run(self._flush_and_ask, operation)

    async def _flush_and_ask(self, operation: Callable[[Store], Awaitable[_Value]]) -> _Value:
        await self._saver.flush_records()
        await self._saver.flush()  # figures without texts wait there
        try:
            return await self._store.call(operation)
        except StoreGone as error:
            hint = "try again in a moment; the log of the gateway names the problem"
            raise StoreError(str(error), hint=hint) from error


class _NothingKept:
    """Says why a gateway that keeps nothing has nothing to show."""

    def state(self) -> str:
        return "nothing"

    def read(self) -> list[UnreadableLine]:
        reason = 'this gateway keeps nothing; with keep = "all" its requests are shown as they were sent'
        return [UnreadableLine(place="keep", reason=reason)]


class PageServer:
    """The pages of one inspector on a port of this machine, for `lamina inspect`.

    Port 0 takes a free one. An address that others can reach has a token.
    """

    def __init__(self, inspector: Inspector, *, host: str = "127.0.0.1", port: int = 0) -> None:
        if port > LARGEST_PORT:
            raise BadInput(f"there is no port {port}", place="port", hint=f"the largest is {LARGEST_PORT}")
        tokens: tuple[AccessToken, ...] = ()
        self.token = ""
        if not is_loopback(host):
            self.token = secrets.token_urlsafe(24)
            tokens = (AccessToken(sha256=sha256(self.token.encode()).hexdigest()),)
        self._inspector = inspector
        self._settings = GatewaySettings(host=host, tokens=tokens)
        try:
            family = socket.AF_INET
            if ":" in host:
                family = socket.AF_INET6
            self._listener = socket.create_server((host, port), family=family)
        except OSError as error:
            raise BadInput(
                f"port {port} cannot be used: {error.strerror}", place="port", hint="choose another, or none"
            ) from error
        self._port = self._listener.getsockname()[1]
        app: Any = self  # `ClientConnection` asks it, and no ASGI server does
        config = uvicorn.Config(
            app,
            http=ClientConnection,
            ws="none",
            interface="asgi3",
            lifespan="off",
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=SECONDS_TO_END,
        )
        self._server = uvicorn.Server(config)

    @property
    def address(self) -> str:
        """Where a browser finds the page."""
        host = self._settings.host
        if ":" in host:
            host = f"[{host}]"
        address = f"http://{host}:{self._port}/"
        if self.token:
            address += f"?token={self.token}"
        return address

    async def answer(self, call: ClientCall) -> None:
        await answer_page(call, self._settings, lambda _: self._inspector)

    def run(self) -> None:
        """Serve until Ctrl-C."""
        self._server.run(sockets=[self._listener])

    @contextmanager
    def running(self) -> Iterator[PageServer]:
        """Serve in a thread until the block ends."""
        thread = threading.Thread(target=self.run, name="lamina-inspector", daemon=True)
        thread.start()
        while thread.is_alive() and not self._server.started:
            time.sleep(0.01)
        try:
            yield self
        finally:
            self._server.should_exit = True
            thread.join()
