"""Chooses the upstream of a request, and the address and headers with which it is sent there."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from lamina.dialects.anthropic.server import BETAS, merge_betas
from lamina.relay.config import GatewaySettings, UpstreamSettings
from lamina.relay.profiles import PROFILES, Profile
from lamina.relay.refusals import Refusal
from lamina.relay.routes import is_below
from lamina.relay.security import KEY_HEADERS, Headers

HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
_NEVER_SENT = HOP_BY_HOP | {b"host", b"content-length", b"cookie", b"forwarded", b"expect", b"x-real-ip"}
_NEVER_RETURNED = HOP_BY_HOP | {b"set-cookie", b"date", b"server"}
"""`date` and `server` are written by the gateway's own server, once."""

WITHOUT_BODY = (204, 304)

_BETAS = BETAS.encode()

_OWN = (b"x-lamina", b"x-forwarded-")
"""How headers begin that are the gateway's own, or a proxy's before it."""


_TELLING_HEADERS = {
    b"anthropic-version": "anthropic",
    b"x-claude-code-session-id": "anthropic",
    b"x-goog-api-key": "gemini",
}
"""Headers that only clients of one API send."""


class Upstream(NamedTuple):
    """An upstream of the settings by its name."""

    name: str
    settings: UpstreamSettings

    @property
    def profile(self) -> Profile:
        return PROFILES[self.settings.profile]


class Upstreams:
    """All upstreams, in the order of the settings."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._all = [Upstream(name, upstream) for name, upstream in settings.list_upstreams().items()]
        self._by_dialect: dict[str, list[Upstream]] = {}
        for upstream in self._all:
            for dialect in upstream.profile.dialects:
                self._by_dialect.setdefault(dialect, []).append(upstream)
        prefixed = [upstream for upstream in self._all if upstream.settings.prefix]
        self._longest_prefix_first = sorted(
            prefixed, key=lambda upstream: len(upstream.settings.prefix), reverse=True
        )

    def by_prefix(self, path: str) -> tuple[Upstream | None, str]:
        """The upstream whose prefix the path begins with, and the rest of the path. The longest one wins."""
        for upstream in self._longest_prefix_first:
            prefix = upstream.settings.prefix
            if is_below(path, prefix):
                return upstream, path[len(prefix) :] or "/"
        return None, path

    def choose(self, dialect: str, model: str) -> Upstream:
        """The upstream for a model, else the first one that speaks this API."""
        speaking = self._by_dialect.get(dialect, [])
        for upstream in speaking:
            models = upstream.settings.models
            if models and any(fnmatchcase(model, pattern) for pattern in models):
                return upstream
        for upstream in speaking:
            if not upstream.settings.models:
                return upstream
        raise Refusal(404, "no upstream serves this model; see `upstreams` in the gateway's settings")

    def for_other_paths(self, path: str, headers: Headers) -> Upstream:
        """The upstream for a path that is none of the known routes: as its headers and its shape suggest."""
        dialect = _guess_dialect(path, {name for name, _ in headers})
        speaking = self._by_dialect.get(dialect, self._all)
        return speaking[0]


def _guess_dialect(path: str, header_names: set[bytes]) -> str:
    """The API that a request for an unknown path is for."""
    for name, dialect in _TELLING_HEADERS.items():
        if name in header_names:
            return dialect
    if "/v1beta/" in path:
        return "gemini"
    if path.startswith("/api/"):
        return "ollama"
    return "openai_chat"


def request_headers(
    headers: Headers,
    upstream: Upstream,
    *,
    environment: Mapping[str, str],
    drop_key: bool = False,
    betas: str = "",
    unpacked: bool = False,
) -> Headers:
    """The headers to send: the client's, without those of the connection and the gateway's own.

    `betas` are added to the client's. `unpacked`: the body is sent without its content encoding.
    """
    profile = upstream.profile
    key_name = upstream.settings.key_env
    # A key that opened the gateway is none of the upstream's, and one of the settings replaces the client's.
    dropped = set(_add_connection_names(_NEVER_SENT, headers))
    if key_name or drop_key:
        dropped.update(KEY_HEADERS)
    if unpacked:
        dropped.add(b"content-encoding")
    if profile.drops_betas:
        dropped.add(_BETAS)
        betas = ""
    if betas:
        own = [value.decode("latin-1") for name, value in headers if name == _BETAS]
        dropped.add(_BETAS)
        betas = merge_betas(*own, betas)
    sent = [(name, value) for name, value in headers if name not in dropped and not name.startswith(_OWN)]
    if betas:
        sent.append((_BETAS, betas.encode("latin-1")))
    if key_name:
        scheme = ""
        if profile.key_header == "authorization":
            scheme = "Bearer "
        sent.append((profile.key_header.encode(), f"{scheme}{environment[key_name]}".encode()))
    return sent


def response_headers(raw_headers: Headers, status: int) -> list[tuple[bytes, bytes]]:
    """The upstream's headers for the client, without those of the connection, and without cookies.

    An answer that never has a body may announce the length of one that it does not send. uvicorn would wait
    for that.
    """
    dropped = _add_connection_names(_NEVER_RETURNED, raw_headers)
    if status in WITHOUT_BODY:
        dropped = dropped.union((b"content-length",))
    return [(name, value) for name, value in raw_headers if name.lower() not in dropped]


def _add_connection_names(dropped: frozenset[bytes], headers: Headers) -> frozenset[bytes]:
    """Also the headers that `Connection` names: they are for this hop only."""
    for name, value in headers:
        if name.lower() == b"connection":
            dropped = dropped.union(word.strip(b" \t").lower() for word in value.split(b","))
    return dropped
