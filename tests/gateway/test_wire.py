"""Odd HTTP on both sides of the gateway: what a client or an upstream may send, byte by byte.

One gateway and one upstream serve all probes. They run once, and each test looks at one of them.
"""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path
from typing import NamedTuple

import pytest
import zstandard

from lamina.relay import limits
from lamina.relay.routes import PASS, RouteMatch, match_route
from tests.gateway.growing import chat_request, dump
from tests.gateway.running import RunningGateway, run_gateway, settings_for

HOST = b"host: 127.0.0.1\r\n"
BODY = dump(chat_request(2))
ANSWER = b'{"usage":{"prompt_tokens":30,"completion_tokens":1,"total_tokens":31},"choices":[]}'
PACKED = gzip.compress(ANSWER, mtime=0)
OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(ANSWER) + ANSWER

UPSTREAM_ANSWERS = {
    b"/v1/models/304": b"HTTP/1.1 304 Not Modified\r\netag: x\r\n\r\n",
    b"/v1/models/304-long": b"HTTP/1.1 304 Not Modified\r\ncontent-length: 99\r\netag: x\r\n\r\n",
    b"/v1/models/204": b"HTTP/1.1 204 No Content\r\n\r\n",
    b"/v1/models/head": b"HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n",
    b"/v1/models/hints": b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" + OK,
    b"/v1/models/long": b"HTTP/1.1 200 OK\r\nx-long: " + b"y" * 40_000 + b"\r\ncontent-length: 2\r\n\r\nok",
    b"/v1/models/twice": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nabc",
    b"/v1/models/trailers": (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n"
        b"2\r\nok\r\n0\r\nx-sum: 1\r\n\r\n"
    ),
    b"/v1/models/101": b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    b"/v1/models/600": b"HTTP/1.1 600 What\r\ncontent-length: 2\r\n\r\nok",
    b"/v1/models/999": b"HTTP/1.1 999 What\r\ncontent-length: 2\r\n\r\nok",
    b"/600/v1/chat/completions": b"HTTP/1.1 600 What\r\ncontent-length: 2\r\n\r\nok",
    b"/empty/v1/chat/completions": b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n",
    b"/none/v1/chat/completions": b"",
    b"/noise/v1/chat/completions": b"\x16\x03\x01 what?\r\n\r\n",
    b"/gzip/v1/chat/completions": (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\n"
        b"content-length: %d\r\n\r\n" % len(PACKED)
    )
    + PACKED,
    b"/shouted/v1/chat/completions": (
        b"HTTP/1.1 200 OK\r\nContent-Type: TEXT/EVENT-STREAM\r\nContent-Encoding: GZIP\r\n\r\n"
    )
    + gzip.compress(b"data: " + ANSWER + b"\n\n", mtime=0),
}
"""What the upstream sends for a path before it closes the connection. All other paths get OK."""


def post(path: bytes = b"/v1/chat/completions", headers: bytes = b"", body: bytes = BODY) -> bytes:
    length = b"content-length: %d\r\n" % len(body)
    return b"POST " + path + b" HTTP/1.1\r\n" + HOST + headers + length + b"\r\n" + body


def get(path: bytes, method: bytes = b"GET") -> bytes:
    return method + b" " + path + b" HTTP/1.1\r\n" + HOST + b"connection: close\r\n\r\n"


CLOSE = b"connection: close\r\n"
CHUNKED = b"POST /v1/chat/completions HTTP/1.1\r\n" + HOST + CLOSE + b"transfer-encoding: chunked\r\n"
PIECES = b"%x\r\n%s\r\n%x\r\n%s\r\n" % (500, BODY[:500], len(BODY) - 500, BODY[500:])
ZSTD = zstandard.compress(BODY)
TWICE_PACKED = gzip.compress(ZSTD, mtime=0)
UTF_8 = "x-title: café ✓\r\n".encode()

PROBES: dict[str, bytes] = {
    "chunked with trailers": CHUNKED + b"trailer: x-sum\r\n\r\n" + PIECES + b"0\r\nx-sum: 1\r\n\r\n",
    "chunked and a length": CHUNKED + b"content-length: 5\r\n\r\n" + PIECES + b"0\r\n\r\n",
    "two lengths": post(headers=b"content-length: 5\r\n"),
    "http 1.0": post(headers=b"").replace(b"HTTP/1.1", b"HTTP/1.0", 1),
    "pipelined": post() + post(headers=CLOSE),
    "expects to continue": post(headers=b"expect: 100-continue\r\n" + CLOSE),
    "a space before the colon": post(headers=b"x-a : b\r\n" + CLOSE),
    "a folded header": post(headers=b"x-a: b\r\n c\r\n" + CLOSE),
    "a null in a header": post(headers=b"x-a: b\x00c\r\n" + CLOSE),
    "an absolute address": post(b"http://other.example/v1/chat/completions", CLOSE),
    "a long header": post(headers=b"x-a: " + b"b" * 30_000 + b"\r\n" + CLOSE),
    "another protocol": post(headers=b"connection: upgrade, close\r\nupgrade: h2c\r\n"),
    "gzip": post(b"/gzip/v1/chat/completions", CLOSE),
    "closed after headers": post(b"/empty/v1/chat/completions", CLOSE),
    "closed at once": post(b"/none/v1/chat/completions", CLOSE),
    "noise": post(b"/noise/v1/chat/completions", CLOSE),
    "utf-8 in a header": post(headers=UTF_8 + CLOSE),
    "encodings in two lines": post(
        headers=b"content-encoding: ZSTD\r\ncontent-encoding: x-gzip\r\n" + CLOSE, body=TWICE_PACKED
    ),
    "chunked zstd": CHUNKED + b"content-encoding: zstd\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(ZSTD), ZSTD),
    "a packed transfer": CHUNKED.replace(b": chunked", b": gzip, chunked") + b"\r\n0\r\n\r\n",
    "no path": b"OPTIONS * HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n",
    "no body": post(headers=CLOSE, body=b""),
    "shouted headers of the upstream": post(
        b"/shouted/v1/chat/completions", b"x-session-id: shouted\r\n" + CLOSE
    ),
    "304": get(b"/v1/models/304"),
    "304 with a length": get(b"/v1/models/304-long"),
    "204": get(b"/v1/models/204"),
    "head": get(b"/v1/models/head", b"HEAD"),
    "early hints": get(b"/v1/models/hints"),
    "a long header of the upstream": get(b"/v1/models/long"),
    "two lengths of the upstream": get(b"/v1/models/twice"),
    "trailers of the upstream": get(b"/v1/models/trailers"),
    "a status of 101": get(b"/v1/models/101"),
    "a status of 600": get(b"/v1/models/600"),
    "a status of 999": get(b"/v1/models/999"),
    "a status of 600 to a chat": post(b"/600/v1/chat/completions", CLOSE),
    "two keys": post(headers=b"authorization: Bearer a\r\nauthorization: Bearer b\r\n" + CLOSE),
    "two api keys": get(b"/v1/models").replace(CLOSE, b"x-api-key: a\r\nx-api-key: b\r\n" + CLOSE),
    "dots in a path": get(b"/v1/../admin/keys"),
    "packed dots in a path": get(b"/v1/%2e%2e/admin/keys"),
    "no messages": post(headers=CLOSE, body=b'{"model":"m","messages":[]}'),
    "messages that are none": post(headers=CLOSE, body=b'{"model":"m","messages":[1,null]}'),
    "connect": b"CONNECT other.example:443 HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n",
    "half a body": post(body=BODY)[:-10],
}


class Outcome(NamedTuple):
    """What the client got for each probe, and what the upstream was sent meanwhile."""

    answers: dict[str, bytes]
    seen: dict[str, list[bytes]]
    gateway: RunningGateway


async def serve_upstream(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: list[bytes]
) -> None:
    """Read one request, keep it, answer it and close."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        body = b""
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                body = await reader.readexactly(int(line[15:]))
        seen.append(head + body)
        path = head.split(b" ")[1]
        writer.write(UPSTREAM_ANSWERS.get(path, OK))
        await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        pass
    writer.close()


async def send_raw(url: str, data: bytes, wait: float = 20.0) -> bytes:
    """What comes back until the gateway closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(data)
    pieces: list[bytes] = []
    try:
        async with asyncio.timeout(wait):
            while piece := await reader.read(1 << 16):
                pieces.append(piece)
    except (TimeoutError, ConnectionError):
        pieces.append(b"<open>")
    writer.close()
    return b"".join(pieces)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    monkeypatch = pytest.MonkeyPatch()

    async def main() -> Outcome:
        seen: list[bytes] = []
        server = await asyncio.start_server(
            lambda reader, writer: serve_upstream(reader, writer, seen), "127.0.0.1", limit=1 << 24
        )
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        store: Path = tmp_path_factory.mktemp("wire") / "gateway.db"
        settings = settings_for(url, store)
        answers: dict[str, bytes] = {}
        sent: dict[str, list[bytes]] = {}
        async with run_gateway(settings) as gateway:
            for name, data in PROBES.items():
                seen.clear()
                if name == "half a body":
                    monkeypatch.setattr(limits, "BODY_SECONDS", 0.5)
                answers[name] = await send_raw(gateway.url, data)
                sent[name] = list(seen)
            seen.clear()
            same = await asyncio.gather(*(send_raw(gateway.url, post(headers=CLOSE)) for _ in range(3)))
            answers["three at once"] = b"".join(same)
            sent["three at once"] = list(seen)
        server.close()
        return Outcome(answers, sent, gateway)

    try:
        return asyncio.run(main())
    finally:
        monkeypatch.undo()


def body_of(message: bytes) -> bytes:
    return message.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize(
    "name",
    [
        "chunked with trailers",
        "http 1.0",
        "expects to continue",
        "an absolute address",
        "a long header",
        "another protocol",
        "gzip",
    ],
)
def test_the_upstream_gets_the_body_and_the_client_its_answer(outcome: Outcome, name: str) -> None:
    (sent,) = outcome.seen[name]
    assert body_of(sent) == BODY
    answer = outcome.answers[name]
    if name == "expects to continue":
        assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
        answer = body_of(answer)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert body_of(answer) == (PACKED if name == "gzip" else ANSWER)
    head = sent.partition(b"\r\n\r\n")[0].lower()
    assert b"other.example" not in head
    assert b"expect:" not in head
    assert b"trailer" not in head


def test_pipelined_requests_are_answered_in_order(outcome: Outcome) -> None:
    assert len(outcome.seen["pipelined"]) == 2
    assert outcome.answers["pipelined"].count(b"HTTP/1.1 200 OK") == 2
    assert b"<open>" not in outcome.answers["pipelined"]


def test_a_header_in_utf_8_is_sent_as_the_same_bytes(outcome: Outcome) -> None:
    (sent,) = outcome.seen["utf-8 in a header"]
    assert UTF_8 in sent


@pytest.mark.parametrize(("name", "body"), [("encodings in two lines", TWICE_PACKED), ("chunked zstd", ZSTD)])
def test_packed_bodies_are_read_and_sent_as_they_came(outcome: Outcome, name: str, body: bytes) -> None:
    (sent,) = outcome.seen[name]
    assert body_of(sent) == body
    assert outcome.answers[name].startswith(b"HTTP/1.1 200 ")


def test_the_usage_is_read_whatever_the_case_of_the_headers(outcome: Outcome) -> None:
    names = [event["conversation"] for event in outcome.gateway.events("answered")]
    assert len([name for name in names if name.startswith("session-")]) == 1


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/v1beta/models/team/m:generateContent", RouteMatch("generate", "gemini", "team/m")),
        ("/v1beta/tunedModels/m:countTokens", RouteMatch("count", "gemini", "m")),
        (
            "/v1beta/models/m:free:streamGenerateContent",
            RouteMatch("generate", "gemini", "m:free", streams=True),
        ),
        ("/v1beta/models/:generateContent", PASS),
        ("/v1beta/files/m:generateContent", PASS),
        ("/v1beta/models/m:embedContent", PASS),
        ("/models/" * 8_000, PASS),
    ],
)
def test_the_model_in_a_path_of_gemini_may_have_slashes(path: str, route: RouteMatch) -> None:
    assert match_route("POST", path) == route


@pytest.mark.parametrize(
    "name",
    [
        "two lengths",
        "chunked and a length",
        "a null in a header",
        "a packed transfer",
        "no path",
        "no body",
        "two keys",
        "two api keys",
        "dots in a path",
        "packed dots in a path",
        "no messages",
        "messages that are none",
    ],
)
def test_a_request_that_no_server_or_two_would_read_goes_nowhere(outcome: Outcome, name: str) -> None:
    assert outcome.seen[name] == []
    assert outcome.answers[name].startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("name", ["a space before the colon", "a folded header"])
def test_an_old_spelling_of_a_header_is_refused_or_sent_in_the_new_one(outcome: Outcome, name: str) -> None:
    for sent in outcome.seen[name]:
        head = sent.partition(b"\r\n\r\n")[0]
        assert b"x-a :" not in head
        assert b"\n c" not in head
    assert outcome.answers[name].startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 200 "))


def test_the_gateway_is_no_tunnel(outcome: Outcome) -> None:
    assert outcome.answers["connect"].startswith((b"HTTP/1.1 4", b"HTTP/1.1 5"))
    assert not any(sent.startswith(b"CONNECT") for sent in outcome.seen["connect"])


def test_a_body_that_stops_half_way_is_refused(outcome: Outcome) -> None:
    assert outcome.seen["half a body"] == []
    assert outcome.answers["half a body"].startswith(b"HTTP/1.1 408 ")
    assert b"<open>" not in outcome.answers["half a body"]


@pytest.mark.parametrize("name", ["closed at once", "noise", "two lengths of the upstream"])
def test_an_upstream_that_does_not_speak_http_is_a_502(outcome: Outcome, name: str) -> None:
    assert outcome.answers[name].startswith(b"HTTP/1.1 502 ")
    assert b"lamina: upstream 'openai' failed" in outcome.answers[name]


@pytest.mark.parametrize("status", ["101", "600", "999", "600 to a chat"])
def test_a_status_that_ends_no_request_is_a_502(outcome: Outcome, status: str) -> None:
    answer = outcome.answers[f"a status of {status}"]
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert b"answered with the status " + status[:3].encode() in answer


def test_an_answer_that_breaks_off_is_not_completed(outcome: Outcome) -> None:
    """The client sees that 100 bytes were announced and none came, as it would without the gateway."""
    answer = outcome.answers["closed after headers"]
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"content-length: 100" in answer
    assert body_of(answer) == b""


@pytest.mark.parametrize(
    ("name", "status", "body"),
    [
        ("304", 304, b""),
        ("304 with a length", 304, b""),
        ("204", 204, b""),
        ("head", 200, b""),
        ("early hints", 200, ANSWER),
        ("a long header of the upstream", 200, b"ok"),
        ("trailers of the upstream", 200, b"2\r\nok\r\n0\r\n\r\n"),
    ],
)
def test_answers_of_other_paths_pass_as_they_are(
    outcome: Outcome, name: str, status: int, body: bytes
) -> None:
    answer = outcome.answers[name]
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert body_of(answer) == body
    if name == "head":
        assert b"content-length: 1234" in answer


def test_the_same_request_three_times_at_once_is_one_conversation(outcome: Outcome) -> None:
    assert outcome.answers["three at once"].count(b"HTTP/1.1 200 OK") == 3
    assert [body_of(sent) for sent in outcome.seen["three at once"]] == [BODY] * 3
    names = {event["conversation"] for event in outcome.gateway.events("answered")[-3:]}
    assert len(names) == 1


def test_nothing_of_all_this_is_an_error_of_the_gateway(outcome: Outcome) -> None:
    assert outcome.gateway.events("failed") == []
