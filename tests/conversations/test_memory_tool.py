"""The memory tool served by lamina: in a store, by the gateway, a wrapped client and a session."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic
import anyio
import openai
import pytest

from lamina import BadInput, Policy, wrap
from lamina.agent import Agent
from lamina.clients.scripted import ScriptedClient
from lamina.conversations.memory_files import (
    erase_files,
    list_versions,
    load_files,
    memory_place,
    run_in_store,
)
from lamina.conversations.memory_tool import MEMORY
from lamina.dialects.port import PlainHead
from lamina.errors import NotFound
from lamina.stores.address import open_store
from lamina.stores.memory import MemoryStore
from lamina.stores.port import RecordPage, Where
from lamina.stores.sqlite import open_sqlite
from tests.agent.test_loop import SPOKEN
from tests.agent.working import calls, opened
from tests.gateway.running import settings_for
from tests.gateway.test_sdks import gateway_in_thread
from tests.sessions.talking import awaited
from tests.wrapped.scripted_api import Call, Said, ScriptedApi, scripted_api

NOTES = "/memories/notes.md"
DECLARED = {"type": "memory_20250818", "name": "memory"}
SERVED = Policy(memory_tool="lamina", breakpoints="keep")


def create(text: str, path: str = NOTES) -> dict[str, Any]:
    return {"command": "create", "path": path, "file_text": text}


VIEW = {"command": "view", "path": NOTES}


@awaited
async def test_commands_change_the_files_of_their_workspace_only() -> None:
    store = MemoryStore()
    await run_in_store(store, "one", create("first"))
    answer = await run_in_store(store, "two", VIEW)
    assert answer.error
    assert await load_files(store, "one") == {NOTES: "first"}
    assert await load_files(store, "two") == {}
    edit = {"command": "str_replace", "path": NOTES, "old_str": "first", "new_str": "second"}
    await run_in_store(store, "one", edit)
    await run_in_store(store, "one", {"command": "delete", "path": NOTES})
    versions = await list_versions(store, "one", NOTES)
    assert [version.text for version in versions] == ["first", "second", None]
    assert await load_files(store, "one") == {}


@awaited
async def test_a_user_erases_a_file_with_all_its_versions(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "chats.db") as store:
        await run_in_store(store, "", create("the password is rosebud"))
        await run_in_store(store, "", create("keep this", "/memories/other.md"))
        await run_in_store(store, "", {"command": "delete", "path": NOTES})
        assert await erase_files(store, "", NOTES) == 1
        assert await load_files(store, "") == {"/memories/other.md": "keep this"}
        with pytest.raises(NotFound):
            await list_versions(store, "", NOTES)
        with pytest.raises(NotFound):
            await erase_files(store, "", NOTES)
        page = await store.read(memory_place(""))
        assert b"rosebud" not in page.head.state + b"".join(record.body for record in page.records)
        assert await erase_files(store, "") == 1
        assert await load_files(store, "") == {}
    async for path in anyio.Path(tmp_path).iterdir():
        assert b"rosebud" not in await path.read_bytes()


@awaited
async def test_two_writers_at_once_lose_nothing() -> None:
    store = MemoryStore()
    async with anyio.create_task_group() as writers:
        for number in range(10):
            writers.start_soon(run_in_store, store, "", create(str(number), f"/memories/{number}.md"))
    assert len(await load_files(store, "")) == 10


class Interrupted(MemoryStore):
    """Does something after the next read, as another process could."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], Awaitable[Any]] | None = None

    async def read(self, where: Where, **arguments: Any) -> RecordPage:
        page = await super().read(where, **arguments)
        meanwhile = self.meanwhile
        self.meanwhile = None
        if meanwhile is not None:
            await meanwhile()
        return page


@awaited
async def test_a_command_does_not_bring_back_what_a_user_erases_meanwhile() -> None:
    store = Interrupted()
    await run_in_store(store, "", create("the password is rosebud"))
    await run_in_store(store, "", create("tea", "/memories/other.md"))
    store.meanwhile = lambda: erase_files(store, "", NOTES)
    await run_in_store(store, "", create("coffee", "/memories/third.md"))
    assert await load_files(store, "") == {"/memories/other.md": "tea", "/memories/third.md": "coffee"}


@awaited
async def test_two_users_erase_at_once() -> None:
    store = Interrupted()
    await run_in_store(store, "", create("the password is rosebud"))
    await run_in_store(store, "", create("tea", "/memories/other.md"))
    store.meanwhile = lambda: erase_files(store, "", NOTES)
    assert await erase_files(store, "", "/memories/other.md") == 1
    assert await load_files(store, "") == {}


@pytest.mark.parametrize("address", ["chats.db", "files:chats"])
@awaited
async def test_an_erased_file_is_gone_from_the_disk(address: str, tmp_path: Path) -> None:
    async with open_store(address.replace("chats", str(tmp_path / "chats"))) as store:
        await run_in_store(store, "", create("the password is rosebud " * 400))
        await run_in_store(store, "", create("keep this", "/memories/other.md"))
        await erase_files(store, "", NOTES)
        async for path in anyio.Path(tmp_path).rglob("*"):
            if await path.is_file():
                assert b"rosebud" not in await path.read_bytes(), path
        assert await load_files(store, "") == {"/memories/other.md": "keep this"}


def remember(request: dict[str, Any]) -> Said:
    """A model that writes a note, reads it again, and answers with what it read."""
    last = json.dumps(request["messages"][-1])
    if "content of /memories" in last:
        return [f"I read: {'tea' if 'prefers tea' in last else 'nothing'}"]
    if "created successfully" in last or "already exists" in last:
        return [Call("memory", VIEW, "m2")]
    if "remember" in last:
        return ["Noted.", Call("memory", create("She prefers tea."), "m1")]
    return ["Fine."]


@contextmanager
def gateway_in_front(store: Path, **policy: Any) -> Iterator[tuple[str, ScriptedApi]]:
    with scripted_api(remember) as api:
        settings = settings_for(api.url, store, upstream=policy)
        with gateway_in_thread(settings) as gateway:
            yield gateway.url, api


def connect(url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)


def ask_messages(client: Any, history: list[Any], *, streams: bool) -> Any:
    request: dict[str, Any] = {"model": "claude-opus-5-5", "max_tokens": 100, "tools": [DECLARED]}
    if not streams:
        return client.messages.create(**request, messages=history)
    with client.messages.stream(**request, messages=history) as stream:
        return stream.get_final_message()


def check_talk(ask: Callable[[list[Any]], Any], api: ScriptedApi) -> None:
    """The client sees the answer and none of the calls, and its next request continues the last one."""
    history: list[Any] = [{"role": "user", "content": "Please remember: tea"}]
    answer = ask(history)
    assert [block.type for block in answer.content] == ["text"] * len(answer.content)
    assert answer.content[-1].text == "I read: tea"
    assert answer.stop_reason == "end_turn"
    assert len(api.requests) == 3
    history += [
        {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in answer.content]},
        {"role": "user", "content": "Thanks"},
    ]
    ask(history)
    last, before = api.requests[-1]["messages"], api.requests[-2]["messages"]
    assert last[: len(before)] == before
    assert "prefers tea" in json.dumps(last)
    assert api.requests[-1]["tools"] == [DECLARED]


@pytest.mark.parametrize("streams", [False, True])
def test_the_gateway_serves_it(streams: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a case
    with gateway_in_front(tmp_path / "g.db", memory_tool="lamina") as (url, api), connect(url) as client:
        check_talk(lambda history: ask_messages(client, history, streams=streams), api)

    async def read() -> Any:
        async with open_sqlite(tmp_path / "g.db") as store:
            return await load_files(store, "")

    assert anyio.run(read) == {NOTES: "She prefers tea."}


@pytest.mark.parametrize("streams", [False, True])
def test_a_wrapped_client_serves_it(streams: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a case
    with scripted_api(remember) as api, connect(api.url) as plain:
        client = wrap(plain, policy=SERVED, store=tmp_path / "w.db")
        check_talk(lambda history: ask_messages(client, history, streams=streams), api)


def test_another_api_has_it_as_a_function(tmp_path: Path) -> None:
    function = {"name": MEMORY.name, "description": MEMORY.description, "parameters": MEMORY.schema}
    with scripted_api(remember) as api, openai.OpenAI(base_url=f"{api.url}/v1", api_key="none") as plain:
        client: Any = wrap(plain, policy=SERVED, store=tmp_path / "w.db")
        answer = client.chat.completions.create(
            model="gpt-5.6",
            tools=[{"type": "function", "function": function}],
            messages=[{"role": "user", "content": "Please remember: tea"}],
        )
    assert answer.choices[0].message.content.endswith("I read: tea")
    assert not answer.choices[0].message.tool_calls


def test_without_the_policy_the_client_gets_the_call(tmp_path: Path) -> None:
    with gateway_in_front(tmp_path / "g.db") as (url, api), connect(url) as client:
        answer = ask_messages(client, [{"role": "user", "content": "Please remember"}], streams=False)
    assert [block.type for block in answer.content] == ["text", "tool_use"]
    assert len(api.requests) == 1


@pytest.mark.parametrize("dialect", SPOKEN)
@awaited
async def test_a_session_and_its_agent_serve_it(dialect: str) -> None:
    store = MemoryStore()
    client = ScriptedClient(
        [calls("memory", **create("She prefers tea.")), calls("memory", **VIEW), "She prefers tea."],
        dialect=dialect,
    )
    agent = Agent(client=client)
    async with opened(
        agent, store, memory_tool="lamina", head=PlainHead(tools=(MEMORY,), output=200)
    ) as session:
        outcome = await agent.run(session, "Remember: tea")
        assert outcome.text == "She prefers tea."
        assert outcome.ran == ()
    assert await load_files(store, "") == {NOTES: "She prefers tea."}
    assert "Here's the content of /memories/notes.md" in json.dumps(client.requests[-1])


def test_a_wrapped_client_without_a_store_refuses_to_serve_it() -> None:
    with anthropic.Anthropic(api_key="none") as client, pytest.raises(BadInput, match="there is none"):
        wrap(client, policy=SERVED)
