"""A voice assistant for a house: each utterance goes through the same six steps, whatever finds its context.

    python examples/orchestration.py                                          # a script plays the model
    python examples/orchestration.py FOLDER                                   # the house is kept in FOLDER
    python examples/orchestration.py FOLDER http://127.0.0.1:11434/v1 MODEL   # Ollama, or a server like it

Append the user's words, gather context, build, render, call the model, append its answer. Conversations are
encrypted files in FOLDER, one for each message; the key is made at the first run. This is the loop of
ElaraAi's document: `docs/from-elara.md` says more.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import anyio

from lamina import Budget, Policy
from lamina.agent import Agent
from lamina.clients import Client, openai_chat
from lamina.context.clock import clock
from lamina.context.last_n import last_n
from lamina.context.search import chunks_of, open_index, search
from lamina.segments import assistant, user
from lamina.sessions import PlainHead, Session, SetupOptions, Source, Store
from lamina.stores import open_store
from lamina.stores.sealed import from_file, init_file
from lamina.testing import ScriptedClient

SYSTEM = "You are Elara, the voice of this house. Answer in one sentence."
MANUAL = "# Heating\n\nThe boiler is lit at 6 and put out at 22.\n\n# Lamps\n\nThe porch has twelve lamps.\n"
HALL = (user("Remind me that we leave at nine."), assistant("I will."))
BUDGET = Budget(window=8_000, reserve=100)
UTTERANCES = ("When is the boiler lit?", "And how many lamps are on the porch?")


class Orchestrator:
    """Answers what was said. It knows neither what finds context nor which model speaks."""

    def __init__(self, session: Session, client: Client) -> None:
        self._session, self._agent = session, Agent(client=client)

    async def prompt_ready(self, text: str) -> str:
        """Keep the words with what the sources found, call the model, keep its answer."""
        return (await self._agent.run(self._session, text)).text


@asynccontextmanager
async def house(folder: Path) -> AsyncIterator[Store]:
    """The store: one encrypted file for each record."""
    key = folder / "house.key"
    if not key.exists():
        init_file(key)
    async with open_store(f"files:{folder}/conversations", key=from_file(key)) as store:
        yield store


@asynccontextmanager
async def context(store: Store, model: str) -> AsyncIterator[list[Source]]:
    """What finds context, in the order in which it stands. Leave one out, and nothing else changes."""
    async with AsyncExitStack() as stack:
        hall = await stack.enter_async_context(
            Session.open(store, "hall", model=model, policy=Policy(budget=BUDGET))
        )
        await hall.add(*HALL, key="this morning")  # once, however often this runs
        index = await stack.enter_async_context(open_index())
        await index.replace("manual.md", chunks_of("manual.md", MANUAL))
        yield [clock(), last_n(lambda: hall.log, 4, source="said in the hall"), search(index)]


def kitchen(
    store: Store, client: Client, sources: Sequence[Source], model: str
) -> AbstractAsyncContextManager[Session]:
    """The conversation: its system text, what finds context, and how much of it the model can take."""
    return Session.open(
        store,
        "kitchen",
        model=model,
        setup=SetupOptions(dialect=client.dialect, head=PlainHead(output=100)),
        system=SYSTEM,
        sources=sources,
        policy=Policy(budget=BUDGET),
    )


async def main(folder: str, url: str = "", model: str = "qwen3") -> None:
    client: Client = (
        openai_chat(base_url=url, api_key="none") if url else ScriptedClient(ANSWERS, dialect="ollama")
    )
    async with (
        house(Path(folder)) as store,
        context(store, model) as sources,
        kitchen(store, client, sources, model) as session,
    ):
        orchestrator = Orchestrator(session, client)
        for text in UTTERANCES:
            print(f"> {text}\n{await orchestrator.prompt_ready(text)}")


ANSWERS = ("At six in the morning.", "Twelve.")


def run_on_sample() -> None:
    with tempfile.TemporaryDirectory() as folder:
        anyio.run(main, folder)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        anyio.run(partial(main, *sys.argv[1:4]))
    else:
        run_on_sample()
