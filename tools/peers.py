"""Tries every peer that is installed, on one short conversation, and prints what came of it.

    python -m tools.peers [ENVIRONMENT...]    (all of them unless told)

Fails when a peer does not answer. What it prints about requests is the peer's own affair: `refused` are those
that a provider would not take, `over` those larger than the room, `kept` the mean share of a request that
leads the next one unchanged.
"""

from __future__ import annotations

import sys
from itertools import pairwise, takewhile
from typing import Any, NamedTuple

from bench.peers.catalogue import PEERS, version
from bench.peers.policies import Ask, peer_policy
from bench.peers.process import PeerFailed
from lamina.dialects import DIALECTS
from lamina.models.counters import counter_for

MODEL = "gpt-5"
FRAMING = 4
CHAT = "openai_chat"
TURNS = 8
HEADER = ("peer", "version", "calls", "refused", "over", "kept", "last", "largest", "ms/call")

Message = dict[str, Any]


class Sizes(NamedTuple):
    """A window that the conversation fills about twice."""

    window: int = 5000
    room: int = 4500
    trigger: int = 3600
    target: int = 2250


class Tried(NamedTuple):
    refused: int
    over: int
    kept: float
    tokens: list[int]
    seconds: float


def main(names: list[str]) -> int:
    rows: list[tuple[str, ...]] = [HEADER]
    failed = False
    for peer in PEERS.values():
        if names and peer.environment not in names:
            continue
        policy = peer_policy(peer.name)
        try:
            rows.append((peer.name, version(peer), *shown(tried(policy.start(Sizes()), conversation()))))
        except PeerFailed as error:
            print(error, file=sys.stderr)
            failed = True
        finally:
            policy.close()
    print(table(rows))
    return 1 if failed else 0


def conversation() -> list[Message]:
    """Questions, each with two steps of calls, the second with two at once, and an answer."""
    said: list[Message] = [
        {"role": "system", "content": "You look after a web shop. Check before you change."}
    ]
    for turn in range(1, TURNS + 1):
        said.append(user(f"Order {turn * 37} was charged twice. Find out why, and say where."))
        said += step(turn, ["orders.log"])
        said += step(turn, ["billing.py", "retry.py"])
        said.append(answer(f"The retry in billing.py, line {turn + 11}, has no key."))
    said += user("Thank you. Are the refunds on their way?"), answer("They are.")
    return [*said, user("And is there anything left to do?")]


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def answer(text: str) -> Message:
    return {"role": "assistant", "content": text}


def step(turn: int, files: list[str]) -> list[Message]:
    """One answer with a call for each file, and the results."""
    ids = [f"call_{turn}_{name}" for name in files]
    calls = [
        {"id": id_, "type": "function", "function": {"name": "read", "arguments": f'{{"path": "{name}"}}'}}
        for id_, name in zip(ids, files, strict=True)
    ]
    results = [
        {"role": "tool", "tool_call_id": id_, "content": lines(turn, name)}
        for id_, name in zip(ids, files, strict=True)
    ]
    return [{"role": "assistant", "content": f"I read {' and '.join(files)}.", "tool_calls": calls}, *results]


def lines(turn: int, name: str) -> str:
    numbers = ((turn * 7919 + at * 104_729) % 99_991 for at in range(24))
    return "\n".join(f"{name}:{at} order={number} state={number % 5}" for at, number in enumerate(numbers))


def tried(ask: Ask, messages: list[Message]) -> Tried:
    """Every request of a conversation in turn: one before each answer, and one at its end."""
    ends = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    answers = [ask({"messages": messages[:end]}) for end in (*ends, len(messages))]
    sent = [answer["messages"] for answer in answers]
    sizes = [weight(request) for request in sent]
    return Tried(
        refused=sum(1 for each in sent if DIALECTS[CHAT].wire.check({"model": MODEL, "messages": each})),
        over=sum(size > Sizes().room for size in sizes),
        kept=sum(led(*pair) for pair in pairwise(sent)) / (len(sent) - 1),
        tokens=sizes,
        seconds=sum(answer["seconds"] for answer in answers),
    )


def led(before: list[Message], after: list[Message]) -> float:
    """The share of a request that leads the next one."""
    same = [one for one, _ in takewhile(lambda two: two[0] == two[1], zip(before, after, strict=False))]
    return weight(same) / max(weight(before), 1)


def weight(messages: list[Message]) -> int:
    return sum(FRAMING + sum(map(counter_for(MODEL).count, texts(message))) for message in messages)


def texts(message: Message) -> list[str]:
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return [message.get("content") or "", *(f"{call['name']} {call['arguments']}" for call in calls)]


def shown(result: Tried) -> tuple[str, ...]:
    calls = len(result.tokens)
    return (
        f"{calls}",
        f"{result.refused}",
        f"{result.over}",
        f"{result.kept:.1%}",
        f"{result.tokens[-1]:,}",
        f"{max(result.tokens):,}",
        f"{result.seconds / calls * 1000:.1f}",
    )


def table(rows: list[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) if at < 2 else cell.rjust(width) for at, (cell, width) in enumerate(line))
        for line in (list(zip(row, widths, strict=True)) for row in rows)
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
