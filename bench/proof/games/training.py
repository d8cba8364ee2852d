"""Teaches a small model to play as the scripted player does, from requests as each policy makes them.

Processes play games and hand their requests over; the model learns the calls in them and nothing else. The
time is given, and the step size falls to its end with it. The curve is written as it goes.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import queue
import random
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch  # type: ignore[import-not-found]  # only with a model
import torch.nn.functional as F  # type: ignore[import-not-found]  # noqa: N812 - its usual name

from bench.proof.games.chat_text import render_chat
from bench.proof.games.cooking import GameMachine
from bench.proof.games.episodes import HOUSES, Arm, Episode, ShownRequest, demonstrate
from bench.proof.games.player_model import PlayerModel, PlayerTokenizer, causal, load_model

TRAIN_SEEDS = 10_000
"""The games of `train` have seeds below this one."""

SHARES = {
    "none": 0.50,
    "sliding": 0.08,
    "drop_oldest": 0.08,
    "clear_then_drop": 0.08,
    "lamina": 0.10,
    "lamina+recall": 0.16,
}
"""How often each policy is seen. The full context teaches the most calls for its tokens."""

FEW_CALLS = 4
FEW_CALLS_SHARE = 0.06
"""Requests with so few new calls are seen this often: a policy that cuts at each step has one for each."""

PEAK = 8e-5
WARM_UP = 20
LONGEST = 20_000
TOKENS = 40_000
BUFFER = 96


class TaughtSequence(NamedTuple):
    """A request as tokens, and which of them the model has to write itself."""

    arm: str
    tokens: np.ndarray[Any, Any]
    taught: np.ndarray[Any, Any]


def encode_shown(shown: ShownRequest, arm: Arm, tokenizer: PlayerTokenizer) -> TaughtSequence:
    """The tokens of a request, with its chosen calls marked."""
    tokens: list[int] = []
    taught: list[bool] = []
    for span in render_chat(shown.messages, arm.tools):
        encoded = tokenizer.encode(span.text)
        tokens += encoded
        taught += [span.call in shown.chosen] * len(encoded)
    return TaughtSequence(arm.name, np.array(tokens, dtype=np.int32), np.array(taught, dtype=bool))


def show_games(model: Path, window: int, seed: int, sequences: Any) -> None:
    """Play for ever, and hand over what was shown. Runs in a process of its own."""
    chance = random.Random(seed)  # noqa: S311 - games, no secrets
    tokenizer = PlayerTokenizer(model)
    machine = GameMachine()
    names, weights = list(SHARES), list(SHARES.values())
    while True:
        arm = Arm(policy=chance.choices(names, weights)[0], window=window)
        seeds = chance.sample(range(TRAIN_SEEDS), HOUSES)
        episode = Episode(machine, seeds, fold="train", arm=arm)
        for shown in demonstrate(episode, slips=chance):
            if len(shown.chosen) <= FEW_CALLS and chance.random() > FEW_CALLS_SHARE:
                continue
            sequence = encode_shown(shown, arm, tokenizer)
            if len(sequence.tokens) <= LONGEST:
                sequences.put(sequence)


def train(
    model_path: Path, out: Path, *, seconds: float, window: int, workers: int, seed: int, curve: Path
) -> None:
    """Teach for so many seconds, then write the weights to `out`."""
    began = time.monotonic()
    torch.manual_seed(seed)
    context = multiprocessing.get_context("spawn")
    sequences = context.Queue(maxsize=400)
    players = [
        context.Process(
            target=show_games, args=(model_path, window, seed * 1_000 + number, sequences), daemon=True
        )
        for number in range(workers)
    ]
    for player in players:
        player.start()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = load_model(model_path).to(device)
    print(f"model loaded after {time.monotonic() - began:.0f} s", flush=True)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=PEAK, betas=(0.9, 0.98), weight_decay=0.0, fused=device == "cuda"
    )
    learning = time.monotonic()
    buffer: list[TaughtSequence] = []
    chance = random.Random(seed)  # noqa: S311 - games, no secrets
    step = seen = 0
    with curve.open("w") as lines:
        while (spent := time.monotonic() - learning) < seconds:
            _fill(buffer, sequences)
            batch = _take_batch(buffer, chance)
            rate = PEAK * min(1.0, (step + 1) / WARM_UP) * max(0.03, 1 - spent / seconds)
            for group in optimizer.param_groups:
                group["lr"] = rate
            losses = _learn(model, optimizer, batch, device)
            step += 1
            seen += sum(len(each.tokens) for each in batch)
            facts = {"step": step, "seconds": round(time.monotonic() - learning, 1), "tokens": seen, **losses}
            lines.write(json.dumps(facts) + "\n")
            if step % 20 == 1:
                lines.flush()
                print(facts, "waiting:", len(buffer), flush=True)
    for player in players:
        player.terminate()
    state = {name: weight.to(torch.bfloat16) for name, weight in model.state_dict().items()}
    torch.save(state, out)
    print(f"{step} steps, {seen:,} tokens, {time.monotonic() - began:.0f} s in all", flush=True)
    os._exit(0)  # the queue of a process that was ended may never close


def _fill(buffer: list[TaughtSequence], sequences: Any) -> None:
    """Take what is there, and wait only if there is not enough."""
    while len(buffer) < BUFFER:
        try:
            buffer.append(sequences.get(block=len(buffer) < BUFFER // 3, timeout=120))
        except queue.Empty:
            return


def _take_batch(buffer: list[TaughtSequence], chance: random.Random) -> list[TaughtSequence]:
    """Sequences of about one length, so that little is padded."""
    buffer.sort(key=lambda each: len(each.tokens))
    at = chance.randrange(len(buffer))
    longest = len(buffer[at].tokens)
    count = max(1, TOKENS // longest)
    first = max(0, at - count + 1)
    batch = buffer[first : at + 1]
    del buffer[first : at + 1]
    return batch


def _learn(
    model: PlayerModel, optimizer: torch.optim.Optimizer, batch: list[TaughtSequence], device: str
) -> dict[str, Any]:
    width = max(len(each.tokens) for each in batch)
    tokens = torch.zeros((len(batch), width), dtype=torch.long)
    taught = torch.zeros((len(batch), width), dtype=torch.bool)
    for row, each in enumerate(batch):
        tokens[row, : len(each.tokens)] = torch.from_numpy(each.tokens.astype(np.int64))
        taught[row, : len(each.tokens)] = torch.from_numpy(each.taught)
    tokens, taught = tokens.to(device), taught.to(device)
    positions = torch.arange(width, device=device)[None].expand(len(batch), -1)
    with torch.autocast(device, dtype=torch.bfloat16):
        hidden = model.hidden(tokens, positions, causal)
        logits = model.logits(hidden[:, :-1][taught[:, 1:]])
    targets = tokens[:, 1:][taught[:, 1:]]
    each_loss = F.cross_entropy(logits.float(), targets, reduction="none")
    loss = each_loss.mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    rows = torch.arange(len(batch), device=device)[:, None].expand(-1, width - 1)[taught[:, 1:]]
    losses: dict[str, Any] = {"loss": round(float(loss.detach()), 4)}
    for name in sorted({each.arm for each in batch}):
        of_arm = torch.tensor([row for row, each in enumerate(batch) if each.arm == name], device=device)
        losses[name] = round(float(each_loss.detach()[torch.isin(rows, of_arm)].mean()), 4)
    return losses
