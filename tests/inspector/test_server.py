"""The inspector's server: real sockets, its own pages, and nobody else's requests."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lamina.errors import BadInput
from lamina.inspector import Inspector, page_cookies
from lamina.inspector.one_file import write_page
from lamina.inspector.pages import LINE_ITEMS, encode_lines
from lamina.inspector.redaction import Redaction
from lamina.inspector.server import Server, make_server
from tests.inspector.recorded import open_inspector, write_session

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u202e\u200b"


@pytest.fixture(scope="module")
def inspector(tmp_path_factory: pytest.TempPathFactory) -> Inspector:
    extra = [{"role": "user", "content": HOSTILE}, {"role": "assistant", "content": HOSTILE}]
    return open_inspector(write_session(tmp_path_factory.mktemp("sessions"), turns=2, extra=extra))


@pytest.fixture(scope="module")
def server(inspector: Inspector) -> Iterator[Server]:
    with make_server(inspector).running() as running:
        yield running


def ask(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request(
            method, path, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )
        response = connection.getresponse()
        return (
            response.status,
            {name.lower(): value for name, value in response.getheaders()},
            response.read(),
        )
    finally:
        connection.close()


def test_the_page_and_its_files_are_served(server: Server) -> None:
    for path in ("/", "/static/app.js", "/static/style.css", "/static/icon.svg"):
        status, headers, body = ask(server, path)
        assert status == 200
        assert body
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]


def test_every_view_has_a_json_twin(server: Server) -> None:
    sessions = json.loads(ask(server, "/api/sessions")[2])
    session_id = sessions["sessions"][0]["id"]
    request: dict[str, Any] = json.loads(ask(server, f"/api/request/{session_id}/3")[2])
    ref = request["entries"][0]["ref"]
    for path in (
        f"session/{session_id}",
        f"request/{session_id}/3?rules=anthropic",
        f"segment/{session_id}/3/{ref}",
        f"text/{session_id}/3/{ref}",
        f"compare/{session_id}/2/3",
        f"visible/{session_id}?text=def",
        f"export/{session_id}/3",
        "state",
    ):
        status, headers, body = ask(server, f"/api/{path}")
        assert status == 200, path
        assert headers["content-type"].startswith("application/json")
        json.loads(body)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/session/nosuch", 400),
        ("/api/request/nosuch/0", 400),
        (f"/api/request/nosuch/{'1' * 5000}", 400),
        (f"/api/sessions?rows={'1' * 5000}", 400),
        ("/api/nosuch", 404),
        ("/static/nosuch.js", 404),
        ("/static/..%2f__init__.py", 404),
        ("/static/../views.py", 404),
    ],
)
def test_what_is_not_there_is_said_plainly(server: Server, path: str, status: int) -> None:
    answer = ask(server, path)
    assert answer[0] == status
    assert json.loads(answer[2])["error"]


def test_another_host_name_is_refused(server: Server) -> None:
    """A site can make its own name point here; the browser then sends that name."""
    assert ask(server, "/api/sessions", Host="evil.example")[0] == 421
    assert ask(server, "/api/sessions", Host=f"evil.example:{server.port}")[0] == 421
    assert ask(server, "/api/sessions", Host=f"localhost:{server.port}")[0] == 200


def test_requests_of_other_sites_and_other_methods_are_refused(server: Server) -> None:
    assert ask(server, "/api/sessions", Sec_Fetch_Site="cross-site")[0] == 403
    assert ask(server, "/api/live", Sec_Fetch_Site="cross-site")[0] == 403
    assert ask(server, "/api/sessions", method="POST")[0] == 405
    assert ask(server, "/api/sessions", method="DELETE")[0] == 405


def test_a_link_in_a_message_opens_the_page_and_nothing_else(server: Server) -> None:
    link = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    status, headers, body = ask(server, "/", **link)
    assert (status, body.startswith(b"<!doctype html>")) == (200, True)
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    for path in ("/api/sessions", "/api/live", "/static/app.js"):
        assert ask(server, path, **link)[0] == 403
    for name, value in (("Sec_Fetch_Dest", "iframe"), ("Sec_Fetch_Mode", "no-cors")):
        assert ask(server, "/", **{**link, name: value})[0] == 403


def test_a_public_address_needs_a_token(inspector: Inspector) -> None:
    with pytest.raises(BadInput, match="token"):
        make_server(inspector, host="0.0.0.0")  # noqa: S104 - it is refused


def test_with_a_token_nothing_is_shown_without_it(inspector: Inspector) -> None:
    with make_server(inspector, token="secret-token").running() as server:  # noqa: S106
        assert ask(server, "/api/sessions")[0] == 401
        assert ask(server, "/api/sessions", Authorization="Bearer wrong")[0] == 401
        assert ask(server, "/api/sessions", Authorization="Bearer secret-token")[0] == 200
        status, headers, _ = ask(server, "/?token=secret-token")
        assert status == 303
        assert "HttpOnly" in headers["set-cookie"]
        assert "SameSite=Lax" in headers["set-cookie"]
        assert "token" not in headers["location"]
        cookie = headers["set-cookie"].partition(";")[0]
        assert "secret-token" not in cookie  # other ports of the host get it too
        assert ask(server, "/", Cookie=cookie)[0] == 200
        assert ask(server, "/", Cookie=f"{cookie}0")[0] == 401


def test_the_cookie_of_a_page_ends() -> None:
    key = page_cookies.make_key()
    digest = page_cookies.digest_token("secret-token")
    cookie = page_cookies.write_cookie(key, digest, now=1_000.0)
    assert page_cookies.is_valid(cookie, key, digest, now=1_000.0 + page_cookies.LIFETIME - 1)
    assert not page_cookies.is_valid(cookie, key, digest, now=1_000.0 + page_cookies.LIFETIME)
    assert not page_cookies.is_valid(cookie, page_cookies.make_key(), digest, now=1_000.0)
    assert not page_cookies.is_valid(cookie, key, page_cookies.digest_token("other"), now=1_000.0)


def test_a_live_page_hears_of_a_change(tmp_path: Path) -> None:
    inspector = open_inspector(write_session(tmp_path, turns=1))
    with make_server(inspector).running() as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        connection.request("GET", "/api/live")
        response = connection.getresponse()
        assert response.readline().startswith(b"retry: ")
        response.readline()
        first = response.readline()
        assert first.startswith(b"data: ")
        write_session(tmp_path, turns=2)
        lines = [response.readline() for _ in range(8)]
        connection.close()
    assert any(line.startswith(b"data: ") and line != first for line in lines)


def test_one_page_holds_everything_and_lets_no_text_out(inspector: Inspector) -> None:
    page = write_page(inspector)
    assert page.count("<script") == 2  # the data and the program
    assert "</script><script>alert(1)" not in page
    assert "unsafe-inline" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_a_redacted_page_holds_no_text(inspector: Inspector) -> None:
    conversation = inspector.sessions.get(inspector.sessions.summaries()[0].id).conversation
    answers = [m["content"] for m in conversation.messages if m["role"] == "tool"]
    words = max(answers[0].split("\n"), key=len).strip(" \"'<>&")[:30]
    assert words in write_page(inspector)
    redacted_page = write_page(inspector, redaction=Redaction())
    assert words not in redacted_page
    for message in conversation.messages:
        for call in message.get("tool_calls") or ():
            for value in json.loads(call["function"]["arguments"]).values():
                assert len(str(value)) < 6 or str(value) not in redacted_page


def test_a_long_answer_comes_in_lines_to_the_page_and_whole_to_everyone_else() -> None:
    calls = [{"number": number} for number in range(2 * LINE_ITEMS + 1)]
    value = {"rules": "openai", "calls": calls, "tools": ["read"], "none": []}
    first, *others = [json.loads(line) for line in encode_lines(value).split(b"\n")]
    assert first == {"rules": "openai", "calls": [], "tools": ["read"], "none": []}
    assert [len(each["items"]) for each in others] == [LINE_ITEMS, LINE_ITEMS, 1]
    assert [item for each in others for item in each["items"]] == calls
    assert encode_lines({"lone": "\ud800"}) == b'{"lone": "\\ud800"}'
