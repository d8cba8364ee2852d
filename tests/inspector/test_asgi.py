"""The pages as an ASGI application: called directly, and behind a real server where one is installed."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import pytest

from lamina.errors import BadInput
from lamina.inspector import Inspector, make_app
from lamina.inspector.asgi import App
from tests.inspector.recorded import open_inspector, write_session

HOST = "127.0.0.1:8000"


@pytest.fixture(scope="module")
def inspector(tmp_path_factory: pytest.TempPathFactory) -> Inspector:
    return open_inspector(write_session(tmp_path_factory.mktemp("sessions"), turns=1))


def call(app: App, path: str, *, method: str = "GET", host: str = HOST, query: str = "") -> tuple[int, bytes]:
    """One request, as a server would pass it on: the status and the body."""
    messages: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        messages.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(b"Host", host.encode())],
    }
    anyio.run(app, scope, receive, send)
    body = b"".join(message.get("body", b"") for message in messages[1:])
    return messages[0]["status"], body


def test_pages_are_answered_below_a_prefix(inspector: Inspector) -> None:
    app = make_app(inspector, hosts=[HOST], prefix="/inspect/")
    status, body = call(app, "/inspect/api/sessions")
    assert status == 200
    assert json.loads(body)["sessions"][0]["name"] == "session-7"
    assert call(app, "/inspect")[0] == 307
    status, body = call(app, "/inspect/")
    assert status == 200
    assert b'src="static/app.js"' in body
    assert call(app, "/inspect/static/app.js")[0] == 200
    assert call(app, "/inspect/", method="HEAD") == (200, b"")
    assert call(app, "/inspect/", method="POST")[0] == 405


def test_strangers_are_refused(inspector: Inspector) -> None:
    app = make_app(inspector, hosts=[HOST], token="secret-token", prefix="/inspect")  # noqa: S106
    assert call(app, "/inspect/api/sessions", host="evil.example")[0] == 421
    assert call(app, "/inspect/api/sessions")[0] == 401
    assert call(app, "/inspect/api/live")[0] == 401
    assert call(app, "/inspect/api/sessions", query="token=wrong")[0] == 401
    assert call(app, "/inspect/", query="token=secret-token")[0] == 303


def test_a_live_page_is_told_and_ends_when_it_is_closed(inspector: Inspector) -> None:
    status, body = call(make_app(inspector, hosts=[HOST]), "/api/live")
    assert status == 200
    assert body == b"" or body.startswith(b"data: ")


def test_a_websocket_is_refused_and_anything_else_is_an_error(inspector: Inspector) -> None:
    app = make_app(inspector, hosts=[HOST])
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(event: Any) -> None:
        sent.append(event)

    anyio.run(app, {"type": "websocket", "path": "/"}, receive, send)
    assert sent == [{"type": "websocket.close"}]
    with pytest.raises(BadInput, match="does not answer 'carrier pigeon'"):
        anyio.run(app, {"type": "carrier pigeon"}, receive, send)


@pytest.mark.skipif(find_spec("uvicorn") is None, reason="uvicorn comes with the extra of the gateway")
def test_a_real_server_serves_it(tmp_path: Path) -> None:
    import uvicorn  # noqa: PLC0415 - where it is installed

    inspector = open_inspector(write_session(tmp_path, turns=1))
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    app = make_app(inspector, hosts=[f"127.0.0.1:{port}"], prefix="/inspect")
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.02)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", "/inspect/api/sessions")
        response = connection.getresponse()
        assert response.status == 200
        assert "default-src 'none'" in response.headers["content-security-policy"]
        assert len(json.loads(response.read())["sessions"]) == 1
        connection.request("GET", "/inspect/api/live")
        assert connection.getresponse().readline().startswith(b"data: ")
        connection.close()
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        listener.close()
    assert not thread.is_alive()
