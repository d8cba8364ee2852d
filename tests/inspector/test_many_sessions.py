"""A list of very many conversations: lines from their states, figures for those that are shown."""

from __future__ import annotations

import gzip
import json
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, TypeVar, cast

import anyio
import pytest

from lamina.conversations.record import Answered, SentRequest
from lamina.conversations.record_writer import RecordWriter
from lamina.conversations.store import ConversationState, conversation_place
from lamina.dialects import Usage
from lamina.inspector import Inspector, Sessions, search, stored_sessions
from lamina.inspector.search import search_places
from lamina.inspector.stored_sessions import AskStore, StoredSessions
from lamina.inspector.views import show_session, show_sessions
from lamina.stores import MemoryStore, Store, open_store

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
                    "messages": [{"role": "user", "content": f"Parcel {number} of town{number}."}],
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
    page = show_session(inspector, session_id)
    assert page["session"]["has_figures"]
    assert len(page["calls"]) == 2


def test_a_search_reads_only_conversations_whose_records_may_have_its_words(
    counted: tuple[Inspector, CountedStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    inspector, store = counted
    inspector.sessions.summaries()
    store.records = 0
    (place,) = search_places(inspector, "town4 parcel")["places"]
    assert (place["words"], store.records) == ("town4", 1)
    monkeypatch.setattr(search, "MOST_PLACES", 2)
    answer = search_places(inspector, "parcel")
    assert (len(answer["places"]), answer["more"]) == (2, True)


STREAM = b"".join(
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
    b'"delta":{"type":"text_delta","text":"%b"}}\n\n' % words
    for words in (b"The lost par", b"cel is in dep", b"ot 17.")
)
BEGIN = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","type":"message",'
    b'"role":"assistant","model":"claude-sonnet-4-5","content":[],"usage":{"input_tokens":1}}}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
    b'"content_block":{"type":"text","text":""}}\n\n'
)
WHOLE = b'{"type":"message","role":"assistant","content":[{"type":"text","text":"It is in office 23."}]}'
ANSWERS = {
    "whole": Answered(id="r", status=200, content_type="application/json"),
    "stream": Answered(id="r", status=200, content_type="text/event-stream"),
    "packed": Answered(id="r", status=200, content_type="application/json", encoding="gzip"),
}
BODIES = {"whole": WHOLE, "stream": BEGIN + STREAM, "packed": gzip.compress(WHOLE)}
ASKED = (
    "Where is C:\\\\parcels\\n\\u00e4ndern?",
    'STRASSE, 5 \u212aelvin, a \\"quoted\\" word',
    "parcel here",
)
WORDS = (
    "parcel", "PARCEL depot", "depot 17", "office 23", '"office 23"', "depot -lost", "office lost", "here is",
    "parcels", "\u00c4ndern", "kelvin", "strasse", "quoted", '"a \\"quoted"', "image", "nothing_like_it", "5",
)  # fmt: skip


def test_a_search_of_records_finds_what_a_search_of_all_conversations_finds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def write(store: Store) -> None:
        for number, (words, kind) in enumerate(product(ASKED, ANSWERS)):
            writer = RecordWriter()
            request = SentRequest(id="r", at=1_000.0 + number, dialect="anthropic", model="claude-sonnet-4-5")
            body = b'{"model":"claude-sonnet-4-5","messages":[{"role":"user","content":"%b"}]}'
            writer.add_sent(request, body=body % words.encode())
            writer.add_answer(ANSWERS[kind], body=BODIES[kind])
            state = ConversationState(door="gateway", dialect="anthropic", requests=1, keep="all")
            await store.append(
                conversation_place("w", f"talk-{number}"), writer.encode(), state=state.encode()
            )

    store = MemoryStore()
    anyio.run(write, store)
    ask = cast("AskStore", lambda operation: anyio.run(operation, store))
    inspector = Inspector(Sessions(sources=[StoredSessions(ask, "w")]))
    found = {words: search_places(inspector, words) for words in WORDS}
    monkeypatch.setattr(search.RecordScan, "may_have", lambda *_: True)
    for words, answer in found.items():
        assert answer == search_places(inspector, words), words
    assert sum(bool(answer["places"]) for answer in found.values()) >= 12
