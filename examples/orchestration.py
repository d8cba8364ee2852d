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
from functools import partial
from pathlib import Path

import anyio

from lamina.agent import Agent, open_for
from lamina.clients.events import Client
from lamina.clients.openai import openai_chat
from lamina.clients.scripted import ScriptedClient
from lamina.context.clock import clock
from lamina.context.last_n import last_n
from lamina.context.search import chunks_of, open_index, search
from lamina.core.values import Budget
from lamina.segments import assistant, user
from lamina.sessions import SetupOptions
from lamina.stores.address import open_store
from lamina.stores.sealed import from_file, init_file

SYSTEM = "You are Elara, the voice of this house. Answer in one sentence."
MANUAL = "# Heating\n\nThe boiler is lit at 6 and put out at 22.\n\n# Lamps\n\nThe porch has twelve lamps.\n"
HALL = (user("Remind me that we leave at nine."), assistant("I will."))
UTTERANCES = ("When is the boiler lit?", "And how many lamps are on the porch?")


async def main(folder: str, url: str = "", model: str = "qwen3") -> None:
    client: Client = (
        openai_chat(base_url=url, api_key="none") if url else ScriptedClient(ANSWERS, dialect="ollama")
    )
    agent = Agent(client=client)  # it knows neither what finds context nor which model speaks
    key = Path(folder) / "house.key"
    if not key.exists():
        init_file(key)
    opened = partial(
        open_for,
        agent,
        model=model,
        budget=Budget(window=8_000, reserve=100),
        setup=SetupOptions(recall=False),
        persona=SYSTEM,
    )
    async with (
        open_store(f"files:{folder}/conversations", key=from_file(key)) as store,
        opened(store, "hall") as hall,
        open_index() as index,
    ):
        await hall.add(*HALL, key="this morning")  # once, however often this runs
        await index.replace("manual.md", chunks_of("manual.md", MANUAL))
        # What finds context, in the order in which it stands. Leave one out, and nothing else changes.
        sources = [clock(), last_n(lambda: hall.log, 4, source="said in the hall"), search(index)]
        async with opened(store, "kitchen", sources=sources) as kitchen:
            for text in UTTERANCES:
                print(f"> {text}\n{(await agent.run(kitchen, text)).text}")


ANSWERS = ("At six in the morning.", "Twelve.")


def run_on_sample() -> None:
    with tempfile.TemporaryDirectory() as folder:
        anyio.run(main, folder)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        anyio.run(partial(main, *sys.argv[1:4]))
    else:
        run_on_sample()
