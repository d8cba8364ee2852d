"""The inspector's server: real sockets, its own pages, and nobody else's requests."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.errors import BadInput
from lamina.gateway.inspection import PageServer
from lamina.inspector import Inspector
from lamina.inspector.one_file import write_page
from lamina.inspector.redaction import Redaction
from tests.inspector.recorded import open_inspector, write_session

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u202e\u200b"


@pytest.fixture(scope="module")
def inspector(tmp_path_factory: pytest.TempPathFactory) -> Inspector:
    extra = [{"role": "user", "content": HOSTILE}, {"role": "assistant", "content": HOSTILE}]
    return open_inspector(write_session(tmp_path_factory.mktemp("sessions"), turns=2, extra=extra))


@pytest.fixture(scope="module")
def server(inspector: Inspector) -> Iterator[PageServer]:
    with PageServer(inspector).running() as running:
        yield running


def ask(
    server: PageServer, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(server.address).port, timeout=30)
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


def test_the_page_and_its_files_are_served(server: PageServer) -> None:
    for path in ("/", "/static/app.js", "/static/style.css", "/static/icon.svg"):
        status, headers, body = ask(server, path)
        assert status == 200
        assert body
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]


def test_every_view_has_a_json_twin(server: PageServer) -> None:
    sessions = json.loads(ask(server, "/api/sessions")[2])
    session_id = sessions["sessions"][0]["id"]
    request: dict[str, Any] = json.loads(ask(server, f"/api/request/{session_id}/3")[2])
    ref = request["entries"][0]["ref"]
    for path in (
        f"session/{session_id}",
        f"request/{session_id}/3",
        f"segment/{session_id}/3/{ref}",
        f"body/{session_id}/3",
        f"answer/{session_id}/3",
        f"compare/{session_id}/2/3",
        f"alternatives/{session_id}",
        "search?text=def",
        "state",
    ):
        status, headers, body = ask(server, f"/api/{path}")
        assert status == 200, path
        assert headers["content-type"].startswith("application/json")
        json.loads(body)
    status, headers, page = ask(server, f"/api/save/{session_id}?redact=1")
    assert (status, headers["content-disposition"]) == (
        200,
        f'attachment; filename="session-{session_id}.html"',
    )
    assert b"Redacted: " in page


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/session/nosuch", 400),
        ("/api/request/nosuch/0", 400),
        ("/api/save/nosuch", 400),
        (f"/api/request/nosuch/{'1' * 5000}", 400),
        (f"/api/sessions?rows={'1' * 5000}", 400),
        ("/api/nosuch", 404),
        ("/api/visible/nosuch", 404),
        ("/static/nosuch.js", 404),
        ("/static/..%2f__init__.py", 404),
        ("/static/../views.py", 404),
    ],
)
def test_what_is_not_there_is_said_plainly(server: PageServer, path: str, status: int) -> None:
    answer = ask(server, path)
    assert answer[0] == status
    assert json.loads(answer[2])["error"]


def test_another_host_name_is_refused(server: PageServer) -> None:
    """A site can make its own name point here; the browser then sends that name."""
    for path in ("/", "/api/sessions"):
        assert ask(server, path, Host="evil.example")[0] == 421
        assert ask(server, path, Host="localhost")[0] == 200


def test_requests_of_other_sites_and_other_methods_are_refused(server: PageServer) -> None:
    assert ask(server, "/api/sessions", Sec_Fetch_Site="cross-site")[0] == 403
    assert ask(server, "/api/sessions", Origin="https://evil.example")[0] == 403
    assert ask(server, "/api/sessions", method="POST")[0] == 405
    assert ask(server, "/", method="DELETE")[0] == 405


def test_a_link_in_a_message_opens_the_page_and_nothing_else(server: PageServer) -> None:
    link = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    status, headers, body = ask(server, "/", **link)
    assert (status, body.startswith(b"<!doctype html>")) == (200, True)
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert ask(server, "/api/sessions", **link)[0] == 403


def test_what_others_can_reach_has_a_token(inspector: Inspector) -> None:
    with PageServer(inspector, host="0.0.0.0").running() as server:  # noqa: S104 - with a token
        assert server.address.endswith(f"?token={server.token}")
        assert len(server.token) >= 32
        assert ask(server, "/")[0] == 200  # it holds nothing of any session
        for headers in ({}, {"X_Lamina_Token": "wrong"}, {"Cookie": f"token={server.token}"}):
            assert ask(server, "/api/sessions", **headers)[0] == 401
        assert ask(server, f"/api/sessions?token={server.token}")[0] == 401
        assert ask(server, "/api/sessions", X_Lamina_Token=server.token)[0] == 200


def test_a_port_that_is_none_or_taken_is_bad_input(inspector: Inspector, server: PageServer) -> None:
    for port in (urlsplit(server.address).port or 0, 70_000):
        with pytest.raises(BadInput, match="port"):
            PageServer(inspector, port=port)


def test_a_page_can_see_that_something_changed(tmp_path: Path) -> None:
    inspector = open_inspector(write_session(tmp_path, turns=1))
    with PageServer(inspector).running() as server:
        states = [ask(server, "/api/state")[2], ask(server, "/api/state")[2]]
        write_session(tmp_path, turns=2)
        states.append(ask(server, "/api/state")[2])
    assert states[0] == states[1] != states[2]


def test_one_page_holds_everything_and_lets_no_text_out(inspector: Inspector) -> None:
    page = write_page(inspector)
    assert page.count("<script") == 2  # the data and the program
    assert "</script><script>alert(1)" not in page
    assert "unsafe-inline" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_a_redacted_page_holds_no_text_and_says_what_it_left_out(inspector: Inspector) -> None:
    sent = inspector.sessions.get(inspector.sessions.summaries()[0].id).sent
    messages = json.loads(sent.record.sent_body(sent.calls[-1]) or b"")["messages"]
    answers = [message["content"] for message in messages if message["role"] == "tool"]
    words = max(answers[0].split("\n"), key=len).strip(" \"'<>&")[:30]
    assert words in write_page(inspector)
    redaction = Redaction()
    redacted_page = write_page(inspector, redaction=redaction)
    assert words not in redacted_page
    assert redaction.describe() in redacted_page
    for message in messages:
        for call in message.get("tool_calls") or ():
            for value in json.loads(call["function"]["arguments"]).values():
                assert len(str(value)) < 6 or str(value) not in redacted_page


@given(st.dictionaries(st.sampled_from(["what", "preview", "title", "calls"]), st.text(min_size=1)))
def test_every_text_becomes_a_mark_and_equal_texts_equal_marks(value: dict[str, str]) -> None:
    redaction = Redaction()
    first = redaction.redact_view(value)
    assert first == redaction.redact_view(value)
    for name, text in value.items():
        is_kept = first[name] == text
        assert not is_kept or not text.strip() or name == "what"
    assert Redaction().mark("a text") != redaction.mark("a text")
