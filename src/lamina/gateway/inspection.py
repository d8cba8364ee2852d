"""The pages of `lamina inspect` at `/lamina/inspect/`. They show what the gateway has recorded in its store.

The gateway's own guards decide who may look: host, origin and access token. A browser cannot send a token in
a header when it opens a page. So here, and nowhere else in the gateway, it may also come as `?token=…`. The
browser then gets a cookie that opens these pages and nothing else (`inspector/page_cookies.py`). A token
opens the conversations of its own workspace and no others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from time import time
from typing import Any, TypeVar
from urllib.parse import parse_qs

from anyio import from_thread

from lamina.core.text.characters import lower_ascii
from lamina.errors import StoreError
from lamina.inspector.asgi import make_app
from lamina.inspector.page_cookies import is_valid, read_cookie
from lamina.inspector.pages import is_followed_link
from lamina.inspector.sessions import Sessions, TraceSource
from lamina.inspector.stored_sessions import StoredSessions
from lamina.inspector.views import Inspector
from lamina.relay.config import GatewaySettings
from lamina.relay.refusals import Refusal
from lamina.relay.routes import INSPECTOR
from lamina.relay.saving import ConversationSaver
from lamina.relay.security import (
    TOKEN_HEADER,
    Headers,
    Visitor,
    admit_visitor,
    check_sender,
    read_header,
)
from lamina.relay.store_access import GatewayStore, StoreGone
from lamina.replay.values import UnreadableLine
from lamina.stores.port import Store

LOOK_PAUSE = 0.2
"""Seconds within which the store is not looked at again: one click asks for several views."""

_Value = TypeVar("_Value")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class InspectorPages:
    """The pages, for every workspace of one gateway process."""

    def __init__(
        self, settings: GatewaySettings, store: GatewayStore, saver: ConversationSaver, cookie_key: bytes
    ) -> None:
        self._settings = settings
        self._store = store
        self._saver = saver
        self._cookie_key = cookie_key
        self._inspectors: dict[str, Inspector] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: Headers = scope["headers"]
        named = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
        if is_followed_link(scope["path"].removeprefix(INSPECTOR), named):
            # A link in a chat message opens the page. The check of every other request would refuse it.
            headers = [(name, value) for name, value in headers if name != b"sec-fetch-site"]
        page_token = _read_page_token(scope["query_string"])
        try:
            visitor = self._admit(headers, page_token)
        except Refusal as refusal:
            await _refuse(refusal, send)
            return
        inspector = self._find_inspector(visitor.workspace)
        app = make_app(
            inspector,
            hosts=[lower_ascii(read_header(headers, b"host"))],  # the gateway has checked it
            token=page_token if self._settings.tokens else "",  # a visitor with a cookie was admitted here
            prefix=INSPECTOR,
            cookie_key=self._cookie_key,
        )
        await app(scope, receive, send)

    def _admit(self, headers: Headers, page_token: str) -> Visitor:
        """Who looks. Raises Refusal, as for every other request of the gateway."""
        if page_token:
            token = (TOKEN_HEADER, page_token.encode("utf-8", "surrogateescape"))
            return admit_visitor([*headers, token], self._settings)
        cookie = read_cookie(read_header(headers, b"cookie"))
        for access in self._settings.tokens:
            if is_valid(cookie, self._cookie_key, access.sha256, now=time()):
                check_sender(headers, self._settings)
                return Visitor(access.workspace)
        return admit_visitor(headers, self._settings)

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


def _read_page_token(query: bytes) -> str:
    values = parse_qs(query.decode("latin-1")).get("token", [""])
    return values[-1]


async def _refuse(refusal: Refusal, send: Send) -> None:
    body = refusal.body("")
    headers = [*refusal.headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
