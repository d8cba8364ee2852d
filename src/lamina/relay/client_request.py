"""The head of a client's HTTP request: who asks, for what, and whom.

What its headers say is read once for all requests of a connection that bring the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import NamedTuple

import msgspec

from lamina.core.text.characters import lower_ascii
from lamina.relay.calls import IncomingRequest
from lamina.relay.config import GatewaySettings
from lamina.relay.identity import ClientIdentity, read_header_identity
from lamina.relay.refusals import Refusal
from lamina.relay.routes import RouteMatch, match_route
from lamina.relay.security import Headers, Visitor, admit_visitor, read_header, read_list
from lamina.relay.upstreams import Upstream, Upstreams, request_headers

UPGRADE_REQUIRED = 426


class RequestLine(NamedTuple):
    """What a client wrote before the body. `raw_path` and `query` are byte for byte as they came."""

    method: str
    path: str
    raw_path: bytes
    query: bytes
    headers: Headers


class ClientHead(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What the headers of a request say, whatever its path and its body.

    `headers` are all but the length of the body. `is_off`: the client has switched lamina off. `sent_headers`
    are those that were made of them, by the name of the upstream, the added betas, and whether the body was
    unpacked.
    """

    headers: Headers
    visitor: Visitor
    identity: ClientIdentity
    is_off: bool
    sent_headers: dict[tuple[str, str, bool], Headers] = msgspec.field(default_factory=dict)

    @classmethod
    def read(cls, headers: Headers, settings: GatewaySettings) -> ClientHead:
        """Read headers. Raises Refusal if a request with them is not served here."""
        visitor = admit_visitor(headers, settings)
        _refuse_transfer(headers)
        return cls(
            headers=headers,
            visitor=visitor,
            identity=read_header_identity(headers),
            is_off=lower_ascii(read_header(headers, b"x-lamina")) == "off",
        )


class LastHead:
    """The head of the last request on a connection. Most clients send the same headers again and again."""

    def __init__(self) -> None:
        self._head: ClientHead | None = None

    def read(self, headers: Headers, settings: GatewaySettings) -> ClientHead:
        """The head of the next request. Raises Refusal as `ClientHead.read` does."""
        lasting = [header for header in headers if header[0] != b"content-length"]
        head = self._head
        if head is None or head.headers != lasting:
            head = ClientHead.read(lasting, settings)
            self._head = head
        return head


def _refuse_transfer(headers: Headers) -> None:
    """Say at once what is not served here.

    After a 426 Codex uses POST instead of a websocket; after a 404 it would try again.
    """
    if lower_ascii(read_header(headers, b"upgrade")) == "websocket":
        raise Refusal(UPGRADE_REQUIRED, "websockets are not served; use POST")
    if lower_ascii(read_list(headers, b"transfer-encoding")) not in ("", "chunked"):
        raise Refusal(400, "the only transfer-encoding that is served is chunked")


class ClientRequest(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A request as its client sent it, without its body.

    `prefixed` is the upstream that the path names, None if the route chooses it. `raw_path` is the path as
    the client wrote it, without the prefix of that upstream. `began` is when it came, by the monotonic clock.
    """

    head: ClientHead
    method: str
    path: str
    raw_path: bytes
    query: bytes
    headers: Headers
    route: RouteMatch
    prefixed: Upstream | None
    began: float

    @classmethod
    def read(cls, line: RequestLine, head: ClientHead, upstreams: Upstreams) -> ClientRequest:
        """Read a request. Raises Refusal if its path cannot be passed on as it was written."""
        prefixed, path = upstreams.by_prefix(line.path)
        return cls(
            head=head,
            method=line.method,
            path=line.path,
            raw_path=_remove_prefix(line.raw_path, prefixed),
            query=line.query,
            headers=line.headers,
            route=match_route(line.method, path),
            prefixed=prefixed,
            began=monotonic(),
        )

    @property
    def passes_unread(self) -> bool:
        """Whether its body is not read: nothing at its path is fitted, or the client switched lamina off."""
        return self.head.is_off or self.route.action == "pass"

    @property
    def target(self) -> bytes:
        """The path and the query, byte for byte as the client wrote them."""
        if not self.query:
            return self.raw_path
        return b"%b?%b" % (self.raw_path, self.query)

    def headers_for(
        self,
        upstream: Upstream,
        environment: Mapping[str, str],
        *,
        betas: str = "",
        unpacked: bool = False,
    ) -> Headers:
        """The headers to send. A key that opened the gateway stays here (`upstreams.request_headers`)."""
        key = (upstream.name, betas, unpacked)
        sent_headers = self.head.sent_headers.get(key)
        if sent_headers is None:
            sent_headers = request_headers(
                self.headers,
                upstream,
                environment=environment,
                drop_key=self.head.visitor.key_is_token,
                betas=betas,
                unpacked=unpacked,
            )
            self.head.sent_headers[key] = sent_headers
        return sent_headers

    def wants_events(self, incoming: IncomingRequest) -> bool:
        """Whether the client expects an event stream, in which comments are allowed."""
        match self.route.dialect:
            case "gemini":
                return self.route.streams and b"alt=sse" in self.query
            case "bedrock_converse":
                return False  # its streams are frames of bytes
            case "ollama":
                return False  # its streams are lines of JSON
        return incoming.request.get("stream") is True


def _remove_prefix(raw_path: bytes, prefixed: Upstream | None) -> bytes:
    """The path as the client wrote it, without the prefix that chose the upstream."""
    if prefixed is None:
        return raw_path
    prefix = prefixed.settings.prefix.encode()
    if not raw_path.startswith(prefix):
        raise Refusal(400, "the prefix of a path must not be percent-encoded")
    return raw_path[len(prefix) :] or b"/"
