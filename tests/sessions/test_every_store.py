"""Parity: reopened before every move, from any store, sealed or not, a session sends the same bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from lamina.core.hashing import canonical_json
from lamina.core.values import Budget
from lamina.fitting import Policy
from lamina.segments import file
from lamina.sessions import RuntimeOptions, Session
from lamina.stores import MemoryStore, Store, open_store
from lamina.stores.sealed import Sealed, generate
from tests.servers.postgres import shared

Opened = Callable[[], AbstractAsyncContextManager[Store]]
SPEC = "# Limits\n\nAt most 20 requests a minute.\n" * 30
TURNS = 6


async def move(session: Session, turn: int) -> list[bytes]:
    """One turn with a tool, and its requests as sent."""
    await session.ask(f"Question {turn}?", attach=[file("spec.md", SPEC)] if turn % 3 == 0 else [])
    first = canonical_json(await session.request())
    call = {"id": f"c{turn}", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}
    await session.record(
        {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [call]}}]}
    )
    await session.results({f"c{turn}": f"line {turn}\n" * 120})
    second = canonical_json(await session.request())
    await session.record(f"Answer {turn}.")
    return [first, second]


def opening(store: Store) -> AbstractAsyncContextManager[Session]:
    return Session.open(
        store,
        "chat",
        model="gpt-5",
        policy=Policy(budget=Budget(window=2_500, reserve=0)),
        runtime=RuntimeOptions(clock=None),
    )


async def at_once() -> list[bytes]:
    async with opening(MemoryStore()) as session:
        return [request for turn in range(TURNS) for request in await move(session, turn)]


async def reopened(store: Opened) -> list[bytes]:
    sent: list[bytes] = []
    for turn in range(TURNS):
        async with store() as opened_store, opening(opened_store) as session:
            sent += await move(session, turn)
    return sent


@asynccontextmanager
async def _same(store: Store) -> AsyncIterator[Store]:
    yield store


def _stores(tmp_path: Path, kind: str) -> Opened:
    key, memory = generate(), MemoryStore()
    if kind == "sealed in memory":
        return lambda: _same(Sealed(memory, key, create=True))
    if kind == "postgres":
        url = shared().url
        return lambda: open_store(url)
    address = f"files:{tmp_path}/f" if "files" in kind else f"sqlite:{tmp_path}/a.db"
    return lambda: open_store(address, key=key if "sealed" in kind else None)


@pytest.mark.parametrize(
    "kind", ["sqlite", "files", "postgres", "sealed in memory", "sealed in sqlite", "sealed in files"]
)
def test_a_session_reopened_at_every_turn_sends_the_same_bytes(kind: str, tmp_path: Path) -> None:
    store = _stores(tmp_path, kind)
    expected = anyio.run(at_once)
    assert anyio.run(reopened, store) == expected
    assert any(b"[trimmed" in request or b"<digest" in request for request in expected)
