"""A secret in every place where something is stored, in four stores, through three doors: erased, it is gone.

Where lamina erases nothing (the name of a tool, a field of the request), a typed error names the place. Every
other word of the conversation stays, and so does every byte of another conversation.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import anyio
import psycopg
import pytest

import lamina
from lamina import Budget, Policy
from lamina.conversations import delete_conversation, delete_message, find_messages, list_talks
from lamina.conversations.addresses import ADDRESSES
from lamina.conversations.recognise import list_ids
from lamina.conversations.store import ANSWERS, CONVERSATIONS
from lamina.core import Text
from lamina.core.hashing import handle
from lamina.core.recall import identify_segments
from lamina.core.values import Role, Segment
from lamina.dialects import PlainHead, Tool
from lamina.errors import NotErased
from lamina.segments import assistant, call, document, file, image, result, segment, summary, thinking, user
from lamina.sessions import Session, SetupOptions
from lamina.stores import Store, Where, copy_conversations, open_postgres, open_store
from lamina.stores.paging import every_conversation
from lamina.stores.port import OwnName
from lamina.stores.sealed import from_file, init_file
from tests.gateway.running import open_client, run_gateway, settings_for
from tests.plain_client import Json, plain_client
from tests.servers.postgres import shared
from tests.wrapped.scripted_api import Call, Said, Thought, scripted_api, stream_message, write_message

NUMBER = "411122223333"
"""A number, so that it can stand wherever a number can, and as short as what a pin quotes may be."""

CONTROL = "control"
"""A conversation that has the secret too, and that nobody erases anything from."""

WORD = re.compile(r"keep-[a-z]+-[0-9]+")
HANDLE = re.compile(r'recall[(=]\\*"([a-z0-9-]+)')
LONG = "Go on. " * 240
WINDOW = {"budget": Budget(window=4_000, reserve=300), "keep": "all"}

Message = dict[str, Any]
Key = tuple[str, str]
"""A workspace and a conversation."""


class Place(NamedTuple):
    """Where the secret is in a conversation: its requests, and what the erasure says of it.

    `left` is a part of the place that the error names; "" if nothing is left. With `by_key` only the user's
    message is erased, by its key, and everything that was made of it goes with it.
    """

    requests: list[dict[str, Any]]
    left: str = ""
    by_key: bool = False


def says(role: str, content: Any) -> Message:
    return {"role": role, "content": content}


def ask(*messages: Message, **fields: Any) -> dict[str, Any]:
    tools = [{"name": "read_file", "input_schema": {"type": "object"}}]
    return {
        "model": "claude-opus-4-5",
        "max_tokens": 100,
        "messages": list(messages),
        "tools": tools,
        **fields,
    }


def call_tool(arguments: Any, *, name: str = "read_file", answer: Any = "keep-result-1") -> list[Message]:
    use = {"type": "tool_use", "id": "t1", "name": name, "input": arguments}
    return [
        says("user", "keep-first-1"),
        says("assistant", [{"type": "text", "text": "keep-call-1"}, use]),
        says("user", [{"type": "tool_result", "tool_use_id": "t1", "content": answer}]),
    ]


def talk_long(first: str, *last: Message) -> list[Message]:
    """A history that does not fit the window, after this message."""
    turns = [says("user", first), says("assistant", "keep-long-1 " + LONG)]
    for number in range(2, 10):
        turns += [says("user", f"keep-long-{number}"), says("assistant", LONG)]
    return [*turns, *last]


def list_places() -> dict[str, Place]:
    """The conversations of a client that sends requests."""
    first = says("user", "keep-first-1")
    told = says("user", f"My number is {NUMBER}, use it later.")
    end = says("user", "keep-end-1")
    answer = says("assistant", "keep-answer-1")
    blocks = [{"type": "text", "text": "keep-block-1"}, {"type": "text", "text": f"It is {NUMBER}."}]
    source = {"type": "base64", "media_type": "image/png", "data": NUMBER}
    text_source = {"type": "text", "media_type": "text/plain", "data": f"It says {NUMBER}."}
    named_file = {"type": "document", "source": {**text_source, "data": "A text."}}
    thought = {"type": "thinking", "thinking": f"They have {NUMBER}.", "signature": "sig"}
    huge = f"def pay_{NUMBER}(): ...\n" + "".join(f"def name_{number}(): ...\n" for number in range(2_000))
    long_result = call_tool({}, answer=f"It says {NUMBER}. {LONG}")
    long_told = talk_long(f"My number is {NUMBER}, use it later.")
    tool = {"name": "pay", "description": f"Pays with {NUMBER}.", "input_schema": {"type": "object"}}
    named_tool = {"name": f"pay_{NUMBER}", "input_schema": {"type": "object"}}
    return {
        "text": Place([ask(first, answer, told)]),
        "block": Place([ask(first, answer, says("user", blocks))]),
        "title": Place([ask(told), ask(told, answer, end)]),
        "number": Place([ask(*call_tool({"card": int(NUMBER)}))]),
        "field name": Place([ask(*call_tool({NUMBER: "card"}))]),
        "nested value": Place([ask(*call_tool({"a": {"b": [{"c": f"x {NUMBER}"}]}}))]),
        "tool name": Place(
            [ask(*call_tool({}, name=f"pay_{NUMBER}"), tools=[named_tool])], left="tools[0].name"
        ),
        "tool definition": Place([ask(first, tools=[tool])], left="tools[0].description"),
        "result": Place([ask(*call_tool({}, answer=f"It says {NUMBER}."))]),
        "result block": Place([ask(*call_tool({}, answer=blocks[1:]))]),
        "thinking": Place(
            [ask(first, says("assistant", [thought, {"type": "text", "text": "keep-said-1"}]), end)]
        ),
        "reply": Place([ask(first, says("assistant", f"You are {NUMBER}."), end)]),
        "answer": Place([ask(first, says("assistant", "keep-a-1"), says("user", "please answer"))]),
        "streamed answer": Place([ask(first, answer, says("user", "please answer"), stream=True)]),
        "answer and history": Place(
            [
                ask(first, answer, says("user", "please answer")),
                ask(first, answer, says("user", "please answer"), says("assistant", f"It is {NUMBER}."), end),
            ]
        ),
        "system text": Place([ask(first, system=f"You serve {NUMBER}.")]),
        "system block": Place([ask(first, system=[{"type": "text", "text": f"You serve {NUMBER}."}])]),
        "metadata": Place([ask(first, metadata={"user_id": NUMBER})], left="metadata.user_id"),
        "file name": Place([ask(says("user", [{**named_file, "title": NUMBER}, *blocks[:1]]))]),
        "attachment": Place([ask(says("user", [{"type": "document", "source": text_source}, *blocks[:1]]))]),
        "picture": Place([ask(says("user", [{"type": "image", "source": source}, *blocks[:1]]))]),
        "digest": Place([ask(*long_told, end), ask(*long_told, end, answer, end)], by_key=True),
        "stub": Place([ask(*long_result, *talk_long("keep-long-0", end))], by_key=True),
        # These two without a recall tool: lamina's own texts name no key then.
        "digest without a key": Place([ask(*long_told, end)], by_key=True),
        "shortened without a key": Place([ask(*call_tool({}, answer=huge))], by_key=True),
        "recall": Place([ask(*long_told, says("user", "please recall"))], by_key=True),
        "sought": Place([ask(*long_told, says("user", "please look")), ask(*long_told, end)]),
        "branch": Place(
            [
                ask(first, answer, told, answer, end),
                ask(first, answer, told, answer, says("user", "keep-b-1")),
            ]
        ),
    }


def speak(request: dict[str, Any]) -> Said:
    """A model that does what the last message asks for."""
    last = json.dumps(request["messages"][-1])
    names = {tool["name"] for tool in request.get("tools", ())}
    if "please answer" in last:
        return [f"It is {NUMBER}."]
    if "please recall" in last and "recall" in names:
        return [Call("recall", {"key": HANDLE.findall(json.dumps(request))[0]}, "r1")]
    if "please look" in last and "recall" in names:
        looking = {"key": HANDLE.findall(json.dumps(request))[0], "find": NUMBER}
        return [Thought("I look for it."), Call("recall", looking, "p1")]
    return ["keep-said-3"]


class _Answer(dict[str, Any]):
    """An answer with the attributes that an SDK's objects have."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def to_answer(value: Any) -> Any:
    match value:
        case dict():
            return _Answer({name: to_answer(inner) for name, inner in value.items()})
        case list():
            return [to_answer(inner) for inner in value]
    return value


def fill_by_wrap(address: str) -> None:
    def reply(request: Json) -> Any:
        said = speak(request)
        if not request.get("stream"):
            return write_message(said, 100)
        lines = "".join(stream_message(said, 100)).split("\n")
        return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]

    inner = plain_client(reply)
    budget = Budget(window=4_000, reserve=300)
    policy = Policy(budget=budget, keep="all")
    client = lamina.wrap(inner, store=address, policy=policy)
    without_keys = lamina.wrap(inner, store=address, policy=Policy(budget=budget, recall="off", keep="all"))
    for name, place in list_places().items():
        named = client.conversation(name)
        if name.endswith("without a key"):
            named = without_keys.conversation(name)
        if name == "branch":  # a named conversation has no branches
            named = client
        for request in place.requests:
            answer = named.messages.create(**request)
            if request.get("stream"):
                list(answer)


async def fill_by_gateway(address: str) -> None:
    with scripted_api(speak) as api:
        async with (
            run_gateway(settings_for(api.url, address, upstream=WINDOW, keep="all")) as gateway,
            open_client() as client,
        ):
            for name, place in list_places().items():
                headers = {"content-type": "application/json", "x-lamina-conversation": name}
                for request in place.requests:
                    body = json.dumps(request).encode()
                    async with client.post(
                        f"{gateway.url}/v1/messages", data=body, headers=headers
                    ) as answer:
                        assert answer.status == 200, await answer.read()
                        await answer.read()


class Spoken(NamedTuple):
    """What is said in a session, and what the erasure says of it."""

    talk: Callable[[Session], Awaitable[None]]
    left: str = ""
    by_key: bool = False


def adding(*segments: Segment) -> Callable[[Session], Awaitable[None]]:
    """A session with these segments in its log."""

    async def add(session: Session) -> None:
        await session.add(user("keep-first-1"), *segments)
        await session.ask("keep-end-1")
        await session.record("keep-answer-1")

    return add


def calling(arguments: dict[str, Any], *, name: str = "read_file", answer: str = "keep-r-1") -> Any:
    return adding(call(name, arguments, id="c1", joins=False), result(answer, id="c1", name=name))


TOLD = f"My number is {NUMBER}, use it later."


async def fold(session: Session) -> None:
    await session.ask(TOLD)
    for number in range(12):
        await session.record(f"keep-long-{number} {LONG}")
        await session.ask(f"keep-more-{number}")
    assert session.ledger.folds
    await session.record("keep-answer-1")


async def call_own(session: Session, name: str, arguments: dict[str, Any]) -> None:
    await session.ask(TOLD)
    await session.add(call(name, arguments, id="o1", joins=False))
    await session.results()
    await session.record("keep-answer-1")
    await session.ask("keep-end-1")
    await session.record("keep-answer-2")


async def recall_it(session: Session) -> None:
    [key] = [handle(each.content) for each in identify_segments([user(TOLD)])]
    await call_own(session, "recall", {"key": key})


async def look_for_it(session: Session) -> None:
    await call_own(session, "recall", {"key": "k000000000000", "find": NUMBER})


async def pin_file(session: Session) -> None:
    await session.add(file(f"{NUMBER}.md", "keep that is no word"))
    await session.ask("keep-first-1")
    await session.pin(f"{NUMBER}.md")
    await session.record("keep-answer-1")


async def go_back(session: Session) -> None:
    await session.ask("keep-first-1")
    await session.record("keep-answer-1")
    await session.ask(TOLD)
    await session.record("keep-answer-2")
    await session.rewind(1)
    await session.ask("keep-end-1")


async def fork_it(session: Session) -> None:
    await session.ask(TOLD)
    await session.record("keep-answer-1")
    child = await session.fork(name="a fork of it")
    await child.ask("keep-fork-1")
    await child.fork(name="a fork of that")


SESSIONS: dict[str, Spoken] = {
    "text": Spoken(adding(user(TOLD))),
    "part": Spoken(adding(user([Text("A part."), Text(TOLD)]))),
    "number": Spoken(calling({"card": int(NUMBER)})),
    "field name": Spoken(calling({NUMBER: "card"})),
    "nested value": Spoken(calling({"a": {"b": [{"c": f"x {NUMBER}"}]}})),
    "tool name": Spoken(calling({}, name=f"pay_{NUMBER}"), left="parts[0].name"),
    "result": Spoken(calling({}, answer=TOLD)),
    "thinking": Spoken(adding(thinking(TOLD), assistant("keep-said-1"))),
    "reply": Spoken(adding(assistant(TOLD))),
    "system text": Spoken(adding(segment("system", Role.SYSTEM, TOLD))),
    "metadata": Spoken(adding(user("A question.", meta={"source": NUMBER}))),
    "key": Spoken(adding(user("A question.", key=f"ask-{NUMBER}")), left="segment.key"),
    "file name": Spoken(adding(file(f"{NUMBER}.md", "A text."))),
    "pinned file": Spoken(pin_file),
    "attachment": Spoken(adding(file("a.md", TOLD))),
    "document": Spoken(adding(document(name=f"{NUMBER}.pdf", text="A text."))),
    "picture": Spoken(adding(image(data=NUMBER, media_type="image/png"))),
    "digest": Spoken(fold, by_key=True),
    "recall": Spoken(recall_it, by_key=True),
    "sought": Spoken(look_for_it),
    "summary": Spoken(
        adding(user(TOLD, key="ask-1"), summary(f"Has {NUMBER}.", covers=["ask-1"])), by_key=True
    ),
    "rewound": Spoken(go_back),
    "fork": Spoken(fork_it, by_key=True),
    "setup": Spoken(adding(), left="tools[0].description"),
    CONTROL: Spoken(adding(user(TOLD))),
}


async def fill_by_session(address: str) -> None:
    async with open_store(address) as store:
        for name, spoken in SESSIONS.items():
            policy = Policy(budget=Budget(window=6_000, reserve=0), recall="tool")
            setup = SetupOptions()
            if name == "setup":
                setup = SetupOptions(head=PlainHead(tools=(Tool(name="pay", description=TOLD),)))
            async with Session.open(store, name, model="gpt-5", policy=policy, setup=setup) as session:
                await spoken.talk(session)


FILLING: dict[str, Callable[[str], Any]] = {
    "wrap": fill_by_wrap,
    "gateway": lambda address: anyio.run(fill_by_gateway, address, backend="asyncio"),
    "session": lambda address: anyio.run(fill_by_session, address),
}
WORKSPACES = ("", *(OwnName(f"{prefix}default") for prefix in (CONVERSATIONS, ADDRESSES, ANSWERS)))


@pytest.fixture(scope="module")
def fill(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Returns the address of the store that a door has filled with every place, once for each door."""

    @cache
    def fill_once(door: str) -> str:
        address = f"{tmp_path_factory.mktemp(door)}/filled.db"
        FILLING[door](address)
        return address

    return fill_once


def list_cases() -> Iterator[Any]:
    """Every door with every store. A quick run tries each door once, and each store once."""
    for door, kind in product(FILLING, ("sqlite", "files", "sealed", "postgres")):
        is_quick = kind == "sqlite" or door == "session"
        yield pytest.param(door, kind, marks=() if is_quick else pytest.mark.thorough)


@asynccontextmanager
async def open_kind(kind: str, folder: Path) -> AsyncIterator[Store]:
    if kind == "postgres":
        server = shared()
        name = f"erased_{uuid4().hex}"
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        async with open_postgres(server.url.replace("/postgres?", f"/{name}?")) as store:
            yield store
        return
    address = f"files:{folder}/store" if kind == "files" else f"{folder}/store.db"
    key = None
    if kind == "sealed":
        init_file(folder / "key")
        key = from_file(folder / "key")
    async with open_store(address, key=key) as store:
        yield store


async def read_everything(store: Store) -> dict[Key, str]:
    """All records and states of a store, as text."""
    texts: dict[Key, str] = {}
    for workspace in WORKSPACES:
        async for listed in every_conversation(store, workspace):
            key = (workspace, listed.conversation)
            texts[key] = await read_one(store, key)
    return texts


async def read_one(store: Store, key: Key) -> str:
    """All records and the state of one conversation, as text."""
    page = await store.read(Where(*key))
    bodies = [page.head.state, *(record.body for record in page.records)]
    return b"\n".join(bodies).decode("utf-8", "replace")


async def erase(store: Store, name: str, *, by_key: bool) -> str:
    """Erase the secret from a conversation. Returns the places that an error names."""
    key = ""
    if by_key:
        messages = await find_messages(store, "", name, NUMBER)
        key = next(message.key for message in messages if not message.is_own)
    try:
        await delete_message(store, "", name, key=key, text="" if key else NUMBER)
    except NotErased as error:
        return str(error.places)
    return ""


@pytest.mark.parametrize(("door", "kind"), [*list_cases()])
def test_an_erased_secret_is_gone_or_its_place_is_named(
    fill: Callable[[str], str], door: str, kind: str, tmp_path: Path
) -> None:
    source_address = fill(door)
    expected: dict[str, Any] = SESSIONS if door == "session" else list_places()
    wrong: list[str] = []

    async def run() -> None:
        async with open_kind(kind, tmp_path) as store:
            async with open_store(source_address) as source:
                for workspace in WORKSPACES:
                    await copy_conversations(source, store, workspace)
            names = await find_names(store, door)
            texts = await read_everything(store)
            for place, spoken in expected.items():
                if place == CONTROL:
                    continue
                own = [key for key in texts if key[1] in names[place]]
                before = {key: await read_one(store, key) for key in own}
                assert NUMBER in "".join(before[key] for key in own if key[1] == names[place][0]), place
                wrong.extend(f"{place}: {key} had changed" for key in own if before[key] != texts[key])
                left = await erase(store, names[place][0], by_key=spoken.by_key)
                if bool(spoken.left) != bool(left) or spoken.left not in left or NUMBER in left:
                    wrong.append(f"{place}: left in {left!r}, not {spoken.left!r}")
                for key in own:
                    texts[key] = await read_one(store, key)
                    wrong.extend(compare(place, before[key], texts[key], is_left=bool(left)))
            changed = texts.items() ^ (await read_everything(store)).items()
            wrong.extend(f"{key} was changed by another's erasure" for key, _ in changed)
            # What may stay is deleted with its conversation. Then no file has the number.
            stays = {place for place, spoken in expected.items() if spoken.left} | {CONTROL}
            for name in [each for place in stays for each in names.get(place, ())]:
                await delete_conversation(store, "", name)
            wrong.extend(find_in_files(tmp_path))

    anyio.run(run)
    assert "\n".join(wrong) == ""


def compare(place: str, before: str, after: str, *, is_left: bool) -> Iterator[str]:
    """What is wrong with a conversation after an erasure: the secret is still there, or words are not."""
    if NUMBER in after and not is_left:
        yield f"{place}: it is still there"
    lost = {*WORD.findall(before)} - {*WORD.findall(after)}
    if lost:
        yield f"{place}: lost {sorted(lost)}"


def find_in_files(folder: Path) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [f"in the file {path.name}" for path in files if NUMBER.encode() in path.read_bytes()]


async def find_names(store: Store, door: str) -> dict[str, list[str]]:
    """The conversations of each place. A branch has two, and so has a fork."""
    names: dict[str, list[str]] = {}
    async for talk in list_talks(store, ""):
        place = list_ids(talk.client)[0].removeprefix("name:") if talk.client else "branch"
        if door == "session" or talk.client.startswith("user:"):
            place = talk.name if door == "session" else "branch"
        names.setdefault("fork" if place.startswith("a fork") else place, []).append(talk.name)
    if "fork" in names:
        names["fork"].sort(key=lambda name: name != "fork")
    return names
