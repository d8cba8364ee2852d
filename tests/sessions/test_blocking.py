from __future__ import annotations

import inspect
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import get_ident

import anyio
import pytest

from lamina.blocking import Session
from lamina.errors import BadInput
from lamina.segments import file
from lamina.sessions import RuntimeOptions
from lamina.sessions import Session as Async
from lamina.settings import Settings
from lamina.stores import MemoryStore
from tests.sessions.talking import list_texts, opened

pytestmark = pytest.mark.filterwarnings("ignore::lamina.stores.sqlite.WalResetRisk")

USUAL = Settings(model="gpt-5")


def test_a_conversation_without_an_event_loop(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    with Session.open(path, "a", settings=USUAL) as session:
        session.ask("hello", attach=[file("a.md", "text " * 50)])
        request = session.request()
        assert [m["role"] for m in request["messages"]] == ["user", "user"]
        session.record("hi")
        assert (session.turns, session.pending, session.conversation) == (1, False, "a")
        assert [one.text for one in session.dialogue()] == ["hello", "hi"]
        assert session.recall("a.md", part=(0, 4)).text == "text"
        assert session.explain().tokens > 0
        assert session.report().continues
        fork = session.fork(name="b")
        fork.ask("elsewhere")
        assert session.turns == 1
        session.regenerate()
        session.rewind(0)
        assert session.log == ()
        with pytest.raises(BadInput):
            session.regenerate()
        with pytest.raises(AttributeError):
            session.nothing()
    with Session.open(str(path), "b", settings=USUAL) as session:
        assert [one.text for one in session.dialogue()] == ["hello", "hi", "elsewhere"]


def test_it_builds_what_the_session_behind_it_builds() -> None:
    store = MemoryStore()
    with Session.open(store, "a", settings=USUAL) as session:
        session.ask("hello")
        request = session.request()

    async def other() -> str:
        async with opened(store) as session:
            assert list_texts(session) == ["hello"]
            return json.dumps(await session.request())

    assert anyio.run(other) == json.dumps(request)


def test_every_method_of_the_session_is_there() -> None:
    public = {name for name, _ in inspect.getmembers(Async, callable) if not name.startswith("_")}
    assert {name for name in public if not hasattr(Session, name)} == set()


def test_threads_may_share_it() -> None:
    with Session.open(MemoryStore(), "a", settings=USUAL) as session, ThreadPoolExecutor(4) as pool:
        list(pool.map(session.ask, [f"q{number}" for number in range(12)]))
        assert sorted(one.text for one in session.dialogue()) == sorted(f"q{number}" for number in range(12))


def test_without_a_store_it_is_a_file_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with Session.open(None, "a", settings=USUAL) as session:
        session.ask("hello")
    (database,) = tmp_path.rglob("*.db")
    assert database.parent.stat().st_mode & 0o077 == 0


def test_what_builds_a_request_runs_in_the_thread_of_the_session() -> None:
    threads: set[int] = set()

    def redact(text: str) -> str:
        threads.add(get_ident())
        return text

    runtime = RuntimeOptions(redact=redact)
    with Session.open(MemoryStore(), "a", settings=USUAL, persona="You are Ada.", runtime=runtime) as session:
        session.explain()
        session.report()
        session.set_history(4)
        session.ask("hello")
        assert len(threads) == 1
        assert get_ident() not in threads
    assert session.explain().rows
