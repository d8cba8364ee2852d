"""A coworker in a folder: it looks before it answers, and asks before it changes anything.

    python examples/agent.py                                         # a sample; a script plays the model
    python examples/agent.py FOLDER                                  # your own folder, with a file limits.md
    python examples/agent.py FOLDER http://127.0.0.1:8080/v1 MODEL   # a server with Chat Completions

From ids to the model: the conversation is loaded, its persona and tools stand in the system text, the file
that is attached is read inside the folder only, the answer streams, tools run, and every step is kept: beside
the folder, where no tool can change it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from functools import partial
from pathlib import Path

import anyio

from lamina import Budget, Policy
from lamina.agent import Action, Agent, ToolRunEvent, TurnEvent, open_for, scratchpad
from lamina.clients import CallEvent, Client, TextEvent, openai_chat
from lamina.core import ToolCall
from lamina.testing import ScriptedAnswer, ScriptedClient

SAMPLE = "# Limits\n\nAt most 20 requests a minute.\n"
PROMPT = "Our limit is 30 requests a minute now. Please correct the file."


def calling(name: str, **arguments: str) -> ScriptedAnswer:
    return ScriptedAnswer(calls=(CallEvent(id=f"{name}-1", name=name, arguments=json.dumps(arguments)),))


SCRIPT = (
    calling("ls", path="."),
    calling("grep", pattern="requests a minute"),
    calling("edit", path="limits.md", old="20 requests", new="30 requests"),
    "limits.md says 30 requests a minute now.",
)


async def shown(event: TurnEvent) -> None:
    if isinstance(event, TextEvent):
        print(event.text, end="", flush=True)
    elif isinstance(event, ToolRunEvent):
        print(f"[{event.call.name} {event.call.arguments}]")


async def approved(call: ToolCall, _: Action) -> bool:
    print(f"[{call.name} is approved]")
    return True


def beside(folder: Path, name: str) -> Path:
    """A file beside the folder, and not in it."""
    return folder.resolve().with_name(f"{folder.resolve().name}-{name}")


async def main(folder: str, url: str = "", model: str = "gpt-5") -> None:
    client: Client = openai_chat(base_url=url, api_key="none") if url else ScriptedClient(SCRIPT)
    root = Path(folder)
    notes = beside(root, "notes.txt")
    agent = Agent(client=client, workspace=root, actions=scratchpad(notes), approve=approved)
    budget = Budget(window=16_000, reserve=1_000)
    async with open_for(
        agent, beside(root, "chats.db"), "coworker", model=model, policy=Policy(budget=budget)
    ) as session:
        outcome = await agent.run(session, PROMPT, attach=["limits.md"], hear=shown)
    print(f"\n{outcome.ending} after {outcome.spent.steps} steps; {len(outcome.ran)} calls")


def run_on_sample() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "workspace"
        root.mkdir()
        (root / "limits.md").write_text(SAMPLE, encoding="utf-8")
        anyio.run(main, str(root))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        anyio.run(partial(main, *sys.argv[1:4]))
    else:
        run_on_sample()
