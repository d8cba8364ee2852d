"""What is deleted is in no file: not in the database, its write-ahead log, a folder, or a sealed store."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psycopg
import pytest

from lamina import Budget, Policy
from lamina.conversations import delete_conversation, delete_message, find_messages, list_talks, prune
from lamina.conversations.listing import list_names
from lamina.conversations.record import Answered, ConversationRecord, SentRequest
from lamina.conversations.record_writer import RecordWriter
from lamina.conversations.recorded_log import describe_kept, read_recorded_log
from lamina.conversations.store import (
    ConversationState,
    answer_place,
    conversation_place,
    decode_state,
    read_record,
)
from lamina.core.hashing import handle
from lamina.core.recall import identify_segments
from lamina.dialects.spoken import ERASED_TEXT as MARK
from lamina.errors import BadInput, Conflict, NotErased, StoreError
from lamina.sessions import Session
from lamina.stores import MemoryStore, RecordPage, Store, Where, open_postgres, open_store
from lamina.stores.port import Rekeyable
from lamina.stores.sealed import from_file, init_file
from tests.conversations.recorded import (
    ANSWER,
    DAY,
    NOON,
    PROMPT,
    RESULT,
    SECRETS,
    find_page,
    keep_session,
    list_members,
    list_messages,
    record_talk,
)
from tests.servers.postgres import shared
from tests.sessions.talking import awaited

TALK = "claude-code-5f0c1b7a"
WAYS = ("conversation", "message", "prune")
CASES = [
    *(("sqlite", way) for way in WAYS),
    *(("files", way) for way in WAYS),
    ("sealed sqlite", "conversation"),
    ("sealed sqlite", "message"),
    ("sealed files", "message"),
]


@asynccontextmanager
async def open_kind(kind: str, folder: Path) -> AsyncIterator[Store]:
    address = f"{folder}/store.db"
    if kind.endswith("files"):
        address = f"files:{folder}/store"
    key = None
    if kind.startswith("sealed"):
        if not (folder / "key").exists():
            init_file(folder / "key")
        key = from_file(folder / "key")
    async with open_store(address, key=key) as store:
        yield store


async def fill(store: Store, *, all_doors: bool = True) -> None:
    """The same secrets through every door; a sealed store is slow, so it gets one conversation with all."""
    if all_doors:
        await record_talk(store)
        await record_talk(store, name="lowered", keep="lowered")
    await record_talk(store, name="support-42", door="session", opening="hello", packed=True)
    await keep_session(store)


async def delete_all_ways(store: Store, way: str) -> None:
    names = await list_names(store, "")
    if way == "prune":
        pruned = await prune(store, "", days=30, now=NOON + 31 * DAY)
        assert set(pruned.names) == {*names}
        assert await list_names(store, "") == ["support-42"]  # the log of a session is its owner's to delete
        names = ["support-42"]
    for name in names:
        if way == "message":
            for secret in SECRETS:
                await delete_message(store, "", name, text=secret)
        else:
            assert await delete_conversation(store, "", name)


def find_in_files(folder: Path) -> list[str]:
    """Every place in the files of a folder where a secret, or a third of one, can be read."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            found += [f"{path.name}: {secret}" for secret in SECRETS if secret.encode() in content]
    return found


@pytest.mark.parametrize(("kind", "way"), CASES)
@awaited
async def test_a_deleted_secret_is_in_no_file(kind: str, way: str, tmp_path: Path) -> None:
    async with open_kind(kind, tmp_path) as store:
        await fill(store, all_doors=not kind.startswith("sealed"))
        before = find_in_files(tmp_path)
        if kind.startswith("sealed"):
            assert not before
            before_texts = await read_everything(store)
            assert all(secret in before_texts for secret in SECRETS)
        else:
            assert {entry.partition(": ")[2] for entry in before} == {*SECRETS}
        await delete_all_ways(store, way)
        # while the store is open, its write-ahead log is there too
        assert find_in_files(tmp_path) == []
        texts = await read_everything(store)
        assert not [secret for secret in SECRETS if secret in texts]
    assert find_in_files(tmp_path) == []


async def read_everything(store: Store) -> str:
    """All records and states of the store, as text."""
    bodies: list[bytes] = []
    for place in (
        "",
        conversation_place("default", "any").workspace,
        find_page().workspace,
        answer_place("default", "any").workspace,
    ):
        for listed in await store.list(place):
            page = await store.read(Where(place, listed.conversation))
            bodies += [page.head.state, *(record.body for record in page.records)]
    return b"\n".join(bodies).decode("utf-8", "replace")


@awaited
async def test_everything_of_a_conversation_goes_and_what_begins_alike_stays() -> None:
    store = MemoryStore()
    await fill(store)
    assert await delete_conversation(store, "", TALK)
    for where in (conversation_place("default", TALK), answer_place("default", "resp-1")):
        page = await store.read(where)
        assert not page.head.count
    assert await list_members(store) == {"lowered"}
    assert not await delete_conversation(store, "", TALK)
    assert await delete_conversation(store, "", "lowered")
    assert (await store.read(find_page())).head.is_empty
    assert await delete_conversation(store, "", "support-42")


@awaited
async def test_forks_lose_the_message_in_their_own_workspace_only() -> None:
    store = MemoryStore()
    for workspace in ("team", "default"):
        await record_talk(store, workspace=workspace)
        await record_talk(store, workspace=workspace, name="fork", parent=TALK, opening="good day")
    await delete_message(store, "team", TALK, text=ANSWER)
    assert not await find_messages(store, "team", "fork", ANSWER)
    for name in (TALK, "fork"):
        assert await find_messages(store, "", name, ANSWER)


@pytest.mark.parametrize("window", [4_000, 1_000])
@awaited
async def test_an_open_session_does_not_bring_a_message_back(window: int) -> None:
    """In the small window a digest quotes the message; in the large one it is sent in full until then."""
    told = "the word is rosebud-and-nothing-else"
    store = MemoryStore()
    policy = Policy(budget=Budget(window=window))
    async with Session.open(store, "talk", model="gpt-5", policy=policy) as session:
        envelope = await session.ask(f"Remember that {told}, please.")
        for number in range(12):
            await session.record("Noted. " * 20)
            envelope = await session.ask(f"Question {number}: {'and so on ' * 20}")
        await session.record("An answer.")
        assert told in str(envelope.sent)
        assert bool(envelope.ledger.folds) == (window == 1_000)
        await delete_message(store, "", "talk", text=told)
        envelope = await session.ask("And now?")
        assert told not in str(envelope.sent)
        await session.record("The end.")
        for place in (Where("", "talk"), conversation_place("default", "talk")):
            page = await store.read(place)
            assert told.encode() not in page.head.state
            assert not any(told.encode() in record.body for record in page.records)


@awaited
async def test_an_answer_to_an_erased_question_can_be_recorded_again() -> None:
    store = MemoryStore()
    async with Session.open(store, "talk", model="gpt-5") as session:
        await session.ask("The word is rosebud-and-nothing-else.")
        await delete_message(store, "", "talk", text="rosebud-and-nothing-else")
        with pytest.raises(Conflict, match="its state has changed"):
            await session.record("Noted.")
        await session.record("Noted.")
        assert "rosebud" not in str(session.log)
        assert "Noted." in str(session.log)


class TwoDeleters(MemoryStore):
    """Deletes another conversation of a page after the page was read, as a second process could."""

    other = ""

    async def read(self, where: Where, **arguments: Any) -> RecordPage:
        page = await super().read(where, **arguments)
        other = self.other
        if other and where == find_page():
            self.other = ""
            assert await delete_conversation(self, "", other)
        return page


@awaited
async def test_two_processes_delete_two_conversations_that_begin_alike() -> None:
    store = TwoDeleters()
    await fill(store)
    await record_talk(store, name="third")
    store.other = "third"
    assert await delete_conversation(store, "", TALK)
    assert await list_members(store) == {"lowered"}


@awaited
async def test_a_damaged_conversation_is_deleted_with_what_names_it() -> None:
    store = MemoryStore()
    await record_talk(store)
    await store.append(conversation_place("default", TALK), [], state=b"damaged")
    assert await delete_conversation(store, "", TALK)
    for where in (answer_place("default", "resp-2"), find_page()):
        assert (await store.read(where)).head.is_empty


@awaited
async def test_an_erased_message_leaves_the_rest_of_the_record_readable() -> None:
    store = MemoryStore()
    await record_talk(store)
    before = await read_record(store, "default", TALK)
    erased = await delete_message(store, "", TALK, text=RESULT)
    assert erased.messages == 1
    after = await read_record(store, "default", TALK)
    assert [call.request for call in after.calls] == [call.request for call in before.calls]
    assert [after.is_erased(call) for call in after.calls] == [False, True, True, True]
    assert not any(before.is_erased(call) for call in before.calls)
    came = json.loads(after.came_body(after.calls[3]) or b"")
    expected = list_messages()
    expected[2]["content"] = MARK
    assert came["messages"] == expected
    sent = json.loads(after.sent_body(after.calls[3]) or b"")
    assert [message["content"] for message in sent["messages"]] == [MARK, MARK, expected[4]["content"]]
    assert after.answer_body(after.calls[1]) == before.answer_body(before.calls[1])
    assert after.ledger(after.calls[3]).cuts
    assert not after.ledger(after.calls[3]).folds
    kept = await read_recorded_log(store, "default", TALK)
    assert kept is not None
    assert "something of it was erased" in describe_kept(kept.state, kept.record)
    assert not kept.state.ledger.folds
    assert not kept.state.exchanges
    assert PROMPT in kept.state.title
    await delete_message(store, "", TALK, text=PROMPT)
    assert decode_state((await store.read(conversation_place("default", TALK))).head.state).title == MARK


@awaited
async def test_a_text_that_a_stream_splits_is_erased_with_the_whole_stream() -> None:
    store = MemoryStore()
    await record_talk(store)
    await delete_message(store, "", TALK, text=ANSWER)
    record = await read_record(store, "default", TALK)
    bodies = [record.answer_body(call) for call in record.calls]
    assert bodies[1] == b""
    assert json.loads(bodies[2] or b"")["choices"][0]["message"]["content"] == MARK
    assert b"welcome" not in (bodies[0] or b"")
    assert "You" in (bodies[3] or b"").decode()


@awaited
async def test_a_text_that_gemini_splits_over_one_list_is_erased_with_the_whole_answer() -> None:
    store = MemoryStore()
    writer = RecordWriter()
    prompt = {"role": "user", "parts": [{"text": "What does the letter say?"}]}
    request = json.dumps({"model": "gemini-3-pro", "contents": [prompt]}).encode()
    writer.add_sent(SentRequest(id="r1", at=float(NOON), dialect="gemini"), body=request)
    # Without alt=sse, Gemini sends a stream as one JSON list.
    half = len(ANSWER) // 2
    chunks = [
        {"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}}]}
        for text in (ANSWER[:half], ANSWER[half:])
    ]
    answered = Answered(id="r1", at=float(NOON), status=200, content_type="application/json")
    writer.add_answer(answered, body=json.dumps(chunks).encode())
    state = msgspec.json.encode(ConversationState(door="gateway", dialect="gemini"))
    await store.append(conversation_place("default", TALK), writer.encode(), expect=0, state=state)

    erased = await delete_message(store, "", TALK, text=ANSWER)
    assert erased.messages == 1
    record = await read_record(store, "default", TALK)
    assert record.answer_body(record.calls[0]) == b""
    assert record.sent_body(record.calls[0]) == request


@awaited
async def test_a_session_goes_on_after_a_message_of_it_was_erased() -> None:
    store = MemoryStore()
    await keep_session(store)
    await delete_message(store, "", "support-42", text=RESULT)
    async with Session.open(store, "support-42", workspace="") as session:
        assert RESULT not in str(session.log)
        await session.ask("And now?")
        request = str(session.explain().rows)
        assert RESULT not in request
        assert len(session.log) == 7


@awaited
async def test_a_message_is_named_by_its_handle_or_key() -> None:
    store = MemoryStore()
    await record_talk(store)
    kept = await read_recorded_log(store, "default", TALK)
    assert kept is not None
    [key] = [
        handle(each.content) for each in identify_segments(kept.log) if RESULT in str(each.segment.parts)
    ]
    await delete_message(store, "", TALK, key=key)
    texts = await read_everything(store)
    assert RESULT not in texts
    assert PROMPT in texts
    with pytest.raises(StoreError, match="nothing that is stored"):
        await delete_message(store, "", TALK, key=key)
    with pytest.raises(BadInput):
        await delete_message(store, "", TALK)


async def record_one(store: Store, request: dict[str, Any], answer: dict[str, Any], *, status: int) -> None:
    """A conversation of one request, as the gateway records it."""
    writer = RecordWriter()
    sent = SentRequest(id="r1", at=float(NOON), dialect="openai_chat", model="gpt-4o")
    writer.add_sent(sent, body=json.dumps(request).encode())
    answered = Answered(id="r1", at=float(NOON), status=status, content_type="application/json")
    writer.add_answer(answered, body=json.dumps(answer).encode())
    state = msgspec.json.encode(ConversationState(door="gateway", dialect="openai_chat", model="gpt-4o"))
    await store.append(conversation_place("default", TALK), writer.encode(), expect=0, state=state)


@pytest.mark.parametrize("word", ["stop", "gpt-4o", "assistant", "function", "chat.completion"])
@awaited
async def test_a_message_that_is_a_word_of_the_api_goes_alone(word: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": word},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "It worked."},
    ]
    request = {"model": "gpt-4o", "messages": messages, "stop": ["stop"]}
    message = {"role": "assistant", "content": "Done."}
    answer = {
        "id": "a",
        "object": "chat.completion",
        "model": "gpt-4o",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }
    store = MemoryStore()
    await record_one(store, request, answer, status=200)
    before = await read_record(store, "default", TALK)
    assert (await delete_message(store, "", TALK, text=word)).messages == 1
    after = await read_record(store, "default", TALK)
    body = json.loads(after.sent_body(after.calls[0]) or b"")
    assert body == {**request, "messages": [{"role": "user", "content": MARK}, *messages[1:]]}
    assert after.answer_body(after.calls[0]) == before.answer_body(before.calls[0])
    assert [call.request for call in after.calls] == [call.request for call in before.calls]


@awaited
async def test_what_cannot_be_erased_is_named() -> None:
    """An error of the provider quotes the message, and so does the user. Nothing repeats the text."""
    text = "The word is rosebud-and-nothing-else."
    messages = [
        {"role": "user", "content": text},
        {"role": "assistant", "content": "Noted."},
        {"role": "user", "content": f"I said: {text}"},
    ]
    error = {"error": {"message": f"invalid: {text}", "type": "invalid_request_error"}}
    store = MemoryStore()
    await record_one(store, {"model": "gpt-4o", "messages": messages}, error, status=400)
    [first, second] = await find_messages(store, "", TALK, "rosebud")
    with pytest.raises(NotErased) as problem:
        await delete_message(store, "", TALK, key=first.key)
    assert problem.value.places == ("request r1: messages[2].content", "answer to r1: error.message")
    assert "rosebud" not in str(problem.value)
    assert [message.key for message in await find_messages(store, "", TALK, "rosebud")] == [second.key]
    with pytest.raises(NotErased) as problem:
        await delete_message(store, "", TALK, text="rosebud-and-nothing-else")
    assert (problem.value.places, problem.value.erased) == (("answer to r1: error.message",), 1)


@awaited
async def test_a_store_that_cannot_replace_says_so() -> None:
    class Appending:
        def __init__(self) -> None:
            self._store = MemoryStore()
            self.append = self._store.append
            self.read = self._store.read
            self.list = self._store.list
            self.delete = self._store.delete

    store = Appending()
    assert not isinstance(store, Rekeyable)
    await record_talk(store)
    with pytest.raises(StoreError, match="cannot replace"):
        await delete_message(store, "", TALK, text=PROMPT)


@awaited
async def test_a_sealed_record_that_was_erased_is_still_proven(tmp_path: Path) -> None:
    async with open_kind("sealed sqlite", tmp_path) as store:
        await record_talk(store)
        await delete_message(store, "", TALK, text=PROMPT)
    async with open_kind("sealed sqlite", tmp_path) as store:
        assert (await store.read(conversation_place("default", TALK))).records


def test_a_record_with_an_unknown_base_is_not_read_in_part() -> None:
    record = ConversationRecord()
    record.read([b"~", b"~half"])
    assert record.count == 2
    assert record.piece(1) == b"half"


async def _by_deleting(store: Store) -> None:
    assert await delete_conversation(store, "", TALK)


async def _by_erasing(store: Store) -> None:
    for secret in SECRETS:
        await delete_message(store, "", TALK, text=secret)


@pytest.mark.parametrize("delete", [_by_deleting, _by_erasing])
def test_postgresql_forgets_with_vacuum(delete: Callable[[Store], Awaitable[None]]) -> None:
    """A query sees nothing at once. The file has the old rows until VACUUM, the write-ahead log longer."""
    schema = f"deletion_{delete.__name__.strip('_')}"
    server = shared()

    async def run() -> None:
        async with open_postgres(server.url, schema=schema) as store:
            await record_talk(store)
            await delete(store)
            texts = await read_everything(store)
            assert not [secret for secret in SECRETS if secret in texts]

    anyio.run(run)
    with psycopg.connect(server.url, autocommit=True) as connection:
        tables = connection.execute(
            "SELECT quote_ident(schemaname) || '.' || quote_ident(tablename) FROM pg_tables"
            " WHERE schemaname = %s",
            (schema,),
        ).fetchall()
        for (table,) in tables:
            connection.execute(f"VACUUM FULL {table}")
        connection.execute("CHECKPOINT")
        paths = connection.execute(
            "SELECT pg_relation_filepath(c.oid) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = %s OR c.oid IN (SELECT reltoastrelid FROM pg_class t JOIN pg_namespace m"
            " ON m.oid = t.relnamespace WHERE m.nspname = %s)",
            (schema, schema),
        ).fetchall()
    files = [server.folder / "data" / path for (path,) in paths if path]
    assert files
    for path in files:
        content = path.read_bytes()
        assert not [secret for secret in SECRETS if secret.encode() in content], path


def test_a_session_and_its_record_are_one_conversation_and_go_together(tmp_path: Path) -> None:
    """The session names no workspace, so its record is beside those of a gateway that has none either."""

    async def talk() -> None:
        async with open_kind("sqlite", tmp_path) as store:
            async with Session.open(store, "talk", workspace="", model="claude-sonnet-5-5") as session:
                await session.ask(f"Log in with {PROMPT}.")
                await session.request()
                content = [{"type": "text", "text": f"It says {ANSWER}."}]
                usage = {"input_tokens": 90, "output_tokens": 5}
                await session.record({"role": "assistant", "content": content, "usage": usage})
            [listed] = [talk async for talk in list_talks(store, "")]
            assert (listed.name, listed.door, listed.requests) == ("talk", "session", 1)
            assert listed.records
            assert listed.log_records
            await delete_message(store, "", "talk", text=PROMPT)
            assert {entry.partition(": ")[2] for entry in find_in_files(tmp_path)} == {ANSWER}
            assert await delete_conversation(store, "", "talk")
            assert await list_names(store, "") == []
            assert find_in_files(tmp_path) == []

    anyio.run(talk)
