"""What sub-agents cost that begin with their parent's conversation, beside two other ways to start them.

    python bench/subagents.py [--children 1,4,16] [--steps 40] [--server] [--json FILE]
    python bench/subagents.py --quick

A parent has read files for some steps. Then it gives tasks away, and each child reads two more files before
it answers. The ways:

- forked: the child begins with the bytes that its parent sent last (`fork_tasks`);
- pasted: the child has a system text of its own, and the parent's conversation as text before its task;
- apart: the child has its own system text and its task, and knows nothing of the conversation.

Every request goes to the simulated caches of two providers, in the order in which it was sent. With --server,
the first request of each child goes to a real llama.cpp server too, which reports what it had cached.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `bench`, however this is started

from bench.arguments import split_numbers
from bench.samples import QUICK_HELP
from lamina.agent import Action, Agent, fork_tasks, hand_over, open_for
from lamina.caches import rates, rules_for, simulator
from lamina.clients.events import CallEvent, Client
from lamina.clients.known import client_for
from lamina.clients.scripted import ScriptedAnswer, ScriptedClient
from lamina.core.values import Budget, Segment
from lamina.core.wording import text_of
from lamina.diagnose.compared import weigh_request
from lamina.dialects.port import PlainHead, Tool
from lamina.fitting.policy import Policy
from lamina.segments import assistant, call, result, user
from lamina.sessions import Session, SetupOptions
from lamina.settings import Settings
from lamina.stores.memory import MemoryStore
from lamina.testing.model_server import COUNTER, MODEL, run_model_server

MODELS = {"anthropic": "claude-sonnet-5-5", "openai_chat": "gpt-5.6"}
APART = 5.0
"""Seconds between two requests: every cache is still warm."""

CHILD_STEPS = 2
SYSTEM = "You look after a code base. Read before you write, and say what you are not sure of. " * 30
CHILD_SYSTEM = "You are a sub-agent. Do your task alone and report what you found. " * 20
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}

Ways = dict[str, Callable[[Session, Agent, MemoryStore, list[str]], Awaitable[None]]]


def page(name: str) -> str:
    """A made-up file of about 400 tokens."""
    return "".join(f"def part_{row}_of_{name}(lamp): return lamp.lit + {row}\n" for row in range(24))


async def read_file(arguments: dict[str, Any]) -> str:
    return page(str(arguments["path"]))


READ = Action(tool=Tool(name="read", description="Reads a file.", schema=SCHEMA), run=read_file)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--children", default="1,4,16", help="numbers of children, with commas")
    parser.add_argument("--steps", type=int, default=40, help="files that the parent has read before")
    parser.add_argument("--server", action="store_true", help="ask a real llama.cpp server, too")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)
    asked = parser.parse_args()
    children = split_numbers(asked.children)
    if asked.quick:
        children, asked.steps = [2], 12
    print(f"{'cache':<12} {'children':>8} {'way':<8} {'sent':>10} {'read':>10} {'price':>10}")
    cases = [(count, way) for count in children for way in WAYS]
    rows = [measure(dialect, way, count, asked.steps) for dialect in MODELS for count, way in cases]
    if asked.server:
        rows += [measure_server(way, count, asked.steps) for count, way in cases]
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def measure(dialect: str, way: str, children: int, steps: int) -> dict[str, Any]:
    """What the requests of all children take from the cache of a provider, after one of their parent."""
    client = ScriptedClient(answer_request, dialect=dialect)
    anyio.run(play, client, MODELS[dialect], way, children, steps)
    rules = rules_for(MODELS[dialect], dialect=dialect)
    price = rates(rules, MODELS[dialect])
    cache = simulator(rules)
    row: dict[str, Any] = {"cache": rules.name, "children": children, "way": way, "sent": 0, "read": 0}
    spent = 0.0
    for number, request in enumerate(client.requests):
        stream = weigh_request(request, dialect=dialect, counter=None).counted_stream
        tally = cache.send(stream, at=number * APART)
        if number == 0:
            row["parent"] = tally.total
            continue
        row["sent"] += tally.total
        row["read"] += tally.read
        spent += tally.read * price.read + (tally.written + tally.written_long) * price.write + tally.uncached
    row["price"] = round(spent)
    row["requests"] = len(client.requests) - 1
    print_row(row)
    return row


def measure_server(way: str, children: int, steps: int) -> dict[str, Any]:
    """What a llama.cpp server reports for the first request of each child."""
    reported: list[tuple[int, int]] = []

    async def ask() -> None:
        with run_model_server(window=steps * 2_000 + 30_000) as server:
            async with client_for("openai_chat", base_url=f"{server.url}/v1", api_key="none") as client:
                await play(client, MODEL, way, children, steps, reported=reported)

    anyio.run(ask)
    of_children = reported[1:]
    sent = sum(tokens for tokens, _ in of_children)
    read = sum(cached for _, cached in of_children)
    row = {"cache": "llama.cpp", "children": children, "way": way, "sent": sent, "read": read}
    row |= {"parent": reported[0][0], "price": sent - read, "requests": len(of_children)}
    print_row(row)
    return row


def print_row(row: dict[str, Any]) -> None:
    print(
        f"{row['cache']:<12} {row['children']:>8} {row['way']:<8} {row['sent']:>10,} {row['read']:>10,} "
        f"{row['price']:>10,}"
    )


async def play(
    client: Client,
    model: str,
    way: str,
    children: int,
    steps: int,
    *,
    reported: list[tuple[int, int]] | None = None,
) -> None:
    """One request of the parent, and then its children."""
    store = MemoryStore()

    def note_usage(_: Session, recorded: Any) -> None:
        if reported is not None:
            reported.append((recorded.usage.input, recorded.usage.cached))

    agent = Agent(client=client, actions=(READ,), after=(note_usage,))
    async with open_session(agent, store, "lead", model, SYSTEM) as session:
        await session.add(*past_steps(steps))
        await agent.run(session, "Where do we stand?")
        tasks = [f"Task {number}: read two files about lamp {number}." for number in range(children)]
        await WAYS[way](session, agent, store, tasks)


def open_session(agent: Agent, store: MemoryStore, name: str, model: str, system: str) -> Any:
    counter = COUNTER if model == MODEL else None
    budget = Budget(window=400_000, reserve=2_000)
    return open_for(
        agent,
        store,
        name,
        model=model,
        system=system,
        persona="",
        settings=Settings(),
        policy=Policy(budget=budget, counter=counter),
        setup=SetupOptions(head=PlainHead(output=64)),
    )


async def start_forked(session: Session, agent: Agent, _: MemoryStore, tasks: list[str]) -> None:
    await fork_tasks(session, agent, tasks)


async def start_pasted(session: Session, agent: Agent, store: MemoryStore, tasks: list[str]) -> None:
    history = "\n\n".join(f"[{one.role.value}]\n{text_of(one.parts)}" for one in session.log)
    await start_fresh(session, agent, store, [f"{history}\n\n{task}" for task in tasks])


async def start_fresh(session: Session, agent: Agent, store: MemoryStore, tasks: list[str]) -> None:
    model = session.setup.model
    for task in tasks:
        await hand_over(
            session, agent, lambda name: open_session(agent, store, name, model, CHILD_SYSTEM), task
        )


WAYS: Ways = {"forked": start_forked, "pasted": start_pasted, "apart": start_fresh}


def past_steps(steps: int) -> list[Segment]:
    """A question, and steps in which files were read."""
    log = [user("Read the code of the lamps.")]
    for number in range(steps):
        path = f"src/lamp_{number}.py"
        log += [
            assistant(f"Reading {path}."),
            call("read", {"path": path}, id=f"c{number}"),
            result(page(path), id=f"c{number}", name="read"),
        ]
    return [*log, assistant("I have read all of them.")]


def answer_request(request: Any) -> ScriptedAnswer | str:
    """A child reads two files and reports. The parent answers at once."""
    answers = count_answers(request["messages"])
    if "Task" not in json.dumps(request["messages"]) or answers >= CHILD_STEPS:
        return "This is what I found."
    arguments = json.dumps({"path": f"src/more_{answers}.py"})
    return ScriptedAnswer(calls=(CallEvent(id=f"n{answers}", name="read", arguments=arguments),))


def count_answers(messages: Sequence[dict[str, Any]]) -> int:
    """The answers since somebody last said something."""
    answers = 0
    for message in reversed(messages):
        if message["role"] == "assistant":
            answers += 1
        elif message["role"] == "user" and not is_result(message):
            break
    return answers


def is_result(message: dict[str, Any]) -> bool:
    content = message["content"]
    return isinstance(content, list) and all(block["type"] == "tool_result" for block in content)


if __name__ == "__main__":
    main()
