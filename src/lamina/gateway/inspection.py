"""The pages of `lamina inspect` at `/lamina/inspect/`. They show the conversations that are in memory.

The gateway's own guards decide who may look: host, origin and access token. A browser cannot send a token in
a header when it opens a page. So here, and nowhere else in the gateway, it may also come as `?token=…`. The
page then keeps it in a cookie. A token opens the conversations of its own workspace and no others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from lamina.core.text.characters import lower_ascii
from lamina.gateway.config import GatewaySettings
from lamina.gateway.conversations import ConversationIndex, LiveConversation
from lamina.gateway.refusals import Refusal
from lamina.gateway.routes import INSPECTOR
from lamina.gateway.security import TOKEN_HEADER, Headers, admit_visitor, read_header
from lamina.inspector.asgi import make_app
from lamina.inspector.pages import TOKEN_COOKIE
from lamina.inspector.sessions import Sessions
from lamina.inspector.views import Inspector
from lamina.replay.values import RecordedUsage, Trace

_TURN_FIELDS = frozenset(("messages", "input", "contents", "model"))

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class InspectorPages:
    """The pages, for every workspace of one gateway process."""

    def __init__(self, settings: GatewaySettings, index: ConversationIndex) -> None:
        self._settings = settings
        self._index = index
        self._inspectors: dict[str, Inspector] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: Headers = scope["headers"]
        page_token = _read_page_token(headers, scope["query_string"])
        visitor_headers = headers
        if page_token:
            visitor_headers = [*headers, (TOKEN_HEADER, page_token.encode("utf-8", "surrogateescape"))]
        try:
            visitor = admit_visitor(visitor_headers, self._settings)
        except Refusal as refusal:
            await _refuse(refusal, send)
            return
        inspector = self._find_inspector(visitor.workspace)
        app = make_app(
            inspector,
            hosts=[lower_ascii(read_header(headers, b"host"))],  # the gateway has checked it
            token=page_token if self._settings.tokens else "",
            prefix=INSPECTOR,
        )
        await app(scope, receive, send)

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


def _read_page_token(headers: Headers, query: bytes) -> str:
    """The token in the address of a page, or in the cookie that the page keeps it in."""
    values = parse_qs(query.decode("latin-1")).get("token", [])
    if values:
        return values[-1]
    try:
        cookies = SimpleCookie(read_header(headers, b"cookie"))
    except CookieError:
        return ""
    cookie = cookies.get(TOKEN_COOKIE)
    return cookie.value if cookie is not None else ""


async def _refuse(refusal: Refusal, send: Send) -> None:
    body = refusal.body("")
    headers = [*refusal.headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
