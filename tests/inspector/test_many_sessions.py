"""A list of very many conversations: lines from their states, figures for those that are shown."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest

from lamina.conversations.record import Answered, SentRequest
from lamina.conversations.record_writer import RecordWriter
from lamina.conversations.store import ConversationState, conversation_place
from lamina.dialects.usage import Usage
from lamina.inspector import stored_sessions
from lamina.inspector.progress import ReaderGone, watch_reader
from lamina.inspector.search import SearchFilters, search_places
from lamina.inspector.sessions import Sessions
from lamina.inspector.settings import BuildSettings
from lamina.inspector.stored_sessions import StoredSessions
from lamina.inspector.views import Inspector, show_session, show_sessions
from lamina.stores.address import open_store
from lamina.stores.port import Store

TALKS = 6
_Value = TypeVar("_Value")


async def fill(path: Path) -> None:
    async with open_store(str(path)) as store:
        for number in range(TALKS):
            writer = RecordWriter()
            for call in range(2):
                request = SentRequest(
                    id=f"r{call}",
                    at=1_000.0 * (number + 1) + call,
                    dialect="anthropic",
                    model="claude-sonnet-4-5",
                )
                body = {
                    "model": "claude-sonnet-4-5",
                    "messages": [{"role": "user", "content": f"Parcel {number}."}],
                }
                writer.add_sent(request, body=json.dumps(body).encode())
                answer = Answered(id=f"r{call}", at=1.0, status=200, usage=Usage(input=5_000, output=9))
                writer.add_answer(answer, body=b"{}")
            state = ConversationState(
                door="gateway", dialect="anthropic", title=f"Parcel {number}.", requests=2, keep="all"
            )
            records = writer.encode()
            if number == 0:
                await store.append(conversation_place("w", "killed"), records)  # its state was never written
                continue
            encoded = json.loads(state.encode()) | {"updated": 1_000 * (number + 1)}
            place = conversation_place("w", f"talk-{number}")
            await store.append(place, records, state=json.dumps(encoded).encode())


class CountedStore:
    """Asks a store, and counts the conversations that were read in full."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.records = 0

    def __call__(self, operation: Callable[[Store], Awaitable[_Value]], /) -> _Value:
        async def ask() -> _Value:
            async with open_store(str(self._path)) as store:
                return await operation(store)

        if isinstance(operation, partial) and operation.func.__name__ == "_read_stored":
            self.records += 1
        return anyio.run(ask)


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Inspector, CountedStore]:
    monkeypatch.setattr(stored_sessions, "MOST_READ", 3)
    anyio.run(fill, tmp_path / "kept.db")
    store = CountedStore(tmp_path / "kept.db")
    return Inspector(Sessions(sources=[StoredSessions(store, "w")])), store


def test_a_long_list_reads_only_the_records_that_it_shows(counted: tuple[Inspector, CountedStore]) -> None:
    inspector, store = counted
    shown = show_sessions(inspector, rows=2)
    assert [each["name"] for each in shown["sessions"]] == ["talk-5", "talk-4"]
    assert [each["calls"] for each in shown["sessions"]] == [2, 2]
    assert all(each["has_figures"] and each["dollars"] for each in shown["sessions"])
    assert shown["more"] == TALKS - 2
    assert store.records == 3, "two that are shown, and one without a state"
    show_sessions(inspector, rows=2)
    assert store.records == 3, "what was read is not read again"
    summaries: dict[str, Any] = {each.name: each for each in inspector.sessions.summaries()}
    assert (summaries["talk-1"].first_words, summaries["talk-1"].has_figures) == ("Parcel 1.", False)
    assert summaries["killed"].has_figures


def test_a_session_opens_from_a_line_without_figures(counted: tuple[Inspector, CountedStore]) -> None:
    inspector, _ = counted
    session_id = inspector.sessions.summaries()[-2].id
    page = show_session(inspector, session_id, BuildSettings())
    assert page["session"]["has_figures"]
    assert len(page["calls"]) == 2


def test_a_search_ends_when_its_reader_has_gone(counted: tuple[Inspector, CountedStore]) -> None:
    inspector, store = counted
    assert search_places(inspector, "parcel", SearchFilters())["count"] == TALKS
    store.records = 0
    inspector = Inspector(Sessions(sources=[StoredSessions(store, "w")]))
    inspector.sessions.summaries()
    looks = iter([False, False])
    with watch_reader(lambda: next(looks, True)), pytest.raises(ReaderGone):
        search_places(inspector, "parcel", SearchFilters())
    assert store.records == 1 + 2, "the one without a state for the list, and two of the search"
