"""The inspector's pages inside the gateway, behind the gateway's own guards."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lamina import Budget
from lamina.dialects import Usage
from lamina.relay.config import AccessToken
from tests.conversations.recorded_talk import Received, StoreAsker
from tests.conversations.truth import check_truth
from tests.gateway.growing import HEADERS, chat_request, dump, messages_request
from tests.gateway.running import open_client, proxied, run_gateway, settings_for
from tests.gateway.upstream_stub import CACHED, SeenRequest, run_stub

pytestmark = pytest.mark.anyio

TOKENS = tuple(
    AccessToken(sha256=sha256(name.encode()).hexdigest(), workspace=name) for name in ("search", "sales")
)
PAGES = "/lamina/inspect/"


async def test_a_conversation_that_went_through_the_gateway_is_shown(tmp_path: Path) -> None:
    async with proxied(tmp_path / "gateway.db") as (stub, gateway, client):
        for steps in range(4):
            address = f"{gateway.url}/v1/chat/completions"
            async with client.post(address, data=dump(chat_request(steps)), headers=HEADERS) as answer:
                assert answer.status == 200
        async with client.get(gateway.url + PAGES) as page:
            assert page.status == 200
            assert b"static/app.js" in await page.read()
        async with client.get(f"{gateway.url}/lamina/inspect", allow_redirects=False) as page:
            assert (page.status, page.headers["location"]) == (307, PAGES)
        async with client.get(f"{gateway.url}{PAGES}api/sessions") as page:
            (session,) = (await page.json())["sessions"]
        assert session["name"] == gateway.events("answered")[-1]["conversation"]
        assert session["calls"] == 4
        assert session["tokens"] == gateway.events("answered")[-1]["input"]
        async with client.get(f"{gateway.url}{PAGES}api/session/{session['id']}") as page:
            assert page.status == 200
        for headers, status in (
            ({"host": "evil.example"}, 421),
            ({"origin": "https://evil.example"}, 403),
        ):
            async with client.get(f"{gateway.url}{PAGES}api/sessions", headers=headers) as page:
                assert page.status == status
        assert all("/lamina/inspect" not in seen.path for seen in stub.seen)


async def test_a_session_that_is_played_twice_is_two_conversations(tmp_path: Path) -> None:
    async with proxied(tmp_path / "gateway.db") as (_, gateway, client):
        for steps in [*range(5), *range(5)]:
            address = f"{gateway.url}/v1/messages"
            async with client.post(address, data=dump(messages_request(steps)), headers=HEADERS) as answer:
                assert answer.status == 200
                await answer.read()
        async with client.get(f"{gateway.url}{PAGES}api/sessions") as page:
            assert [each["calls"] for each in (await page.json())["sessions"]] == [5, 5]


async def test_a_token_opens_its_own_workspace_only(tmp_path: Path) -> None:
    async with proxied(tmp_path / "gateway.db", tokens=TOKENS) as (_, gateway, client):
        headers = {**HEADERS, "x-lamina-token": "search"}
        for steps in range(2):
            address = f"{gateway.url}/v1/chat/completions"
            async with client.post(address, data=dump(chat_request(steps)), headers=headers) as answer:
                assert answer.status == 200
        sessions = f"{gateway.url}{PAGES}api/sessions"
        for token, count in {"search": 1, "sales": 0}.items():
            async with client.get(sessions, headers={"x-lamina-token": token}) as page:
                assert len((await page.json())["sessions"]) == count
        link = {
            "sec-fetch-site": "cross-site",
            "sec-fetch-mode": "navigate",
            "sec-fetch-dest": "document",
        }
        # A link in a message opens the page, which holds nothing of any session, and nothing else.
        for path, status in ((f"{PAGES}?token=search", 200), (f"{PAGES}api/sessions?token=search", 403)):
            async with client.get(f"{gateway.url}{path}", headers=link) as page:
                assert page.status == status
                assert "set-cookie" not in page.headers
        for headers in ({}, {"x-lamina-token": "wrong"}):
            async with client.get(f"{sessions}?token=search", headers=headers) as page:
                assert page.status == 401
                assert "token" in (await page.json())["error"]


async def test_the_pages_can_be_switched_off() -> None:
    async with run_stub() as stub:
        settings = msgspec.structs.replace(settings_for(stub), inspect=False)
        async with run_gateway(settings) as gateway, open_client() as client:
            async with client.get(gateway.url + PAGES) as page:
                await page.read()
            assert [seen.path for seen in stub.seen] == [PAGES]


def receive(seen: SeenRequest) -> Received:
    """A request as the stub got it, with the usage that it reports for one of these bytes."""
    usage = Usage(input=len(seen.body) // 4 + 9 + CACHED, cached=CACHED, written=9, output=5)
    return Received(body=seen.body, model="claude-sonnet-5", usage=usage)


def test_the_page_shows_what_the_upstream_received_also_after_a_restart(tmp_path: Path) -> None:
    """Cuts, tokens, left-out lists and costs, with the same request sent twice."""
    store = tmp_path / "gateway.db"
    settings: dict[str, Any] = {"upstream": {"budget": Budget(window=8_000, reserve=500)}, "keep": "all"}
    shown: list[Any] = []

    async def run_once(steps: list[int]) -> list[SeenRequest]:
        async with proxied(store, **settings) as (stub, gateway, client):
            for number in steps:
                request = dump(messages_request(number))
                address = f"{gateway.url}/v1/messages"
                async with client.post(address, data=request, headers=HEADERS) as answer:
                    assert answer.status == 200
                    await answer.read()
            async with client.get(f"{gateway.url}{PAGES}api/sessions") as page:
                (session,) = (await page.json())["sessions"]
            async with client.get(f"{gateway.url}{PAGES}api/session/{session['id']}") as page:
                shown.append(await page.json())
            return stub.seen

    before = asyncio.run(run_once([*range(14), 13]))
    after = asyncio.run(run_once([14, 15]))
    received = [receive(seen) for seen in [*before, *after]]
    assert len(shown[0]["calls"]) == 15
    assert len(shown[1]["calls"]) == len(received) == 17
    assert shown[1]["totals"]["cuts"] >= 1
    reported = [each.usage.input for each in received if each.usage is not None]
    assert [call["tokens"] for call in shown[1]["calls"]] == reported
    check_truth(received, StoreAsker(store), "default")


async def test_a_gateway_that_keeps_nothing_says_so() -> None:
    async with proxied() as (_, gateway, client):
        async with client.get(f"{gateway.url}{PAGES}api/sessions") as page:
            answer = await page.json()
        assert answer["sessions"] == []
        assert 'keep = "all"' in answer["problems"][0]["reason"]
