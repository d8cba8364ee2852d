"""Wrapped clients with a store: after a restart a conversation goes on as if nothing had happened."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lamina import BadInput
from lamina.cli import main
from lamina.errors import KeyNeeded
from lamina.stores import MemoryStore
from lamina.stores.sealed import generate
from lamina.wrapped import conversation
from tests.sessions.talking import awaited
from tests.wrapped.scripted_api import ScriptedApi, scripted_api
from tests.wrapped.test_wrap_recall import (
    FACT,
    Api,
    ask_whole,
    close,
    each_api,
    fill,
    flatten,
    prefixes_hold,
    remembering,
    user,
)

CHAT = Api("completions", is_async=False)


def test_clients_that_nobody_has_any_more_leave_no_threads(tmp_path: Path) -> None:
    """A program may wrap a client for each of its requests."""

    async def ask(served: ScriptedApi) -> None:
        client = CHAT.client(served.url, store=tmp_path / "chats.db")
        await ask_whole(CHAT, client, [user("Hello.")])
        await close(client)

    with scripted_api(lambda _: ["Hi."]) as served:
        before = set(threading.enumerate())
        for _ in range(3):
            asyncio.run(ask(served))
        assert not _threads_left(before)


def _threads_left(before: set[threading.Thread]) -> set[threading.Thread]:
    """What runs beside `before` when all garbage is collected. A thread may hold a client a moment longer."""
    left: set[threading.Thread] = set()
    for _ in range(100):
        gc.collect()
        left = set(threading.enumerate()) - before
        if not left:
            break
        next(iter(left)).join(0.1)
    return left


@pytest.mark.parametrize("name", ["", "support-42"], ids=["found", "named"])
@each_api
@awaited
async def test_a_restart_changes_no_byte(api: Api, name: str, tmp_path: Path) -> None:
    """A cut and a recall come before the restart, and every later request continues the last one."""

    def start(url: str) -> Any:
        client = api.client(url, store=tmp_path / "chats.db")
        return conversation(client, name) if name else client

    with scripted_api(remembering(api)) as served:
        history: list[Any] = []
        first = start(served.url)
        await fill(api, ask_whole, first, history, 9)
        begin = len(served.requests)
        history.append(user("When opens the harbour?"))
        answer, text = await ask_whole(api, first, history)
        assert text == f"It says: {FACT}"
        history += answer
        await close(first)
        for question in ("Thanks.", "And now?"):
            later = start(served.url)
            history.append(user(question))
            answer, _ = await ask_whole(api, later, history)
            history += answer
            await close(later)
        assert len(served.requests) == begin + 4
        prefixes_hold(api, served.requests, begin)


def test_two_clients_on_one_store_send_what_one_would_send(tmp_path: Path) -> None:
    async def talk(clients: list[Any]) -> None:
        history: list[Any] = []
        for turn in range(12):
            history.append(user(f"Part {turn}?"))
            answer, _ = await ask_whole(CHAT, clients[turn % len(clients)], history)
            history += answer
        for client in clients:
            client.close()

    bodies = []
    for count in (1, 2):
        with scripted_api(remembering(CHAT)) as served:
            store = tmp_path / f"{count}.db"
            asyncio.run(talk([CHAT.client(served.url, store=store) for _ in range(count)]))
            bodies.append(served.requests)
    assert bodies[0] == bodies[1]
    assert any(len(request["tools"]) == 2 for request in bodies[0])


@awaited
async def test_conversations_that_begin_alike_are_told_apart(tmp_path: Path) -> None:
    with scripted_api(remembering(CHAT)) as served:
        histories: list[list[Any]] = [[], []]
        for turn in range(10):
            for number, history in enumerate(histories):
                client = CHAT.client(served.url, store=tmp_path / "chats.db")
                history.append(user("Part 0?" if turn < 2 else f"{number}: part {turn}?"))
                answer, _ = await ask_whole(CHAT, client, history)
                history.extend(answer)
                client.close()
        for number in range(2):
            last = flatten(served.requests[-2 + number])
            assert f"{number}: part 9" in last
            assert f"{1 - number}: part" not in last


def test_a_sealed_store_needs_its_key_and_holds_no_words(tmp_path: Path) -> None:
    key = generate()

    def ask(served: ScriptedApi, **options: Any) -> None:
        client = CHAT.client(served.url, store=tmp_path / "chats.db", **options)
        client.chat.completions.create(**CHAT.request([user("Part 0?")]))
        client.close()

    with scripted_api(remembering(CHAT)) as served:
        ask(served, key=key)
        for file in tmp_path.iterdir():
            with suppress(FileNotFoundError):  # the log of a store that is being closed
                assert b"digests" not in file.read_bytes()
        with pytest.raises(KeyNeeded):
            ask(served)


def test_a_store_that_is_open_may_be_given_but_not_with_a_key() -> None:
    with pytest.raises(BadInput, match="takes no key"):
        CHAT.client("http://127.0.0.1:1", store=MemoryStore(), key=generate())
    with pytest.raises(BadInput, match="a key without a store"):
        CHAT.client("http://127.0.0.1:1", key=generate())


def test_a_program_with_a_store_ends_by_itself(tmp_path: Path) -> None:
    """Its store is closed first: native code in a thread that outlives the interpreter may crash."""
    code = f"""
import atexit, threading
atexit.register(lambda: print(any("sqlite" in thread.name for thread in threading.enumerate())))
import lamina
from tests.plain_client import plain_client
client = lamina.wrap(plain_client(lambda _: {{}}, "chat.completions"), store={str(tmp_path / "c.db")!r})
client.chat.completions.create(model="gpt-4o", messages=[{{"role": "user", "content": "Hi"}}])
print("done")
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\nFalse\n", "")


def test_what_is_stored_can_be_listed_and_deleted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    address = str(tmp_path / "chats.db")
    with scripted_api(remembering(CHAT)) as served:
        client = CHAT.client(served.url, store=address)
        client.chat.completions.create(**CHAT.request([user("Part 0?")]))
        conversation(client, "support-42").chat.completions.create(**CHAT.request([user("Part 1?")]))
        client.close()
    assert main(["log", "--store", address, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["conversations"]
    assert {row["client"] for row in rows} >= {"name:support-42"}
    names = [row["name"] for row in rows]
    assert len(names) == 2
    for name in names:
        assert main(["store", "delete", name, "--store", address]) == 2
        assert main(["store", "delete", name, "--store", address, "--yes"]) == 0
    capsys.readouterr()
    assert main(["log", "--store", address, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["conversations"] == []
