"""Plays the games of `test` with the taught model, many at a time, under each policy.

Processes hold the games and make the requests; this one has the model. Half of the games think while the
other half is answered. A game that is not over when the time is, counts as not finished and not as lost.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch  # type: ignore[import-not-found]  # only with a model

from bench.proof.follow import FULL
from bench.proof.games.chat_text import CALL_BEGINS, Message, read_call, render_chat
from bench.proof.games.cooking import GameMachine
from bench.proof.games.episodes import HOUSES, Arm, Episode, EpisodeOutcome
from bench.proof.games.player_model import (
    MOST_NEW,
    AskedCall,
    PlayerServer,
    PlayerTokenizer,
    PrefixCache,
    load_model,
)

TEST_SEEDS = 20_000
"""The games of `test` have seeds from this one on."""

LONGEST_FULL = 24_000
"""Tokens that the full context may grow to. The scripted player needs about 15,000."""

MARGIN = 600
"""Tokens that the model's own count may be above the policy's."""

HALVES = 2


class PlannedEpisode(NamedTuple):
    """A visit that is to be played."""

    number: int
    seeds: tuple[int, ...]
    arm: Arm


class _Held:
    """A visit in a worker, with what it cost so far."""

    def __init__(self, episode: Episode) -> None:
        self.episode = episode
        self.computed = 0
        self.sent = 0

    def outcome(self) -> EpisodeOutcome:
        episode = self.episode
        return EpisodeOutcome(
            policy=episode.arm.policy,
            window=episode.arm.window,
            houses=tuple(episode.houses),
            finished=episode.is_over,
            computed=self.computed,
            sent=self.sent,
            messages=episode.messages,
        )


def hold_games(model: Path, planned: list[PlannedEpisode], pipe: Any) -> None:
    """Keep some visits, and answer each message of the main process. Runs in a process of its own."""
    tokenizer = PlayerTokenizer(model)
    machine = GameMachine()
    held: dict[int, _Held] = {}
    for visit in planned:
        held[visit.number] = _Held(Episode(machine, visit.seeds, fold="test", arm=visit.arm))
    while True:
        half, answers = pipe.recv()
        if half is None:
            pipe.send([json.loads(msgspec.json.encode(each.outcome())) for each in held.values()])
            return
        asked: list[tuple[int, list[int]]] = []
        done: list[Any] = []
        for number in [number for number in held if number % HALVES == half]:
            each = held[number]
            if number in answers:
                tokens, computed = answers[number]
                each.computed += computed
                each.episode.act(read_call(tokenizer.decode(tokens)))
            if each.episode.is_over:
                done.append(json.loads(msgspec.json.encode(held.pop(number).outcome())))
                continue
            prompt = encode_request(each.episode.request(), each.episode.arm, tokenizer)
            each.sent += len(prompt)
            asked.append((number, prompt))
        pipe.send((asked, done))


def encode_request(messages: list[Message], arm: Arm, tokenizer: PlayerTokenizer) -> list[int]:
    """The tokens that the model reads before it writes its call."""
    tokens: list[int] = []
    for span in render_chat(messages, arm.tools):
        tokens += tokenizer.encode(span.text)
    tokens += tokenizer.encode(CALL_BEGINS)
    return tokens


def plan(arms: list[Arm], visits: int) -> list[PlannedEpisode]:
    """The same games under every arm."""
    planned: list[PlannedEpisode] = []
    for visit in range(visits):
        seeds = tuple(range(TEST_SEEDS + HOUSES * visit, TEST_SEEDS + HOUSES * (visit + 1)))
        for arm in arms:
            planned.append(PlannedEpisode(len(planned), seeds, arm))
    return planned


class _Models:
    """The model with two caches: a long one for the full context, a short one for windows."""

    def __init__(self, path: Path, weights: Path, planned: list[PlannedEpisode]) -> None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        model = load_model(path, dtype=dtype)
        if weights.exists():
            model.load_state_dict(torch.load(weights), assign=True)
        model = model.to(device=device, dtype=dtype)
        self.tokenizer = PlayerTokenizer(path)
        full = [each.number for each in planned if each.arm.policy == FULL]
        windowed = [each.number for each in planned if each.arm.policy != FULL]
        self.place_of = {number: place for group in (full, windowed) for place, number in enumerate(group)}
        self.is_full = {each.number: each.arm.policy == FULL for each in planned}
        window = max((each.arm.window for each in planned), default=0)
        self.full = PlayerServer(model, PrefixCache(model, len(full), LONGEST_FULL), end=self.tokenizer.end)
        self.windowed = PlayerServer(
            model, PrefixCache(model, len(windowed), window + MARGIN + MOST_NEW), end=self.tokenizer.end
        )

    def answer(self, asked: dict[int, list[int]]) -> dict[int, tuple[list[int], int]]:
        answers: dict[int, tuple[list[int], int]] = {}
        for server, wants_full in ((self.full, True), (self.windowed, False)):
            numbers = [number for number in asked if self.is_full[number] is wants_full]
            calls = [AskedCall(self.place_of[number], asked[number]) for number in numbers]
            for number, answer in zip(numbers, server.answer(calls), strict=True):
                answers[number] = (answer.tokens, answer.computed)
        return answers


class _Workers:
    """The processes with the games. Each answers every message once."""

    def __init__(self, model: Path, planned: list[PlannedEpisode], count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Any] = []
        self._players: list[Any] = []
        for number in range(count):
            here, there = context.Pipe()
            player = context.Process(
                target=hold_games, args=(model, planned[number::count], there), daemon=True
            )
            player.start()
            self._pipes.append(here)
            self._players.append(player)

    def tell(self, half: int | None, answers: dict[int, tuple[list[int], int]]) -> None:
        for pipe in self._pipes:
            pipe.send((half, answers))

    def hear(self) -> tuple[dict[int, list[int]], list[Any]]:
        """What the games ask, and the visits that are over."""
        asked: dict[int, list[int]] = {}
        finished: list[Any] = []
        for pipe in self._pipes:
            of_worker, done = pipe.recv()
            asked.update(of_worker)
            finished += done
        return asked, finished

    def end(self) -> list[Any]:
        """End all games. Returns the visits that are not over."""
        self.hear()
        self.tell(None, {})
        unfinished = [outcome for pipe in self._pipes for outcome in pipe.recv()]
        for player in self._players:
            player.terminate()
        return unfinished


def play(
    model_path: Path, weights: Path, out: Path, *, arms: list[Arm], visits: int, seconds: float, workers: int
) -> None:
    """Play until everything is over or the time is, and write one line for each visit."""
    began = time.monotonic()
    planned = plan(arms, visits)
    games = _Workers(model_path, planned, workers)
    models = _Models(model_path, weights, planned)
    print(f"model loaded after {time.monotonic() - began:.0f} s", flush=True)
    open_numbers = {each.number for each in planned}
    answers: dict[int, dict[int, tuple[list[int], int]]] = {half: {} for half in range(HALVES)}
    games.tell(0, {})
    half = 0
    rounds = 0
    with out.open("w") as lines:
        while open_numbers and time.monotonic() - began < seconds:
            asked, finished = games.hear()
            other = (half + 1) % HALVES
            games.tell(other, answers[other])
            lines.writelines(json.dumps(outcome) + "\n" for outcome in finished)
            open_numbers -= {number for number in open_numbers if number % HALVES == half} - set(asked)
            answers[half] = models.answer(asked)
            half = other
            rounds += 1
            if rounds % 20 == 0:
                spent = time.monotonic() - began
                print(f"{spent:.0f} s: {rounds} rounds, {len(open_numbers)} open", flush=True)
        lines.writelines(json.dumps(outcome) + "\n" for outcome in games.end())
    print(f"{rounds} rounds in {time.monotonic() - began:.0f} s", flush=True)
