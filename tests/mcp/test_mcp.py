"""`lamina mcp` with the real client of the protocol, over standard input and output and over HTTP."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import TextContent

from lamina import Budget, Policy
from lamina.conversations.store import ConversationState, conversation_place
from lamina.core.hashing import handle
from lamina.core.recall import identify_segments
from lamina.errors import BadInput
from lamina.mcp.http import HttpAddress, make_app
from lamina.mcp.library import open_library
from lamina.mcp.tools import make_server
from lamina.segments import file
from lamina.sessions import Session
from lamina.settings import Settings
from lamina.stores import MemoryStore, Where, open_store
from tests.cli.running import run
from tests.gateway.growing import messages_request, output
from tests.gateway.running import open_client, run_gateway, settings_for
from tests.gateway.test_conversations import SMALL, post
from tests.gateway.upstream_stub import run_stub

SPEC = "# Retry\n\nA request is retried three times, with a growing pause.\n" * 300
TOKEN = "a-token-that-is-long-enough"  # noqa: S105 - for the test


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with a session that was cut, and a conversation that the gateway has cut."""
    path = tmp_path_factory.mktemp("mcp") / "kept.db"
    asyncio.run(_fill(path))
    return str(path)


async def _fill(path: Path) -> None:
    budget = Budget(window=6_000, reserve=500, keep_last=1)
    async with (
        open_store(str(path)) as store,
        Session.open(store, "chat", policy=Policy(budget=budget)) as session,
    ):
        await session.ask("What does it say?", attach=[file("spec.md", SPEC)])
        for turn in range(9):
            await session.record(f"Answer {turn}: " + "three retries with a pause. " * 120)
            await session.ask(f"And number {turn}?")
        assert session.ledger.cuts
    async with (
        run_stub() as stub,
        run_gateway(settings_for(stub, path, **SMALL)) as gateway,
        open_client() as client,
    ):
        for steps in (0, 20):
            await post(client, gateway.url, messages_request(steps))


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "lamina", "mcp", *arguments]


def speak(store: str, talk: Callable[[Client], Awaitable[None]]) -> None:
    """Start the server as a client does, and let the client talk."""

    async def connect() -> None:
        program, *arguments = command("--store", store)
        server = StdioServerParameters(command=program, args=arguments, env=dict(os.environ))
        async with Client(server, read_timeout_seconds=60) as client:
            await talk(client)

    asyncio.run(connect())


def speak_here(store: str, talk: Callable[[Client], Awaitable[None]], *, only: str = "") -> None:
    """Let a client talk to a server in this process, which takes a tenth of the time."""

    async def connect() -> None:
        async with (
            open_store(store) as opened,
            open_library(opened, only=only) as library,
            Client(make_server(library)) as client,
        ):
            await talk(client)

    asyncio.run(connect())


def search(pattern: str, text: str) -> re.Match[str]:
    match = re.search(pattern, text)
    assert match, (pattern, text)
    return match


async def ask(client: Client, tool: str, **arguments: object) -> str:
    """The text of a result that is no error."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


def test_a_client_recalls_explains_and_searches_over_stdio(store: str) -> None:
    async def talk(client: Client) -> None:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == ["recall", "explain", "search"]
        lines = (await ask(client, "explain")).split("\n")
        assert len(lines) == 2
        assert lines[0].startswith("chat: a session, ")
        name = lines[1].partition(":")[0]
        assert lines[1].startswith(f"{name}: through the gateway to ")

        # a session: the table of lamina fit --explain, one segment, its text byte for byte, and in pieces
        shown = await ask(client, "explain", conversation="chat")
        assert "tokens (estimated)" in shown
        found = await ask(client, "search", text="how many times is a request retried?", conversation="chat")
        assert found.startswith("[chat, ")
        spec = next(part for part in found.split("\n\n[") if "growing pause" in part)
        key = search(r'recall\("([^"]+)"\)', spec)[1]
        first = await ask(client, "recall", key=key, conversation="chat")
        going_on = search(r"^\[characters 0 to 8,000 of (\S+); go on with start=8000\]\n", first)
        rest = await ask(client, "recall", key=key, start=8000)
        assert (first[going_on.end() :] + rest.partition("\n")[2]).count("three times") >= 200
        assert "spec.md" in await ask(client, "explain", conversation="chat", key="spec.md")

        # a conversation of the gateway: what was cut, and the text of a result behind a key and a digest
        shown = await ask(client, "explain", conversation=name)
        assert "cut 1: over the trigger" in shown
        keys = re.findall(r'recall\("([^"]+)"\)', shown)
        texts = [await ask(client, "recall", key=key, find="function_1(") for key in keys]
        assert any("def function_1(argument)" in text for text in texts)
        found = await ask(client, "search", text="function_2", most=3)
        assert f"[{name}, " in found
        assert output(2, 100).split("\n")[0] in found

    speak(store, talk)


@pytest.mark.parametrize(
    ("door", "words"),
    [
        ("", "through the gateway"),
        ("gateway", "through the gateway"),
        ("wrap", "through a wrapped client"),
        ("demo", "through the door 'demo'"),
    ],
)
def test_a_list_says_through_which_door_a_conversation_came(door: str, words: str) -> None:
    async def list_them() -> str:
        memory = MemoryStore()
        state = ConversationState(door=door, model="gpt-5", requests=1)
        await memory.append(conversation_place("", "talk"), [], expect=0, state=state.encode())
        async with open_library(memory) as library:
            return await library.explain()

    assert asyncio.run(list_them()).startswith(f"talk: {words} to gpt-5, 1 request, 0 cuts")


def test_errors_are_results_that_say_what_to_do(store: str) -> None:
    async def talk(client: Client) -> None:
        wrong: list[tuple[str, dict[str, object], str, str]] = [
            ("recall", {"key": "nothing"}, "NotFound", "see what search finds"),
            ("recall", {"key": "nothing", "conversation": "chat"}, "NotFound", "see what search finds"),
            ("explain", {"key": "nothing", "conversation": "chat"}, "NotFound", "see what search finds"),
            ("explain", {"conversation": "nobody"}, "StoreError", "explain without a conversation"),
            ("search", {"text": " "}, "BadInput", "give words"),
            ("search", {"text": "x", "most": 500}, "BadInput", "1 to 50"),
            ("search", {"words": "x"}, "BadInput", "arguments are text, conversation, most"),
            ("recall", {"key": "k", "start": -1}, "BadInput", "start"),
        ]
        for tool, arguments, kind, hint in wrong:
            result = await client.call_tool(tool, arguments)
            assert result.is_error, (tool, arguments)
            assert result.structured_content["error"]["kind"] == kind
            assert hint in str(result.content)
        with pytest.raises(MCPError, match="there is no tool 'forget'"):
            await client.call_tool("forget", {})

    speak_here(store, talk)


def test_a_server_for_one_conversation_shows_no_other(store: str) -> None:
    async def talk(client: Client) -> None:
        assert "tokens (estimated)" in await ask(client, "explain")
        others: dict[str, dict[str, str]] = {"recall": {"key": "x"}, "search": {"text": "x"}, "explain": {}}
        for tool, arguments in others.items():
            result = await client.call_tool(tool, {**arguments, "conversation": "another"})
            assert result.is_error
        assert "def function" not in await ask(client, "search", text="function_2")

    speak_here(store, talk, only="chat")


@contextmanager
def serving(store: str) -> Iterator[str]:
    """The URL of a server on a free port."""
    process = subprocess.Popen(command("--store", store, "--http"), stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        yield search(r"http://\S+", process.stderr.readline())[0]
    finally:
        process.terminate()
        process.wait(20)
        process.stderr.close()


def status(url: str, **headers: str) -> int:
    """What the server answers to a first message with these headers."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=20)
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    usual = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    sent = usual | {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", parts.path, json.dumps(message), sent)
    answer = connection.getresponse()
    said = answer.read().decode()
    connection.close()
    if answer.status == 421:  # the option of this door, and no setting of the gateway
        assert "--allow-host" in said
        assert "`hosts`" not in said
    return answer.status


def test_http_serves_the_same_and_refuses_strangers(store: str) -> None:
    with serving(store) as url:

        async def talk() -> None:
            async with Client(url, read_timeout_seconds=60) as client:
                assert (await ask(client, "explain")).startswith("chat: a session, ")

        asyncio.run(talk())
        port = urlsplit(url).port
        assert status(url, Host="evil.example") == 421
        assert status(url, Origin="http://evil.example") == 403
        assert status(url, Sec_Fetch_Site="cross-site") == 403
        assert status(url, Host=f"localhost:{port}", Origin=f"http://localhost:{port}") < 403


def test_a_public_address_needs_a_token_from_everybody(store: str) -> None:
    refused = run("mcp", "--http", "--host", "0.0.0.0", "--store", store)  # noqa: S104 - refused
    assert refused.code == 2
    assert "LAMINA_MCP_TOKEN" in refused.err

    async def talk() -> None:
        async with open_store(store) as opened, open_library(opened) as library:
            address = HttpAddress(host="0.0.0.0", token=TOKEN)  # noqa: S104 - with a token
            transport = httpx2.ASGITransport(make_app(make_server(library), address))
            async with httpx2.AsyncClient(transport=transport, base_url="http://lamina.test") as client:
                for headers in ({}, {"Authorization": "Bearer wrong-token-of-some-length"}):
                    answer = await client.post("/mcp", json={}, headers=headers)
                    assert answer.status_code == 401
                    assert answer.headers["www-authenticate"] == "Bearer"
                with pytest.raises(
                    RuntimeError, match="run"
                ):  # admitted: the package's server is not started
                    await client.post("/mcp", json={}, headers={"Authorization": f"Bearer {TOKEN}"})

    asyncio.run(talk())
    with pytest.raises(BadInput, match="too short"):
        make_app(Server("x"), HttpAddress(token="short"))  # noqa: S106 - refused


def test_a_conversation_that_cannot_be_read_hides_no_other() -> None:
    async def trial() -> None:
        store = MemoryStore()
        async with Session.open(store, "chat", model="gpt-5", settings=Settings()) as session:
            await session.ask("The pump is blue.")
            [*_, named] = identify_segments(session.log)
        await store.append(Where("", "a newer one"), [b'{"v":9,"segment":{}}'])
        async with open_library(store) as library:
            listed = await library.explain()
            assert "chat: a session" in listed
            assert "a newer one: it cannot be read" in listed
            assert "pump" in await library.search("pump")
            assert "pump" in await library.recall(handle(named.content))
            with pytest.raises(BadInput, match="version 9"):
                await library.search("pump", conversation="a newer one")

    asyncio.run(trial())
