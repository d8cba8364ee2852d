"""Single decisions of the gateway: how each API writes an error, which refusal ends a connection."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import brotli  # type: ignore[import-untyped]
import pytest

from lamina.core.cut import OPEN_LOOP
from lamina.errors import BudgetExceeded
from lamina.gateway.clients import point_client
from lamina.gateway.config import is_loopback, read_host_name
from lamina.gateway.packed_bodies import unpack
from lamina.gateway.refusals import Refusal, describe_error, explain_floor

DIALECTS = ("anthropic", "openai_chat", "openai_responses", "gemini", "ollama", "bedrock_converse")

ERRORS: dict[str, Any] = {
    "anthropic": {"type": "error", "error": {"type": "not_found_error", "message": "gone"}},
    "gemini": {"error": {"code": 404, "message": "gone", "status": "NOT_FOUND"}},
    "ollama": {"error": "gone"},
    "bedrock_converse": {"__type": "ResourceNotFoundException", "message": "gone"},
    "openai_chat": {"error": {"message": "gone", "type": "not_found_error", "param": None, "code": "c"}},
    "openai_responses": {"error": {"message": "gone", "type": "not_found_error", "param": None, "code": "c"}},
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_api_has_errors_of_its_own(dialect: str) -> None:
    assert describe_error(dialect, 404, "gone", "c") == ERRORS[dialect]


def test_an_error_without_a_code_says_so_and_an_unknown_status_is_internal() -> None:
    assert describe_error("openai_chat", 404, "gone")["error"]["code"] is None
    assert describe_error("anthropic", 599, "gone")["error"]["type"] == "api_error"
    assert describe_error("gemini", 599, "gone")["error"]["status"] == "INTERNAL"
    assert describe_error("bedrock_converse", 599, "gone")["__type"] == "InternalServerException"


@pytest.mark.parametrize(
    ("dialect", "begins", "ends"),
    [
        ("anthropic", "event: error\ndata: ", "\n\n"),
        ("openai_responses", "event: error\ndata: ", "\n\n"),
        ("openai_chat", "data: ", "\n\n"),
        ("gemini", "data: ", "\n\n"),
        ("bedrock_converse", "data: ", "\n\n"),
        ("ollama", "", "\n"),
    ],
)
def test_an_error_inside_of_a_stream_is_an_event_of_it(dialect: str, begins: str, ends: str) -> None:
    event = Refusal(429, "too much", code="slow").event(dialect, 7).decode()
    assert event.startswith(begins)
    assert event.endswith(ends)
    error = json.loads(event.removeprefix(begins))
    if dialect == "openai_responses":
        assert error == {
            "type": "error",
            "sequence_number": 7,
            "code": "slow",
            "message": "lamina: too much",
            "param": None,
            "error": {
                "message": "lamina: too much",
                "type": "rate_limit_error",
                "param": None,
                "code": "slow",
            },
        }
    else:
        assert error == describe_error(dialect, 429, "lamina: too much", "slow")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 413, 415, 421, 426, 429, 502, 503, 504])
def test_a_refusal_before_the_body_was_read_ends_the_connection(status: int) -> None:
    headers = dict(Refusal(status, "no").headers)
    assert (headers.get(b"connection") == b"close") is (status in (401, 403, 408, 413, 421, 429))
    assert (headers.get(b"upgrade") == b"HTTP/1.1") is (status == 426)
    assert headers[b"x-lamina-refused"] == b"1"
    assert b"retry-after" not in headers
    assert dict(Refusal(status, "no", retry_after=9).headers)[b"retry-after"] == b"9"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_only_the_users_of_claude_code_read_of_its_setting(dialect: str) -> None:
    refusal = explain_floor(BudgetExceeded(floor=900, room=500, segments=()), dialect)
    assert refusal.status == 400
    assert refusal.code == "context_length_exceeded"
    assert refusal.message.startswith("prompt is too long: 900 tokens > 500 maximum")
    assert ("CLAUDE_CODE" in refusal.message) is (dialect == "anthropic")


def test_a_loop_with_bound_thinking_is_refused_with_its_own_advice() -> None:
    held = BudgetExceeded(floor=900, room=500, segments=(), reason=OPEN_LOOP)
    refusal = explain_floor(held, "anthropic")
    assert refusal.message.startswith("prompt is too long: 900 tokens > 500 maximum. The model's thinking")
    assert "CLAUDE_CODE" not in refusal.message
    assert (refusal.status, refusal.code) == (400, "context_length_exceeded")


# Which addresses and names are this machine's


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("10.0.0.1", False),
        ("2001:db8::1", False),
        ("example.org", False),
        ("", False),
    ],
)
def test_an_address_of_this_machine_is_known(host: str, *, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("gateway.example", "gateway.example"),
        ("Gateway.example:8080", "gateway.example"),
        ("[::1]:80", "::1"),
        ("evil.example/?#", ""),
        ("user@evil.example", ""),
        ("a.example, b.example", ""),
        ("[::1", ""),
        ("", ""),
    ],
)
def test_the_name_of_a_host_is_read_without_its_port(host: str, name: str) -> None:
    assert read_host_name(host) == name


# Bodies that are packed


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "identity", "", "GZIP", "identity, gzip "])
def test_a_body_may_be_as_large_as_the_limit_when_unpacked(encoding: str) -> None:
    pack = {"gzip": gzip.compress, "deflate": zlib.compress, "br": brotli.compress}
    name = encoding.lower().rpartition(",")[2].strip()
    text = b"0123456789" * 20
    packed = pack[name](text) if name in pack else text
    assert unpack(packed, encoding, 200) == text
    if name in pack:
        with pytest.raises(Refusal, match="larger than 199 bytes") as refused:
            unpack(packed, encoding, 199)
        assert refused.value.status == 413
        with pytest.raises(Refusal, match="not valid") as refused:
            unpack(packed[:-9], encoding, 200)
        assert refused.value.status == 400


def test_an_encoding_that_nobody_knows_is_refused() -> None:
    with pytest.raises(Refusal, match="'zip' is unknown") as refused:
        unpack(b"x", "zip", 9)
    assert refused.value.status == 415
    twice = gzip.compress(zlib.compress(b"text"))
    assert unpack(twice, "deflate, gzip", 99) == b"text"


@pytest.mark.parametrize(("window_log", "refused"), [(27, False), (28, True)])
def test_a_body_in_zstd_may_ask_for_a_window_of_128_mib_and_no_more(
    window_log: int, *, refused: bool
) -> None:
    """The client chooses the window, and unpacking takes so much memory, however short the body is."""
    window = bytes([(window_log - 10) << 3])
    last_raw_block = ((2 << 3) | 1).to_bytes(3, "little") + b"{}"
    packed = b"\x28\xb5\x2f\xfd\x00" + window + last_raw_block
    if refused:
        with pytest.raises(Refusal, match="not valid zstd"):
            unpack(packed, "zstd", 99)
    else:
        assert unpack(packed, "zstd", 99) == b"{}"


# How a client is started


def test_a_client_is_told_how_long_an_answer_may_be_only_where_a_window_is_set() -> None:
    variable = "CLAUDE_CODE_MAX_OUTPUT_TOKENS"
    started = point_client(("claude", "-p"), "http://127.0.0.1:9", {}, window=9_000)
    assert started.command[0] == "claude"
    assert started.command[-1] == "-p"
    assert 0 < int(started.environment[variable]) < 9_000
    assert variable not in point_client(("claude",), "http://127.0.0.1:9", {}).environment
    own = point_client(("claude",), "http://127.0.0.1:9", {variable: "77"}, window=9_000)
    assert own.environment[variable] == "77"
