from __future__ import annotations

import http.client
import ipaddress
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
import msgspec
import pytest

from lamina.context.port import GatheredSegments
from lamina.context.web import web
from lamina.core import text_of
from lamina.errors import BadInput
from lamina.workspace import FetchLimits
from lamina.workspace.fetch import fetch
from tests.bounded import bounded_work

Script = Callable[[socket.socket, bytes], None]


@contextmanager
def serving(answer: Script | bytes) -> Iterator[int]:
    """A server on this machine that gives each caller this answer; the port it listens on."""
    ends = threading.Event()

    def serve() -> None:
        while not ends.is_set():
            try:
                talk, _ = listening.accept()
            except OSError:
                return
            with talk:
                talk.settimeout(5)
                request = talk.recv(4096)
                try:
                    talk.sendall(answer) if isinstance(answer, bytes) else answer(talk, request)
                except OSError:
                    continue

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            ends.set()
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def ok(body: bytes, *, kind: str = "text/html; charset=utf-8", more: str = "") -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


def to(address: str) -> bytes:
    return f"HTTP/1.1 302 Found\r\nLocation: {address}\r\nContent-Length: 0\r\n\r\n".encode()


def here(port: int, **options: object) -> FetchLimits:
    """Limits that allow this machine, as a test needs it."""
    return FetchLimits(ports=(port,), allowed=lambda _: True, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "127.1", "0x7f000001", "2130706433", "0"]
)
def test_this_machine_is_refused_in_every_spelling(host: str) -> None:
    request: list[bytes] = []
    with serving(lambda _, request_bytes: request.append(request_bytes)) as port, pytest.raises(BadInput):
        fetch(f"http://{host}:{port}/", FetchLimits(ports=(port,), seconds=2))
    assert request == []


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd", "ftp://example.org/", "http:///x", "http://user:pw@example.org/", "gopher://x",
        "x", "", "http://example.org:22/", "http://exa mple.org/", "http://example.org/\r\nHost: x", "http://[::1",
        "http://example.org\\@x/", "http://example.org:99999/", "http://ex%61mple.org/", "//example.org/x",
        "http://пример.example/",
    ],
)  # fmt: skip
def test_what_is_no_plain_address_is_refused_before_anything_is_asked(url: str) -> None:
    def resolve(_: str, __: int, ___: float) -> Sequence[str]:
        raise AssertionError("a name was looked up")

    with pytest.raises(BadInput):
        fetch(url, FetchLimits(resolve=resolve))


def test_one_internal_address_among_public_ones_is_enough_to_refuse() -> None:
    limits = FetchLimits(resolve=lambda *_: ["8.8.8.8", "10.0.0.1"])
    with pytest.raises(BadInput, match="public internet"):
        fetch("http://example.org/", limits)


def test_the_connection_is_made_to_the_address_that_was_checked() -> None:
    """A name that is public when checked and internal when used: it is looked up once."""
    with serving(ok(b"page")) as port:
        looked: list[str] = []

        def rebinds(host: str, _: int, __: float) -> Sequence[str]:
            looked.append(host)
            return ["127.0.0.1"] if len(looked) == 1 else ["192.0.2.1"]

        checked = ipaddress.ip_address("127.0.0.1")
        limits = FetchLimits(ports=(port,), resolve=rebinds, allowed=lambda address: address == checked)
        assert fetch(f"http://rebinds.example:{port}/", limits).body == b"page"
        assert looked == ["rebinds.example"]


def test_a_redirect_is_checked_like_the_first_address() -> None:
    with serving(ok(b"internal")) as inner, serving(to(f"http://inner.example:{inner}/")) as outer:
        names = {"outer.example": "127.0.0.1", "inner.example": "127.0.0.2"}
        public_one = ipaddress.ip_address("127.0.0.1")
        limits = FetchLimits(
            ports=(inner, outer),
            resolve=lambda host, *_: [names[host]],
            allowed=lambda one: one == public_one,
        )
        with pytest.raises(BadInput, match="public internet"):
            fetch(f"http://outer.example:{outer}/", limits)


@pytest.mark.parametrize("goal", ["file:///etc/passwd", "http://127.0.0.1:1/", "gopher://x/"])
def test_a_redirect_to_another_kind_of_address_is_refused(goal: str) -> None:
    with serving(to(goal)) as port, pytest.raises(BadInput):
        fetch(f"http://127.0.0.1:{port}/", here(port))


def test_a_name_that_is_looked_up_for_ever_ends_with_its_time_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The child that looks a name up says who it is and then hangs, as resolvers do."""
    pid_file = tmp_path / "pid"
    hangs = f"import os, pathlib, time\npathlib.Path({str(pid_file)!r}).write_text(str(os.getpid()))\n"
    monkeypatch.setattr("lamina.workspace.fetch._LOOK_UP", f"{hangs}time.sleep(600)\n")
    with pytest.raises(BadInput, match="no answer in 1 seconds"):
        fetch("http://slow.example/", FetchLimits(seconds=1))
    assert not Path(f"/proc/{pid_file.read_text()}").exists() or sys.platform != "linux"


def test_looking_up_is_told_the_time_that_is_left() -> None:
    options: list[float] = []

    def resolve(_: str, __: int, seconds: float) -> Sequence[str]:
        options.append(seconds)
        time.sleep(0.05)
        return ["127.0.0.1"]

    with serving(to("http://again.example/")) as port:
        limits = here(port, resolve=resolve, seconds=30, redirects=1)
        with pytest.raises(BadInput):
            fetch(f"http://first.example:{port}/", msgspec.structs.replace(limits, ports=(port, 80)))
    assert 30 >= options[0] > options[1] + 0.05 > 0


def test_a_name_that_nobody_knows_is_refused() -> None:
    with pytest.raises(BadInput, match="no answer"):
        fetch("http://nobody.invalid/")


@pytest.mark.parametrize("answer", [to("/next") + b"body", ok(b"packed", more="Content-Encoding: gzip\r\n")])
def test_an_answer_that_is_not_read_leaves_no_socket_open(
    answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    responses: list[http.client.HTTPResponse] = []
    get_response = http.client.HTTPConnection.getresponse

    def hold_response(connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
        responses.append(get_response(connection))
        return responses[-1]

    monkeypatch.setattr(http.client.HTTPConnection, "getresponse", hold_response)
    with serving(answer.replace(b"Length: 0", b"Length: 4")) as port, pytest.raises(BadInput):
        fetch(f"http://127.0.0.1:{port}/", here(port))
    assert [response.isclosed() for response in responses] == [True] * len(responses)
    assert responses


def test_redirects_have_an_end_and_may_be_relative() -> None:
    with serving(to("/next")) as port, pytest.raises(BadInput, match="5 redirects"):
        fetch(f"http://127.0.0.1:{port}/", here(port))

    def once(talk: socket.socket, request: bytes) -> None:
        talk.sendall(ok(b"there") if request.startswith(b"GET /next ") else to("next"))

    with serving(once) as port:
        answer = fetch(f"http://127.0.0.1:{port}/", here(port))
    assert (answer.body, answer.url) == (b"there", f"http://127.0.0.1:{port}/next")


def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with serving(ok(b"page")) as port:
        assert fetch(f"http://127.0.0.1:{port}/", here(port)).body == b"page"


def test_no_credentials_are_sent_and_the_path_is_quoted() -> None:
    request: list[bytes] = []

    def notes(talk: socket.socket, request_bytes: bytes) -> None:
        request.append(request_bytes)
        talk.sendall(ok(b"page"))

    with serving(notes) as port:
        fetch(f"http://127.0.0.1:{port}/é?q=a%20b#part", here(port))
    assert request[0].startswith(b"GET /%C3%A9?q=a%20b HTTP/1.1\r\n")
    assert not {b"cookie", b"authorization", b"referer"} & {
        line.split(b":")[0].lower() for line in request[0].split()
    }


def test_a_page_that_is_too_large_is_refused_also_without_a_length() -> None:
    def endless(talk: socket.socket, _: bytes) -> None:
        talk.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while True:
            talk.sendall(b"x" * 10_000)

    with serving(endless) as port, pytest.raises(BadInput, match="larger than 50,000"):
        fetch(f"http://127.0.0.1:{port}/", here(port, largest=50_000))


@pytest.mark.parametrize(
    "start", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"]
)
def test_an_answer_that_drips_ends_with_its_time(start: bytes) -> None:
    through: list[bool] = []

    def drips(talk: socket.socket, _: bytes) -> None:
        talk.sendall(start)
        for _turn in range(100):
            talk.sendall(b"a")
            time.sleep(0.02)
        through.append(True)

    with serving(drips) as port, pytest.raises(BadInput, match=r"no answer in 0\.3 seconds"):
        fetch(f"http://127.0.0.1:{port}/", here(port, seconds=0.3))
    assert through == []


def test_a_handshake_that_drips_ends_with_its_time() -> None:
    through: list[bool] = []

    def drips(talk: socket.socket, _: bytes) -> None:
        talk.sendall(b"\x16\x03\x03\x40\x00\x02")
        for _turn in range(100):
            talk.sendall(b"a")
            time.sleep(0.02)
        through.append(True)

    with serving(drips) as port, pytest.raises(BadInput, match=r"no answer in 0\.3 seconds"):
        fetch(f"https://127.0.0.1:{port}/", here(port, seconds=0.3))
    assert through == []


@pytest.mark.parametrize(
    "answer",
    [b"", b"garbage\r\n\r\n", b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
     ok(b"\x1f\x8b", more="Content-Encoding: gzip\r\n"),
     b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
     b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"],
)  # fmt: skip
def test_strange_answers_are_refused(answer: bytes) -> None:
    with serving(answer) as port, pytest.raises(BadInput):
        fetch(f"http://127.0.0.1:{port}/", here(port, seconds=5))


def gather_page(answer: bytes) -> GatheredSegments:
    with serving(answer) as port:
        source = web(f"http://127.0.0.1:{port}/a", f"http://127.0.0.1:{port + 1}/b", limits=here(port))
        return anyio.run(partial(source, "prompt"), None)  # type: ignore[return-value]


def test_a_page_becomes_a_segment_under_its_address_and_others_are_noted() -> None:
    result = gather_page(ok(b"<title>T</title><body><h1>Head</h1><p>One <b>two</b></p></body>"))
    (segment,) = result
    assert (segment.kind, segment.attrs["title"]) == ("web_tab", "T")
    assert segment.key.endswith("/a")
    assert text_of(segment.parts) == "# Head\n\nOne two"
    assert len(result.notes) == 1


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        ("text/plain; charset=latin-1", "é".encode("latin-1"), "é"),
        ("application/json", b'{"a": 1}', '{"a": 1}'),
        ("text/plain; charset=rot13", b"abc", "abc"),
        ("text/plain; charset=idna", b"abc", "abc"),
        ("text/plain; charset=undefined", b"abc", "abc"),
        ("text/plain; charset=unicode_escape", b"\\x41", "\\x41"),
        ("text/plain; charset=shift_jis", "漢字".encode("shift_jis"), "漢字"),
        ("text/plain; charset=nonsense", b"abc", "abc"),
        ("text/html", "<meta charset='latin-1'><p>é".encode("latin-1"), "é"),
    ],
)
def test_text_of_other_kinds_is_decoded(kind: str, body: bytes, text: str) -> None:
    assert [text_of(segment.parts) for segment in gather_page(ok(body, kind=kind))] == [text]


def test_an_encoding_that_decodes_slowly_is_not_used() -> None:
    """As punycode 100 KB take longer than the bound; they are read as what they are."""
    body = b"a" * 50_000 + b"-" + b"0" * 50_000
    with bounded_work():
        (segment,) = gather_page(ok(body, kind="text/plain; charset=punycode"))
    assert text_of(segment.parts) == body.decode()


@pytest.mark.parametrize("kind", ["image/png", "application/octet-stream"])
def test_what_is_no_text_is_noted(kind: str) -> None:
    assert "is no text" in gather_page(ok(b"\x89PNG", kind=kind)).notes[0]
