"""The gateway asks a local server for the window that nobody else knows."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import anyio
import msgspec
import pytest

from lamina.core.values import Budget
from lamina.dialects import DIALECTS
from lamina.fitting import Policy
from lamina.relay import policies
from lamina.relay.config import UpstreamSettings
from lamina.relay.policies import PAUSE, ServedWindows
from lamina.relay.sizes import UNKNOWN_WINDOW, ChosenWindow, choose_window, find_budget, find_trigger
from lamina.relay.upstreams import Upstream
from tests.gateway.growing import dump, messages_request
from tests.gateway.running import proxied
from tests.gateway.test_conversations import post

LISTING = {"data": [{"id": "parcel-7b", "max_model_len": 8192}]}


class LocalServer:
    """Answers with what it is given, and remembers who asked."""

    def __init__(self, listing: Any) -> None:
        self.listing = listing
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.time = 0.0

    def windows(self) -> ServedWindows:
        return ServedWindows({"VLLM_KEY": "k1"}, fetch=self.fetch, now=lambda: self.time)

    def fetch(self, address: str, headers: dict[str, str]) -> Any:
        self.asked.append((address, headers))
        return self.listing


def upstream(**settings: Any) -> Upstream:
    fields = {"url": "http://127.0.0.1:8000", "profile": "vllm", **settings}
    return Upstream("local", UpstreamSettings(**fields))


def ask(windows: ServedWindows, at: Upstream, times: int = 1) -> None:
    for _ in range(times):
        anyio.run(windows.ask, at, "parcel-7b")


def test_a_listed_window_is_asked_for_once_and_bounds_requests() -> None:
    server = LocalServer(LISTING)
    windows = server.windows()
    local = upstream(url="http://127.0.0.1:8000/v1/", key_env="VLLM_KEY")
    ask(windows, local, times=3)
    assert server.asked == [("http://127.0.0.1:8000/v1/models", {"Authorization": "Bearer k1"})]
    served_window = windows.find(local, "parcel-7b")
    assert find_budget(local.settings, "parcel-7b", None, served_window=served_window).window == 8192
    assert find_budget(local.settings, "parcel-7b", 5000, served_window=served_window).window == 5000
    assert find_budget(local.settings, "parcel-7b", None).window == UNKNOWN_WINDOW


def test_a_window_of_the_settings_wins_and_nobody_is_asked() -> None:
    server = LocalServer(LISTING)
    limited = upstream(policy=Policy(budget=4000))
    for other in (
        limited,
        upstream(profile="openai"),
        upstream(profile="anthropic"),
    ):
        ask(server.windows(), other)
    assert not server.asked
    assert (
        find_budget(
            upstream(policy=Policy(budget=4000)).settings, "parcel-7b", None, served_window=8192
        ).window
        == 4000
    )


def test_a_server_that_lists_nothing_is_asked_again_after_a_while() -> None:
    server = LocalServer(None)
    windows = server.windows()
    ask(windows, upstream(), times=3)
    assert len(server.asked) == 1
    server.time = PAUSE + 1
    server.listing = LISTING
    ask(windows, upstream(), times=3)
    assert len(server.asked) == 2
    assert windows.find(upstream(), "parcel-7b") == 8192


def test_what_a_server_lists_is_read_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "PATIENCE", 60)  # this machine may be busy

    class Listing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(LISTING).encode()
            self.send_response(200 if self.path == "/v1/models" else 404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Listing) as server:
        serving = Thread(target=server.handle_request)
        serving.start()
        local = upstream(url=f"http://127.0.0.1:{server.server_port}")
        windows = ServedWindows({})
        ask(windows, local)
        serving.join()
    assert windows.find(local, "parcel-7b") == 8192


def test_a_server_that_is_not_there_is_no_error() -> None:
    windows = ServedWindows({})
    nobody = upstream(url="http://127.0.0.1:9")
    ask(windows, nobody)
    assert windows.find(nobody, "parcel-7b") is None


@pytest.mark.anyio
async def test_a_request_over_what_is_worth_its_price_is_cut_though_it_fits() -> None:
    """A gateway passes requests that are surely under the trigger without a look at them."""
    request = messages_request(60, size=4_000)
    for window, is_cut in (("model", False), ("price", True)):
        async with proxied(upstream={"window": window}) as (stub, gateway, client):
            status, _ = await post(client, gateway.url, request)
            assert status == 200
            assert (len(stub.seen[0].body) < len(dump(request)) / 2) is is_cut
            [line] = gateway.events("answered")
            assert line["window"] == 1_000_000


def test_a_window_says_where_it_comes_from() -> None:
    upstream = UpstreamSettings(url="http://127.0.0.1:9", profile="openai")
    assert choose_window(upstream, "nobody-knows-it", None) == ChosenWindow(UNKNOWN_WINDOW, "unknown")
    served = choose_window(upstream, "nobody-knows-it", None, served_window=55_000)
    assert served == ChosenWindow(55_000, "server")
    refused = choose_window(upstream, "nobody-knows-it", 33_000, served_window=55_000)
    assert refused == ChosenWindow(33_000, "refusal")
    assert choose_window(upstream, "gpt-5", None).source == "model"
    assert choose_window(upstream, "gpt-7", None).source == "model"
    own = msgspec.structs.replace(upstream, policy=Policy(budget=44_000))
    assert choose_window(own, "gpt-5", None) == ChosenWindow(44_000, "set")


def test_a_trigger_is_found_once_for_the_same_budget_and_parameters() -> None:
    budget = Budget(window=10_000)
    dialect = DIALECTS["anthropic"]
    head = dialect.wire.parse(messages_request(1)).head
    first = find_trigger(budget, head, dialect, None)
    assert find_trigger(budget, head, dialect, first) is first
    other_budget = find_trigger(Budget(window=20_000), head, dialect, first)
    assert other_budget.tokens > first.tokens
    longer_head = dialect.wire.parse(messages_request(1, max_tokens=5_000)).head
    assert find_trigger(budget, longer_head, dialect, first).tokens < first.tokens
