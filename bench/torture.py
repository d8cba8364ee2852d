"""The torture kit on what other libraries keep conversations in, beside lamina's stores.

    python bench/torture.py              the table with the peers that are installed
    python bench/torture.py --quick      a second or two, to see that it works

`make torture ARGS="STORE --long"` tries lamina's stores in every way. Peers are wanted in an environment of
their own, not in the one that lamina is built in:

    python -m venv peers
    peers/bin/pip install . anyio cryptography openai-agents langgraph langgraph-checkpoint-sqlite \
        llama-index-core langchain-community "pydantic<2.13"
    peers/bin/python bench/torture.py

A turn is a question and its answer, given to each peer in one call where it has one. Killed: every turn that
was acknowledged is there, once, whole, in order, and the store can be read. Cut: the same on a disk that
forgets what was not synced. Writers: processes that add turns to one conversation; a turn is lost if it is
not there in the end though its writer was told so, broken if another stands within it; a refusal is counted
for itself.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import sqlite3
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `bench`, however this is started

from bench.samples import QUICK_HELP
from lamina.errors import Conflict
from lamina.stores.port import Where
from tests.torture import Outcome, Place, place_at, strace
from tests.torture.children import Say, failure, forked
from tests.torture.kill import kills
from tests.torture.powercut import cuts
from tests.torture.telling import Acknowledge, Subject, Telling

PAD = "x" * 200
TURNS = 30


def main() -> int:
    arguments = _arguments()
    if arguments.quick:
        arguments.kills, arguments.cuts, arguments.turns = 2, 2, 2
    rows = _compare(arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--cuts", type=int, default=200)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--turns", type=int, default=25)
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)
    return parser.parse_args()


class Peer:
    """Something that keeps turns in a folder. `append` and `read` are all that differs."""

    name = package = ""
    imports: tuple[str, ...] = ()

    def append(self, folder: str, question: str, answer: str) -> None:
        raise NotImplementedError

    def read(self, folder: str) -> list[str]:
        raise NotImplementedError

    def turn(self, folder: str, question: str, answer: str) -> None:
        """A turn as an application makes it, with a model that takes its time."""
        self.append(folder, question, _thought(answer))

    def write(self, folder: str, acknowledge: Acknowledge, *, start: int, most: int | None = None) -> None:
        number = start
        while most is None or number < start + most:
            self.append(folder, f"0/{number}/q {PAD}", f"0/{number}/a {PAD}")
            acknowledge(number)
            number += 1

    def check(self, folder: str, acknowledged: int) -> int:
        there = [text.split()[0] for text in self.read(folder)]
        turns = len(there) // 2
        if there != [f"0/{n // 2}/{'qa'[n % 2]}" for n in range(len(there))]:
            raise AssertionError("not in order, or not once")
        if turns < acknowledged:
            raise AssertionError(f"{acknowledged} turns were acknowledged, {turns} are there")
        if len(there) % 2:
            raise AssertionError("half a turn")
        return turns


class Agents(Peer):
    name, package, imports = "openai-agents SQLiteSession", "openai-agents", ("agents",)

    def _session(self, folder: str) -> Any:
        return sys.modules["agents"].SQLiteSession("s", f"{folder}/chats.db")

    def append(self, folder: str, question: str, answer: str) -> None:
        items = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        session = _kept(self, folder, lambda: self._session(folder))
        asyncio.run(session.add_items(items))

    def turn(self, folder: str, question: str, answer: str) -> None:
        """Its runner keeps the question first, and the answer when it is there."""
        session = _kept(self, folder, lambda: self._session(folder))
        asyncio.run(session.add_items([{"role": "user", "content": question}]))
        asyncio.run(session.add_items([{"role": "assistant", "content": _thought(answer)}]))

    def read(self, folder: str) -> list[str]:
        session = self._session(folder)
        try:
            return [item["content"] for item in asyncio.run(session.get_items())]
        finally:
            session.close()


class LangGraph(Peer):
    name, package = "LangGraph SqliteSaver", "langgraph-checkpoint-sqlite"
    imports = ("langgraph.checkpoint.sqlite", "langgraph.graph")

    def _graph(self, folder: str) -> Any:
        graph, saver = sys.modules["langgraph.graph"], sys.modules["langgraph.checkpoint.sqlite"]
        link = sqlite3.connect(f"{folder}/chats.db", check_same_thread=False)
        made = graph.StateGraph(graph.MessagesState)
        made.add_node("n", self._answered)
        made.add_edge(graph.START, "n")
        return made.compile(checkpointer=saver.SqliteSaver(link)), link

    def append(self, folder: str, question: str, answer: str) -> None:
        graph, _ = _kept(self, folder, lambda: self._graph(folder))
        turn = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        graph.update_state({"configurable": {"thread_id": "s"}}, {"messages": turn}, as_node="n")

    def _answered(self, state: dict[str, Any]) -> dict[str, Any]:
        question: str = state["messages"][-1].content
        return {"messages": [{"role": "assistant", "content": _thought(f"{question[:-1]}a")}]}

    def turn(self, folder: str, question: str, answer: str) -> None:  # noqa: ARG002 - its node answers
        graph, _ = _kept(self, folder, lambda: self._graph(folder))
        asked = {"messages": [{"role": "user", "content": question}]}
        graph.invoke(asked, {"configurable": {"thread_id": "s"}})

    def read(self, folder: str) -> list[str]:
        graph, link = self._graph(folder)
        try:
            found = graph.get_state({"configurable": {"thread_id": "s"}}).values
            return [message.content for message in found.get("messages", [])]
        finally:
            link.close()


class LlamaIndex(Peer):
    name, package = "llama-index SimpleChatStore", "llama-index-core"
    imports = ("llama_index.core.storage.chat_store", "llama_index.core.llms")

    def _store(self, folder: str) -> Any:
        kind = sys.modules[self.imports[0]].SimpleChatStore
        path = f"{folder}/chats.json"
        return kind.from_persist_path(path) if Path(path).exists() else kind()

    def append(self, folder: str, question: str, answer: str) -> None:
        self._added(self._store(folder), folder, question, answer)

    def turn(self, folder: str, question: str, answer: str) -> None:
        """The history is read before the model is asked, and kept after it has answered."""
        self._added(self._store(folder), folder, question, _thought(answer))

    def _added(self, store: Any, folder: str, question: str, answer: str) -> None:
        message = sys.modules[self.imports[1]].ChatMessage
        for role, text in (("user", question), ("assistant", answer)):
            store.add_message("s", message(role=role, content=text))
        store.persist(f"{folder}/chats.json")

    def read(self, folder: str) -> list[str]:
        return [message.content for message in self._store(folder).get_messages("s")]


class LangChainFile(Peer):
    name, package = "LangChain FileChatMessageHistory", "langchain-community"
    imports = ("langchain_community.chat_message_histories", "langchain_core.messages")

    def _history(self, folder: str) -> Any:
        return sys.modules[self.imports[0]].FileChatMessageHistory(f"{folder}/chats.json")

    def append(self, folder: str, question: str, answer: str) -> None:
        kinds = sys.modules[self.imports[1]]
        turn = [kinds.HumanMessage(question), kinds.AIMessage(answer)]
        self._history(folder).add_messages(turn)

    def turn(self, folder: str, question: str, answer: str) -> None:
        self._history(folder).add_user_message(question)
        self._history(folder).add_ai_message(_thought(answer))

    def read(self, folder: str) -> list[str]:
        return [message.content for message in self._history(folder).messages]


class Lamina(Peer):
    """The turn as one group behind what was read before the model was asked; again after a Conflict."""

    def __init__(self, place: Place) -> None:
        self.place, self.name = place, f"lamina, {place.name}"

    def append(self, folder: str, question: str, answer: str) -> None:
        anyio.run(self._appended, folder, question, answer)

    def read(self, folder: str) -> list[str]:
        return anyio.run(self._read, folder)

    async def _appended(self, folder: str, question: str, answer: str) -> None:
        async with self.place.open(folder) as store:
            while True:
                there = (await store.read(WHERE, last=0)).head.count
                turn = [question.encode(), _thought(answer).encode()]
                with suppress(Conflict):
                    await store.append(WHERE, turn, expect=there)
                    return

    async def _read(self, folder: str) -> list[str]:
        async with self.place.open(folder) as store:
            return [record.body.decode() for record in (await store.read(WHERE)).records]


def _thought(answer: str) -> str:
    """What a model says, which takes a moment."""
    time.sleep(0.005)
    return answer


WHERE = Where("bench", "one")
PEERS = (Agents(), LangGraph(), LlamaIndex(), LangChainFile())
_open: dict[tuple[int, str], Any] = {}


def _kept(peer: Peer, folder: str, make: Callable[[], Any]) -> Any:
    """One handle for each folder, in a child that is to be killed."""
    key = (id(peer), folder)
    if key not in _open:
        _open[key] = make()
    return _open[key]


class Raced(NamedTuple):
    """What became of turns that many processes added at once."""

    acknowledged: int = 0
    refused: int = 0
    lost: int = 0
    broken: int = 0
    unreadable: bool = False


def raced(peer: Peer, writers: int, turns: int) -> Raced:
    with TemporaryDirectory(prefix="torture-", ignore_cleanup_errors=True) as folder:
        forked(lambda _: peer.append(folder, "first", "first")).said()  # tables are made by one

        def write(writer: int, say: Say) -> None:
            for number in range(turns):
                with suppress(Exception):  # a refusal is an answer, too
                    peer.turn(folder, f"{writer}/{number}/q", f"{writer}/{number}/a")
                    say(f"{writer}/{number}")

        children = [forked(lambda say, writer=writer: write(writer, say)) for writer in range(writers)]  # type: ignore[misc]
        told = [line for child in children for line in child.said() if not failure([line])]
        facts = Raced(acknowledged=len(told), refused=writers * turns - len(told))
        try:
            there = peer.read(folder)
        except Exception:  # noqa: BLE001 - whatever it is, nothing can be read
            return facts._replace(unreadable=True, lost=len(told))
        whole = {a[:-2] for a, b in pairwise(there) if a.endswith("/q") and b == f"{a[:-1]}a"}
        present = {text[:-2] for text in there if text.endswith("/q")}
        lost = [turn for turn in told if turn not in present]
        return facts._replace(lost=len(lost), broken=len([t for t in told if t in present - whole]))


def _compare(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    warnings.simplefilter("ignore")
    columns = (
        "kills: acknowledged, violations",
        "cuts: violations",
        "writers: acknowledged, refused, lost, broken",
    )
    print(f"| store | {' | '.join(columns)} |\n|---|---|---|---|")
    for peer in PEERS:
        try:
            for name in peer.imports:
                importlib.import_module(name)
        except ImportError as error:
            print(f"| {peer.name} | not installed: {error} | | |")
            continue
        rows.append(_row(peer, lambda peer=peer: peer, arguments))  # type: ignore[misc]
    for url in ("sqlite:", "files:"):
        with place_at(url) as place:
            rows.append(_row(Lamina(place), partial(Telling, place.open), arguments))
    return rows


def _row(peer: Peer, subject: Callable[[], Subject], arguments: argparse.Namespace) -> dict[str, Any]:
    killed = kills(subject, arguments.kills)
    race = raced(peer, arguments.writers, arguments.turns)
    lost = "-"
    if strace.usable():
        forgot = cuts(subject, arguments.cuts, strace.recorded, turns=TURNS)
        lost = f"{forgot.tries:,}: **{len(forgot.violations)}**"
        _show(forgot)
    name = f"{peer.name} {version(peer.package)}" if peer.package else peer.name
    first = f"{killed.tries:,}: {killed.acknowledged:,}, **{len(killed.violations)}**"
    print(f"| {name} | {first} | {lost} | {_raced_words(race)} |", flush=True)
    _show(killed)
    return {"store": name, "tries": killed.tries, "violations": len(killed.violations), **race._asdict()}


def _show(outcome: Outcome) -> None:
    for violation in outcome.violations[:2]:
        print(f"    {outcome.trial}: {violation}", file=sys.stderr)


def _raced_words(race: Raced) -> str:
    words = f"{race.acknowledged}, {race.refused}, **{race.lost}**, **{race.broken}**"
    return f"{words} (unreadable)" if race.unreadable else words


if __name__ == "__main__":
    sys.exit(main())
