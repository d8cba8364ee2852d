"""Variable tracking in turns, in the manner of RULER: a chain of assignments among talk or among results.

Nothing is downloaded. A task has one chain that is asked for and two that only look like it: `Variable KALOMI
is 48213`, much later `Variable RENTUS has the value of KALOMI`. Half of the tasks have the assignments in the
user's words, the other half in the files that an agent reads. To answer, every link must be in sight.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from bench.proof.tasks import READ, SAID, Message, Need, Task, make_call, make_result
from bench.talks import Sought

TASKS = 40
LINKS = 5
CHAINS = 3
TURNS = 90
"""Turns of a talk; an agent reads a third as many files, each three times as long."""

SYLLABLES = ("ka", "lo", "mi", "ren", "tus", "vel", "dor", "pin", "sha", "gor", "fen", "zul")
SUBJECTS = ("garden", "harbour", "kitchen", "library", "railway", "orchard", "theatre", "workshop", "museum")
VERBS = ("painted", "measured", "visited", "cleaned", "described", "repaired", "photographed", "listed")
THINGS = ("fence", "lantern", "ladder", "window", "bench", "signal", "barrel", "cabinet", "gate", "clock")


def make_tasks(count: int = TASKS) -> Iterator[Task]:
    """The same tasks every time, a talk and an agent's session in turn."""
    for number in range(count):
        if number % 2:
            yield _make_session(number)
        else:
            yield _make_talk(number)


class _Chains:
    """The assignments of one task in the order in which they are told, and those that are asked for."""

    def __init__(self, randomness: random.Random) -> None:
        names = _make_names(randomness, CHAINS * LINKS)
        chains = [names[at : at + LINKS] for at in range(0, len(names), LINKS)]
        self.value = str(randomness.randrange(10_000, 99_999))
        self.asked = chains[0]
        self.asked_lines = _write_chain(self.asked, self.value)
        lines_of_chains = [self.asked_lines]
        lines_of_chains += [
            _write_chain(chain, str(randomness.randrange(10_000, 99_999))) for chain in chains[1:]
        ]
        self.lines = [line for step in zip(*lines_of_chains, strict=True) for line in step]

    @property
    def question(self) -> str:
        return f"Which variables have the value {self.value}? Name all {LINKS}."


def _write_chain(names: list[str], value: str) -> list[str]:
    lines = [f"Variable {names[0]} is {value}."]
    for before, after in itertools.pairwise(names):
        lines.append(f"Variable {after} has the value of {before}.")
    return lines


def _make_names(randomness: random.Random, count: int) -> list[str]:
    names: dict[str, None] = {}
    while len(names) < count:
        names["".join(randomness.choices(SYLLABLES, k=3)).upper()] = None
    return list(names)


def _make_talk(number: int) -> Task:
    randomness = random.Random(number)  # noqa: S311 - made-up talks, the same every time
    chains = _Chains(randomness)
    lines_by_turn = _spread(chains.lines, TURNS)
    messages: list[Message] = []
    for turn in range(TURNS):
        text = _write_filler(randomness, 4)
        line = lines_by_turn.get(turn)
        if line is not None:
            text = f"{text} {line}"
        messages.append({"role": "user", "content": text})
        messages.append({"role": "assistant", "content": f"I see. {_write_filler(randomness, 2)}"})
    messages.append({"role": "user", "content": chains.question})
    return _make_task(f"talk-{number}", messages, chains, SAID)


def _make_session(number: int) -> Task:
    randomness = random.Random(number)  # noqa: S311 - made-up sessions, the same every time
    chains = _Chains(randomness)
    steps = TURNS // 3
    lines_by_step = _spread(chains.lines, steps)
    messages: list[Message] = [
        {"role": "user", "content": "Read the settings of every room and keep track of the variables."}
    ]
    for step in range(steps):
        lines = [_write_filler(randomness, 2) for _ in range(9)]
        line = lines_by_step.get(step)
        if line is not None:
            lines.insert(randomness.randrange(len(lines)), line)
        path = f"rooms/{randomness.choice(SUBJECTS)}_{step}.cfg"
        messages.append(make_call(step, "read_file", f'{{"path": "{path}"}}'))
        messages.append(make_result(step, "\n".join(lines)))
    messages.append({"role": "assistant", "content": "I have read them all."})
    messages.append({"role": "user", "content": chains.question})
    return _make_task(f"session-{number}", messages, chains, READ)


def _make_task(name: str, messages: list[Message], chains: _Chains, voice: str) -> Task:
    needs = [
        Need(
            end=len(messages),
            sought=Sought(sort=f"links, {voice}", spellings=(line,)),
            question=chains.question,
            answer=(name,),
            voice=voice,
        )
        for name, line in zip(chains.asked, chains.asked_lines, strict=True)
    ]
    return Task(name=name, messages=messages, needs=needs)


def _spread(lines: list[str], places: int) -> dict[int, str]:
    """Each line at a place of its own, evenly from the beginning to nine tenths of the way."""
    stride = places * 0.9 / len(lines)
    return {int(at * stride): line for at, line in enumerate(lines)}


def _write_filler(randomness: random.Random, sentences: int) -> str:
    parts = []
    for _ in range(sentences):
        subject = randomness.choice(SUBJECTS)
        verb = randomness.choice(VERBS)
        thing = randomness.choice(THINGS)
        days = randomness.randrange(2, 30)
        parts.append(f"In the {subject} they {verb} a {thing} {days} days ago.")
    return " ".join(parts)
