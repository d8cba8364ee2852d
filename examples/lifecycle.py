"""The life of a prompt: from the ids that an application has, to what the model sees, and back.

    python examples/lifecycle.py                                         # a sample; a script plays the model
    python examples/lifecycle.py FOLDER                                  # a workspace of your own
    python examples/lifecycle.py FOLDER http://127.0.0.1:8080/v1 MODEL   # a server with Chat Completions

These are the four phases of buildscale.ai's document: `docs/from-buildscale.md` says more. The conversation
is kept beside the workspace, where no tool can change it. With a FOLDER of your own, a second run goes on.
"""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import anyio

from lamina import Budget, Policy
from lamina.agent import Agent, ToolRunEvent, TurnEvent, approve_always, open_for
from lamina.clients import CallEvent, Client, TextEvent, openai_chat
from lamina.core import HIGH, LOW, Cap, Layout
from lamina.dialects import PlainHead
from lamina.sessions import Session, SetupOptions
from lamina.testing import ScriptedAnswer, ScriptedClient

SAMPLE = {
    "limits.md": "# Limits\n\nAt most 20 requests a minute.\n",
    "decisions.md": "From May on: 30 requests a minute.\n",
    "history.md": "An old note.\n" * 400,
}
PROMPT = "How many requests may a client send now? Correct what is out of date."
ATTACHED = [("limits.md", HIGH), ("history.md", LOW), ("../other/secret.md", HIGH)]
"""Each with its priority: the least important is left out first. The last one is in another workspace."""


def created(client: Client, folder: Path) -> Agent:
    """The agent: a model, the tools of a workspace, and who approves what they change."""
    return Agent(client=client, workspace=folder, approve=approve_always)


def hydrated(agent: Agent, folder: Path, model: str) -> AbstractAsyncContextManager[Session]:
    """Everything that an id stands for: the conversation so far, its settings, the persona, the tools.

    Without `persona=` it is one that looks before it answers. Attachments are read inside the agent's folder
    only, and may take 500 tokens.
    """
    store = folder.resolve().with_name(f"{folder.resolve().name}-chats.db")
    return open_for(
        agent,
        store,
        "chat-17",
        workspace=folder.name,
        model=model,
        policy=Policy(budget=Budget(window=16_000, reserve=200), layout=Layout(attachments=Cap(tokens=500))),
        setup=SetupOptions(head=PlainHead(output=200)),
    )


async def streamed(event: TurnEvent) -> None:
    """Words as they come, and each tool as it has run."""
    if isinstance(event, TextEvent):
        print(event.text, end="", flush=True)
    elif isinstance(event, ToolRunEvent):
        print(f"[{event.call.name} {event.call.arguments}]")


def accounted(session: Session) -> None:
    """What the model was sent, and why: by layer, with what was lowered and what was left out."""
    account = session.explain()
    for layer, tokens in account.layers.items():
        print(f"{layer}: {tokens:,} tokens")
    for row in account.rows:
        if row.form != "full":
            print(f"{row.what}: {row.form}, {row.why}")
    for note in session.notes:
        print(note)
    print(f"{account.tokens:,} of {account.room:,} tokens")


async def main(folder: str, url: str = "", model: str = "gpt-5") -> None:
    client: Client = openai_chat(base_url=url, api_key="none") if url else ScriptedClient(SCRIPT)
    agent = created(client, Path(folder))
    async with hydrated(agent, Path(folder), model) as session:
        print(f"{session.turns} turns before this one")
        outcome = await agent.run(session, PROMPT, attach=ATTACHED, hear=streamed)
        print(f"\n{outcome.ending} after {outcome.spent.steps} steps")
        accounted(session)


def calling(name: str, **arguments: str) -> ScriptedAnswer:
    return ScriptedAnswer(calls=(CallEvent(id=name, name=name, arguments=json.dumps(arguments)),))


SCRIPT = (
    calling("ls", path="."),
    calling("grep", pattern="requests a minute"),
    calling("read", path="decisions.md"),
    calling("edit", path="limits.md", old="20 requests", new="30 requests"),
    "30 a minute, as decisions.md says. I corrected limits.md.",
)


def run_on_sample() -> None:
    """Run in a workspace with a file to correct, one that says how, and one that is too large."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "workspace"
        root.mkdir()
        for name, text in SAMPLE.items():
            (root / name).write_text(text, encoding="utf-8")
        anyio.run(main, str(root))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        anyio.run(partial(main, *sys.argv[1:4]))
    else:
        run_on_sample()
