"""Decides who may ask, before the body is read: by host name, by origin, and by access token.

A gateway on the loopback address answers only to loopback names. So DNS rebinding, in which a page points its
own name at 127.0.0.1, gets 421, and a page that posts across sites gets 403. Tokens are compared by their
SHA-256, all of them in constant time, so the time tells nothing about which one was nearly right.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from lamina.core.text.characters import lower_ascii
from lamina.relay.config import GatewaySettings, is_address, is_loopback, read_host_name
from lamina.relay.refusals import Refusal

TOKEN_HEADER = b"x-lamina-token"
"""Has the access token if the client's own key goes on to the upstream."""

KEY_HEADERS = (b"authorization", b"x-api-key", b"x-goog-api-key")
"""Where clients send a key."""

Headers = Sequence[tuple[bytes, bytes]]


class Visitor(NamedTuple):
    """Who asks: the workspace, and whether the token came in the header of the key."""

    workspace: str = "default"
    key_is_token: bool = False


def admit_visitor(headers: Headers, settings: GatewaySettings, *, names: str = "`hosts`") -> Visitor:
    """The workspace of a request. Raises Refusal if it must not be answered.

    `names` is the setting or option of the caller's door that lists more host names.
    """
    check_sender(headers, settings, names=names)
    if not settings.tokens:
        return Visitor()
    token = read_header(headers, TOKEN_HEADER)
    in_key_header = not token
    if in_key_header:
        token = read_key(headers)
    workspace = _find_workspace(token, settings)
    if workspace is None:
        raise Refusal(401, "the access token is missing or wrong")
    return Visitor(workspace, in_key_header)


def check_sender(headers: Headers, settings: GatewaySettings, *, names: str = "`hosts`") -> None:
    """Refuse a host name that is not served here, pages of other sites, and two keys in one header."""
    _check_host(headers, settings, names)
    _check_origin(headers)
    for key_header in KEY_HEADERS:  # servers differ in which of two values they take
        if len(set(_read_values(headers, key_header))) > 1:
            raise Refusal(400, f"two different {key_header.decode()} headers came; send one")


def read_key(headers: Headers) -> str:
    """The one key of a request, from whichever header has it. Two different keys are refused."""
    keys: set[str] = set()
    for name, value in headers:
        if name in KEY_HEADERS:
            keys.add(value.decode("latin-1").removeprefix("Bearer ").removeprefix("bearer ").strip(" \t"))
    keys.discard("")
    if len(keys) > 1:
        raise Refusal(400, "two different keys came with one request; send one")
    if not keys:
        return ""
    return keys.pop()


def read_header(headers: Headers, header_name: bytes) -> str:
    """The first value of a header, "" without it."""
    for name, value in headers:
        if name == header_name:
            return value.decode("latin-1").strip(" \t")
    return ""


def read_list(headers: Headers, header_name: bytes) -> str:
    """The values of a header that may come in several lines, as one list: `zstd,gzip`."""
    return b",".join(_read_values(headers, header_name)).decode("latin-1")


def _read_values(headers: Headers, header_name: bytes) -> list[bytes]:
    return [value for name, value in headers if name == header_name]


def _find_workspace(token: str, settings: GatewaySettings) -> str | None:
    if not token:
        return None
    digest = sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
    workspace = None
    for access in settings.tokens:  # all of them, so that the time is the same for each
        if hmac.compare_digest(access.sha256, digest):
            workspace = access.workspace
    return workspace


def _check_host(headers: Headers, settings: GatewaySettings, names: str) -> None:
    """Refuse foreign Host headers (DNS rebinding).

    If other machines may ask and no names are listed, the token decides. It also decides where they ask by
    address: only a name can be pointed at another machine.
    """
    values = _read_values(headers, b"host")
    if len(values) != 1:
        raise Refusal(400, "a request needs one Host header")
    if settings.is_public and not settings.hosts:
        return
    host = read_host_name(values[0].decode("latin-1"))
    if is_loopback(host) or host in map(lower_ascii, settings.hosts):
        return
    if settings.is_public and is_address(host):  # as Prometheus asks each pod
        return
    raise Refusal(421, f"this host name is not served here; list it in {names}")


def _check_origin(headers: Headers) -> None:
    """Refuse what a web page of another site sends. Programs send neither of these headers."""
    if read_header(headers, b"sec-fetch-site") in ("cross-site", "same-site"):
        raise Refusal(403, "requests from other sites are not answered")
    origin = read_header(headers, b"origin")
    if not origin:
        return
    host = read_header(headers, b"host")  # there is one
    if origin not in (f"http://{host}", f"https://{host}"):
        raise Refusal(403, "requests from pages of other origins are not answered")
