"""Tasks with a path: BFCL's multi-turn tasks with long context, games of ScienceWorld, and τ-bench.

A recorder plays the gold path in an environment of its own (`recorders/`) and writes the conversation: what
the user asks, each gold call, and what the real tool or game answered. Here each call gets its needs: the
values of its arguments that stood in the conversation before. A player who takes the gold path can go on only
if they are in sight, so a task succeeds if that holds for every call. Nobody's opinion is asked. τ-bench has
no gold path with the user's words, so the calls are those of a model that its authors recorded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.proof.tasks import Message, Need, Task, need_values, request_text
from bench.talks import read_lines

CONNECTIVES = re.compile(r"\b(?:to|on|in|into|with|from|at|of|up|down|around)\b")
SHORTEST = 3
"""Characters of a value that a call may need: shorter ones stand everywhere."""


def read_gold_calls(path: Path) -> Iterator[Task]:
    """The recorded tasks of BFCL and τ-bench: the values are those of the arguments."""
    for row in read_lines(path):
        yield _make_task(row, _argument_values)


def read_gold_games(path: Path) -> Iterator[Task]:
    """The recorded games of ScienceWorld: the values are the things that an action names."""
    for row in read_lines(path):
        yield _make_task(row, _named_things)


def _make_task(row: dict[str, Any], read_values: Any) -> Task:
    messages: list[Message] = row["messages"]
    needs: list[Need] = []
    texts = [request_text([message]) for message in messages]
    for end, message in enumerate(messages):
        for call in message.get("tool_calls") or ():
            values = read_values(json.loads(call["function"]["arguments"]))
            needs += need_values(
                values, messages[:end], texts[:end], sort=row.get("sort", "arguments"), shortest=SHORTEST
            )
    return Task(name=row["id"], messages=messages, needs=needs, tools=row.get("tools") or [])


def _argument_values(arguments: Any) -> Iterator[str]:
    """Every text and number in the arguments of a call. `{"to": ["a", 5]}` has `a` and `5`."""
    match arguments:
        case bool():
            return
        case dict():
            for value in arguments.values():
                yield from _argument_values(value)
        case list():
            for value in arguments:
                yield from _argument_values(value)
        case str() | int() | float():
            yield str(arguments)


def _named_things(arguments: dict[str, str]) -> Iterator[str]:
    """The things in an action, without its verb: `move glass cup to sink` has `glass cup` and `sink`."""
    _, _, rest = arguments["action"].partition(" ")
    for thing in CONNECTIVES.split(rest):
        if thing.strip():
            yield thing.strip()


def convert_tau(path: Path) -> Iterator[dict[str, Any]]:
    """The conversations of a file of τ-bench's `historical_trajectories`.

    A message has one call at most, and its result is the next one. They get new ids, since some occur twice.
    """
    for run in json.loads(path.read_text(encoding="utf-8")):
        call_id = ""
        for at, message in enumerate(run["traj"]):
            if message.get("tool_calls"):
                call_id = f"call_{at}"
                message["tool_calls"] = [{**message["tool_calls"][0], "id": call_id}]
            elif message["role"] == "tool":
                message["tool_call_id"] = call_id
        yield {"id": f"{run['task_id']}-{run['trial']}", "messages": run["traj"]}
