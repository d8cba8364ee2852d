"""Gets one page of the web, and nothing of the network that this machine stands in.

Each address of a name is checked, and the connection is made to the very address that was checked: a name
cannot lead elsewhere by the time it is used. Each redirect begins anew. No proxy of the environment is asked,
no cookie or credential is sent; bytes and seconds are limited, slow answers and slow names included. A system
resolver cannot be interrupted, so names are looked up in a process of their own, which can be ended.

It blocks: call it from a worker thread. What an answer means is somebody else's work.
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
from collections.abc import Callable, Sequence
from email.message import Message
from typing import Self
from urllib.parse import SplitResult, quote, urljoin, urlsplit

import msgspec

from lamina.core.text.characters import WHITE_SPACE, lower_ascii
from lamina.errors import BadInput
from lamina.workspace.addresses import Address, is_public
from lamina.workspace.separate_process import ChildFailed, run_script

Resolve = Callable[[str, int, float], Sequence[str]]
"""The addresses of a host, for a port, in at most so many seconds."""

REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CHUNK = 1 << 16
_AS_IS = "/?:@!$&'()*+,;=%~[]"


_LOOK_UP = """
import socket
host, port = arguments
try:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    print(json.dumps({"addresses": [info[4][0] for info in found]}))
except (OSError, UnicodeError) as error:
    print(json.dumps({"problem": str(error)}))
"""


def resolve_host(host: str, port: int, seconds: float) -> Sequence[str]:
    """Every address of a host, by the resolver of the system."""
    try:
        return [str(ipaddress.ip_address(host))]
    except ValueError:
        pass  # a name
    try:
        answer = json.loads(run_script(_LOOK_UP, b"", seconds=seconds, arguments=(host, port)))
    except ChildFailed as failed:
        raise OSError(f"the name could not be looked up: {failed.why}") from None
    if "problem" in answer:
        raise OSError(answer["problem"])
    return list(dict.fromkeys(answer["addresses"]))


class FetchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How far a fetch goes. `seconds` are for all of it: names, redirects, handshakes and the answer.

    `allowed` says which addresses may be asked, `resolve` finds those of a name.
    """

    largest: int = 4 * 2**20
    seconds: float = 10.0
    redirects: int = 5
    ports: tuple[int, ...] = (80, 443)
    allowed: Callable[[Address], bool] = is_public
    resolve: Resolve = resolve_host


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A page: where it was found in the end, what it says it is, and its bytes."""

    url: str
    kind: str
    charset: str
    body: bytes


DEFAULT = FetchLimits()


def fetch(url: str, limits: FetchLimits = DEFAULT) -> Answer:
    """The page at an address, or BadInput that says why there is none."""
    deadline = time.monotonic() + limits.seconds
    place = url
    for _ in range(limits.redirects + 1):
        answer = _asked(place, limits, deadline)
        if isinstance(answer, Answer):
            return answer
        place = urljoin(place, answer)
    raise BadInput(f"more than {limits.redirects} redirects", place=url, hint="give the final address")


def _asked(url: str, limits: FetchLimits, deadline: float) -> Answer | str:
    """The page, or where it moved to."""
    target = _parsed(url, limits)
    port = target.port or (443 if target.scheme == "https" else 80)
    try:
        address = _checked(target.hostname or "", port, limits, url, deadline)
        with _Line(address, port, _left(deadline)) as line:
            answer = _answered(line.open(target, port), target, limits, url)
            _left(deadline)  # what was cut off in the middle is no answer
            return answer
    except BadInput:
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:
        late = time.monotonic() >= deadline
        problem = f"no answer in {limits.seconds:g} seconds" if late else f"no answer: {error!s:.200}"
        raise BadInput(problem, place=url, hint="check the address, or try again later") from None


def _parsed(url: str, limits: FetchLimits) -> SplitResult:
    """An address that everyone reads the same way."""
    hint = "give an address as in 'https://example.org/page'"
    if any(char <= " " or char in '\\"<>`{}|^\x7f' for char in url):
        raise BadInput("an address with characters that do not belong there", place=url[:200], hint=hint)
    try:
        target = urlsplit(url)
        port = target.port
    except ValueError as error:
        raise BadInput(f"no address: {error}", place=url[:200], hint=hint) from None
    if target.scheme not in {"http", "https"} or not target.hostname or "%" in target.hostname:
        raise BadInput("only http and https are fetched", place=url[:200], hint=hint)
    if not target.netloc.isascii():
        raise BadInput("a name with letters beyond ASCII", place=target.hostname, hint="write it as xn--…")
    if "@" in target.netloc:
        raise BadInput("an address with a user name", place=target.hostname, hint="leave it out")
    if port is not None and port not in limits.ports:
        raise BadInput(f"port {port} is not fetched from", place=url[:200], hint=f"ports: {limits.ports}")
    return target


def _checked(host: str, port: int, limits: FetchLimits, url: str, deadline: float) -> str:
    """The address to connect to, if every address of the name may be asked."""
    names = limits.resolve(host, port, _left(deadline))
    found = [ipaddress.ip_address(name.partition("%")[0]) for name in names]
    if not found or not all(limits.allowed(address) for address in found):
        raise BadInput("it does not lead to the public internet", place=url[:200], hint="attach its text")
    return str(found[0])


class _Line:
    """A connection to one address that is hung up when its time is over, whatever it is doing."""

    def __init__(self, address: str, port: int, seconds: float) -> None:
        self._sock = socket.create_connection((address, port), timeout=seconds)
        self._lock = threading.Lock()
        self._is_over = False
        self._ends = threading.Timer(seconds, self._hang_up)
        self._ends.daemon = True
        self._ends.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.cancel()
        self._sock.close()

    def open(self, target: SplitResult, port: int) -> http.client.HTTPConnection:
        """A connection that answers for the name, over TLS where the address says so."""
        connection = http.client.HTTPConnection(target.hostname or "", port)
        if target.scheme == "https":
            self._wrap(target.hostname)
        connection.sock, connection.auto_open = self._sock, 0
        return connection

    def _wrap(self, hostname: str | None) -> None:
        """Speaks TLS from now on. A socket that is hung up while it is wrapped would be left open."""
        context = ssl.create_default_context()
        with self._lock:
            if self._is_over:
                raise TimeoutError
            encrypted = context.wrap_socket(
                self._sock, server_hostname=hostname, do_handshake_on_connect=False
            )
            self._sock = encrypted
        encrypted.do_handshake()

    def _hang_up(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            self._is_over = True
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)


def _answered(
    connection: http.client.HTTPConnection, target: SplitResult, limits: FetchLimits, url: str
) -> Answer | str:
    path = quote((target.path or "/") + (f"?{target.query}" if target.query else ""), safe=_AS_IS)
    asked = {
        "Host": target.netloc,
        "User-Agent": "lamina",
        "Accept": "text/*, application/*;q=0.8",
        "Accept-Encoding": "identity",
        "Connection": "close",
    }
    connection.request("GET", path, headers=asked)
    answer = connection.getresponse()
    moved = answer.getheader("Location")
    if answer.status in REDIRECTS and moved:
        return moved
    if answer.status != 200:
        raise BadInput(f"the answer is {answer.status}", place=url, hint="check the address")
    if lower_ascii(answer.getheader("Content-Encoding", "identity").strip(WHITE_SPACE)) not in {
        "identity",
        "",
    }:
        raise BadInput("a packed answer, which was not asked for", place=url)
    return _page(url, answer.headers, _body(answer, limits.largest, url))


def _page(url: str, headers: Message, body: bytes) -> Answer:
    return Answer(
        url=url, kind=headers.get_content_type(), charset=headers.get_content_charset() or "", body=body
    )


def _body(answer: http.client.HTTPResponse, largest: int, url: str) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while chunk := answer.read(min(_CHUNK, largest + 1 - size)):
        chunks.append(chunk)
        size += len(chunk)
        if size > largest:
            raise BadInput(f"larger than {largest:,} bytes", place=url, hint="attach a part of it")
    return b"".join(chunks)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("no time left")
    return left
