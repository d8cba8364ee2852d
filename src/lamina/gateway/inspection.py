"""The pages of `lamina inspect` at `/lamina/inspect/`. They show the conversations that are in memory.

The gateway's own guards decide who may look: host, origin and access token. A browser cannot send a token in
a header when it opens a page. So here, and nowhere else in the gateway, it may also come as `?token=…`. The
browser then gets a cookie that opens these pages and nothing else (`inspector/page_cookies.py`). A token
opens the conversations of its own workspace and no others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from time import time
from typing import Any
from urllib.parse import parse_qs

from lamina.core.text.characters import lower_ascii
from lamina.gateway.config import GatewaySettings
from lamina.gateway.conversations import ConversationIndex, LiveConversation
from lamina.gateway.refusals import Refusal
from lamina.gateway.routes import INSPECTOR
from lamina.gateway.security import (
    TOKEN_HEADER,
    Headers,
    Visitor,
    admit_visitor,
    check_sender,
    read_header,
)
from lamina.inspector.asgi import make_app
from lamina.inspector.page_cookies import is_valid, read_cookie
from lamina.inspector.sessions import Sessions
from lamina.inspector.views import Inspector
from lamina.replay.values import RecordedUsage, Trace

_TURN_FIELDS = frozenset(("messages", "input", "contents", "model"))

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class InspectorPages:
    """The pages, for every workspace of one gateway process."""

    def __init__(self, settings: GatewaySettings, index: ConversationIndex, cookie_key: bytes) -> None:
        self._settings = settings
        self._index = index
        self._cookie_key = cookie_key
        self._inspectors: dict[str, Inspector] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: Headers = scope["headers"]
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
            source = LiveSource(self._index, workspace)
            self._inspectors[workspace] = Inspector(Sessions(sources=[source]))
        return self._inspectors[workspace]


class LiveSource:
    """The conversations of one workspace that this process has in memory, as traces."""

    def __init__(self, index: ConversationIndex, workspace: str) -> None:
        self._index = index
        self._workspace = workspace

    def state(self) -> list[tuple[str, int, int]]:
        """The name of each conversation, and how many requests and answers it has had."""
        return [
            (conversation.name, conversation.state.requests, len(conversation.usages))
            for conversation in self._index.list_live(self._workspace)
        ]

    def read(self) -> list[Trace]:
        return [_make_trace(conversation) for conversation in self._index.list_live(self._workspace)]


def _make_trace(conversation: LiveConversation) -> Trace:
    """The messages of the last request as they came, with what was reported for each answer.

    The answer to the last request is not in them. What was reported for it stands after the last message.
    """
    items = [turn for turn in conversation.turns if isinstance(turn, dict)]
    request = conversation.request or {}
    used: dict[int, RecordedUsage] = {}
    for length, (moment, usage) in conversation.usages.items():
        if length <= len(items):
            used[length] = RecordedUsage(
                uncached=max(usage.input - usage.cached - usage.written, 0),
                read=usage.cached,
                written=usage.written - usage.written_long,
                written_long=usage.written_long,
                output=usage.output,
                at=moment,
            )
    state = conversation.state
    return Trace(
        id=conversation.name,
        place=f"{state.upstream or 'gateway'}/{conversation.name}",
        dialect=state.dialect,
        items=items,
        head={name: value for name, value in request.items() if name not in _TURN_FIELDS},
        source="gateway",
        model=state.model,
        used=used,
    )


def _read_page_token(query: bytes) -> str:
    """The token in the address of a page."""
    values = parse_qs(query.decode("latin-1")).get("token", [""])
    return values[-1]


async def _refuse(refusal: Refusal, send: Send) -> None:
    body = refusal.body("")
    headers = [*refusal.headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
