"""Fetches one page of the web, and nothing of the network that this machine is in.

Each address of a name is checked, and we connect to the very address that was checked, so DNS rebinding
leads nowhere. Each redirect is checked in the same way. No proxy of the environment is used, and no cookie or
credential is sent. Bytes and seconds are limited, for slow answers and slow names too. A system resolver
cannot be interrupted, so names are looked up in a process of their own, which can be ended.

This module blocks: call it from a worker thread. It does not interpret the answer.

The lists of addresses are IANA's registries of special-purpose addresses, as of 2025. They are written out
here, because Python's own `is_global` has changed from one release to the next. An IPv4 address inside of an
IPv6 address is checked too.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Self
from urllib.parse import SplitResult, quote, urljoin, urlsplit

import msgspec

from lamina.core.text.characters import WHITE_SPACE, lower_ascii
from lamina.errors import BadInput
from lamina.workspace.separate_process import ChildFailed, run_script

Resolve = Callable[[str, int, float], Sequence[str]]
"""Returns the addresses of a host, for a port, in at most so many seconds."""

REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CHUNK = 1 << 16
_AS_IS = "/?:@!$&'()*+,;=%~[]"
"""Characters of a path that are sent unchanged; all others are escaped."""


_LOOK_UP = """
import socket
host, port = arguments
try:
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    print(json.dumps({"addresses": [info[4][0] for info in infos]}))
except (OSError, UnicodeError) as error:
    print(json.dumps({"problem": str(error)}))
"""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NOT_PUBLIC_V4 = [
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # behind a carrier's translation
        "127.0.0.0/8",  # this machine
        "168.63.129.16/32",  # a cloud's own services, seen from its machines only
        "169.254.0.0/16",  # link-local, where clouds keep their metadata
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # multicast tunnels
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
]

_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
"""Every assigned address is in it. So these are not public: loopback, link-local (fe80::/10), site-local
(fec0::/10), unique local (fc00::/7), multicast (ff00::/8), local NAT64 (64:ff9b:1::/48), and segment routing
(5f00::/16)."""

_NOT_PUBLIC_V6 = [
    ipaddress.IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID and others
        "2001:db8::/32",  # documentation
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
]

# IPv6 networks whose addresses have an IPv4 address inside
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_SIX_TO_FOUR = ipaddress.IPv6Network("2002::/16")
_ISATAP = frozenset((0x0000_5EFE, 0x0200_5EFE))


def is_public(address: Address) -> bool:
    """Whether an address is one of the public internet.

    An IPv6 address with an IPv4 address inside is public only if the inner one is too.
    """
    if isinstance(address, ipaddress.IPv4Address):
        return not _is_in(address, _NOT_PUBLIC_V4)
    inner = _inner_address(address)
    if inner is not None and not is_public(inner):
        return False
    if _is_in(address, (_MAPPED, _NAT64)):
        return True  # the IPv4 address that it leads to is public
    return address in _GLOBAL_V6 and not _is_in(address, _NOT_PUBLIC_V6)


def _is_in(address: Address, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks)


def _inner_address(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 address leads to, None if it leads to none.

    It stands in the last 32 bits: `::ffff:10.0.0.1` leads to `10.0.0.1`. In 6to4 it comes after the first 16
    bits: `2002:0a00:0001::` leads to `10.0.0.1` too.
    """
    number = int(address)
    last_bits = ipaddress.IPv4Address(number & 0xFFFF_FFFF)
    if _is_in(address, (_MAPPED, _NAT64, _COMPATIBLE)):
        return last_bits
    if address in _SIX_TO_FOUR:
        return ipaddress.IPv4Address(number >> 80 & 0xFFFF_FFFF)
    if number >> 32 & 0xFFFF_FFFF in _ISATAP:
        return last_bits
    return None


def resolve_host(host: str, port: int, seconds: float) -> Sequence[str]:
    """Every address of a host, by the resolver of the system."""
    try:
        return [str(ipaddress.ip_address(host))]
    except ValueError:
        pass  # the host is a name
    try:
        answer = json.loads(run_script(_LOOK_UP, b"", seconds=seconds, arguments=(host, port)))
    except ChildFailed as failed:
        raise OSError(f"the name could not be looked up: {failed.why}") from None
    if "problem" in answer:
        raise OSError(answer["problem"])
    return list(dict.fromkeys(answer["addresses"]))


class FetchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How far a fetch goes. `seconds` are for all of it: names, redirects, handshakes and the answer.

    `allowed` says which addresses may be fetched from, `resolve` finds those of a name.
    """

    largest: int = 4 * 2**20
    seconds: float = 10.0
    redirects: int = 5
    ports: tuple[int, ...] = (80, 443)
    allowed: Callable[[Address], bool] = is_public
    resolve: Resolve = resolve_host


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A page: its final address, its type and encoding according to its headers, and its bytes."""

    url: str
    kind: str
    charset: str
    body: bytes


DEFAULT = FetchLimits()


def fetch(url: str, limits: FetchLimits = DEFAULT) -> Answer:
    """The page at an address. Raises BadInput, which says why there is none."""
    deadline = time.monotonic() + limits.seconds
    current_url = url
    for _ in range(limits.redirects + 1):
        answer = _request_page(current_url, limits, deadline)
        if isinstance(answer, Answer):
            return answer
        current_url = urljoin(current_url, answer)
    raise BadInput(f"more than {limits.redirects} redirects", place=url, hint="give the final address")


def _request_page(url: str, limits: FetchLimits, deadline: float) -> Answer | str:
    """The page, or the address it moved to."""
    target = _parse_url(url, limits)
    default_port = 443 if target.scheme == "https" else 80
    port = target.port or default_port
    try:
        # name, connection and answer share one deadline: a server that sends a byte a minute does not hold us
        address = _choose_address(target.hostname or "", port, limits, url, deadline)
        with _TimedConnection(address, port, _seconds_left(deadline)) as timed:
            answer = _read_answer(timed.open(target, port), target, limits, url)
            _seconds_left(deadline)  # raises if the connection was ended in the middle of the answer
            return answer
    except BadInput:
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:
        problem = f"no answer: {error!s:.200}"
        if time.monotonic() >= deadline:
            problem = f"no answer in {limits.seconds:g} seconds"
        raise BadInput(problem, place=url, hint="check the address, or try again later") from None


def _parse_url(url: str, limits: FetchLimits) -> SplitResult:
    """The parts of an address. Refuses addresses that two programs could read differently."""
    hint = "give an address as in 'https://example.org/page'"
    # two programs may read such an address differently: what one takes for the host is a user name to the
    # other, and so it could lead to a private address
    if any(char <= " " or char in '\\"<>`{}|^\x7f' for char in url):
        raise BadInput("an address with characters that do not belong there", place=url[:200], hint=hint)
    try:
        target = urlsplit(url)
        port = target.port
    except ValueError as error:
        raise BadInput(f"no address: {error}", place=url[:200], hint=hint) from None
    host = target.hostname or ""
    # "%" in a host is an escape to one program, and the zone of an IPv6 address to another
    is_web = target.scheme in {"http", "https"} and host != "" and "%" not in host
    is_allowed_port = port is None or port in limits.ports
    for is_right, problem, place, what_to_do in (
        (is_web, "only http and https are fetched", url[:200], hint),
        (target.netloc.isascii(), "a name with letters beyond ASCII", host, "write it as xn--…"),
        ("@" not in target.netloc, "an address with a user name", host, "leave it out"),
        (is_allowed_port, f"port {port} is not fetched from", url[:200], f"ports: {limits.ports}"),
    ):
        if not is_right:
            raise BadInput(problem, place=place, hint=what_to_do)
    return target


def _choose_address(host: str, port: int, limits: FetchLimits, url: str, deadline: float) -> str:
    """The address to connect to, if every address of the host is allowed.

    The connection goes to this very address, so the name cannot be resolved to another one in between.
    """
    texts = limits.resolve(host, port, _seconds_left(deadline))
    addresses = [ipaddress.ip_address(text.partition("%")[0]) for text in texts]
    if not addresses or not all(limits.allowed(address) for address in addresses):
        raise BadInput("it does not lead to the public internet", place=url[:200], hint="attach its text")
    return str(addresses[0])


class _TimedConnection:
    """A connection to one address that is shut down when its time is over, whatever it is doing."""

    def __init__(self, address: str, port: int, seconds: float) -> None:
        self._sock = socket.create_connection((address, port), timeout=seconds)
        self._lock = threading.Lock()
        self._is_over = False
        self._timer = threading.Timer(seconds, self._shut_down)
        self._timer.daemon = True
        self._timer.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._sock.close()

    def open(self, target: SplitResult, port: int) -> http.client.HTTPConnection:
        """An HTTP connection for the host of the target, over TLS for https."""
        connection = http.client.HTTPConnection(target.hostname or "", port)
        if target.scheme == "https":
            self._start_tls(target.hostname)
        connection.sock = self._sock
        connection.auto_open = 0  # never connects by itself, to an address that was not checked
        return connection

    def _start_tls(self, hostname: str | None) -> None:
        """Speak TLS from now on. The lock is needed: a socket shut down while wrapped would stay open."""
        context = ssl.create_default_context()
        with self._lock:
            if self._is_over:
                raise TimeoutError
            encrypted = context.wrap_socket(
                self._sock, server_hostname=hostname, do_handshake_on_connect=False
            )
            self._sock = encrypted
        encrypted.do_handshake()

    def _shut_down(self) -> None:
        """End the connection. Whoever reads from it gets an error, and learns that the time is over."""
        with self._lock, contextlib.suppress(OSError):
            self._is_over = True
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)


def _read_answer(
    connection: http.client.HTTPConnection, target: SplitResult, limits: FetchLimits, url: str
) -> Answer | str:
    """Send the request, and return the page or the address that it moved to."""
    path = target.path or "/"
    if target.query:
        path += f"?{target.query}"
    headers = {
        "Host": target.netloc,
        "User-Agent": "lamina",
        "Accept": "text/*, application/*;q=0.8",
        "Accept-Encoding": "identity",
        "Connection": "close",
    }
    connection.request("GET", quote(path, safe=_AS_IS), headers=headers)
    # A response keeps the socket open after the connection is closed, until it is closed itself.
    with contextlib.closing(connection.getresponse()) as answer:
        new_url = answer.getheader("Location")
        if answer.status in REDIRECTS and new_url:
            return new_url
        if answer.status != 200:
            raise BadInput(f"the answer is {answer.status}", place=url, hint="check the address")
        encoding = answer.getheader("Content-Encoding", "identity").strip(WHITE_SPACE)
        # a few packed bytes can become gigabytes
        if lower_ascii(encoding) not in {"identity", ""}:
            raise BadInput("a packed answer, which was not asked for", place=url)
        body = _read_body(answer, limits.largest, url)
        return Answer(
            url=url,
            kind=answer.headers.get_content_type(),
            charset=answer.headers.get_content_charset() or "",
            body=body,
        )


def _read_body(answer: http.client.HTTPResponse, largest: int, url: str) -> bytes:
    """All bytes of an answer, counted while reading."""
    chunks: list[bytes] = []
    size = 0
    while chunk := answer.read(min(_CHUNK, largest + 1 - size)):
        chunks.append(chunk)
        size += len(chunk)
        if size > largest:
            raise BadInput(f"larger than {largest:,} bytes", place=url, hint="attach a part of it")
    return b"".join(chunks)


def _seconds_left(deadline: float) -> float:
    """Seconds until the deadline. Raises TimeoutError if it is over."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("no time left")
    return left
