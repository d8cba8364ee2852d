"""Capabilities 29 to 34, of system 003: encrypted messages in files, and one prompt from the last of them."""

from __future__ import annotations

import base64
import hashlib
import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lamina import Segment
from lamina.clients.events import TextEvent
from lamina.clients.scripted import ScriptedClient
from lamina.context.clock import clock
from lamina.context.last_n import last_n
from lamina.context.persona import persona
from lamina.context.search import chunks_of, open_index, search
from lamina.core.wording import text_of
from lamina.errors import KeyNeeded, Tampered, WrongKey
from lamina.formats.codec import decode
from lamina.formats.elara import import_folder, read_folder
from lamina.segments import excerpt
from lamina.sessions import LastN, RuntimeOptions, Session, SetupOptions
from lamina.settings import load_settings
from lamina.stores.address import open_store
from lamina.stores.files import open_files
from lamina.stores.memory import MemoryStore
from lamina.stores.port import Rescuable, Where
from lamina.stores.sealed import Sealed, generate
from lamina.workspace.workspace import Workspace
from tests.capabilities.walking import NO_SETTINGS, awaited, exchange, messages, talking, wire

START = datetime(2026, 5, 1, 8, 0, tzinfo=UTC)


def ticking() -> Any:
    """A clock that goes on by a second whenever it is read."""
    count = iter(range(10_000))
    return lambda: START + timedelta(seconds=next(count))


@awaited
async def test_29_messages_are_appended_with_role_and_time_and_read_from_the_end() -> None:
    store = MemoryStore()
    async with Session.open(
        store, "kitchen", model="gpt-5", runtime=RuntimeOptions(clock=ticking()), settings=NO_SETTINGS
    ) as session:
        for number in range(3):
            await session.ask(f"Question {number}")
            await session.record(f"Answer {number}")
    page = await store.read(Where("", "kitchen"), last=2)
    last = decode(record.body for record in page.records)
    assert [(str(one.role), text_of(one.parts)) for one in last] == [
        ("user", "Question 2"),
        ("assistant", "Answer 2"),
    ]
    times = [one.at for one in last]
    assert times == sorted(times)
    assert all(at.startswith("2026-05-01T08:00:") for at in times)


def envelope_of(message: dict[str, Any], *, key: str = "") -> str:
    """A file of that system, in the clear or under a key."""
    if not key:
        return json.dumps({"Alg": "PLAINTEXT", "Content": message})
    aead: Any = pytest.importorskip("cryptography.hazmat.primitives.ciphers.aead")
    nonce = hashlib.sha256(message["Content"].encode()).digest()[:12]
    plain = json.dumps(message).encode()
    sealed = aead.AESGCM(hashlib.sha256(key.encode()).digest()).encrypt(nonce, plain, None)
    parts = {"Iv": nonce, "Content": sealed[:-16], "Tag": sealed[-16:]}
    return json.dumps({"Alg": "AES-256-GCM"} | {n: base64.b64encode(v).decode() for n, v in parts.items()})


@pytest.fixture
def elara(tmp_path: Path) -> Path:
    """A folder as that system leaves it: plain, encrypted, legacy, broken, and of another key."""
    folder = tmp_path / "Conversation"
    folder.mkdir()
    said = [
        ("User", "plain", ""),
        ("Assistant", "sealed", "k"),
        ("User", "foreign", "z"),
        ("User", "newest", "k"),
    ]
    for number, (role, text, key) in enumerate(said):
        at = START + timedelta(seconds=number)
        message = {"Role": role, "Content": text, "TimestampUtc": at.isoformat()}
        name = f"{at:%Y%m%dT%H%M%S}000Z_{number:04}_{role.lower()}.json"
        (folder / name).write_text(envelope_of(message, key=key), encoding="utf-8")
    legacy = {"role": "User", "content": "legacy", "timestampUtc": "2026-04-30T08:00:00Z"}
    (folder / "20260430T080000000Z_0001_user.json").write_text(json.dumps(legacy), encoding="utf-8")
    (folder / "20260429T080000000Z_0001_user.json").write_text("{broken", encoding="utf-8")
    return folder


@awaited
async def test_30_encrypted_plain_and_legacy_files_are_read_and_the_rest_is_named(elara: Path) -> None:
    found = await read_folder(elara, key="k")
    assert [text_of(one.parts) for one in found.segments] == ["legacy", "plain", "sealed", "newest"]
    assert len(found.unreadable) == 2
    tail = await read_folder(elara, key="k", last=2)
    assert [text_of(one.parts) for one in tail.segments] == ["sealed", "newest"]
    store = MemoryStore()
    for _ in range(2):
        await import_folder(elara, store, Where("", "old"), key="k")
    async with Session.open(store, "old", model="gpt-5", settings=NO_SETTINGS) as session:
        assert len(session.log) == 4


@awaited
async def test_30_new_records_are_sealed_files_that_a_wrong_key_does_not_open(tmp_path: Path) -> None:
    key = generate()
    async with open_files(tmp_path / "house") as files:
        store = Sealed(files, key, create=True)
        async with Session.open(store, "kitchen", model="gpt-5", settings=NO_SETTINGS) as session:
            await session.ask("Where is the spare key?")
            await session.record("Under the third flower pot.")
    assert "flower pot" not in on_disk(tmp_path / "house")
    with pytest.raises(KeyNeeded):
        async with open_store(f"files:{tmp_path / 'house'}"):
            pass
    with pytest.raises(WrongKey):
        async with open_store(f"files:{tmp_path / 'house'}", key=generate()):
            pass
    async with (
        open_store(f"files:{tmp_path / 'house'}", key=key) as opened,
        Session.open(opened, "kitchen", settings=NO_SETTINGS) as session,
    ):
        assert [said.text for said in session.dialogue()][-1] == "Under the third flower pot."


def on_disk(folder: Path) -> str:
    """Everything that files in a folder hold, and their names."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return "\n".join(f"{path.name}\n{path.read_bytes().decode('latin-1')}" for path in paths)


@awaited
async def test_31_sources_are_asked_with_the_prompt_and_stand_in_their_order() -> None:
    prompts: list[str] = []

    async def looked_up(prompt: str, room: int | None) -> list[Segment]:
        prompts.append(prompt)
        assert room is None or room > 0
        return [excerpt("The porch has twelve lamps.", source="manual")]

    counts = iter([1, 3])
    with talking(conversation="hall") as hall:
        for number in range(3):
            exchange(hall, f"Hall {number}", f"Yes, {number}.")
        log = hall.log
    sources = [last_n(lambda: log, lambda: next(counts), source="said in the hall"), looked_up]
    async with Session.open(
        MemoryStore(), "kitchen", model="gpt-5", sources=sources, settings=NO_SETTINGS
    ) as session:
        await session.ask("How many lamps?")
        first, second, question = messages(await session.request())
        assert "Assistant: Yes, 2." in first[1]
        assert "User: Hall 2" not in first[1]
        assert "The porch has twelve lamps." in second[1]
        assert question == ("user", "How many lamps?")
        await session.record("Twelve.")
        await session.ask("And now?")
        later = messages(await session.request())
        assert any("Assistant: Yes, 1.\n\nUser: Hall 2" in text for _, text in later)
    assert prompts == ["How many lamps?", "And now?"]


def test_31_last_n_of_a_sessions_own_log_repeats_nothing() -> None:
    store = MemoryStore()
    logs: list[Any] = [()]
    with talking(store, sources=[last_n(lambda: logs[0], 6)]) as session:
        for number in range(4):
            logs[0] = session.log
            exchange(session, f"Question {number}", f"Answer {number}")
        logs[0] = session.log
        session.ask("The end?")
        texts = [text for _, text in messages(session.request())]
        assert len(texts) == len(set(texts)) == 9
        assert len(session.log) == 9


@awaited
async def test_31_retrieval_is_one_more_source() -> None:
    async with open_index() as index:
        await index.replace("manual.md", chunks_of("manual.md", "# Lamps\n\nThe porch has twelve lamps.\n"))
        async with Session.open(
            MemoryStore(), "kitchen", model="gpt-5", sources=[search(index)], settings=NO_SETTINGS
        ) as session:
            await session.ask("How many lamps has the porch?")
            found, question = messages(await session.request())
            assert "The porch has twelve lamps." in found[1]
            assert question == ("user", "How many lamps has the porch?")


def at_the_clock(dialect: str) -> list[dict[str, Any]]:
    """Three requests of one conversation that is told the time, a minute later each time."""
    times = iter(START + timedelta(minutes=number) for number in range(3))
    with talking(dialect=dialect, system="You are Elara.", sources=[clock(lambda: next(times))]) as session:
        return [exchange(session, f"Question {number}", f"Answer {number}") for number in range(3)]


def test_32_a_prompt_has_the_time_once_and_it_is_that_of_its_question() -> None:
    *_, last = at_the_clock("openai_chat")
    assert wire(last).count("2026-05-01") == 1
    assert "08:02" in wire(last)


def test_32_the_same_prompt_is_a_flat_text_or_a_list_of_messages() -> None:
    flat = at_the_clock("text")[-1]["prompt"]
    assert flat.startswith(
        "System: You are Elara.\n\nPrevious context:\nUser: Question 0\nAssistant: Answer 0\n"
    )
    context, _, question = flat.rpartition("\n\n")
    assert context.endswith("Assistant: Answer 1")
    assert question == "User: Question 2\n<now>\nFriday, 2026-05-01 08:02 UTC\n</now>\nAssistant:"
    chat = at_the_clock("ollama")[-1]["messages"]
    assert [message["role"] for message in chat][:3] == ["system", "user", "assistant"]


@awaited
async def test_33_the_question_is_kept_before_the_model_is_called_and_the_answer_after() -> None:
    store = MemoryStore()
    kept: list[int] = []

    def answer(_: Any) -> str:
        kept.append(store_count())
        return "Twelve."

    def store_count() -> int:
        return len(session.log)

    client = ScriptedClient(answer)
    async with Session.open(
        store, "kitchen", model="gpt-5", setup=SetupOptions(dialect=client.dialect), settings=NO_SETTINGS
    ) as session:
        await session.ask("How many lamps?")
        assert (await store.read(Where("", "kitchen"))).head.count > 0
        async with client.send(await session.request()) as reply:
            spoken = [event.text async for event in reply if isinstance(event, TextEvent)]
        await session.record(reply.raw)
    assert ("".join(spoken), kept) == ("Twelve.", [1])
    async with Session.open(store, "kitchen", settings=NO_SETTINGS) as session:
        assert [said.text for said in session.dialogue()] == ["How many lamps?", "Twelve."]


@awaited
async def test_33_a_model_that_fails_leaves_the_question_and_it_is_asked_again() -> None:
    store = MemoryStore()
    client = ScriptedClient([RuntimeError("no connection"), "Twelve."])
    async with Session.open(
        store, "kitchen", model="gpt-5", setup=SetupOptions(dialect=client.dialect), settings=NO_SETTINGS
    ) as session:
        await session.ask("How many lamps?")
        with pytest.raises(RuntimeError, match="no connection"):
            async with client.send(await session.request()) as reply:
                assert [event async for event in reply] == []
    async with Session.open(store, "kitchen", settings=NO_SETTINGS) as session:
        assert session.pending
        async with client.send(await session.request()) as reply:
            async for _ in reply:
                pass
        await session.record(reply.raw)
    assert client.requests[0] == client.requests[1]


@awaited
async def test_34_the_end_is_read_without_the_rest(tmp_path: Path) -> None:
    async with open_store(f"files:{tmp_path / 'chats'}") as store:
        where = Where("", "kitchen")
        await store.append(where, [f"record {number}".encode() for number in range(50)])
        for path in sorted((tmp_path / "chats").rglob("*.json"))[:40]:
            path.write_text("damaged", encoding="utf-8")
        page = await store.read(where, last=3)
        assert [record.body for record in page.records] == [b"record 47", b"record 48", b"record 49"]


def test_34_what_redact_takes_out_is_neither_kept_nor_sent() -> None:
    store = MemoryStore()
    with talking(store, redact=lambda text: text.replace("4711", "[number]")) as session:
        request = exchange(session, "My card is 4711.", "4711 it is.")
        assert messages(request) == [("user", "My card is [number].")]
        assert [said.text for said in session.dialogue()] == ["My card is [number].", "[number] it is."]
    with talking(store) as session:
        assert "4711" not in wire({"log": [text_of(one.parts) for one in session.log]})


@awaited
async def test_34_order_is_by_sequence_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    address = f"files:{tmp_path / 'chats'}"
    for number in range(3):
        async with Session.open(
            address,
            "kitchen",
            model="gpt-5",
            runtime=RuntimeOptions(clock=lambda: START),
            settings=NO_SETTINGS,
        ) as session:
            await session.ask(f"Question {number}")
            await session.record(f"Answer {number}")
    async with Session.open(address, "kitchen", settings=NO_SETTINGS) as session:
        assert [said.text for said in session.dialogue()] == [
            "Question 0", "Answer 0", "Question 1", "Answer 1", "Question 2", "Answer 2",
        ]  # fmt: skip


# what the documents say beside the capabilities


def test_a_the_window_over_history_is_a_setting_that_is_kept_with_the_chat() -> None:
    store = MemoryStore()
    words = "with some more words than its digest has, so that a window pays. " * 4
    with talking(store, history=LastN(2, slack=0)) as session:
        exchange(session, f"Question 0 {words}", f"Answer 0 {words}")
    with talking(store) as session:
        for number in (1, 2):
            exchange(session, f"Question {number} {words}", f"Answer {number} {words}")
        session.ask("And now?")
        texts = [text for _, text in messages(session.request())]
        assert [text[:10] for text in texts if text.startswith(("Question", "Answer"))] == [
            "Question 2",
            "Answer 2 w",
        ]
        session.record("Yes.")
        session.set_history("all")
        exchange(session, "Question 3", "Answer 3")
    with talking(store) as session:
        assert session.setup.history is None


@awaited
async def test_g_the_system_prompt_is_found_anew_for_each_prompt(tmp_path: Path) -> None:
    words = tmp_path / "persona.md"

    def say(text: str) -> None:
        words.write_text(text, encoding="utf-8")

    say("You are Elara, the voice of this house.")
    log: list[Any] = [()]
    source = persona(path="persona.md", root=Workspace(tmp_path), log=lambda: log[0])
    async with Session.open(
        MemoryStore(), "kitchen", model="gpt-5", sources=[source], settings=NO_SETTINGS
    ) as session:
        requests = []
        for number, text in enumerate(("the voice", "the voice", "the ghost")):
            say(f"You are Elara, {text} of this house.")
            log[0] = session.log
            await session.ask(f"Question {number}")
            requests.append(messages(await session.request()))
            await session.record(f"Answer {number}")
    assert sum("the voice of this house" in text for _, text in requests[1]) == 1
    assert requests[1][: len(requests[0])] == requests[0]
    assert any("the ghost of this house" in text for _, text in requests[2])
    assert requests[2][: len(requests[1])] == requests[1]


@awaited
async def test_h_the_storage_root_is_a_setting(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text(
        f'store = "files:{tmp_path / "chats"}"\nmodel = "gpt-5"\n', encoding="utf-8"
    )
    settings = load_settings(tmp_path / "settings.toml", environment={})
    async with Session.open(None, "kitchen", settings=settings) as session:
        await session.ask("Hello")
        assert session.setup.model == "gpt-5"
    async with Session.open(f"files:{tmp_path / 'chats'}", "kitchen", settings=NO_SETTINGS) as session:
        assert [said.text for said in session.dialogue()] == ["Hello"]


@awaited
async def test_h_a_session_at_an_address_is_sealed_by_its_key(tmp_path: Path) -> None:
    address = f"files:{tmp_path / 'house'}"
    given: dict[str, Any] = {"key": generate(), "settings": NO_SETTINGS}
    async with Session.open(address, "kitchen", model="gpt-5", **given) as session:
        await session.ask("Where is the spare key?")
        await session.record("Under the third flower pot.")
    assert "flower pot" not in on_disk(tmp_path / "house")
    with pytest.raises(KeyNeeded):
        async with Session.open(address, "kitchen", settings=NO_SETTINGS):
            pass
    async with Session.open(address, "kitchen", **given) as session:
        assert [said.text for said in session.dialogue()][-1] == "Under the third flower pot."


@awaited
async def test_m_damaged_records_are_passed_over_on_wish(tmp_path: Path) -> None:
    """003, "Persistence Strategy": one record that cannot be read does not take the others with it."""
    address, key, where = f"{tmp_path}/a.db", generate(), Where("", "kitchen")
    async with open_store(address, key=key) as store:
        await store.append(where, [b"one", b"two", b"three"])
    with closing(sqlite3.connect(address, isolation_level=None)) as raw:
        raw.execute("UPDATE record SET body = x'00' WHERE seq = 1")
    async with open_store(address, key=key) as store:
        with pytest.raises(Tampered, match="lamina conversations rescue"):
            await store.read(where)
        assert isinstance(store, Rescuable)
        assert [record.body for record in await store.rescue(where)] == [b"one", b"three"]
