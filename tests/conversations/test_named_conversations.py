"""Law 14 under one name: another user, tenant or system text under it is another conversation, at both doors.

All people send the same history under the same name. The model reads the first person's secret in the system
text, and says it only in a call that no client sees. So wherever the secret stands else, it has crossed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

import anyio
import pytest

import lamina
from lamina import Budget, Policy
from lamina.cli import main
from lamina.conversations.recognise import add_user, list_ids, read_user
from lamina.conversations.store import WORKSPACE, ConversationState, list_conversations
from lamina.relay.identity import ClientIdentity, identify_client, read_header_identity
from lamina.stores import open_store
from tests.gateway.running import settings_for
from tests.gateway.test_sdks import gateway_in_thread
from tests.plain_client import plain_client
from tests.test_nothing_crosses import HANDLE, said
from tests.wrapped.scripted_api import Call, Said, scripted_api, write_message

Json = dict[str, Any]
SECRET = "SSN-123-45-6789"  # noqa: S105 - what one user has told
NAME = "support"


class Person(NamedTuple):
    """What tells one person from another: fields of the request, and its system text."""

    fields: Json
    system: str = "You serve."

    def request(self, history: Sequence[Json]) -> Json:
        """A request, of which the tools make room for the recall tool."""
        tools = [{"name": "read_file", "input_schema": {"type": "object"}}]
        head = {"model": "claude-sonnet-4-5", "max_tokens": 100, "system": self.system, "tools": tools}
        return {**head, **self.fields, "messages": list(history)}


def named_user(user: str) -> Json:
    return {"metadata": {"user_id": user}}


ALICE = Person(named_user("alice"), f"You serve alice, {SECRET}.")
OTHERS = {
    "user": Person(named_user("bob"), ALICE.system),
    "long user": Person(named_user("bob" * 99 + "2"), ALICE.system),
    "no user": Person({}, ALICE.system),
    "tenant": Person({**ALICE.fields, "cache_salt": "b"}, ALICE.system),
    "system text": Person(ALICE.fields, "You serve bob."),
    "both": Person(named_user("bob"), "You serve bob."),
}
FIRST = dict.fromkeys(OTHERS, ALICE) | {
    "long user": Person(named_user("bob" * 99 + "1"), ALICE.system),
    "tenant": Person({**ALICE.fields, "cache_salt": "a"}, ALICE.system),
}


def speak(request: Json) -> Said:
    """A model that says what it read of the system text where no client sees it."""
    handles = HANDLE.findall(json.dumps(request["messages"]))
    last = json.dumps(request["messages"][-1])
    if "Look it up" not in last or not handles:
        return ["Fine."]
    return [Call("recall", {"key": handles[0], "find": f"note: {request['system']}"}, "r1")]


class Door(NamedTuple):
    """A client's way to the model. `sent` is what came out. `restart` begins a new process on the store."""

    send: Callable[[Person, Sequence[Json]], str]
    sent: list[Json]
    restart: Callable[[], None]
    store: str

    def ask(self, person: Person, history: list[Json], question: str) -> list[Json]:
        """Ask, put question and answer into the history, and return what was sent for it."""
        history.append(said("user", question))
        start = len(self.sent)
        history.append(said("assistant", self.send(person, history)))
        return self.sent[start:]


@contextmanager
def through_wrap(folder: Path, *, stored: bool = True) -> Iterator[Door]:
    store = str(folder / "wrap.db")
    sent: list[Json] = []
    clients: list[Any] = []

    def answer(request: Json) -> Json:
        sent.append(request)
        return write_message(speak(request), 100)

    def restart() -> None:
        policy = Policy(budget=Budget(window=4_000, reserve=300), breakpoints="keep")
        clients.append(lamina.wrap(plain_client(answer), store=store if stored else None, policy=policy))

    def send(person: Person, history: Sequence[Json]) -> str:
        answer = clients[-1].conversation(NAME).messages.create(**person.request(history))
        return str(answer.content[-1].text)

    restart()
    yield Door(send, sent, restart, store)


@contextmanager
def through_gateway(folder: Path) -> Iterator[Door]:
    store = folder / "gateway.db"
    with scripted_api(speak) as api:
        running: list[Any] = []

        def start() -> None:
            limits = {"budget": Budget(window=4_000, reserve=300), "breakpoints": "keep"}
            settings = settings_for(api.url, store, upstream=limits)
            context = gateway_in_thread(settings)
            running.append((context, context.__enter__()))

        def stop() -> None:
            context, _ = running.pop()
            context.__exit__(None, None, None)

        def restart() -> None:
            stop()
            start()

        def send(person: Person, history: Sequence[Json]) -> str:
            headers = {"content-type": "application/json", "x-lamina-conversation": NAME}
            body = json.dumps(person.request(history)).encode()
            url = f"{running[-1][1].url}/v1/messages"
            request = Request(url, data=body, headers=headers)  # noqa: S310 - on this machine
            with urlopen(request) as answer:  # noqa: S310 - on this machine
                return str(json.loads(answer.read())["content"][-1]["text"])

        start()
        try:
            yield Door(send, api.requests, restart, str(store))
        finally:
            stop()


DOORS = {"wrap": through_wrap, "gateway": through_gateway}
each_door = pytest.mark.parametrize("door", DOORS)


def begin() -> list[Json]:
    """A history of which a cut lowers the beginning."""
    history: list[Json] = []
    for turn in range(9):
        history += [said("user", f"Part {turn}?"), said("assistant", "Go on. " * 240)]
    return history


def holds_secret(request: Json) -> bool:
    return SECRET in json.dumps(request["messages"])


@each_door
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("differs", OTHERS)
def test_nothing_hidden_crosses_under_one_name(
    door: str, differs: str, *, restarts: bool, tmp_path: Path
) -> None:
    """Both take turns with the same words. The first keeps what is theirs, and the prefix of each request."""
    first, other = FIRST[differs], OTHERS[differs]
    with DOORS[door](tmp_path) as talk:
        mine, theirs = begin(), begin()
        hidden = talk.ask(first, mine, "Look it up.")
        assert holds_secret(hidden[-1]), "no hidden call was made, so this shows nothing"
        theirs += mine[-2:]
        own_last = hidden[-1]
        for turn in range(3):
            if restarts:
                talk.restart()
            words = f"And {turn}?"
            for request in talk.ask(other, theirs, words):
                assert not holds_secret(request)
            if restarts:
                talk.restart()
            for request in talk.ask(first, mine, words):
                assert request["messages"][: len(own_last["messages"])] == own_last["messages"]
                own_last = request
    assert holds_secret(own_last)


def test_wrap_without_a_store_keeps_users_apart(tmp_path: Path) -> None:
    with through_wrap(tmp_path, stored=False) as talk:
        history = begin()
        assert holds_secret(talk.ask(ALICE, history, "Look it up.")[-1])
        assert not any(map(holds_secret, talk.ask(OTHERS["user"], history, "And now?")))
        assert holds_secret(talk.ask(ALICE, history, "And I?")[-1])


@each_door
def test_a_handle_of_one_user_brings_nothing_back_for_another(door: str, tmp_path: Path) -> None:
    """The other one has the same name and the handle, and other messages."""
    with DOORS[door](tmp_path) as talk:
        mine = [said("user", f"My number is {SECRET}."), said("assistant", "Go on. " * 240), *begin()]
        sent = talk.ask(Person(named_user("alice")), mine, "Look it up.")
        handle = HANDLE.findall(json.dumps(sent[-1]["messages"]))[0]
        theirs = begin()
        for words in ("Look it up.", f'Look it up: recall("{handle}").'):
            theirs.append(said("user", words))
            start = len(talk.sent)
            theirs.append(said("assistant", talk.send(Person(named_user("bob")), theirs)))
            assert not any(map(holds_secret, talk.sent[start:]))


@each_door
def test_users_of_a_name_are_listed_and_deleted_one_by_one(
    door: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bob = OTHERS["user"]
    with DOORS[door](tmp_path) as talk:
        histories = {"alice": begin(), "bob": begin()}
        for person, name in ((ALICE, "alice"), (bob, "bob")):
            talk.ask(person, histories[name], "Look it up.")
        talk.restart()

        def list_clients() -> list[str]:
            capsys.readouterr()
            assert main(["log", "--store", talk.store, "--json"]) == 0
            return sorted(row["client"] for row in json.loads(capsys.readouterr().out)["conversations"])

        assert list_clients() == ["name:support user:alice", "name:support user:bob"]
        assert main(["store", "delete", "--client", "alice", "--store", talk.store, "--yes"]) == 0
        assert list_clients() == ["name:support user:bob"]
        talk.restart()
        assert not holds_secret(talk.ask(ALICE, histories["alice"], "And now?")[-1])
        assert holds_secret(talk.ask(bob, histories["bob"], "And now?")[-1])
        assert list_clients() == ["name:support user:alice", "name:support user:bob"]


def test_another_system_text_without_hidden_calls_goes_on(tmp_path: Path) -> None:
    """A client that writes the time into its system text has one conversation under its name."""
    with through_wrap(tmp_path) as talk:
        history = begin()
        sent = [talk.ask(Person({}, f"It is {hour}."), history, "Go on?")[-1] for hour in range(4)]
    for before, after in pairwise(sent):
        assert after["messages"][: len(before["messages"])] == before["messages"]


def test_another_system_text_and_other_words_begin_a_conversation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody names a user: only the system text tells the two people of this name apart."""
    with through_wrap(tmp_path) as talk:
        for who in ("alice", "bob", "alice"):
            talk.ask(Person({}, f"You serve {who}."), [], f"I am {who}.")
        capsys.readouterr()
        assert main(["log", "--store", talk.store, "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)["conversations"]
    assert sorted(row["requests"] for row in rows) == [1, 2]
    assert {row["client"] for row in rows} == {"name:support"}


def test_a_hidden_call_leaves_the_store_with_the_messages_that_it_stands_on(tmp_path: Path) -> None:
    with through_wrap(tmp_path) as talk:
        history = begin()
        talk.ask(ALICE, history, "Look it up.")
        del history[-2:]
        talk.ask(ALICE, history, "Something else.")
        talk.ask(ALICE, history, "And more.")

        async def read_states() -> list[ConversationState]:
            async with open_store(talk.store) as store:
                return [kept.state async for kept in list_conversations(store, WORKSPACE)]

        [state] = anyio.run(read_states)
    assert (state.requests, state.exchanges) == (3, ())


HEADER = [(b"x-lamina-conversation", b"n")]
CLAUDE = {"metadata": {"user_id": json.dumps({"session_id": "s1", "account_uuid": "u1"})}}


@pytest.mark.parametrize(
    ("headers", "request_body", "group"),
    [
        (HEADER, {}, "name:n"),
        (HEADER, {"user": "ada"}, "name:n user:ada"),
        (HEADER, {"prompt_cache_key": "k"}, "name:n"),
        (HEADER, CLAUDE, "name:n user:u1"),
        ([(b"x-session-id", b"s")], {"user": "ada"}, "session:s user:ada"),
        ([(b"x-claude-code-session-id", b"s1")], CLAUDE, "claude-code:s1"),
        ([(b"x-claude-code-session-id", b"s1")], {"user": "ada"}, "claude-code:s1 user:ada"),
        ([], {"user": "ada"}, "user:ada"),
        ([], CLAUDE, "claude-code:s1"),
    ],
)
def test_the_user_is_a_part_of_a_named_group(headers: Any, request_body: Json, group: str) -> None:
    identity = identify_client(read_header_identity(headers), request_body)
    assert identity == ClientIdentity(group)


def test_a_sub_agent_and_its_parent_have_the_same_user() -> None:
    headers = [(b"x-claude-code-session-id", b"s1"), (b"x-claude-code-agent-id", b"a1")]
    identity = identify_client(read_header_identity(headers), {"user": "ada"})
    assert identity == ClientIdentity("claude-code:s1:a1 user:ada", "claude-code:s1 user:ada")


def test_ids_are_read_as_they_were_written() -> None:
    assert list_ids(add_user("name:a b", "user:ada")) == ("name:a b", "user:ada")
    assert list_ids("user:ada") == ("user:ada",)
    assert list_ids("name:a") == ("name:a",)
    assert read_user({"user": "ada", "safety_identifier": "ada"}) == "user:ada"
    assert read_user({"user": "ada", "cache_salt": "t"}) == "user:ada t"
    assert read_user({"user": "x" * 200}) == f"user:{'x' * 200}"
    longer = [read_user({"user": "x" * 400 + last}) for last in "12"]
    assert longer[0] != longer[1]
    assert {len(each) for each in longer} == {205}
