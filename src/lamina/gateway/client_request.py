"""The head of a client's HTTP request, read once from its ASGI scope: who asks, for what, and whom."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from time import monotonic
from typing import Any

import msgspec
from multidict import CIMultiDict
from yarl import URL

from lamina.core.text.characters import lower_ascii
from lamina.gateway.calls import IncomingRequest
from lamina.gateway.refusals import Refusal
from lamina.gateway.routes import RouteMatch, match_route
from lamina.gateway.security import Headers, Visitor, read_header
from lamina.gateway.upstreams import Upstream, Upstreams, request_headers, upstream_url

Scope = MutableMapping[str, Any]


class ClientRequest(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A request as its client sent it, without its body.

    `prefixed` is the upstream that the path names, None if the route chooses it. `raw_path` is the path as
    the client wrote it, without the prefix of that upstream. `began` is when it came, by the monotonic clock.
    """

    visitor: Visitor
    method: str
    path: str
    raw_path: bytes
    query: bytes
    headers: Headers
    route: RouteMatch
    prefixed: Upstream | None
    began: float

    @classmethod
    def read(cls, scope: Scope, visitor: Visitor, upstreams: Upstreams) -> ClientRequest:
        """Read a request. Raises Refusal if its path cannot be passed on as it was written."""
        prefixed, path = upstreams.by_prefix(scope["path"])
        return cls(
            visitor=visitor,
            method=scope["method"],
            path=scope["path"],
            raw_path=_remove_prefix(scope["raw_path"], prefixed),
            query=scope["query_string"],
            headers=scope["headers"],
            route=match_route(scope["method"], path),
            prefixed=prefixed,
            began=monotonic(),
        )

    @property
    def passes_unread(self) -> bool:
        """Whether its body is not read: nothing at its path is fitted, or the client switched lamina off."""
        if self.route.action == "pass":
            return True
        return lower_ascii(read_header(self.headers, b"x-lamina")) == "off"

    def url_at(self, upstream: Upstream) -> URL:
        """The address of the same path at an upstream."""
        return upstream_url(upstream, self.raw_path, self.query)

    def headers_for(
        self,
        upstream: Upstream,
        environment: Mapping[str, str],
        *,
        betas: str = "",
        unpacked: bool = False,
    ) -> CIMultiDict[str]:
        """The headers to send. A key that opened the gateway stays here (`upstreams.request_headers`)."""
        return request_headers(
            self.headers,
            upstream,
            environment=environment,
            drop_key=self.visitor.key_is_token,
            betas=betas,
            unpacked=unpacked,
        )

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
